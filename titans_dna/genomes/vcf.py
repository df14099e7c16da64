"""Reading variants from VCF files, one alternative allele at a time.

Files are read without htslib, since only CHROM, POS, ID, REF and ALT are needed. cyvcf2 and pysam refuse files without
a complete header, and silently repair records whose errors matter for scoring. Genotypes are not read.

    POS          1-based in the file, ``start`` is 0-based
    ALT A,C      two variants, in the order of the file
    <DEL>, *, ., breakends, IUPAC codes and alleles at POS 0 (telomeres) cannot be scored:
                 they are skipped, with one warning that counts them, or raise an error
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union

from titans_core.warn import warn_caller
from titans_datasets.gzipped import DAMAGED, open_binary
from titans_dna.genomes.intervals import check_place, is_missing, is_whole
from titans_dna.genomes.lines import BadLineError, fields

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MEANT", "Variant", "Variants", "as_variants", "is_sequence", "read_vcf", "short", "variants_of"]

# what functions accept as variants (:func:`as_variants`)
Variants: TypeAlias = Union[str, os.PathLike[str], "pd.DataFrame", "Variant", Iterable["Variant"]]

_BASES = frozenset("ACGTNacgtn")
# bases that an IUPAC code stands for; VCF files have one of these bases instead of the code
MEANT = dict(R="AG", Y="CT", S="CG", W="AT", K="GT", M="AC", B="CGT", D="AGT", H="ACT", V="ACG")
_LETTERS = _BASES | frozenset("".join(MEANT) + "".join(MEANT).lower())


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant: one alternative allele.

    Attributes:
        chrom: chromosome name, as in the FASTA file.
        start: 0-based position of the first base of ``ref``.
        ref, alt: reference and alternative allele: A, C, G, T and N, in either case, as written in the source.
        id: identifier of the variant, or an empty string.

    Raises:
        TypeError: the chromosome is not a string, or the start is not an integer.
        ValueError: the start is negative, or an allele is empty.
    """

    chrom: str
    start: int
    ref: str
    alt: str
    id: str = ""

    def __post_init__(self) -> None:
        check_place(self.chrom, self.start)
        if self.start < 0 or not self.ref or not self.alt:
            raise ValueError(
                f"start must be at least 0, and ref and alt must have at least one base, as in VCF; got "
                f"start={self.start}, ref={self.ref!r}, alt={self.alt!r}."
            )

    @property
    def end(self) -> int:
        """End of ``ref``, 0-based and exclusive."""
        return self.start + len(self.ref)

    @property
    def is_known(self) -> bool:
        """Whether both alleles are free of N; only then they have a likelihood."""
        return "N" not in (self.ref + self.alt).upper()

    @property
    def is_snv(self) -> bool:
        """Whether one base is replaced by another."""
        return len(self.ref) == len(self.alt) == 1

    def __str__(self) -> str:
        return f"{self.chrom}:{self.start} (0-based) {short(self.ref)}>{short(self.alt)}"


def variants_of(frame: Any) -> list[Variant]:
    """Convert a pandas or polars frame to variants.

    The frame has the columns ``chrom, start, ref, alt`` (start is 0-based) and optionally ``id``.

    Raises:
        ValueError: a column is missing, or a row is not a valid variant; the message gives the row number (0-based).
    """
    names = ["chrom", "start", "ref", "alt"]
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise ValueError(f"the frame lacks the columns {missing}; it has {list(frame.columns)}. start must be 0-based.")
    ids = frame["id"] if "id" in frame.columns else [""] * len(frame)
    found = []
    for row, (chrom, start, ref, alt, label) in enumerate(zip(*(frame[name] for name in names), ids, strict=True)):
        try:
            given = {"chrom": chrom, "start": start, "ref": ref, "alt": alt}
            empty = [name for name, value in given.items() if is_missing(value)]
            if empty:
                raise ValueError(f"{empty[0]} is missing. Drop the row.")
            if not is_whole(start):
                raise ValueError(f"start {start!r} must be a whole number. Convert text with astype(int).")
            if not is_sequence(str(ref), str(alt)):
                raise ValueError(f"ref {ref!r} and alt {alt!r} must consist of A, C, G, T and N, one allele per row.")
            found.append(Variant(str(chrom), int(start), str(ref), str(alt), "" if is_missing(label) else str(label)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"row {row} of the frame: {error}") from error
    return found


def as_variants(given: Variants) -> Iterable[Variant]:
    """Variants from a VCF file, a frame (:func:`variants_of`), one Variant or several.

    Raises:
        TypeError: an item is not a Variant; raised when it is reached.
    """
    if isinstance(given, Variant):
        return [given]
    if isinstance(given, str | os.PathLike):
        return read_vcf(Path(given))
    return variants_of(given) if hasattr(given, "columns") else _only_variants(given)


def _only_variants(given: Iterable[Any]) -> Iterator[Variant]:
    for item in given:
        if not isinstance(item, Variant):
            raise TypeError(f"variants must be Variant(chrom, start, ref, alt) or a VCF file, got {item!r:.40}.")
        yield item


def read_vcf(path: str | Path, *, symbolic: Literal["skip", "error"] = "skip") -> Iterator[Variant]:
    """Iterate over the variants of a VCF file (plain or gzip) in file order, one per alternative allele.

    A file without a ``##fileformat`` line is read by the standard order of columns, with a warning.

    Args:
        path: path of the VCF file.
        symbolic: what to do with alleles that are not made of A, C, G, T and N, including all alleles of such a REF, or
            that are at POS 0: "skip" (with one warning) or "error".

    Raises:
        ValueError: a line is invalid (too few columns, POS is not a whole number, REF is not made of base letters); or,
            with ``symbolic="error"``, an allele cannot be scored. The message names file and line.
    """
    if symbolic not in ("skip", "error"):
        raise ValueError(f"symbolic must be 'skip' or 'error', got {symbolic!r}.")
    return _read(Path(path).expanduser(), symbolic)


def is_sequence(ref: str, alt: str) -> bool:
    """Whether both alleles consist of A, C, G, T and N, in either case."""
    return _BASES.issuperset(ref) and _BASES.issuperset(alt)


def _read(path: Path, symbolic: str) -> Iterator[Variant]:
    if not _begins_as_vcf(path):
        warn_caller(
            f"{path} does not begin with ##fileformat=VCF...; reading columns as CHROM, POS (1-based), ID, REF, ALT."
        )
    skipped, first_skipped = 0, 0
    for number, row in fields(path, lambda line: line.startswith("#")):
        chrom, start, name, ref, alts = _site(path, number, row)
        for alt in map(str.strip, alts.split(",")):
            if start >= 0 and alt and is_sequence(ref, alt):
                yield Variant(chrom, start, ref, alt, name)
            elif symbolic == "error":
                why = "is not made of A, C, G, T and N" if start >= 0 else "is at POS 0, before the first base"
                raise BadLineError(path, number, f"{short(ref)}>{short(alt)} {why}; skip it with symbolic='skip'")
            else:
                skipped, first_skipped = skipped + 1, first_skipped or number
    if skipped:
        warn_caller(
            f"{path}: skipped {skipped} alleles that are not made of A, C, G, T and N (such as <DEL>, *, . or IUPAC "
            f"codes) or are at POS 0, first on line {first_skipped}."
        )


def _begins_as_vcf(path: Path) -> bool:
    with suppress(*DAMAGED), open_binary(path) as stream:
        first = stream.readline(80)
        if first.startswith(b"BCF"):
            raise ValueError(f"{path} is BCF, the binary form of VCF: convert it with `bcftools view -O z`.")
        return first.removeprefix(b"\xef\xbb\xbf").startswith(b"##fileformat=VCF")
    return True  # reading a damaged file raises its own error


def _site(path: Path, number: int, row: list[str]) -> tuple[str, int, str, str, str]:
    """CHROM, 0-based POS, ID, REF and ALT of a line; POS 0 of the file (before the first base) becomes -1."""
    if len(row) < 5:
        raise BadLineError(path, number, f"{len(row)} column(s); expected CHROM, POS, ID, REF, ALT (tab-separated)")
    chrom, position, name, ref, alts = (field.strip() for field in row[:5])
    if not position.isdecimal():
        raise BadLineError(path, number, f"POS is {position!r}; expected a whole number, at least 1 (0: a telomere)")
    if not ref or not _LETTERS.issuperset(ref):
        raise BadLineError(path, number, f"REF is {short(ref)!r}; expected the bases A, C, G, T and N")
    return chrom, int(position) - 1, "" if name == "." else name, ref, alts


def short(bases: str) -> str:
    """An allele for messages: long ones are abbreviated, with their length."""
    return bases if len(bases) <= 12 else f"{bases[:9]}...({len(bases)})"
