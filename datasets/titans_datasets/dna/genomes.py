"""Genomes as paths of their files."""

import os
from dataclasses import dataclass
from pathlib import Path

from titans_datasets import cache, registry
from titans_datasets.dna.files import published
from titans_datasets.sources.genomes import GENOMES

__all__ = ["GenomeFiles", "list_genomes", "load_genome"]


@dataclass(frozen=True)
class GenomeFiles:
    """Paths of a genome's files; annotation and variants may be None."""

    name: str
    fasta: Path
    annotation: Path | None
    variants: Path | None


def list_genomes() -> list[str]:
    """Names that ``load_genome`` accepts."""
    return list(GENOMES)


def load_genome(name: str, *, data_home: str | os.PathLike[str] | None = None, download: bool = True) -> GenomeFiles:
    """Files of a genome for examples and tests, downloaded if missing.

    Args:
        name: one of ``list_genomes()``; case is ignored. Names that end in ``_1pct`` are the first 1 % of each
            chromosome.
        data_home: folder of the data files. None: ``TITANS_DATA_HOME``, else the user's cache.
        download: download missing files.

    Raises:
        ValueError: if the name is unknown.
        FileNotFoundError, OfflineError, ChecksumError: as for ``load_dna``.
    """
    entry = registry.genome_info(name)
    home = cache.data_home(data_home)
    fasta, annotation, variants = (
        published(f"genomes/{file}", home, download) if file else None
        for file in (entry.fasta, entry.annotation, entry.variants)
    )
    assert fasta is not None
    return GenomeFiles(entry.name, fasta, annotation, variants)
