"""Check whether variants belong to a genome: compare REF with the genome, and explain mismatches.

If all positions of a file are off by one, REF still matches by chance at about one variant in four. An explanation is
therefore tested on *all* variants, including those that match: if REF is found one base further left in nearly all of
them, positions are off by one, and the matches are due to chance.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from titans_dna.genomes.genome import Genome
from titans_dna.genomes.intervals import Interval
from titans_dna.genomes.sources import open_source
from titans_dna.genomes.vcf import MEANT, Variant, Variants, as_variants, short

__all__ = ["Comparison", "ReferenceCheck", "check_reference", "compare", "summary"]

_SHOWN = 5
# an explanation must hold for this fraction of variants, with mismatches at this many sites or more: with fewer it may
# be chance (one in four at one site, about one in a thousand at five)
_NEARLY_ALL, _PLACES = 0.95, 5
Verdict = Literal["matching", "swapped", "shifted", "absent", "other"]
Explanation = Literal["", "left", "right", "swapped"]
_MEANING: dict[Explanation, str] = {
    "left": "one base further left for nearly all variants: positions are 1 too high (start counted from 1?)",
    "right": "one base further right for nearly all variants: positions are 1 too low (POS counted from 0?)",
    "swapped": "ALT for nearly all of these: REF and ALT are probably exchanged",
}


class Comparison(NamedTuple):
    """Comparison of one variant with a genome: the verdict (named as in :class:`ReferenceCheck`), and whether REF is
    also found one base further left or right."""

    verdict: Verdict
    left: bool = False
    right: bool = False


@dataclass(frozen=True)
class ReferenceCheck:
    """Result of comparing the REF alleles of variants with a genome.

    Attributes:
        n: number of variants.
        matching: number of variants whose REF matches the genome, ignoring case. An IUPAC code in the genome matches
            the bases it stands for.
        swapped: number of variants where the genome has ALT instead (another individual, or REF and ALT exchanged).
            Deletions whose ALT is the start of REF are not counted, because ALT then matches in any case.
        shifted: number of other variants whose REF is found one base further left or right (wrong coordinate system).
        absent: number of variants on an unknown chromosome, or beyond its end.
        first: descriptions of the first mismatches.
        explanation: an explanation that holds for nearly all variants, if mismatches occur at 5 sites or more. "left"
            or "right": REF is found one base further in that direction, also for matching variants. "swapped": REF and
            ALT are exchanged in the mismatches. Otherwise empty.
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
        """Number of mismatches for other reasons."""
        return self.n - self.matching - self.swapped - self.shifted - self.absent

    @property
    def is_shifted(self) -> bool:
        """Whether positions are off by one, so that matches are due to chance."""
        return self.explanation in ("left", "right")

    def __str__(self) -> str:
        if self.ok:
            return f"REF matches the genome in all {self.n} variants"
        lines = [
            f"REF does not match the genome in {self.n - self.matching} of {self.n} variants",
            f"  genome has ALT: {self.swapped}, REF is one base off: {self.shifted}, position does not exist: "
            f"{self.absent}, other: {self.other}",
        ]
        if self.explanation:
            subject = "REF is found" if self.is_shifted else "The genome has"
            lines.append(f"  {subject} {_MEANING[self.explanation]}")
        return "\n".join(lines + [f"  {example}" for example in self.first])


def compare(variant: Variant, genome: Genome) -> Comparison:
    """Compare the REF of one variant with a genome."""
    size = genome.lengths.get(variant.chrom, 0)
    if variant.end > size:
        return Comparison("absent")
    # one more base on each side, to recognise shifted positions, and all of an ALT that is longer than REF
    left, right = max(variant.start - 1, 0), min(max(variant.end + 1, variant.start + len(variant.alt)), size)
    around = genome.fetch(Interval(variant.chrom, left, right)).upper()
    at, ref, alt = variant.start - left, variant.ref.upper(), variant.alt.upper()
    shifts = bool(at) and _agree(ref, around), _agree(ref, around[at + 1 :])
    if _agree(ref, around[at:]):
        return Comparison("matching", *shifts)
    # ALT of a deletion that starts REF is always present; if two explanations fit, prefer the one with more bases
    swapped = around[at : at + len(alt)] == alt and not ref.startswith(alt)
    if swapped and not (any(shifts) and len(ref) > len(alt)):
        return Comparison("swapped", *shifts)
    return Comparison("shifted" if any(shifts) else "other", *shifts)


def check_reference(variants: Variants, genome: Any) -> ReferenceCheck:
    """Compare the REF of every variant with the genome.

    Mismatches are counted; they do not raise an error.

    Args:
        variants: path of a VCF file, a frame with the columns ``chrom, start, ref, alt`` (0-based), or variants.
        genome: path of the FASTA file, or a Genome.

    Raises:
        TypeError: an item is not a Variant.
        ValueError: the VCF file or the frame is invalid.
    """
    genome = open_source(genome)
    return summary(((variant, compare(variant, genome)) for variant in as_variants(variants)), genome)


def summary(compared: Iterable[tuple[Variant, Comparison]], genome: Genome) -> ReferenceCheck:
    """Result of :func:`check_reference`, from comparisons already made."""
    counts: Counter[Verdict] = Counter()
    left = right = silent = 0
    wrong_left = wrong_right = 0
    first: list[str] = []
    # several alleles at one site count as one mismatch
    places = set[tuple[str, int]]()
    for variant, found in compared:
        counts[found.verdict] += 1
        left, right = left + found.left, right + found.right
        if found.verdict == "matching":
            continue
        if len(first) < _SHOWN:
            first.append(f"{variant}: the genome {_holds(variant, genome, found.verdict)}")
        if found.verdict != "absent":
            wrong_left, wrong_right = wrong_left + found.left, wrong_right + found.right
            silent += variant.ref.upper().startswith(variant.alt.upper())
            if len(places) < _PLACES:
                places.add((variant.chrom, variant.start))
    placed = counts.total() - counts["absent"]
    explanation: Explanation = ""
    if len(places) >= _PLACES:
        wrong = placed - counts["matching"]
        # correct variants in repeats also match one base beside: the mismatches must, too
        parts: dict[Explanation, float] = {
            "left": min(left / placed, wrong_left / wrong),
            "right": min(right / placed, wrong_right / wrong),
        }
        if counts["swapped"] >= _PLACES:
            parts["swapped"] = counts["swapped"] / (wrong - silent)
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
    """Whether ``there`` starts with REF, or with IUPAC codes compatible with it."""
    if there.startswith(ref):
        return True
    pairs = zip(ref, there, strict=False)
    return len(there) >= len(ref) and all(base in MEANT.get(letter, letter) for base, letter in pairs)


def _holds(variant: Variant, genome: Genome, found: Verdict) -> str:
    if found != "absent":
        return f"has {short(genome.fetch(Interval(variant.chrom, variant.start, variant.end)).upper())}"
    size = genome.lengths.get(variant.chrom)
    return f"ends at {size}" if size is not None else f"has no such chromosome.{genome.meant(variant.chrom)}"
