"""Labelled DNA: the GUE tasks, GenomicBenchmarks (GB), and CNNProm.

Sources: GUE, Zhou et al., DNABERT-2 (arXiv:2306.15006); GB, Gresova et al., BMC Genomic Data 24:25 (2023); CNNProm,
Umarov and Solovyev, PLOS ONE 12 (2017).
"""

from collections.abc import Mapping

from titans_datasets.sources.entries import SequenceInfo

__all__ = ["ALIASES", "GB", "REFERENCES", "SEQUENCES", "how_to_rebuild"]

_LEAKY = (
    "The official split LEAKS: copying the label of an overlapping train interval scores {lookup} % on test. "
    "Report a clean-subset or grouped score next to the official one; see load(...).audit()."
)
_TOUCHING = (
    "The official split LEAKS: {touching} % of test intervals share bases with train, and copying the label of an "
    "overlapping train interval scores {lookup} % on test; see load(...).audit()."
)
_VOTED = (
    "The official split LEAKS: {shared} % of test share a 40-mer with train, and a vote of the shared ones scores "
    "{vote} %; see load(...).audit()."
)


def _gue(task: str, leak: str = "") -> SequenceInfo:
    return SequenceInfo(
        name=task,
        collection="GUE",
        parts=("train", "dev", "test"),
        classes=("0", "1"),
        file_classes=("0", "1"),
        licence="Apache-2.0 (DNABERT-2, and the repository that publishes this copy)",
        citation="Zhou et al., DNABERT-2, ICLR 2024 (arXiv:2306.15006)",
        note=f"Scored by Matthews correlation on test; dev selects. {leak}".rstrip(),
    )


def _gb(
    name: str,
    reference: str | Mapping[str, str],
    numbered: tuple[str, ...] = (),
    note: str = "",
    **counts: tuple[int, int],
) -> SequenceInfo:
    classes = tuple(sorted(counts))
    return SequenceInfo(
        name=name,
        collection="GenomicBenchmarks",
        parts=("train", "test"),
        classes=classes,
        counts=counts,
        references=dict.fromkeys(counts, reference) if isinstance(reference, str) else reference,
        file_classes=numbered or classes,
        licence="Apache-2.0 (genomic_benchmarks); the sequences are of public reference genomes",
        citation="Gresova et al., Genomic benchmarks, BMC Genomic Data 24:25 (2023)",
        note=note,
    )


def _cnnprom(name: str) -> SequenceInfo:
    return SequenceInfo(
        name=name,
        collection="CNNProm",
        parts=("all",),
        classes=("0", "1"),
        file_classes=("0", "1"),
        licence="not stated; from the public EPDnew, RegulonDB and DBTBS",
        citation="Umarov and Solovyev, PLOS ONE 12 (2017) e0171410",
        note="No official split (paper: 70 / 10 / 20 % at random).",
    )


_GUE = (
    _gue("tf_0", _VOTED.format(shared=7.2, vote=57.1)),
    _gue("tf_1", _VOTED.format(shared=6.9, vote=56.8)),
    _gue("tf_2"),
    _gue("tf_3", _VOTED.format(shared=6.4, vote="56.0")),
    _gue("mouse_0"),
    _gue("mouse_2", _VOTED.format(shared=23.8, vote=72.3)),
    *(_gue(f"prom_{task}") for task in ("core_all", "core_notata", "core_tata", "300_tata")),
)
_GB = (
    _gb(
        "human_nontata_promoters",
        "GRCh38",
        note=_LEAKY.format(lookup=99.6),
        negative=(12355, 4119),
        positive=(14742, 4915),
    ),
    _gb("human_enhancers_cohn", "GRCh38", negative=(10422, 3474), positive=(10421, 3474)),
    _gb(
        "human_enhancers_ensembl",
        "GRCh38",
        note=_LEAKY.format(lookup=87.6),
        negative=(61936, 15485),
        positive=(61936, 15485),
    ),
    _gb("human_ocr_ensembl", "GRCh38", negative=(69902, 17476), positive=(69902, 17476)),
    # published tables of this set do not number its classes in alphabetical order. This follows from the lengths: 599
    # and 202 bases are typical of promoters, multiples of 200 of enhancers.
    _gb(
        "human_ensembl_regulatory",
        "GRCh38",
        ("promoter", "enhancer", "ocr"),
        enhancer=(85512, 21378),
        ocr=(69902, 17476),
        promoter=(75934, 18859),
    ),
    _gb(
        "demo_coding_vs_intergenomic_seqs",
        {"coding_seqs": "GRCh38 transcripts", "intergenomic_seqs": "GRCh38"},
        coding_seqs=(37500, 12500),
        intergenomic_seqs=(37500, 12500),
    ),
    _gb(
        "demo_human_or_worm",
        {"human": "GRCh38", "worm": "WBcel235"},
        note=_TOUCHING.format(touching=7.5, lookup=57.2),
        human=(37500, 12500),
        worm=(37500, 12500),
    ),
    _gb(
        "drosophila_enhancers_stark",
        "BDGP6.28",
        note=_TOUCHING.format(touching=26.6, lookup="69.0"),
        negative=(2592, 865),
        positive=(2592, 865),
    ),
    _gb("dummy_mouse_enhancers_ensembl", "GRCm38", negative=(484, 121), positive=(484, 121)),
)
_CNNPROM = (_cnnprom("ecoli_sigma70"), _cnnprom("arabidopsis_tata"), _cnnprom("arabidopsis_nontata"))

SEQUENCES = {entry.name: entry for entry in (*_GUE, *_GB, *_CNNPROM)}
GB = {entry.name: entry for entry in _GB}
# GUE promoters also without their prefix
ALIASES = {name.removeprefix("prom_"): name for name in SEQUENCES if name.startswith("prom_")}

_ENSEMBL = "http://ftp.ensembl.org/pub"
# address, and a chromosome whose length identifies the assembly
REFERENCES = {
    "GRCh38": (
        f"{_ENSEMBL}/release-97/fasta/homo_sapiens/dna/Homo_sapiens.GRCh38.dna.toplevel.fa.gz",
        "chr1",
        248_956_422,
    ),
    "GRCh38 transcripts": (
        f"{_ENSEMBL}/release-97/fasta/homo_sapiens/cdna/Homo_sapiens.GRCh38.cdna.all.fa.gz",
        "",
        0,
    ),
    "GRCm38": (
        f"{_ENSEMBL}/release-100/fasta/mus_musculus/dna/Mus_musculus.GRCm38.dna.toplevel.fa.gz",
        "chr1",
        195_471_971,
    ),
    "BDGP6.28": (
        f"{_ENSEMBL}/release-100/fasta/drosophila_melanogaster/dna/Drosophila_melanogaster.BDGP6.28.dna.toplevel.fa.gz",
        "chr2L",
        23_513_712,
    ),
    "WBcel235": (
        f"{_ENSEMBL}/release-104/fasta/caenorhabditis_elegans/dna/Caenorhabditis_elegans.WBcel235.dna.toplevel.fa.gz",
        "I",
        15_072_434,
    ),
}
_ZENODO = "https://zenodo.org/records/16605299/files"


def how_to_rebuild(name: str) -> str:
    """Explain how to get all sequences of a GB set; the end of messages about missing ones."""
    if name not in GB:
        return ""
    references = {reference: REFERENCES[reference][0] for reference in GB[name].references.values()}
    files = " and ".join(f"{reference} ({address})" for reference, address in references.items())
    one = "genome=<path>" if len(references) == 1 else f"genome={dict.fromkeys(GB[name].references, '<path>')}"
    return (
        f"To rebuild all, pass {one} with the reference {files}; or download {_ZENODO}/{name}_v0.zip and unpack it "
        "into dna/gb of the data home."
    )
