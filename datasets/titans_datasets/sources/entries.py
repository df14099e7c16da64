"""Information about a data set that is known before it is loaded: one class per kind of set."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import ClassVar, Literal

__all__ = ["DatasetInfo", "GenomeInfo", "Kind", "PublishedFile", "SequenceInfo", "SeriesInfo", "TextInfo"]

Kind = Literal["ts", "dna", "genome", "text"]


@dataclass(frozen=True)
class PublishedFile:
    """A file that ``cache.obtain`` can provide.

    Attributes:
        name: name used in messages.
        place: path below the data home, with ``/``. A gzip of it, ``<place>.gz``, is accepted too.
        url: address of the file or of a gzip of it, pinned to a commit. None: it is not published as a single file, and
            must be provided by hand.
        checksum: ``"sha256:<hex>"``, or ``"git:<hex>"`` for a git blob id. It refers to the bytes of ``place``; if
            ``<place>.gz`` is stored instead, to its decompressed bytes. If ``place`` itself ends in ``.gz``, it refers
            to the compressed bytes.
        origin: for ``url=None``, what the file was made from.
    """

    name: str
    place: str
    url: str | None
    checksum: str
    origin: str = ""

    @property
    def file(self) -> str:
        """File name without folders."""
        return PurePosixPath(self.place).name

    @property
    def folder(self) -> str:
        """Folder below the data home."""
        return str(PurePosixPath(self.place).parent)


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """A registered set of any kind.

    Attributes:
        kind: ``"ts"``, ``"dna"``, ``"genome"`` or ``"text"``.
        name: as in the literature; ``load`` ignores case.
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
    """A time-series set.

    Attributes:
        file: file name in ``<data home>/ts``; a gzip of it, ``<file>.gz``, is accepted too.
        url, checksum: as in ``PublishedFile``.
        layout: ``"csv"``: a header, and stamps in the first column; ``"matrix"``: comma-separated numbers only.
        shape: (rows, columns) of the frame, without the stamps.
        columns: column names of the frame, in order.
        freq: pandas offset alias of the step between rows.
        season_length: number of rows per season (a day; for monthly data a year).
        start, end: first and last stamp, ISO 8601, inclusive, in local time of the source without time zone.
        regular: whether every step equals ``freq``. If not, stamps are repeated or missing, and are kept as published.
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
    """A set of labelled DNA sequences.

    Attributes:
        collection: ``"GUE"``, ``"GenomicBenchmarks"`` or ``"CNNProm"``.
        parts: official parts; ``("all",)`` if there is no official split.
        classes: class names, sorted. Label i means ``classes[i]``.
        counts: official number of (train, test) sequences of each class; empty if not registered.
        references: for GenomicBenchmarks, the reference genome of each class, for ``load(name, genome=...)``.
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
    """A genome. ``fasta``, ``annotation``, ``variants``: file names in ``<data home>/dna/genomes``, or None."""

    kind: ClassVar[Kind] = "genome"
    fasta: str
    annotation: str | None = None
    variants: str | None = None


@dataclass(frozen=True, kw_only=True)
class TextInfo(DatasetInfo):
    """A text set.

    Attributes:
        files: the file of each part.
        layout: ``"plain"``: one text per file; ``"jsonl"``: one JSON object per line.
        records: number of records that ``load`` returns.
    """

    kind: ClassVar[Kind] = "text"
    files: Mapping[str, PublishedFile] = field(repr=False)
    layout: Literal["plain", "jsonl"]
    records: int
