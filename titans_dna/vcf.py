"""Variants from VCF files, one alternative allele at a time.

Read here, without htslib: of a VCF only CHROM, POS, ID, REF and ALT are needed, cyvcf2 and pysam refuse files without
a complete header, and they pass on what htslib repaired where a score needs to know. Genotypes are not read.

    POS          1-based in the file, ``start`` is 0-based
    ALT A,C      two variants, in the file's order
    <DEL>, *, . and breakends have no sequence to score, nor have IUPAC codes, nor what stands at POS 0, a telomere:
                 skipped with one warning that counts them, or refused
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from titans_datasets.warn import warn_caller
from titans_dna.intervals import check_place, is_missing, is_whole
from titans_dna.lines import DAMAGED, BadLineError, fields, open_binary

__all__ = ["MEANT", "Variant", "is_sequence", "read_vcf", "short", "variants_of"]

_BASES = frozenset("ACGTNacgtn")
# what a letter of a genome may stand for; VCF writes one of these bases in its place
MEANT = dict(R="AG", Y="CT", S="CG", W="AT", K="GT", M="AC", B="CGT", D="AGT", H="ACT", V="ACG")
_LETTERS = _BASES | frozenset("".join(MEANT) + "".join(MEANT).lower())


@dataclass(frozen=True, slots=True)
class Variant:
    """One change of the genome.

    Attributes:
        chrom: name as in the FASTA.
        start: 0-based position of the first base of ``ref``.
        ref, alt: bases of the genome, and those that replace them; as written, A C G T N in either case.
        id: name of the variant, or empty.

    Raises:
        TypeError: a chromosome that is no string, or a start that is no integer.
        ValueError: a start before the first base, or an allele without bases.
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
                f"a variant has a start of 0 or more and at least one base in ref and alt, as in VCF; got start="
                f"{self.start}, ref={self.ref!r}, alt={self.alt!r}."
            )

    @property
    def end(self) -> int:
        """0-based, exclusive: ``start`` plus the length of ``ref``."""
        return self.start + len(self.ref)

    @property
    def is_known(self) -> bool:
        """Whether neither allele has an N: only such have a likelihood."""
        return "N" not in (self.ref + self.alt).upper()

    @property
    def is_snv(self) -> bool:
        """One base for another; everything else changes or may change the length."""
        return len(self.ref) == len(self.alt) == 1

    def __str__(self) -> str:
        return f"{self.chrom}:{self.start} {short(self.ref)}>{short(self.alt)}"


def variants_of(frame: Any) -> list[Variant]:
    """Variants of a frame of pandas or polars.

    It has the columns ``chrom, start, ref, alt`` (start 0-based), and maybe ``id``.

    Raises:
        ValueError: a column is missing, or a row is no variant; the message gives the row, counted from 0.
    """
    names = ["chrom", "start", "ref", "alt"]
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise ValueError(f"the frame lacks the columns {missing}; it has {list(frame.columns)}. start is 0-based.")
    ids = frame["id"] if "id" in frame.columns else [""] * len(frame)
    found = []
    for row, (chrom, start, ref, alt, label) in enumerate(zip(*(frame[name] for name in names), ids, strict=True)):
        try:
            given = {"chrom": chrom, "start": start, "ref": ref, "alt": alt}
            empty = [name for name, value in given.items() if is_missing(value)]
            if empty:
                raise ValueError(f"{empty[0]} is missing. Drop the row.")
            if not is_whole(start):
                raise ValueError(f"start {start} must be a whole number.")
            if not is_sequence(str(ref), str(alt)):
                raise ValueError(f"ref {ref!r} and alt {alt!r} must be of bases A C G T N, one allele a row.")
            found.append(Variant(str(chrom), int(start), str(ref), str(alt), "" if is_missing(label) else str(label)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"row {row} of the frame: {error}") from error
    return found


def read_vcf(path: str | Path, *, symbolic: Literal["skip", "error"] = "skip") -> Iterator[Variant]:
    """Variants of a VCF file, plain or gzip, streamed in the file's order; one per alternative allele.

    A file without the ``##fileformat`` line is read by the order of its columns, with a warning.

    Args:
        symbolic: what to do with alleles that are no sequence of A C G T N, and with all of a REF that is none.

    Raises:
        ValueError: a bad line (too few columns, POS no number from 0 up, REF not made of letters of bases), or with
            ``symbolic="error"`` an allele that is no sequence, or POS 0. The message names file and line.
    """
    if symbolic not in ("skip", "error"):
        raise ValueError(f"symbolic is 'skip' or 'error', got {symbolic!r}.")
    return _read(Path(path).expanduser(), symbolic)


def is_sequence(ref: str, alt: str) -> bool:
    """Whether both alleles are of bases A C G T N, in either case."""
    return _BASES.issuperset(ref) and _BASES.issuperset(alt)


def _read(path: Path, symbolic: str) -> Iterator[Variant]:
    if not _begins_as_vcf(path):
        warn_caller(
            f"{path} has no line ##fileformat=VCF... to begin with: read as columns CHROM, POS (from 1), ID, REF, ALT."
        )
    skipped, first_skipped = 0, 0
    for number, row in fields(path, lambda line: line.startswith("#")):
        chrom, start, name, ref, alts = _site(path, number, row)
        for alt in map(str.strip, alts.split(",")):
            if start >= 0 and alt and is_sequence(ref, alt):
                yield Variant(chrom, start, ref, alt, name)
            elif symbolic == "error":
                why = "is not of bases A C G T N" if start >= 0 else "stands at POS 0, before the first base"
                raise BadLineError(path, number, f"{short(ref)} to {short(alt)} {why}; read with symbolic='skip'")
            else:
                skipped, first_skipped = skipped + 1, first_skipped or number
    if skipped:
        warn_caller(
            f"{path}: skipped {skipped} alleles that are no sequence of A C G T N (such as <DEL>, *, . or IUPAC "
            f"codes) or stand at POS 0, first on line {first_skipped}."
        )


def _begins_as_vcf(path: Path) -> bool:
    with suppress(*DAMAGED), open_binary(path) as stream:
        return stream.readline(80).removeprefix(b"\xef\xbb\xbf").startswith(b"##fileformat=VCF")
    return True  # whoever reads it will be told that it is damaged


def _site(path: Path, number: int, row: list[str]) -> tuple[str, int, str, str, str]:
    """CHROM, POS from 0, ID, REF and ALT of a line; POS 0 of the file, the telomere before the first base, is -1."""
    if len(row) < 5:
        raise BadLineError(path, number, f"{len(row)} column(s); CHROM POS ID REF ALT are needed (tab-separated)")
    chrom, position, name, ref, alts = (field.strip() for field in row[:5])
    if not position.isdecimal():
        raise BadLineError(path, number, f"POS is {position!r}; expected a whole number from 1 up (0: a telomere)")
    if not ref or not _LETTERS.issuperset(ref):
        raise BadLineError(path, number, f"REF is {short(ref)!r}; expected bases A C G T N")
    return chrom, int(position) - 1, "" if name == "." else name, ref, alts


def short(bases: str) -> str:
    """An allele as an error shows it: of a long one the beginning, and how long it is."""
    return bases if len(bases) <= 12 else f"{bases[:9]}...({len(bases)})"
