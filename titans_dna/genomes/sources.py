"""Sources of sequences: a FASTA file, an open genome, or strings in memory."""

import hashlib
import itertools
import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from titans_dna.genomes.genome import Genome
from titans_dna.genomes.intervals import Interval, from_frame, only_intervals, read_bed
from titans_dna.genomes.tokenizer import encode, refuse_record, reverse_complement

__all__ = [
    "InMemory",
    "among",
    "cut",
    "fingerprint",
    "intervals_of",
    "is_pair",
    "is_source",
    "marks_of",
    "merged",
    "open_source",
    "part_of",
    "read_regions",
    "records",
    "refuse_unordered",
    "without",
]

_LETTERS = set("ACGTNRYSWKMBDHV")
_LONGEST_NAME = 255
# sequences of at most this many bases are compared as a whole
WHOLE = 1 << 20


class InMemory(Genome):
    """Strings treated as a genome: the sequences are named ``"0"``, ``"1"`` and so on.

    Raises:
        TypeError: the sequences are a frame, a set, a mapping, or a single Biopython record.
        ValueError: there is no sequence; a sequence is empty; or a letter is not accepted by the tokenizer.
    """

    def __init__(self, sequences: Iterable[str | bytes]) -> None:
        self.path = Path("sequences")
        self._handle, self._pid = None, -1
        if hasattr(sequences, "columns"):
            raise TypeError(
                "got a frame instead of sequences: give its column of sequences, such as df['sequence'], or, if it has "
                "intervals, their FASTA file as genome=."
            )
        if is_pair(sequences):
            raise ValueError(
                "got a pair of intervals and their FASTA file, which only the classifier takes: give each as an "
                "argument, for example embed(intervals, genome=fasta)."
            )
        refuse_unordered(sequences)
        self.sequences = {
            str(i): sequence.decode(errors="replace") if isinstance(sequence, bytes) else sequence
            for i, sequence in enumerate(sequences)
        }
        if not self.sequences:
            raise ValueError("the list of sequences is empty; give at least one sequence.")
        for i, sequence in self.sequences.items():
            if isinstance(sequence, Interval):
                raise ValueError("sequences are intervals: give their FASTA file as genome=.")
            if len(encode(sequence, where=f"sequence {i}")) == 0:
                raise ValueError(f"sequence {i} is empty; drop it, or give it at least one base.")
        self.lengths = {name: len(sequence) for name, sequence in self.sequences.items()}

    def fetch(self, interval: Interval | str) -> str:
        interval = self.interval(interval)
        self.check(interval)
        sequence = self.sequences[interval.chrom][interval.start : interval.end]
        return reverse_complement(sequence) if interval.strand == "-" else sequence


def open_source(given: Any) -> Genome:
    """Open a source: a path, a Genome, a pyfaidx.Fasta, or strings (list, array or Series).

    Raises:
        TypeError: the source is something else.
        FileNotFoundError: the file does not exist.
        ValueError: the file is not a FASTA file, or the strings are not DNA.
    """
    if isinstance(given, Genome):
        return given
    is_sequence = isinstance(given, str) and len(given) > 3 and not set(given.upper()) - _LETTERS
    if is_sequence and (len(given) > _LONGEST_NAME or not Path(given).exists()):
        raise ValueError(
            f"{given[:20]!r} looks like a sequence, but a string is read as the path of a FASTA file. To give one "
            "sequence, put it in a list: [sequence]."
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
    """Whether this is the path of a file, a genome or a pyfaidx.Fasta; a sequence has neither a dot nor a slash."""
    if isinstance(given, str):
        return "." in given or os.sep in given
    return isinstance(given, os.PathLike | Genome) or hasattr(given, "faidx")


def is_pair(given: Any) -> bool:
    """Whether these are intervals and their FASTA file."""
    return isinstance(given, tuple) and len(given) == 2 and is_source(given[1])


def refuse_unordered(sequences: Any) -> None:
    """Raise TypeError for containers that would yield names or letters, or sequences in no fixed order."""
    if isinstance(sequences, Mapping):
        raise TypeError("sequences must be a list, got a mapping, which would give its keys: use list(d.values()).")
    if isinstance(sequences, set | frozenset):
        raise TypeError("sequences must be a list, got a set, whose order is arbitrary and cannot match labels.")
    refuse_record(sequences)


def read_regions(bed: Any) -> list[Interval] | None:
    """Read intervals: the path of a BED file, a frame (:func:`titans_dna.genomes.intervals.from_frame`), one or several
    Intervals. None stays None.

    Raises:
        TypeError: an item of a list is not an Interval.
        FileNotFoundError: the file does not exist.
    """
    if bed is None:
        return None
    if isinstance(bed, str | os.PathLike):
        try:
            return read_bed(Path(bed))
        except FileNotFoundError as error:
            what = f"BED file {error.filename} does not exist. To give a region, use Interval(chrom, start, end)."
            raise FileNotFoundError(what) from None
    if hasattr(bed, "columns"):
        return from_frame(bed)
    return only_intervals([bed] if isinstance(bed, Interval) else bed)


def intervals_of(genome: Genome, chroms: Iterable[str] | None = None, regions: Any = None) -> list[Interval]:
    """Intervals to read: whole chromosomes, or the given regions, restricted to ``chroms`` if given.

    Raises:
        ValueError: a chromosome is unknown; a region ends beyond its chromosome; or nothing is left.
    """
    return genome.regions(chroms, None, read_regions(regions))


def merged(regions: Iterable[Interval]) -> list[Interval]:
    """Union of the regions, without strands or overlaps, sorted by position."""
    joined: list[Interval] = []
    for region in sorted(regions, key=lambda r: (r.chrom, r.start)):
        last = joined[-1] if joined else None
        if last is not None and last.chrom == region.chrom and region.start <= last.end:
            joined[-1] = Interval(last.chrom, last.start, max(last.end, region.end))
        else:
            joined.append(Interval(region.chrom, region.start, region.end))
    return joined


def without(regions: Iterable[Interval], holes: Iterable[Interval]) -> list[Interval]:
    """Difference of the regions and the holes, without strands or overlaps, sorted by position."""
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
    """Cut each interval, in its direction, into windows of ``length`` bases; the last may be shorter."""
    return [
        part_of(interval, first, min(first + length, len(interval)))
        for interval in intervals
        for first in range(0, len(interval), length)
    ]


def records(genome: Genome) -> list[Interval]:
    """All records of a file as whole intervals, one example each.

    Raises:
        ValueError: a record has no bases.
    """
    empty = [name for name, length in genome.lengths.items() if length == 0]
    if empty:
        raise ValueError(f"{genome.path} has records without bases: {empty[:8]}; remove them and their labels.")
    return intervals_of(genome)


def marks_of(genome: Genome, chrom: str) -> str:
    """Text that identifies the sequence of a chromosome: its length, and a hash of its bases.

    Of chromosomes longer than :data:`WHOLE`, only samples at eight positions are read.
    """
    size = genome.lengths[chrom]
    if size <= WHOLE:
        return f"{size} {hashlib.sha256(genome.fetch(Interval(chrom, 0, size)).upper().encode()).hexdigest()}"
    places = range(0, size, -(-size // 8))
    return f"{size} " + " ".join(genome.fetch(Interval(chrom, at, min(at + 32, size))) for at in places).upper()


def fingerprint(genome: Genome, chrom: str) -> str:
    """Fingerprint of :func:`marks_of`."""
    return hashlib.sha256(marks_of(genome, chrom).encode()).hexdigest()[:16]


def among(genome: Genome, chroms: Iterable[str], fingerprints: Iterable[str]) -> list[str]:
    """The chromosomes whose sequence has one of these fingerprints; empty ones never count."""
    known = frozenset(fingerprints)
    return [chrom for chrom in chroms if genome.lengths[chrom] and fingerprint(genome, chrom) in known]


def part_of(interval: Interval, first: int, stop: int) -> Interval:
    """Part of an interval from base ``first`` to ``stop``, counted in its direction."""
    low, high = (first, stop) if interval.strand != "-" else (len(interval) - stop, len(interval) - first)
    return Interval(interval.chrom, interval.start + low, interval.start + high, interval.strand)
