"""What is known of a data set before a byte of it is read: one class per kind of set."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import ClassVar, Literal

__all__ = ["DatasetInfo", "GenomeInfo", "Kind", "PublishedFile", "SequenceInfo", "SeriesInfo", "TextInfo"]

Kind = Literal["ts", "dna", "genome", "text"]


@dataclass(frozen=True)
class PublishedFile:
    """One file that ``cache.obtain`` can bring.

    Attributes:
        name: what messages call it.
        place: path below the data home, with ``/``. A gzip of it, ``<place>.gz``, serves as well.
        url: where it, or a gzip of it, is published, pinned to a commit; None where it is published nowhere as one
            file, so that it can only be put in its place by hand.
        checksum: ``"sha256:<hex>"``, or ``"git:<hex>"`` for a git blob id. It is the sum of the bytes of ``place``:
            where ``<place>.gz`` is stored instead, of its unpacked bytes. A ``place`` that itself ends in ``.gz`` is
            summed as it is published, packed.
    """

    name: str
    place: str
    url: str | None
    checksum: str

    @property
    def file(self) -> str:
        """Name without folders."""
        return PurePosixPath(self.place).name

    @property
    def folder(self) -> str:
        """Folders below the data home."""
        return str(PurePosixPath(self.place).parent)


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """One registered set, of any kind.

    Attributes:
        kind: ``"ts"``, ``"dna"``, ``"genome"`` or ``"text"``.
        name: as the literature writes it; ``load`` ignores case.
        licence, citation: terms of the data, and what to cite.
        note: units, and what to know before use.
    """

    kind: ClassVar[Kind]
    name: str
    licence: str
    citation: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class SeriesInfo(DatasetInfo):
    """One time-series set.

    Attributes:
        file: file name inside ``<data home>/ts``; a gzip of it, ``<file>.gz``, serves as well.
        url, checksum: as of ``PublishedFile``.
        layout: ``"csv"``, a header and stamps in the first column; ``"matrix"``, comma-separated numbers only.
        shape: (rows, columns) of the frame, stamps not counted.
        columns: column names of the frame, in order.
        freq: pandas offset alias of the step between rows.
        season_length: rows in one season (a day; for monthly data a year).
        start, end: first and last stamp, ISO 8601, both inclusive, local time of the source without zone.
        regular: whether every step equals ``freq``; where not, stamps repeat or leave gaps, and are kept as published.
    """

    kind: ClassVar[Kind] = "ts"
    file: str
    url: str
    checksum: str
    layout: Literal["csv", "matrix"]
    shape: tuple[int, int]
    columns: tuple[str, ...] = field(repr=False)
    freq: str
    season_length: int
    start: str
    end: str
    regular: bool = True

    @property
    def published(self) -> PublishedFile:
        return PublishedFile(self.name, f"ts/{self.file}", self.url, self.checksum)


@dataclass(frozen=True, kw_only=True)
class SequenceInfo(DatasetInfo):
    """Labelled DNA sequences.

    Attributes:
        collection: ``"GUE"``, ``"GenomicBenchmarks"`` or ``"CNNProm"``.
        parts: official parts; ``("all",)`` where there is no official split.
        classes: class names, sorted: label i means ``classes[i]``.
        counts: official (train, test) sequences of each class; empty where they are not registered.
        references: of GenomicBenchmarks the reference genome of each class, for ``load(name, genome=...)``.
        file_classes: class names in the order in which published tables number them.
    """

    kind: ClassVar[Kind] = "dna"
    collection: Literal["GUE", "GenomicBenchmarks", "CNNProm"]
    parts: tuple[str, ...]
    classes: tuple[str, ...]
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    references: Mapping[str, str] = field(default_factory=dict)
    file_classes: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class GenomeInfo(DatasetInfo):
    """A genome. ``fasta``, ``annotation``, ``variants``: file names inside ``<data home>/dna/genomes``, or None."""

    kind: ClassVar[Kind] = "genome"
    fasta: str
    annotation: str | None = None
    variants: str | None = None


@dataclass(frozen=True, kw_only=True)
class TextInfo(DatasetInfo):
    """Text.

    Attributes:
        files: each part's file.
        layout: ``"plain"``, one text per file; ``"jsonl"``, one JSON object per line.
        records: how many records ``load`` returns.
    """

    kind: ClassVar[Kind] = "text"
    files: Mapping[str, PublishedFile] = field(repr=False)
    layout: Literal["plain", "jsonl"]
    records: int
