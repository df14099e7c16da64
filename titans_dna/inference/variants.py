"""Scores of variants: how each one changes the likelihood that a language model assigns to the genome.

    score = log P(alt, after | before) - log P(ref, after | before)      natural logarithm, mean over both strands

``after`` is the sequence that follows the variant, with the same number of bases for both alleles. ``before`` is the
sequence that the model read before the variant. It is the same for both alleles, so its likelihood cancels. The other
strand is scored on the reverse complement, where before and after swap roles. The joint likelihood is not normalised by
length: a deletion has fewer bases to predict, and gains about 1.4 (log 4) for each deleted base.

To score many variants, the genome is read once. Variants are grouped into *blocks* of ``context`` bases. Reading starts
``context`` bases before a block, so each variant has between ``context`` and ``2 * context`` bases before it (fewer
near the start of a chromosome). The model reads the reference sequence of a block once and sums its likelihoods. For
each alternative allele, it continues from the state saved at the start of the variant's *cell*; states are immutable,
so one state serves many variants. Blocks of both strands are read in parallel, as one batch.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from titans_core import LMState, TitansLM
from titans_core.warn import warn_caller
from titans_dna.genomes.genome import Genome
from titans_dna.genomes.intervals import Interval
from titans_dna.genomes.reference import compare, summary
from titans_dna.genomes.sources import part_of
from titans_dna.genomes.tokenizer import N, encode, reverse_complement
from titans_dna.genomes.vcf import Variant, is_sequence
from titans_dna.network.likelihood import log_probabilities, of_bases
from titans_dna.network.stream import padded

__all__ = ["checked", "variant_scores"]

# distance between saved states, and maximum number of tokens per reading step
CELL, _STEP = 64, 512
# blocks are sorted by length within this many batches; more would delay the first scores
_BATCHES = 16


class _Site(NamedTuple):
    """A variant in the coordinates of one strand.

    Attributes:
        number: index of the variant in the list.
        start, end: position of REF, 0-based half-open.
        stop: end of the scored sequence, exclusive.
        ref, alt: alleles on this strand, upper case.
    """

    number: int
    start: int
    end: int
    stop: int
    ref: str
    alt: str


@dataclass(frozen=True)
class _Block:
    """Sites that are read together, in order. ``strand`` is the whole chromosome on one strand, ``first`` the first
    position read on it."""

    strand: Interval
    first: int
    sites: tuple[_Site, ...]

    def cell(self, site: _Site) -> int:
        """Index of the cell in which the last base before a site is read."""
        return (site.start - self.first) // CELL

    @cached_property
    def tokens(self) -> int:
        """Number of tokens to read: the N and all bases before the last scored one."""
        return max(site.stop for site in self.sites) - self.first

    @property
    def place(self) -> tuple[str, int]:
        """Sort key: the position on the forward strand."""
        begin = self.sites[0].start
        return self.strand.chrom, begin if self.strand.strand == "+" else len(self.strand) - begin


class _Reference:
    """Log-likelihood of the reference between any two starts or stops of a block's sites, summed while reading.
    Bases before ``reached`` have been read."""

    def __init__(self, block: _Block) -> None:
        self.reached = block.first
        self.places = np.unique([place for site in block.sites for place in (site.start, site.stop)])
        self.sums = np.zeros(len(self.places))
        self.total = 0.0

    def add(self, first: int, log_p: NDArray[np.float64]) -> None:
        """Add the log-probabilities of the next bases, which start at position ``first``."""
        sums = self.total + np.concatenate(([0.0], np.cumsum(log_p)))
        here = slice(*np.searchsorted(self.places, (first, first + len(log_p) + 1)))
        self.sums[here] = sums[self.places[here] - first]
        self.reached, self.total = first + len(log_p), float(sums[-1])

    def of(self, site: _Site) -> float:
        start, stop = np.searchsorted(self.places, (site.start, site.stop))
        return float(self.sums[stop] - self.sums[start])


def checked(variants: Iterable[Variant], genome: Genome, mismatch: str) -> tuple[list[Variant], NDArray[np.bool_]]:
    """Check variants against the genome; return them all, and a mask of those whose REF agrees.

    With ``mismatch="skip"``, a warning counts the others and shows some.

    Raises:
        ValueError: ``mismatch`` is unknown; an allele is not made of bases; with ``mismatch="error"``, a REF does not
            match the genome; with "skip", nearly all positions are off by one.
    """
    if mismatch not in ("error", "skip"):
        raise ValueError(f"mismatch must be 'error' or 'skip', got {mismatch!r}.")
    variants = list(variants)
    for number, variant in enumerate(variants):
        if not is_sequence(variant.ref, variant.alt):
            raise ValueError(
                f"variant {number} (0-based), {variant}: ref and alt must consist of A, C, G, T and N, with one "
                "alternative allele per variant. Drop the variant, or split its alleles."
            )
    compared = [compare(variant, genome) for variant in variants]
    check = summary(zip(variants, compared, strict=True), genome)
    if not check.ok:
        if mismatch == "error":
            raise ValueError(
                f"{check}\nCheck that the variants belong to this genome, or set mismatch='skip' to leave these "
                "variants unscored."
            )
        if check.is_shifted:
            raise ValueError(
                f"{check}\nmismatch='skip' would only score variants that match by chance. Correct the positions."
            )
        warn_caller(f"{check.n - check.matching} of {check.n} variants are not scored. {check}")
    return variants, np.array([found.verdict == "matching" for found in compared], dtype=bool)


@torch.no_grad()
def variant_scores(
    network: TitansLM,
    genome: Genome,
    variants: Sequence[Variant],
    *,
    context: int | None,
    context_after: int,
    batch_size: int,
) -> Iterator[tuple[int, float]]:
    """Yield the index and score of each variant as they are computed; NaN if an allele has an N (no likelihood).

    Args:
        context: block size, and minimum number of bases read before a block. None reads from the start of the
            chromosome.
        context_after: number of scored bases after the variant, fewer at the end of the chromosome.
        batch_size: number of sequences read in parallel.
    """
    unknown = [number for number, v in enumerate(variants) if not v.is_known]
    yield from ((number, float("nan")) for number in unknown)
    blocks = sorted(_blocks(genome, variants, set(unknown), context, context_after), key=lambda block: block.place)
    one_strand: dict[int, float] = {}
    for at in range(0, len(blocks), _BATCHES * batch_size):
        # similar lengths together: a batch ends with its longest block
        some = sorted(blocks[at : at + _BATCHES * batch_size], key=lambda block: -block.tokens)
        for first in range(0, len(some), batch_size):
            for site, score in _read(network, genome, some[first : first + batch_size], batch_size):
                if site.number in one_strand:
                    yield site.number, (one_strand.pop(site.number) + score) / 2
                else:
                    one_strand[site.number] = score


def _read(
    network: TitansLM, genome: Genome, blocks: Sequence[_Block], batch_size: int
) -> Iterator[tuple[_Site, float]]:
    """Read blocks in parallel, sorted from longest to shortest, and score their sites."""
    sites = defaultdict(list)
    for row, block in enumerate(blocks):
        for site in block.sites:
            sites[block.cell(site) * CELL].append((row, site))
    references = [_Reference(block) for block in blocks]
    state = None
    waiting: list[tuple[int, _Site, float]] = []  # sites whose reference is not fully read yet
    for start, stop in _steps([0, *sites, blocks[0].tokens]):
        going = sum(block.tokens > start for block in blocks)
        if state is not None and going < len(blocks):
            blocks, state = blocks[:going], state.select(torch.arange(going))
        # similar lengths together, to limit padding
        here = sorted(sites.pop(start, []), key=lambda pair: pair[1].start - blocks[pair[0]].first + len(pair[1].alt))
        for first in range(0, len(here), batch_size):
            for row, site, alt, ref in _branch(network, genome, blocks, start, state, here[first : first + batch_size]):
                if ref is None:
                    waiting.append((row, site, alt))
                else:
                    yield site, alt - ref
        pieces = [_tokens(genome, block, start, min(stop, block.tokens) + 1) for block in blocks]
        ids = padded(pieces).to(network.embedding.weight.device)
        hidden, state = network.hidden(ids[:, :-1], state)
        log_p = _likelihoods(network, hidden, ids[:, 1:])
        for row, (block, piece) in enumerate(zip(blocks, pieces, strict=True)):
            references[row].add(block.first + start, log_p[row, : len(piece) - 1])
        for row, site, alt in [found for found in waiting if found[1].stop <= references[found[0]].reached]:
            yield site, alt - references[row].of(site)
        waiting = [found for found in waiting if found[1].stop > references[found[0]].reached]


def _steps(places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Start and stop of each reading step: steps end at all ``places`` and have at most ``_STEP`` tokens."""
    for start, stop in pairwise(sorted(set(places))):
        for at in range(start, stop, _STEP):
            yield at, min(at + _STEP, stop)


def _blocks(
    genome: Genome, variants: Sequence[Variant], without: set[int], context: int | None, context_after: int
) -> Iterator[_Block]:
    """Blocks of both strands, without the variants whose indices are in ``without``."""
    sites = []
    for number, variant in enumerate(variants):
        if number in without:
            continue
        size, ref, alt = genome.lengths[variant.chrom], variant.ref.upper(), variant.alt.upper()
        for strand in ("+", "-"):
            start = variant.start if strand == "+" else size - variant.end
            end = start + len(ref)
            block = 0 if context is None else start // context
            first = 0 if context is None else max(0, (block - 1) * context)
            site = _Site(number, start, end, min(end + context_after, size), ref, alt)
            sites.append(((variant.chrom, strand, first), site))
            ref, alt = reverse_complement(ref), reverse_complement(alt)
    sites.sort(key=lambda found: (found[0], found[1].start))
    for (chrom, strand, first), group in groupby(sites, key=lambda found: found[0]):
        yield _Block(Interval(chrom, 0, genome.lengths[chrom], strand), first, tuple(site for _, site in group))


def _tokens(genome: Genome, block: _Block, start: int, stop: int) -> NDArray[np.uint8]:
    """Tokens ``start`` to ``stop`` of a block: token 0 is its N, token t is the base ``first + t - 1``."""
    begin, end = block.first + max(start - 1, 0), block.first + stop - 1
    ids = genome.ids(part_of(block.strand, begin, end)) if end > begin else np.empty(0, np.uint8)
    return ids if start else np.concatenate((np.array([N], np.uint8), ids))


def _branch(
    network: TitansLM,
    genome: Genome,
    blocks: Sequence[_Block],
    done: int,
    state: LMState | None,
    sites: Sequence[tuple[int, _Site]],
) -> Iterator[tuple[int, _Site, float, float | None]]:
    """Log-likelihoods of the alternative and the reference of each site, from the state of its block after ``done``
    tokens. The reference is None if it equals the genome sequence. It can differ where the genome has an IUPAC code,
    which is read as N."""
    rows, sequences, counted, own = [], [], [], []
    for row, site in sites:
        block = blocks[row]
        lead = _tokens(genome, block, done, site.start - block.first + 1)
        there = genome.ids(part_of(block.strand, site.start, site.stop))
        ref = encode(site.ref)
        alleles = [encode(site.alt)]
        own.append(not np.array_equal(there[: len(ref)], ref))
        if own[-1]:
            alleles.append(ref)
        for allele in alleles:
            rows.append(row)
            sequences.append(np.concatenate((lead, allele, there[len(ref) :])))
            counted.append(len(lead))
    ids = padded(sequences).to(network.embedding.weight.device)
    hidden, _ = network.hidden(ids[:, :-1], None if state is None else state.select(torch.tensor(rows)))
    log_p = _likelihoods(network, hidden, ids[:, 1:])
    # column j of ``log_p`` scores token j + 1
    sums = iter([float(row[begin - 1 :].sum()) for row, begin in zip(log_p, counted, strict=True)])
    for (row, site), alone in zip(sites, own, strict=True):
        yield row, site, next(sums), next(sums) if alone else None


def _likelihoods(network: TitansLM, hidden: Tensor, following: Tensor) -> NDArray[np.float64]:
    """Log-likelihoods of the tokens ``following`` [B, T]; 0 for N and padding."""
    return of_bases(log_probabilities(network, hidden), following, 0.0).cpu().double().numpy()
