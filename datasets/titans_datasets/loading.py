"""Load any data set by name."""

import os
from typing import TYPE_CHECKING, Any

from titans_datasets import registry

if TYPE_CHECKING:
    from titans_datasets.dna.rebuild import GenomePaths

__all__ = ["load"]


def load(
    name: str,
    *,
    genome: "GenomePaths | None" = None,
    data_home: str | os.PathLike[str] | None = None,
    download: bool = True,
) -> Any:
    """Load a data set, complete and as published.

    Args:
        name: one of ``list_datasets()``; case is ignored. GUE promoters also without ``prom_``.
        genome: for GenomicBenchmarks, a reference FASTA to cut the sequences from; see
            ``titans_datasets.dna.load_dna``.
        data_home: folder that contains ``ts/``, ``dna/`` and ``lm/``. None: ``TITANS_DATA_HOME``, else the user's
            cache.
        download: download missing files; they are kept in the data home.

    Returns:
        Depends on ``info(name).kind``:

        - ``"ts"``: a wide frame (``titans_datasets.ts.load_series``).
        - ``"dna"``: a ``DNADataset`` with sequences, labels, split and ``audit()`` (``titans_datasets.dna.load_dna``).
        - ``"genome"``: a ``GenomeFiles`` with paths (``titans_datasets.dna.load_genome``).
        - ``"text"``: a list of records, each a dict (``titans_datasets.text.load_text``).

        The caller may modify it.

    Raises:
        ValueError: if the name is unknown (the message lists known names and the closest), or ``genome`` is given for a
            set that is not cut from a genome.
        ChecksumError: if a file is not the published one, or is truncated.
        OfflineError: if a file is missing and cannot be downloaded; the message says where to put it by hand.
        FileNotFoundError: if a file is missing, and ``download`` is False or it is not published; same advice.
        PermissionError: if a file is missing and no folder is writable.
    """
    kind = registry.info(name).kind
    if kind == "dna":
        from titans_datasets.dna import load_dna

        return load_dna(name, genome=genome, data_home=data_home, download=download)
    if genome is not None:
        raise ValueError(f"{name} is not cut from a genome; genome= is only for the sets of GenomicBenchmarks.")
    if kind == "genome":
        from titans_datasets.dna import load_genome

        return load_genome(name, data_home=data_home, download=download)
    if kind == "text":
        from titans_datasets.text import load_text

        return load_text(name, data_home=data_home, download=download)
    from titans_datasets.ts import load_series

    return load_series(name, data_home=data_home, download=download)
