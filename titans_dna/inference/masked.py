"""Answers of a masked model: bits of hidden bases, and scores of variants."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from titans_core import TitansLM
from titans_core.warn import warn_caller
from titans_dna.genomes.genome import Genome
from titans_dna.genomes.intervals import Interval
from titans_dna.genomes.tokenizer import N, encode
from titans_dna.genomes.vcf import Variant
from titans_dna.network.likelihood import of_bases
from titans_dna.network.stream import padded
from titans_dna.pretraining.masked import scores

__all__ = ["BOTH_SIDES", "bits_of_hidden", "refuse_masked", "variant_scores", "warn_of_lengths"]

# in evaluation every seventh base is hidden, in seven passes: about the same fraction as in training
_EVERY = 7
# why a masked model cannot be compared or mixed with Markov models
BOTH_SIDES = ": a masked model sees both sides of a base, Markov models only one."


def refuse_masked(objective: str, what: str, why: str) -> None:
    """Raise a ValueError if ``what`` is asked of a masked model; ``why`` ends the message."""
    if objective == "masked":
        raise ValueError(f"{what} needs a model with objective='next'{why}")


def warn_of_lengths(variants: Sequence[Variant]) -> None:
    """Warn of insertions and deletions, which have no score."""
    lengths = sum(len(variant.ref) != len(variant.alt) for variant in variants)
    if lengths:
        warn_caller(
            f"{lengths} of {len(variants)} variants are not scored: they are insertions or deletions, which need a "
            "model with objective='next'."
        )


@torch.no_grad()
def bits_of_hidden(
    network: TitansLM, genome: Genome, windows: Iterable[Interval], batch_size: int
) -> Iterator[NDArray[np.float64]]:
    """Yield the bits of all known bases, ``-log2 P(base | its window)``, with every seventh base hidden at a time."""
    for ids in _batches(genome, windows, batch_size, network.embedding.weight.device):
        places = torch.arange(ids.shape[1], device=ids.device) % _EVERY
        for turn in range(_EVERY):
            hidden = (ids < N) & (places == turn)
            log_p = scores(network, ids.where(~hidden, N))[hidden].log_softmax(-1)
            yield of_bases(log_p, ids[hidden], math.nan).cpu().double().numpy() / -math.log(2)


@torch.no_grad()
def variant_scores(
    network: TitansLM, genome: Genome, variants: Sequence[Variant], length: int, batch_size: int
) -> Iterator[tuple[int, float]]:
    """Yield the index and ``log P(alt) - log P(ref)`` (in nats) of each variant, with the variant's bases hidden.

    The score is NaN for insertions and deletions, whose alleles differ in length, and if an allele contains N.

    Args:
        length: number of bases to read, half of them on each side; fewer near the ends of a chromosome.
    """
    # alternatives at one site share one reading, because the bases in which they differ are hidden
    sites: dict[tuple[str, int, int], list[int]] = {}
    for number, v in enumerate(variants):
        if len(v.ref) != len(v.alt) or not v.is_known:
            yield number, float("nan")
        else:
            sites.setdefault((v.chrom, v.start, v.end), []).append(number)
    places = list(sites)
    for first in range(0, len(places), batch_size):
        some = places[first : first + batch_size]
        windows = [_around(genome, *place, length) for place in some]
        (ids,) = _batches(genome, windows, len(some), network.embedding.weight.device)
        for row, ((_, start, end), window) in enumerate(zip(some, windows, strict=True)):
            ids[row, start - window.start : end - window.start] = N
        log_p = scores(network, ids).log_softmax(-1).cpu().double().numpy()
        for row, (place, window) in enumerate(zip(some, windows, strict=True)):
            for number in sites[place]:
                ref, alt = (encode(allele).astype(int) for allele in (variants[number].ref, variants[number].alt))
                at = place[1] - window.start + np.arange(len(ref))
                yield number, float((log_p[row, at, alt] - log_p[row, at, ref]).sum())


def _around(genome: Genome, chrom: str, start: int, end: int, length: int) -> Interval:
    spare = max(0, length - (end - start)) // 2
    return Interval(chrom, max(0, start - spare), min(genome.lengths[chrom], end + spare))


def _batches(genome: Genome, windows: Iterable[Interval], batch_size: int, device: torch.device) -> Iterator[Tensor]:
    """Yield ids ``[B, T]`` of windows, ``batch_size`` at a time."""
    rest = iter(windows)
    while some := list(itertools.islice(rest, batch_size)):
        yield padded([genome.ids(window) for window in some]).to(device)
