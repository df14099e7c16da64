"""Sequences cut from a genome at official coordinates."""

import os
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from titans_datasets.errors import explained
from titans_datasets.gzipped import DAMAGED, open_binary
from titans_datasets.sources.dna import REFERENCES
from titans_datasets.sources.entries import SequenceInfo
from titans_datasets.strands import reverse_complement
from titans_datasets.warn import warn_caller

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["GenomePaths", "cut", "paths_by_class"]

GenomePaths = str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]]


def paths_by_class(entry: SequenceInfo, genome: GenomePaths) -> dict[str, Path]:
    """FASTA path of each class."""
    name, references = entry.name, entry.references
    if isinstance(genome, Mapping):
        if set(genome) != set(references):
            raise ValueError(f"genome= has the classes {sorted(genome)}, but {name} needs {sorted(references)}.")
        return {label: _path(path) for label, path in genome.items()}
    if len(set(references.values())) > 1:
        raise ValueError(
            f"{name} is cut from two references: pass genome= as a dict of class to FASTA: "
            + ", ".join(f"{label!r}: {reference}" for label, reference in references.items())
        )
    return dict.fromkeys(references, _path(genome))


def _path(genome: str | os.PathLike[str]) -> Path:
    if not isinstance(genome, str | os.PathLike):
        raise TypeError(
            f"genome must be the path of a FASTA file, or a dict of class to path; got {type(genome).__name__} "
            f"({genome!r:.60}). Give the path of that file."
        )
    return Path(genome).expanduser()


def cut(intervals: "pd.DataFrame", paths: Mapping[str, Path], entry: SequenceInfo) -> list[str]:
    """Sequence of every interval, on its strand. Each FASTA is read once, with one chromosome in memory at a time."""
    found = dict[int, str]()
    for path in dict.fromkeys(paths.values()):
        labels = [label for label, of_class in paths.items() if of_class == path]
        reference = entry.references[labels[0]]
        of_path = intervals[intervals["class"].isin(labels)]
        rows = {str(region): group for region, group in of_path.groupby("region", sort=False)}
        names: list[str] = []
        for region, chromosome in _chromosomes(path, rows.keys(), names):
            _check_assembly(region, len(chromosome), reference, path)
            for row, start, end, strand in rows[region][["start", "end", "strand"]].itertuples():
                if end > len(chromosome):
                    raise ValueError(
                        f"{region}:{start}-{end} ends beyond that chromosome in {path}, which has {len(chromosome)} "
                        f"bases. The file is of another assembly or was cut off; the coordinates need {reference}."
                    )
                piece = chromosome[start:end].decode().upper()
                found[row] = reverse_complement(piece) if strand == "-" else piece
        absent = [region for region, group in rows.items() if group.index[0] not in found]
        if absent:
            near = get_close_matches(absent[0], names, n=3)
            records = ", ".join([*names[:6], "..."][: len(names)]) or "no records"
            raise ValueError(
                f"{path} lacks {len(absent)} of {len(rows)} regions, first: {absent[0]!r}. "
                f"It has {records}{f'; near: {near}' if near else ''}. "
                f"The required reference is {reference}: {REFERENCES[reference][0]}"
            )
    return [found[row] for row in intervals.index]


def _check_assembly(region: str, size: int, reference: str, path: Path) -> None:
    _, chromosome, expected = REFERENCES[reference]
    if region == chromosome and size != expected:
        warn_caller(
            f"{path}: {region} has {size} bases, but {expected} in {reference}. Sequences from another assembly are "
            "not the official ones."
        )


def _regions(record: str) -> set[str]:
    """Names that coordinates may use for a FASTA record: 1 or chr1, MT or chrM, a transcript without version."""
    bare = record.split(".")[0] if record.startswith("ENS") else record
    plain = bare.removeprefix("chr")
    if plain in ("M", "MT", "MtDNA", "mitochondrion_genome"):
        return {bare, "MtDNA", "chrM", "chrMT"}
    return {bare, plain, f"chr{plain}"}


def _chromosomes(path: Path, wanted: Collection[str], names: list[str]) -> Iterator[tuple[str, bytearray]]:
    """Yield wanted regions of a FASTA, plain or gzip, with their bases. ``names`` collects the names of all records."""
    with explained(f"the genome {path} cannot be read", "Allow this user to read it, or check genome=."):
        if is_file := path.is_file():
            path.open("rb").close()
    if path.is_dir():
        raise IsADirectoryError(f"the genome {path} is a folder. Name the FASTA in it in genome=.")
    if not is_file:
        raise FileNotFoundError(f"no such genome FASTA: {path}. Check genome=.")
    regions, bases = set[str](), bytearray()
    for line in chain(_lines(path), [b">"]):  # an extra header ends the last record
        if line.startswith(b">"):
            for region in regions:
                yield region, bases
            names.append(line[1:].decode(errors="replace").split(maxsplit=1)[0] if line[1:].strip() else "")
            regions, bases = _regions(names[-1]).intersection(wanted), bytearray()
        elif regions:
            bases += line.strip()
        elif not names and line.strip():
            raise ValueError(f"{path} is not a FASTA: it starts with {line[:40]!r}, expected a line with '>'.")
    names.pop()


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with open_binary(path) as stream:
            yield from stream
    except DAMAGED as error:
        raise ValueError(f"{path} is not a complete gzip ({error}). Download it again.") from error
