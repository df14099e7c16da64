"""Genomic intervals, and readers of BED, GTF and GFF3 files.

    BED          start 0-based, end exclusive            as everywhere in this package
    GTF, GFF3    start 1-based, end inclusive            converted to (start - 1, end)

bioframe and pyranges read files with ``pandas.read_csv``, which silently accepts shifted columns or a missing strand
and cannot report the line of an error; hence the readers here. For frames made by these packages, see ``from_frame``.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from titans_dna.genomes.lines import BadLineError, fields

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Interval", "check_place", "from_frame", "is_missing", "is_whole", "only_intervals", "read_bed", "read_gff"]

_STRANDS = ("+", "-", ".")
_GTF_ATTRIBUTE = re.compile(r'\s*(\S+)\s+(?:"([^"]*)"|([^";\s]+))\s*(?:;|$)')
_COLUMNS = {"chrom": ("chrom", "Chromosome"), "start": ("start", "Start"), "end": ("end", "End")}


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval on a chromosome.

    Attributes:
        chrom: chromosome name, as in the FASTA file.
        start: 0-based, inclusive.
        end: exclusive, above ``start``.
        strand: ``"+"``, ``"-"`` (the sequence is the reverse complement), or ``"."`` if it does not matter (read as
            ``"+"``).
        name: label in the source file, or an empty string.

    Raises:
        TypeError: the chromosome is not a string, or a coordinate is not an integer.
        ValueError: the chromosome is empty; the interval is empty or starts below 0; or the strand is invalid.
    """

    chrom: str
    start: int
    end: int
    strand: str = "."
    name: str = ""

    def __post_init__(self) -> None:
        check_place(self.chrom, self.start, self.end)
        if not self.chrom:
            raise ValueError("chrom is empty; give the name of a chromosome in the FASTA file.")
        if not 0 <= self.start < self.end:
            raise ValueError(
                f"{self.chrom}: start {self.start}, end {self.end}; must satisfy 0 <= start < end "
                "(0-based, end exclusive: the first base of a chromosome is 0, 1)."
            )
        if self.strand not in _STRANDS:
            raise ValueError(
                f"{self.chrom}:{self.start}-{self.end} has strand {self.strand!r}; it must be '+', '-', "
                "or '.' if it does not matter."
            )

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.chrom}:{self.start}-{self.end}({self.strand})"


def check_place(chrom: Any, *positions: Any) -> None:
    """Raise TypeError if the chromosome is not a string, or a position is not an integer."""
    if not isinstance(chrom, str):
        raise TypeError(f"chrom must be a string, a name as in the FASTA file, got {chrom!r}.")
    # isinstance(Integral) takes ten times as long as the type check, and there may be a million positions
    if not all(type(position) is int or isinstance(position, Integral) for position in positions):
        raise TypeError(f"{chrom}: positions must be integers, got {', '.join(map(repr, positions))}.")


def only_intervals(given: Iterable[Any]) -> list[Interval]:
    """Return the items as a list of intervals.

    Raises:
        TypeError: an item is not an :class:`Interval`.
    """
    found = list(given)
    for item in found:
        if not isinstance(item, Interval):
            raise TypeError(
                f"regions must be Interval(chrom, start, end), got {item!r:.40}. Use read_bed, read_gff or from_frame "
                "to read them from files and frames."
            )
    return found


class _Feature(NamedTuple):
    type: str
    interval: Interval


def read_bed(path: str | Path, *, require_strand: bool = False) -> list[Interval]:
    """Read the intervals of a BED file (plain or gzip), in the order of the file.

    Columns are chrom, start, end, name, score, strand; 3 to 6 are read, and others ignored. They are separated by tabs,
    or by blanks in lines without a tab. Lines that begin with ``#``, ``track`` or ``browser`` are skipped. The strand
    is ``"."`` if column 6 is missing or empty. ``+`` or ``-`` in column 4 or 5 of a line with fewer than six columns is
    an error, because it is probably a misplaced strand.

    Args:
        path: path of the BED file.
        require_strand: raise an error if a strand is missing or ``"."``.

    Raises:
        ValueError: there is no interval, or a line is invalid; the message names file and line.
    """
    path = Path(path).expanduser()
    found = [_bed_interval(path, number, row, require_strand) for number, row in fields(path, _is_header)]
    if not found:
        raise ValueError(f"{path} contains no intervals; expected lines of chrom, start, end (tab-separated).")
    return found


def read_gff(path: str | Path, feature: str | None = "gene", *, name: str | None = None) -> list[Interval]:
    """Read the intervals of a GTF or GFF3 file (plain or gzip), in the order of the file, as 0-based half-open.

    The format is recognised line by line from the ninth column (``gene_id "x";`` or ``ID=x;``).

    Args:
        path: path of the GTF or GFF3 file.
        feature: keep lines with this third column, such as ``"gene"``, ``"exon"`` or ``"CDS"``. None keeps all.
        name: attribute to use as ``Interval.name``. Default: the first present one of ``gene_id``, ``ID`` and ``Name``.

    Raises:
        ValueError: there is no feature, or none of this kind (the message lists those in the file); no feature has the
            attribute ``name``; or a line is invalid (the message names file and line).
    """
    path = Path(path).expanduser()
    wanted, seen = [], dict[str, int]()
    for found in _features(path, (name,) if name else ("gene_id", "ID", "Name"), feature):
        seen[found.type] = seen.get(found.type, 0) + 1
        if feature in (None, found.type):
            wanted.append(found.interval)
    if not seen:
        raise ValueError(f"{path} contains no features; expected lines of nine columns (tab-separated).")
    if not wanted:
        there = ", ".join(f"{kind} ({n})" for kind, n in sorted(seen.items(), key=lambda item: -item[1])[:12])
        raise ValueError(f"{path} has no feature {feature!r}; it has {there}.")
    if name is not None and not any(interval.name for interval in wanted):
        raise ValueError(f"none of the selected features in {path} has the attribute {name!r}. Give another name.")
    return wanted


def from_frame(frame: "pd.DataFrame") -> list[Interval]:
    """Convert a frame with the columns of bioframe (``chrom, start, end``) or pyranges (``Chromosome, Start, End``).

    The columns ``strand`` and ``name`` are used if present. Coordinates are 0-based half-open, as in both packages,
    except for GTF and GFF3 read by bioframe, which keeps the positions of the file.

    Raises:
        ValueError: a column is missing; there is the column ``attributes`` of GTF and GFF3, whose positions count from
            1; or a row is not a valid interval (the message gives the row number, 0-based).
    """
    if "attributes" in frame.columns:
        raise ValueError(
            "the frame has the column 'attributes' of GTF and GFF3, whose positions count from 1, as in frames of "
            "bioframe.read_table. Use read_gff, or subtract 1 from start and drop that column."
        )
    columns: dict[str, Iterable[Any]] = {}
    for field, names in _COLUMNS.items():
        present = [n for n in names if n in frame.columns]
        if not present:
            raise ValueError(f"the frame has no column {names[0]!r} (nor {names[1]!r}); it has {list(frame.columns)}.")
        columns[field] = frame[present[0]]
    for field, fallback in (("strand", "."), ("name", "")):
        present = [n for n in (field, field.capitalize()) if n in frame.columns]
        columns[field] = frame[present[0]] if present else [fallback] * len(frame)
    found = []
    for row, (chrom, start, end, strand, label) in enumerate(zip(*columns.values(), strict=True)):
        try:
            empty = [field for field, value in (("start", start), ("end", end)) if is_missing(value)]
            if empty:
                raise ValueError(f"{empty[0]} is missing. Drop the row.")
            if not (is_whole(start) and is_whole(end)):
                raise ValueError(
                    f"start {start!r} and end {end!r} must be whole numbers. Convert text with astype(int)."
                )
            named, labelled = ("" if is_missing(name) else str(name) for name in (chrom, label))
            found.append(Interval(named, int(start), int(end), "." if is_missing(strand) else strand, labelled))
        except (ValueError, TypeError) as error:
            raise ValueError(f"row {row} of the frame: {error}") from error
    return found


def is_missing(value: Any) -> bool:
    """Whether this is a missing value: None, NaN or pandas.NA."""
    return value is None or type(value).__name__ == "NAType" or value != value


def is_whole(value: Any) -> bool:
    """Whether a number of any type is whole."""
    try:
        return bool(int(value) == value)
    except (OverflowError, TypeError, ValueError):  # infinite, or no number
        return False


def _is_header(line: str) -> bool:
    """Whether a line is a comment, or belongs to a genome browser."""
    return line.startswith("#") or line.split(maxsplit=1)[:1] in (["track"], ["browser"])


def _bed_interval(path: Path, number: int, row: list[str], require_strand: bool) -> Interval:
    if len(row) == 1:
        row = row[0].split()
    if len(row) < 3:
        raise BadLineError(path, number, f"{len(row)} column(s); expected chrom, start and end (tab-separated)")
    row = [field.strip() for field in row]
    strand = (row[5] if len(row) > 5 else "") or "."
    sign = next((i for i in range(3, len(row)) if row[i] in ("+", "-")), None) if len(row) < 6 else None
    if sign is not None:
        what = f"column {sign + 1} of {len(row)} is {row[sign]!r}, but a strand must be column 6, after name and score"
        raise BadLineError(path, number, f"{what}; write '.' for a missing name and 0 for a missing score")
    if require_strand and strand == ".":
        raise BadLineError(path, number, "the strand is missing; set column 6 to '+' or '-', or require_strand=False")
    if len(row) == 9 and not row[1].isdecimal() and all(field.isdecimal() for field in row[3:5]):
        raise BadLineError(path, number, "columns are those of GTF or GFF3, not BED; use read_gff")
    start, end = _integers(path, number, row[1], row[2])
    return _interval(path, number, row[0], start, end, strand, row[3] if len(row) > 3 else "")


def _features(path: Path, names: tuple[str, ...], feature: str | None) -> Iterator[_Feature]:
    for number, row in fields(path, _is_header, until=">"):
        if len(row) != 9:
            raise BadLineError(path, number, f"{len(row)} column(s); GTF and GFF3 need 9 (tab-separated)")
        chrom, _, kind, first, last, _, strand, _, text = row
        start, end = _integers(path, number, first, last)
        if start < 1:
            raise BadLineError(path, number, f"start is {start}; GTF and GFF3 positions start at 1")
        if end < start:
            raise BadLineError(path, number, f"start {start} is above end {end}; GTF and GFF3 need start <= end")
        # "?" in GFF3 means that the strand matters but is unknown
        strand = "." if strand == "?" else strand
        wanted = feature in (None, kind)
        label = _attribute(text, names) if wanted else ""
        yield _Feature(kind, _interval(path, number, chrom, start - 1, end, strand, label))


def _attribute(text: str, names: tuple[str, ...]) -> str:
    """Value of the first of ``names`` found in the attributes column, or an empty string."""
    if "=" in text.split('"', 1)[0]:
        pairs = (pair.partition("=") for pair in text.split(";"))
        found = {key.strip(): unquote(value.strip()) for key, _, value in pairs}
    else:
        found = {m[1]: m[2] if m[2] is not None else m[3] for m in _GTF_ATTRIBUTE.finditer(text)}
    return next((found[n] for n in names if n in found), "")


def _integers(path: Path, number: int, start: str, end: str) -> tuple[int, int]:
    if not all(text.removeprefix("-").isdecimal() for text in (start, end)):
        hint = " (start a header line with #)" if number == 1 else ""
        raise BadLineError(path, number, f"start {start!r} and end {end!r} must be whole numbers{hint}")
    return int(start), int(end)


def _interval(path: Path, number: int, chrom: str, start: int, end: int, strand: str, name: str) -> Interval:
    try:
        return Interval(chrom, start, end, strand, name)
    except ValueError as error:
        raise BadLineError(path, number, str(error)) from None
