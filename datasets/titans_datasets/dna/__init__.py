"""DNA data sets by name: the GUE tasks, GenomicBenchmarks (GB), CNNProm, and the genomes used in examples.

    load_dna("tf_0")                                            GUE: official train, dev and test
    load_dna("human_nontata_promoters", genome="GRCh38.fa.gz")  GB: rebuilt from the official coordinates
    load_dna("human_nontata_promoters")                         GB: official parts whose sequences are available

Files are looked for in ``<data home>/dna`` before anything is downloaded:

    gue/<task>/<part>            .parquet, .csv or .tsv with columns seq or sequence, and label or target
    gb/<name>/<part>             the same, or the folders <part>/<class>/*.txt that genomic_benchmarks writes
    gb_intervals/<name>.parquet  or <name>/<part>/<class>.csv.gz as published; coordinates 0-based half-open
    cnnprom/<name>/all           like gue
    genomes/                     FASTA, annotation, variants

Published files are pinned to a commit and verified by sha256; those published as ``.gz`` are accepted unpacked too. A
GUE table in another format than the published ``.csv`` must have the same rows in the same order. Files listed in a
``manifest.json`` in ``<data home>/dna`` (a list of ``{"file": ..., "sha256": ...}``) are verified too.

Sources: GUE, Zhou et al., DNABERT-2 (arXiv:2306.15006); GB, Gresova et al., BMC Genomic Data 24:25 (2023); CNNProm,
Umarov and Solovyev, PLOS ONE 12 (2017).
"""

from titans_datasets.dna.dataset import DNADataset
from titans_datasets.dna.genomes import GenomeFiles, list_genomes, load_genome
from titans_datasets.dna.load import list_dna_datasets, load_dna

__all__ = ["DNADataset", "GenomeFiles", "list_dna_datasets", "list_genomes", "load_dna", "load_genome"]
