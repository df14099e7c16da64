"""Address and sha256 of every published DNA file, by its path below ``dna/``."""

from functools import cache

__all__ = ["ADDRESS", "checksums", "gue_folder", "unpacked", "url"]

_GITHUB = "https://raw.githubusercontent.com"
ADDRESS = {
    "gue": f"{_GITHUB}/wds-seu/DeepGene/486343e5212361d6cd7ed03c624f430ed3d5f02e/data/GUE",
    "gb_intervals": f"{_GITHUB}/ML-Bioinfo-CEITEC/genomic_benchmarks/605d8539830e16c85abe7826990958303ffc5e1c/datasets",
}
_FM_HUB = (
    f"{_GITHUB}/allison-eunse/ai4h-inspired-fm-benchmark-hub/169e8f9fb294a5fdfa7ef9de7a7a67b9707dbb21/"
    "toy_data/genomics/dna_sequences"
)
_MCB185 = f"{_GITHUB}/iankorf/MCB185/fc3c33ed5dacad55e15ba971178b42b08bff2825/data"
_DATACORE = f"{_GITHUB}/KorfLab/datacore/9f0501d5c4f19c0f359d0e457a3299da963b8e3e"
_YEAST = f"{_GITHUB}/rpolicastro/yeast_data/d7220d4f5b7cbc481be814623a8b02a2c9468d3a/genome"
_SINGLE_ADDRESS = {
    "gb/human_nontata_promoters/test.tsv": f"{_FM_HUB}/promoters_nontata/test.tsv",
    "gb/human_enhancers_cohn/test.tsv": f"{_FM_HUB}/enhancers_cohn/test.tsv",
    "gb/drosophila_enhancers_stark/test.csv": (
        f"{_GITHUB}/BioGeMT/agentomics-ml/b942b1ab474088e4f68561ce29ab36d4b41138b9/"
        "datasets/drosophila_enhancers_stark/test.csv"
    ),
    "genomes/yeast_R64-1-1.fa.gz": f"{_YEAST}/Saccharomyces_cerevisiae.R64-1-1.dna.toplevel.fa.gz",
    "genomes/yeast_R64-1-1.96.gtf.gz": f"{_YEAST}/Saccharomyces_cerevisiae.R64-1-1.96.gtf.gz",
    "genomes/ecoli_K12_MG1655.fna.gz": f"{_MCB185}/GCF_000005845.2_ASM584v2_genomic.fna.gz",
    "genomes/ecoli_K12_MG1655.gff.gz": f"{_MCB185}/GCF_000005845.2_ASM584v2_genomic.gff.gz",
    "genomes/celegans_first1pct_MCB185.fa.gz": f"{_MCB185}/C.elegans.fa.gz",
    "genomes/celegans_1pct_variants.vcf.gz": f"{_MCB185}/C.elegans.vcf.gz",
    "genomes/arabidopsis_1pct.fa": f"{_DATACORE}/genome_athaliana/1pct.fa",
    "genomes/drosophila_1pct.fa": f"{_DATACORE}/genome_dmelanogaster/1pct.fa",
    "genomes/human_hg19_chr1_first3Mb.fa.gz": f"{_DATACORE}/project_rloop/chr1.fa.gz",
}


def url(relative: str) -> str:
    """Address of a published file, pinned to a commit."""
    if relative in _SINGLE_ADDRESS:
        return _SINGLE_ADDRESS[relative]
    collection, folder, file = relative.split("/", 2)
    return f"{ADDRESS[collection]}/{gue_folder(folder) if collection == 'gue' else folder}/{file}"


def gue_folder(task: str) -> str:
    """Folder of a task in the published archive: tf/0, prom/prom_core_all."""
    return f"prom/{task}" if task.startswith("prom_") else task.replace("_", "/")


@cache
def checksums() -> dict[str, str]:
    """sha256 of published files, by their path below ``dna/``."""
    from titans_datasets.sources.dna_sha256 import SHA256

    return _parsed(SHA256)


@cache
def unpacked() -> dict[str, str]:
    """sha256 of the content of files published as ``.gz``, by their path below ``dna/`` without ``.gz``."""
    from titans_datasets.sources.dna_sha256 import UNPACKED

    return _parsed(UNPACKED)


def _parsed(table: str) -> dict[str, str]:
    found, folder = {}, ""
    for line in table.strip().splitlines():
        if line.endswith("/"):
            folder = line
        else:
            file, sha256 = line.split()
            found[folder + file] = sha256
    return found
