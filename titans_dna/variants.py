"""How a variant changes the likelihood of a genome, from a language model that reads it.

    score = log P(alt, after | before) - log P(ref, after | before)      natural logarithm, mean over both strands

``after`` are the bases behind the variant, as many on either haplotype; ``before`` is what the model read up to the
variant, the same for both, so that its own likelihood cancels. On the other strand the reverse complement is read, and
before and after change places. The joint likelihood is taken as it is: a deletion has fewer bases to explain, and gains
about 1.4 (log 4) for each.

Memory is read once for many variants. Variants are gathered into *blocks* of ``context`` bases; reading begins
``context`` bases before a block, so each variant has between ``context`` and twice as many bases before it (fewer at a
chromosome's start). A block is read in cells, and both haplotypes of a variant go on from the state kept at the start
of its cell: states are immutable, and can be gone on from many times. Blocks are read side by side, as one batch.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from titans_core import LMState, TitansLM
from titans_datasets.warn import warn_caller
from titans_dna.genome import Genome
from titans_dna.intervals import Interval
from titans_dna.reference import compare, summary
from titans_dna.sources import part_of
from titans_dna.stream import PIECE, log_probabilities, padded
from titans_dna.tokenizer import N, encode, reverse_complement
from titans_dna.vcf import Variant, is_sequence

__all__ = ["checked", "strand_scores"]

CELL = 128


class _Site(NamedTuple):
    """A variant in the coordinates of one strand; ``number`` is its place in the list."""

    number: int
    position: int
    ref: NDArray[np.uint8]
    alt: NDArray[np.uint8]


@dataclass(frozen=True)
class _Block:
    """Sites that share their reading, in order: ``strand`` is the whole chromosome in its direction, ``first`` the base
    of it that is read first."""

    strand: Interval
    first: int
    sites: tuple[_Site, ...]

    def cell(self, site: _Site) -> int:
        """In which cell the last base before a site is read."""
        return (site.position - self.first) // CELL

    @property
    def last(self) -> int:
        """The cell of the last site."""
        return self.cell(self.sites[-1])


def checked(variants: Iterable[Variant], genome: Genome, mismatch: str) -> tuple[list[Variant], NDArray[np.bool_]]:
    """All variants, and which of them the genome agrees with; the others are counted and shown in a warning.

    Raises:
        TypeError: something that is no variant.
        ValueError: an allele that is not of bases; with ``mismatch="error"``, a REF that is not what the genome holds;
            with "skip" too, positions that are all off by one.
    """
    if mismatch not in ("error", "skip"):
        raise ValueError(f"mismatch is 'error' or 'skip', got {mismatch!r}.")
    variants = list(variants)
    for number, variant in enumerate(variants):
        if not isinstance(variant, Variant):
            raise TypeError(f"variants must be Variant(chrom, start, ref, alt) or a VCF file, got {variant!r:.40}.")
        if not is_sequence(variant.ref, variant.alt):
            raise ValueError(
                f"variant {number} (from 0), {variant}: ref and alt must be of bases A C G T N, one allele a variant. "
                "Drop it, or split its alleles."
            )
    compared = [compare(variant, genome) for variant in variants]
    check = summary(zip(variants, compared, strict=True), genome)
    if not check.ok:
        if mismatch == "error":
            raise ValueError(
                f"{check}\nWas the file made for this genome? mismatch='skip' leaves such variants unscored."
            )
        if check.is_shifted:
            raise ValueError(
                f"{check}\nmismatch='skip' would score those that agree by chance, one base off. Correct the positions."
            )
        warn_caller(f"{check.n - check.matching} of {check.n} variants are not scored. {check}")
    return variants, np.array([found.verdict == "matching" for found in compared], dtype=bool)


@torch.no_grad()
def strand_scores(
    network: TitansLM,
    genome: Genome,
    variants: Sequence[Variant],
    strand: Literal["+", "-"],
    *,
    context: int | None,
    context_after: int,
    batch_size: int,
) -> NDArray[np.float64]:
    """Scores on one strand, [V]; NaN where an allele has an N, which has no likelihood.

    Args:
        context: bases in a block, and at least so many before it are read; None: from the chromosome's first base.
        context_after: bases behind the variant whose likelihood counts, fewer at the chromosome's end.
        batch_size: sequences read side by side.
    """
    scores = np.full(len(variants), np.nan)
    # long blocks together: a batch goes on until its longest is read
    blocks = sorted(_blocks(genome, variants, strand, context), key=lambda block: -block.last)
    for at in range(0, len(blocks), batch_size):
        for site, score in _read(network, genome, blocks[at : at + batch_size], context_after, batch_size):
            scores[site.number] = score
    return scores


def _read(
    network: TitansLM, genome: Genome, blocks: Sequence[_Block], context_after: int, batch_size: int
) -> Iterator[tuple[_Site, float]]:
    """Read blocks side by side, the longest first, and score their sites on the way."""
    sites = defaultdict(list)
    for row, block in enumerate(blocks):
        for site in block.sites:
            sites[block.cell(site)].append((row, site))
    state, done = None, 0
    for cell in sorted(sites):
        going = sum(block.last >= cell for block in blocks)
        if going < len(blocks):
            blocks, state = blocks[:going], None if state is None else state.select(torch.arange(going))
        for start in range(done, cell * CELL, PIECE):
            stop = min(start + PIECE, cell * CELL)
            tokens = padded([_tokens(genome, block, start, stop) for block in blocks])
            state = network.hidden(tokens.to(network.embedding.weight.device), state)[1]
        done = cell * CELL
        some = max(1, batch_size // 2)  # each variant is two sequences
        for first in range(0, len(sites[cell]), some):
            pairs = sites[cell][first : first + some]
            found = _branch(network, genome, blocks, done, state, pairs, context_after)
            yield from zip((site for _, site in pairs), found.tolist(), strict=True)


def _blocks(genome: Genome, variants: Sequence[Variant], strand: str, context: int | None) -> Iterator[_Block]:
    sites: list[tuple[str, int, _Site]] = []
    for index, variant in enumerate(variants):
        ref, alt = variant.ref.upper(), variant.alt.upper()
        position = variant.start
        if strand == "-":
            ref, alt = reverse_complement(ref), reverse_complement(alt)
            position = genome.lengths[variant.chrom] - variant.end
        block = 0 if context is None else position // context
        sites.append((variant.chrom, block, _Site(index, position, encode(ref), encode(alt))))
    sites.sort(key=lambda found: (found[0], found[2].position))
    for (chrom, block), group in groupby(sites, key=lambda found: found[:2]):
        first = 0 if context is None else max(0, (block - 1) * context)
        yield _Block(Interval(chrom, 0, genome.lengths[chrom], strand), first, tuple(site for _, _, site in group))


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
    pairs: Sequence[tuple[int, _Site]],
    context_after: int,
) -> NDArray[np.float64]:
    """Scores of variants: the state of their block, ``done`` tokens read, goes on over both haplotypes."""
    rows, sequences, counted = [], [], []
    for row, site in pairs:
        block = blocks[row]
        end = site.position + len(site.ref)
        stop = min(end + context_after, len(block.strand))
        after = genome.ids(part_of(block.strand, end, stop)) if stop > end else np.empty(0, np.uint8)
        lead = _tokens(genome, block, done, site.position - block.first + 1)
        for allele in (site.ref, site.alt):
            rows.append(row)
            sequences.append(np.concatenate((lead, allele, after)))
            counted.append(len(lead))
    ids = padded(sequences).to(network.embedding.weight.device)
    if state is not None:
        state = state.select(torch.tensor(rows))
    hidden, _ = network.hidden(ids[:, :-1], state)
    likelihood = _sums(log_probabilities(network, hidden), ids[:, 1:], counted)
    scores = likelihood[1::2] - likelihood[::2]
    unknown = [bool((site.ref >= N).any() or (site.alt >= N).any()) for _, site in pairs]
    return np.where(unknown, np.nan, scores)


def _sums(log_p: Tensor, following: Tensor, counted: Sequence[int]) -> NDArray[np.float64]:
    """Log-likelihood of each row's known bases from the token at ``counted`` on; log_p [B, T, 4], following [B, T]."""
    at = torch.arange(following.shape[1], device=following.device)
    begin = torch.tensor(counted, device=following.device)
    # following[:, j] is the token at j + 1
    use = (following < N) & (at + 1 >= begin[:, None])
    found = log_p.gather(-1, following.clamp(max=3).unsqueeze(-1)).squeeze(-1).double()
    return torch.where(use, found, 0.0).sum(-1).cpu().numpy()
