"""Load labelled DNA sets by name."""

import os
from pathlib import Path

from titans_datasets import cache, registry
from titans_datasets.dna.benchmarks import load_benchmark
from titans_datasets.dna.dataset import DNADataset, from_frames
from titans_datasets.dna.files import either, homes, labelled, registered, searched
from titans_datasets.dna.rebuild import GenomePaths
from titans_datasets.errors import reading
from titans_datasets.sources import dna_files
from titans_datasets.sources.dna import GB, SEQUENCES

__all__ = ["list_dna_datasets", "load_dna"]


def list_dna_datasets() -> list[str]:
    """Names that ``load_dna`` accepts."""
    return list(SEQUENCES)


def load_dna(
    name: str,
    *,
    genome: GenomePaths | None = None,
    data_home: str | os.PathLike[str] | None = None,
    download: bool = True,
) -> DNADataset:
    """Load a labelled set with its official split.

    Args:
        name: one of ``list_dna_datasets()``; case is ignored. GUE promoters also without ``prom_``.
        genome: for GB, the reference FASTA, plain or gzip, from which all sequences are cut at the official
            coordinates. For a set with two references, a dict of class name to FASTA. Chromosomes may have Ensembl
            names (1, MT) or UCSC names (chr1, chrM).
        data_home: folder of the data files. None: ``TITANS_DATA_HOME``, else the user's cache.
        download: download missing files, if they are published.

    Returns:
        Sequences in upper case. For a GB set without ``genome``, only the parts whose sequences are available, with a
        warning that lists what is missing.

    Raises:
        ValueError: if the name is unknown, or the genome lacks a chromosome, ends before an interval or is a truncated
            gzip.
        FileNotFoundError: if nothing of the set is available; the message says how to get it.
        OfflineError, ChecksumError: if a file cannot be downloaded, or is not the published one.
    """
    entry, home = registry.sequence_info(name), cache.data_home(data_home)
    name = entry.name
    if name in GB:
        return load_benchmark(entry, genome, home, download)
    if genome is not None:
        raise ValueError(f"{name} is published as sequences; genome= is only for the sets {', '.join(GB)}.")
    if entry.collection == "GUE":
        # folder names: ours, that of the published archive, and the latter flattened
        archived = dna_files.gue_folder(name)
        folders = [f"gue/{folder}" for folder in (name, archived, archived.replace("/", "_"))]
    else:
        folders = [f"cnnprom/{name}"]
    # the first of those that hold most: a failed download leaves a folder without some parts
    places = homes(home, f"{folders[0]}/{entry.parts[0]}")
    there = [(_held(place / "dna" / folder, entry.parts), folder) for place in places for folder in folders]
    folder = max(there, key=lambda found: found[0])[1]
    frames = {part: labelled(f"{folder}/{part}", home, download, f"{folders[0]}/{part}") for part in entry.parts}
    absent = [part for part, frame in frames.items() if frame is None]
    if absent:
        looked_in = [path.parent for path in searched(home, f"{folder}/{absent[0]}")]
        raise FileNotFoundError(
            f"{name}: missing parts in {either(looked_in)}: {', '.join(absent)}. "
            f"{_how_to_get(folders[0], absent, looked_in)}"
        )
    return from_frames(entry, {part: frame for part, frame in frames.items() if frame is not None})


def _how_to_get(published_as: str, parts: list[str], places: list[Path]) -> str:
    """How to provide the missing parts of a set; the end of the error message."""
    names = [f"{part}{suffix}" for part in parts for suffix in (".csv", ".parquet", ".tsv")]
    in_the_way = cache.obstacle(folder / name for folder in places for name in names)
    known = [registered(f"{published_as}/{part}") for part in parts]
    files = [f"  {dna_files.url(name)}" for name in known if name is not None]
    if not files:
        return f"Store them there as <part>.csv with columns sequence, label.\n{in_the_way}".rstrip()
    return (
        "Load with download=True, or store the published files there, byte for byte:\n"
        + "\n".join(files)
        + "\nThey are verified; a .parquet or .tsv must have all their rows, in their order."
        + f"\n{in_the_way}".rstrip()
    )


def _held(folder: Path, parts: tuple[str, ...]) -> int:
    """The number of parts of a set that a folder has."""
    with reading(folder):
        there = {path.name.split(".")[0] for path in folder.glob("*") if path.suffix != ".part"}
    return len(there.intersection(parts))
