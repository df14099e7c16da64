"""What sequence methods read from: a FASTA file, a genome already open, or strings held in memory."""

import itertools
import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from titans_dna.genome import Genome
from titans_dna.intervals import Interval, from_frame, only_intervals, read_bed
from titans_dna.tokenizer import encode, refuse_record, reverse_complement

__all__ = [
    "SHORT",
    "InMemory",
    "asked",
    "cut",
    "is_source",
    "marks_of",
    "merged",
    "open_source",
    "part_of",
    "read_regions",
    "records",
    "refuse_unordered",
    "whole",
    "without",
]

_LETTERS = set("ACGTNRYSWKMBDHV")
_LONGEST_NAME = 255
# bases of a sequence that may be one of very many
SHORT = 1 << 12

Source = str | os.PathLike[str] | Genome | Sequence[str]


class InMemory(Genome):
    """Strings read as a genome: the sequences are named ``"0"``, ``"1"`` and so on, in their order.

    Raises:
        ValueError: no sequence, an empty one, or a letter outside the tokenizer's rules.
    """

    def __init__(self, sequences: Iterable[str | bytes]) -> None:
        self.path = Path("sequences")
        self._handle, self._pid = None, -1
        if hasattr(sequences, "columns"):
            raise TypeError("a frame is read by the names of its columns: give the one that holds the sequences.")
        refuse_unordered(sequences)
        self.sequences = {
            str(i): sequence.decode(errors="replace") if isinstance(sequence, bytes) else sequence
            for i, sequence in enumerate(sequences)
        }
        if not self.sequences:
            raise ValueError("the list of sequences is empty; give one sequence or more.")
        for i, sequence in self.sequences.items():
            if isinstance(sequence, Interval):
                raise ValueError("sequences are intervals: name their FASTA file with genome=.")
            if len(encode(sequence, where=f"sequence {i}")) == 0:
                raise ValueError(f"sequence {i} is empty; drop it, or give it at least one base.")
        self.lengths = {name: len(sequence) for name, sequence in self.sequences.items()}

    def fetch(self, interval: Interval | str) -> str:
        interval = self.interval(interval)
        self.check(interval)
        sequence = self.sequences[interval.chrom][interval.start : interval.end]
        return reverse_complement(sequence) if interval.strand == "-" else sequence


def open_source(given: Any) -> Genome:
    """A genome from a path, a genome, one that pyfaidx has open, or strings (list, array or Series).

    Raises:
        TypeError: something else.
        FileNotFoundError, ValueError: no such file, no FASTA, or strings that are no DNA.
    """
    if isinstance(given, Genome):
        return given
    is_sequence = isinstance(given, str) and len(given) > 3 and not set(given.upper()) - _LETTERS
    if is_sequence and (len(given) > _LONGEST_NAME or not Path(given).exists()):
        raise ValueError(
            f"{given[:20]!r} is read as the path of a FASTA file; give one sequence as a list: [sequence]."
        )
    if isinstance(given, str | os.PathLike):
        return Genome(given)
    if hasattr(given, "faidx"):  # pyfaidx.Fasta
        return Genome(given.faidx.filename)
    if isinstance(given, Iterable) and not isinstance(given, bytes):
        return InMemory(given)
    raise TypeError(
        f"expected the path of a FASTA file, a Genome, or a list of sequences; got {type(given).__name__} "
        f"({given!r:.40})."
    )


def is_source(given: Any) -> bool:
    """A path of a file, or a genome. A sequence has neither a dot nor a slash."""
    if isinstance(given, str):
        return "." in given or os.sep in given
    return isinstance(given, os.PathLike | Genome)


def refuse_unordered(sequences: Any) -> None:
    """Raises TypeError for what gives its names or letters in place of sequences, or them in no order."""
    if isinstance(sequences, Mapping):
        raise TypeError("a mapping is read by its names, not its sequences: give list(sequences.values()).")
    if isinstance(sequences, set | frozenset):
        raise TypeError("a set has no order, and labels and scores would not fit it: give a list of sequences.")
    refuse_record(sequences)


def read_regions(bed: Any) -> list[Interval] | None:
    """Intervals from the path of a BED file, a frame (:func:`titans_dna.intervals.from_frame`), one or a list of them;
    None stays None.

    Raises:
        TypeError: a list of something else.
        FileNotFoundError: no such file.
    """
    if bed is None:
        return None
    if isinstance(bed, str | os.PathLike):
        try:
            return read_bed(Path(bed))
        except FileNotFoundError as error:
            what = f"no BED file {error.filename}; a region is given as Interval(chrom, start, end)."
            raise FileNotFoundError(what) from None
    if hasattr(bed, "columns"):
        return from_frame(bed)
    return only_intervals([bed] if isinstance(bed, Interval) else bed)


def asked(genome: Genome, chroms: Iterable[str] | None = None, regions: Any = None) -> list[Interval]:
    """What is to be read: whole chromosomes; or the regions that are given, those in ``chroms`` where these are too.

    Raises:
        ValueError: an unknown chromosome, a region off its end, or nothing left.
    """
    given = read_regions(regions)
    return whole(genome, chroms) if given is None else genome.regions(chroms, None, given)


def merged(regions: Iterable[Interval]) -> list[Interval]:
    """The stretches that the regions cover, without strand, each base once, sorted by place."""
    joined: list[Interval] = []
    for region in sorted(regions, key=lambda r: (r.chrom, r.start)):
        last = joined[-1] if joined else None
        if last is not None and last.chrom == region.chrom and region.start <= last.end:
            joined[-1] = Interval(last.chrom, last.start, max(last.end, region.end))
        else:
            joined.append(Interval(region.chrom, region.start, region.end))
    return joined


def without(regions: Iterable[Interval], holes: Iterable[Interval]) -> list[Interval]:
    """What is left of the regions, each base once, sorted by place and without strand."""
    found = []
    rest: dict[str, list[Interval]] = {}
    for hole in merged(holes):
        rest.setdefault(hole.chrom, []).append(hole)
    for region in merged(regions):
        start, near = region.start, rest.get(region.chrom, [])
        for hole in itertools.islice(near, bisect_right(near, start, key=lambda hole: hole.end), None):
            if hole.start >= region.end:
                break
            if hole.start > start:
                found.append(Interval(region.chrom, start, hole.start))
            start = hole.end
        if start < region.end:
            found.append(Interval(region.chrom, start, region.end))
    return found


def cut(intervals: Iterable[Interval], length: int) -> list[Interval]:
    """Windows of ``length`` bases, each interval's in its direction; its last one may be shorter."""
    return [
        part_of(interval, first, min(first + length, len(interval)))
        for interval in intervals
        for first in range(0, len(interval), length)
    ]


def whole(genome: Genome, chroms: Iterable[str] | None = None) -> list[Interval]:
    """Whole chromosomes as intervals on strand ``"+"``, in the file's order or in that of ``chroms``.

    Raises:
        ValueError: an unknown chromosome, one string instead of a list, or an empty list.
    """
    names = genome.named(chroms)
    if chroms is not None and not names:
        raise ValueError(f"chroms is empty; name a chromosome of {genome.path.name}, or leave chroms out to read all.")
    return [Interval(name, 0, genome.lengths[name], "+") for name in names if genome.lengths[name]]


def records(genome: Genome) -> list[Interval]:
    """Every record of a file, whole, where each is an example of its own.

    Raises:
        ValueError: records without bases.
    """
    empty = [name for name, length in genome.lengths.items() if length == 0]
    if empty:
        raise ValueError(f"{genome.path} has records without bases: {empty[:8]}; remove them, and labels of theirs.")
    return whole(genome)


def marks_of(genome: Genome, chrom: str) -> str:
    """What tells a chromosome from another of its name: its length, and eight stretches of it."""
    size = genome.lengths[chrom]
    places = [(at, min(at + 32, size)) for at in range(0, size, -(-size // 8))]
    if size <= SHORT:  # read once
        text = genome.fetch(Interval(chrom, 0, size))
        parts = [text[start:end] for start, end in places]
    else:
        parts = [genome.fetch(Interval(chrom, start, end)) for start, end in places]
    return f"{size} " + " ".join(parts).upper()


def part_of(interval: Interval, first: int, stop: int) -> Interval:
    """Bases ``first`` to ``stop`` of an interval, counted in its direction."""
    low, high = (first, stop) if interval.strand != "-" else (len(interval) - stop, len(interval) - first)
    return Interval(interval.chrom, interval.start + low, interval.start + high, interval.strand)
