"""One door to every set: the name says which loader opens it."""

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
    """One data set, complete and as published.

    Args:
        name: one of ``list_datasets()``, in any case; GUE promoters also without ``prom_``.
        genome: of GenomicBenchmarks, a reference FASTA to cut the sequences from; see
            ``titans_datasets.dna.load_dna``.
        data_home: folder that holds ``ts/``, ``dna/`` and ``lm/``; default ``TITANS_DATA_HOME``, else the user's cache.
        download: fetch files that are missing; they stay in the data home.

    Returns:
        By ``info(name).kind``: ``"ts"``, a wide frame (``titans_datasets.ts.load_series``); ``"dna"``, a
        ``DNADataset`` with sequences, labels, split and ``audit()`` (``titans_datasets.dna.load_dna``); ``"genome"``,
        ``GenomeFiles``, paths (``titans_datasets.dna.load_genome``); ``"text"``, a list of records, each a dict
        (``titans_datasets.text.load_text``). The caller owns it.

    Raises:
        ValueError: unknown name; the message lists the known ones and the closest. Or ``genome`` for a set that is
            not cut from one.
        ChecksumError: a file is not the published one, or is cut short.
        OfflineError: a file is missing and cannot be fetched; the message says where to put it by hand.
        FileNotFoundError: a file is missing and ``download`` is false, or it is published nowhere; same advice.
        PermissionError: a file is missing and there is no place to write it to.
    """
    kind = registry.info(name).kind
    if kind == "dna":
        from titans_datasets.dna import load_dna

        return load_dna(name, genome=genome, data_home=data_home, download=download)
    if genome is not None:
        raise ValueError(f"{name} is not cut from a genome; genome= serves the sets of GenomicBenchmarks.")
    if kind == "genome":
        from titans_datasets.dna import load_genome

        return load_genome(name, data_home=data_home, download=download)
    if kind == "text":
        from titans_datasets.text import load_text

        return load_text(name, data_home=data_home, download=download)
    from titans_datasets.ts import load_series

    return load_series(name, data_home=data_home, download=download)
