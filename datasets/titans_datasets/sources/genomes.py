"""Genomes used in examples and tests."""

from titans_datasets.sources.entries import GenomeInfo

__all__ = ["GENOMES"]

_ONE_PERCENT = "The first 1 % of each chromosome."
GENOMES = {
    entry.name: entry
    for entry in (
        GenomeInfo(
            name="yeast",
            fasta="yeast_R64-1-1.fa.gz",
            annotation="yeast_R64-1-1.96.gtf.gz",
            licence="free to use (Ensembl, SGD)",
            citation="Engel et al., G3 4 (2014) 389: S. cerevisiae S288C, R64-1-1; annotation of Ensembl 96",
            note="Complete: 16 chromosomes (I to XVI) and Mito.",
        ),
        GenomeInfo(
            name="ecoli",
            fasta="ecoli_K12_MG1655.fna.gz",
            annotation="ecoli_K12_MG1655.gff.gz",
            licence="public domain (NCBI)",
            citation="Blattner et al., Science 277 (1997) 1453: E. coli K-12 MG1655, ASM584v2; annotation of RefSeq",
            note="Complete: one chromosome of 4.6 million bases.",
        ),
        GenomeInfo(
            name="celegans_1pct",
            fasta="celegans_first1pct_MCB185.fa.gz",
            variants="celegans_1pct_variants.vcf.gz",
            licence="MIT (the repository that publishes this copy); WormBase",
            citation="C. elegans Sequencing Consortium, Science 282 (1998) 2012",
            note=f"{_ONE_PERCENT} The variants are for tests of VCF.",
        ),
        GenomeInfo(
            name="arabidopsis_1pct",
            fasta="arabidopsis_1pct.fa",
            licence="MIT (the repository that publishes this copy)",
            citation="Arabidopsis Genome Initiative, Nature 408 (2000) 796",
            note=_ONE_PERCENT,
        ),
        GenomeInfo(
            name="drosophila_1pct",
            fasta="drosophila_1pct.fa",
            licence="MIT (the repository that publishes this copy)",
            citation="Adams et al., Science 287 (2000) 2185",
            note=_ONE_PERCENT,
        ),
        GenomeInfo(
            name="human_hg19_chr1_3mb",
            fasta="human_hg19_chr1_first3Mb.fa.gz",
            licence="MIT (the repository that publishes this copy); UCSC hg19 is public",
            citation="International Human Genome Sequencing Consortium, Nature 431 (2004) 931",
            note="The first 3 million bases of chr1 of hg19, not of GRCh38: GenomicBenchmarks cannot be cut from it.",
        ),
    )
}
