"""Whether variants are of a genome: what REF says beside what the genome holds, and what explains a difference.

A file whose positions are all off by one does not disagree everywhere: about one base in four agrees by chance. So one
explanation is held against *all* variants, those that agree among them: where REF stands one base further left in
nearly all of them, they are off by one, and what agrees means nothing.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from titans_dna.genome import Genome
from titans_dna.intervals import Interval
from titans_dna.sources import open_source
from titans_dna.vcf import MEANT, Variant, short

__all__ = ["Comparison", "ReferenceCheck", "check_reference", "compare", "summary"]

_SHOWN = 5
# from which part an explanation is one, and at so many places that disagree: of fewer it may be chance, which explains
# one in four, and all of five once in a thousand times
_NEARLY_ALL, _PLACES = 0.95, 5
Verdict = Literal["matching", "swapped", "shifted", "absent", "other"]
Explanation = Literal["", "left", "right", "swapped"]
_MEANING: dict[Explanation, str] = {
    "left": "one base further left in nearly all: their positions are 1 too high (start counted from 1?)",
    "right": "one base further right in nearly all: their positions are 1 too low (POS counted from 0?)",
    "swapped": "ALT in the genome, in nearly all of these: REF and ALT are exchanged",
}


class Comparison(NamedTuple):
    """One variant beside a genome: as the fields of :class:`ReferenceCheck`, or "other"; and whether REF stands one
    base further left, or right, whatever stands at its place."""

    verdict: Verdict
    left: bool = False
    right: bool = False


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
        explanation: what explains nearly all of them by itself, at 5 places that disagree or more: "left" or "right",
            REF stands one base there, in those that match too; "swapped", REF and ALT are exchanged in those that do
            not match. Else empty.
    """

    n: int
    matching: int
    swapped: int
    shifted: int
    absent: int
    first: tuple[str, ...]
    explanation: Explanation = ""

    @property
    def ok(self) -> bool:
        return self.matching == self.n

    @property
    def other(self) -> int:
        """Those that do not match for none of these reasons."""
        return self.n - self.matching - self.swapped - self.shifted - self.absent

    @property
    def is_shifted(self) -> bool:
        """Whether positions are off by one, so that those that match do so by chance."""
        return self.explanation in ("left", "right")

    def __str__(self) -> str:
        if self.ok:
            return f"REF agrees with the genome in all {self.n} variants"
        lines = [
            f"REF disagrees with the genome in {self.n - self.matching} of {self.n} variants",
            f"  genome holds ALT {self.swapped}, REF one base off {self.shifted}, no such place {self.absent}, "
            f"other {self.other}",
        ]
        if self.explanation:
            subject = "REF stands" if self.is_shifted else "There stands"
            lines.append(f"  {subject} {_MEANING[self.explanation]}")
        return "\n".join(lines + [f"  {example}" for example in self.first])


def compare(variant: Variant, genome: Genome) -> Comparison:
    """How one variant's REF compares with a genome."""
    size = genome.lengths.get(variant.chrom, 0)
    if variant.end > size:
        return Comparison("absent")
    # one base to either side, so that a shifted file is recognised
    left, right = max(variant.start - 1, 0), min(variant.end + 1, size)
    around = genome.fetch(Interval(variant.chrom, left, right)).upper()
    at, ref, alt = variant.start - left, variant.ref.upper(), variant.alt.upper()
    shifts = bool(at) and _agree(ref, around), _agree(ref, around[at + 1 :])
    if _agree(ref, around[at:]):
        return Comparison("matching", *shifts)
    # what a deletion leaves stands at its place, whatever REF is; and of two explanations the one of more bases holds
    swapped = around[at : at + len(alt)] == alt and not ref.startswith(alt)
    if swapped and not (any(shifts) and len(ref) > len(alt)):
        return Comparison("swapped", *shifts)
    return Comparison("shifted" if any(shifts) else "other", *shifts)


def check_reference(variants: Iterable[Variant], genome: Any) -> ReferenceCheck:
    """Compare the REF of every variant with the genome, a Genome or the path of its FASTA file; nothing is raised for a
    mismatch, all are counted."""
    genome = open_source(genome)
    return summary(((variant, compare(variant, genome)) for variant in variants), genome)


def summary(compared: Iterable[tuple[Variant, Comparison]], genome: Genome) -> ReferenceCheck:
    """What :func:`check_reference` says, of comparisons that are known already."""
    counts: Counter[Verdict] = Counter()
    left = right = silent = 0
    first: list[str] = []
    # alleles of one place are one witness
    places = set[tuple[str, int]]()
    for variant, found in compared:
        counts[found.verdict] += 1
        left, right = left + found.left, right + found.right
        if found.verdict == "matching":
            continue
        if len(first) < _SHOWN:
            first.append(f"{variant}: the genome {_holds(variant, genome, found.verdict)}")
        if found.verdict != "absent":
            silent += variant.ref.upper().startswith(variant.alt.upper())
            if len(places) < _PLACES:
                places.add((variant.chrom, variant.start))
    placed = counts.total() - counts["absent"]
    explanation: Explanation = ""
    if len(places) >= _PLACES:
        parts: dict[Explanation, float] = {"left": left / placed, "right": right / placed}
        if counts["swapped"] >= _PLACES:
            parts["swapped"] = counts["swapped"] / (placed - counts["matching"] - silent)
        best = max(parts, key=lambda name: parts[name])
        explanation = best if parts[best] >= _NEARLY_ALL else ""
    return ReferenceCheck(
        counts.total(),
        counts["matching"],
        counts["swapped"],
        counts["shifted"],
        counts["absent"],
        tuple(first),
        explanation,
    )


def _agree(ref: str, there: str) -> bool:
    """Whether a REF may be what begins here."""
    if there.startswith(ref):
        return True
    pairs = zip(ref, there, strict=False)
    return len(there) >= len(ref) and all(base in MEANT.get(letter, letter) for base, letter in pairs)


def _holds(variant: Variant, genome: Genome, found: Verdict) -> str:
    if found != "absent":
        return f"holds {short(genome.fetch(Interval(variant.chrom, variant.start, variant.end)).upper())}"
    size = genome.lengths.get(variant.chrom)
    return f"ends at {size}" if size else f"has no such chromosome.{genome.meant(variant.chrom)}"
