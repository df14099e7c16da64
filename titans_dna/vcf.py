"""Variants from VCF files, one alternative allele at a time, checked against the genome they claim to change.

Read here, without htslib: of a VCF only CHROM, POS, ID, REF and ALT are needed, cyvcf2 and pysam refuse files without
a complete header, and they pass on what htslib repaired where a score needs to know. Genotypes are not read.

    POS          1-based in the file, ``start`` is 0-based
    ALT A,C      two variants, in the file's order
    <DEL>, *, . and breakends have no sequence to score, nor have IUPAC codes, nor what stands at POS 0, a telomere:
                 skipped with one warning that counts them, or refused
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from titans_datasets.warn import warn_caller
from titans_dna.intervals import Interval, check_place, is_missing
from titans_dna.lines import DAMAGED, BadLineError, fields, open_binary
from titans_dna.sources import open_source

if TYPE_CHECKING:
    from titans_dna.genome import Genome

__all__ = [
    "ReferenceCheck",
    "Variant",
    "check_reference",
    "is_sequence",
    "read_vcf",
    "summary",
    "variants_of",
    "verdict",
]

_BASES = frozenset("ACGTNacgtn")
# what a letter of a genome may stand for; VCF writes one of these bases in its place
_MEANT = dict(R="AG", Y="CT", S="CG", W="AT", K="GT", M="AC", B="CGT", D="AGT", H="ACT", V="ACG")
_LETTERS = _BASES | frozenset("".join(_MEANT) + "".join(_MEANT).lower())
_SHOWN = 5
Verdict = Literal["matching", "swapped", "shifted", "absent", "other"]


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
    def is_snv(self) -> bool:
        """One base for another; everything else changes or may change the length."""
        return len(self.ref) == len(self.alt) == 1

    def __str__(self) -> str:
        return f"{self.chrom}:{self.start} {_short(self.ref)}>{_short(self.alt)}"


@dataclass(frozen=True)
class ReferenceCheck:
    """How the REF of a list of variants compares with a genome.

    Attributes:
        n: variants looked at.
        matching: those whose REF is what the genome holds there, case aside; or a base that an IUPAC code there stands
            for.
        swapped: those where the genome holds ALT instead (another individual, or REF and ALT exchanged). ALT of a
            deletion says nothing here: it is REF's first base, which stands there in any case.
        shifted: others, where REF stands one base further left or right (positions counted from 0, or twice from 1).
        absent: those on a chromosome the genome does not have, or off its end.
        first: the first few that do not match, with what the genome holds.
    """

    n: int
    matching: int
    swapped: int
    shifted: int
    absent: int
    first: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return self.matching == self.n

    def __str__(self) -> str:
        if self.ok:
            return f"REF agrees with the genome in all {self.n} variants"
        lines = [
            f"REF disagrees with the genome in {self.n - self.matching} of {self.n} variants",
            f"  genome holds ALT {self.swapped}, REF one base off {self.shifted}, no such place {self.absent}",
        ]
        return "\n".join(lines + [f"  {example}" for example in self.first])


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
            if int(start) != start:
                raise ValueError(f"start {start} must be a whole number.")
            given = {"chrom": chrom, "ref": ref, "alt": alt}
            empty = [name for name, value in given.items() if is_missing(value)]
            if empty:
                raise ValueError(f"{empty[0]} is missing. Drop the row.")
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


def verdict(variant: Variant, genome: "Genome") -> Verdict:
    """How one variant's REF compares with a genome: as the fields of :class:`ReferenceCheck`, or "other"."""
    size = genome.lengths.get(variant.chrom, 0)
    if variant.end > size:
        return "absent"
    # one base to either side, so that a shifted file is recognised
    left, right = max(variant.start - 1, 0), min(variant.end + 1, size)
    around = genome.fetch(Interval(variant.chrom, left, right)).upper()
    at, ref, alt = variant.start - left, variant.ref.upper(), variant.alt.upper()
    here = around[at : at + len(ref)]
    if all(base in _MEANT.get(letter, letter) for base, letter in zip(ref, here, strict=True)):
        return "matching"
    shifted = ref in (around[: len(ref)] if at else "", around[at + 1 :])
    # what a deletion leaves stands at its place, whatever REF is; and of two explanations the one of more bases holds
    swapped = around[at : at + len(alt)] == alt and not ref.startswith(alt)
    if swapped and not (shifted and len(ref) > len(alt)):
        return "swapped"
    return "shifted" if shifted else "other"


def check_reference(variants: Iterable[Variant], genome: Any) -> ReferenceCheck:
    """Compare the REF of every variant with the genome, a Genome or the path of its FASTA file; nothing is raised for a
    mismatch, all are counted."""
    genome = open_source(genome)
    return summary(((variant, verdict(variant, genome)) for variant in variants), genome)


def summary(verdicts: Iterable[tuple[Variant, Verdict]], genome: "Genome") -> ReferenceCheck:
    """What :func:`check_reference` says, of verdicts that are known already."""
    counts: Counter[Verdict] = Counter()
    first: list[str] = []
    for variant, found in verdicts:
        counts[found] += 1
        if found != "matching" and len(first) < _SHOWN:
            first.append(f"{variant}: the genome {_holds(variant, genome, found)}")
    return ReferenceCheck(
        counts.total(), counts["matching"], counts["swapped"], counts["shifted"], counts["absent"], tuple(first)
    )


def _holds(variant: Variant, genome: "Genome", found: Verdict) -> str:
    if found != "absent":
        return f"holds {_short(genome.fetch(Interval(variant.chrom, variant.start, variant.end)).upper())}"
    size = genome.lengths.get(variant.chrom)
    return f"ends at {size}" if size else f"has no such chromosome.{genome.meant(variant.chrom)}"


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
                raise BadLineError(path, number, f"{_short(ref)} to {_short(alt)} {why}; read with symbolic='skip'")
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
        raise BadLineError(path, number, f"REF is {_short(ref)!r}; expected bases A C G T N")
    return chrom, int(position) - 1, "" if name == "." else name, ref, alts


def _short(bases: str) -> str:
    return bases if len(bases) <= 12 else f"{bases[:9]}...({len(bases)})"
