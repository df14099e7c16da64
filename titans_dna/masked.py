"""The masked objective: bases are hidden, and each is predicted from what stands on both sides of it.

A network of this library reads in one direction. So it reads both strands, hidden bases as N, and its scores for a
place are added: those from what stands before it on one strand, and those from what stands before it on the other,
complemented. Both readings share all weights, and the other strand of a sequence has the complemented scores by
construction (the sharing of Schiff et al. 2024, Caduceus, arXiv:2403.03234). As with the other objective, an N stands
before what is read.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from titans_core import TitansLM
from titans_dna.genome import Genome
from titans_dna.intervals import Interval
from titans_dna.pretrain_data import IGNORE
from titans_dna.strands import in_place, other_strand
from titans_dna.tokenizer import PAD, N, encode, encode_batch
from titans_dna.vcf import Variant

__all__ = ["HIDDEN", "bits_of_hidden", "masked_base_loss", "scores", "variant_scores"]

# the part of the known bases that is hidden in training
HIDDEN = 0.15
# afterwards every seventh base is hidden at a time, about as many, until each was hidden once
_EVERY = 7


def scores(network: TitansLM, ids: Tensor) -> Tensor:
    """Logits of A C G T at every place ``[B, T, 4]``, of ids ``[B, T]`` padded on the right; hidden bases are N."""
    here, there = (_read(network, strand) for strand in (ids, other_strand(ids)))
    return here + in_place(there, ids != PAD).flip(-1)


def masked_base_loss(network: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    """Cross-entropy over A C G T in nats, mean over the hidden bases, and their number.

    Of each batch ``(tokens, targets)`` (:func:`titans_dna.pretrain_data.batch_of`) other bases are hidden in training,
    always the same ones in validation.
    """
    tokens, targets = batch
    assert isinstance(network, TitansLM)
    known = targets != IGNORE
    if network.training:
        drawn = torch.rand(targets.shape, device=targets.device)
    else:
        drawn = torch.rand(targets.shape, generator=torch.Generator().manual_seed(0)).to(targets.device)
    # at least one, where any is known: the one that was drawn lowest
    hidden = known & ((drawn < HIDDEN) | (drawn == drawn.where(known, 2).amin()))
    ids = targets.where(known & ~hidden, N).where(tokens != PAD, PAD)
    logits = scores(network, ids)[hidden].float()
    count = max(1, int(hidden.sum()))
    return F.cross_entropy(logits, targets[hidden], reduction="sum") / count, count


@torch.no_grad()
def bits_of_hidden(
    network: TitansLM, genome: Genome, windows: Iterable[Interval], batch_size: int
) -> Iterator[NDArray[np.float64]]:
    """Bits of every known base, ``-log2 P(base | its window)``, while it and every seventh base from it are hidden."""
    for ids in _batches(genome, windows, batch_size, network.embedding.weight.device):
        places = torch.arange(ids.shape[1], device=ids.device) % _EVERY
        for turn in range(_EVERY):
            hidden = (ids < N) & (places == turn)
            log_p = scores(network, ids.where(~hidden, N))[hidden].log_softmax(-1)
            chosen = log_p.gather(-1, ids[hidden].unsqueeze(-1)).squeeze(-1)
            yield chosen.double().cpu().numpy() / -math.log(2)


@torch.no_grad()
def variant_scores(
    network: TitansLM, genome: Genome, variants: Sequence[Variant], length: int, batch_size: int
) -> Iterator[tuple[int, float]]:
    """``log P(alt) - log P(ref)`` of substitutions, in nats, while the bases in question are hidden; each as it is
    found, with the number of its variant.

    Args:
        length: bases read in all, half of them on either side, fewer at a chromosome's end.

    NaN for insertions and deletions, whose alleles stand in no common place, and where an allele has an N.
    """
    # alternatives of one place are read once: what differs in them is hidden
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
        log_p = scores(network, ids).log_softmax(-1).double().cpu().numpy()
        for row, (place, window) in enumerate(zip(some, windows, strict=True)):
            for number in sites[place]:
                ref, alt = (encode(allele).astype(int) for allele in (variants[number].ref, variants[number].alt))
                at = place[1] - window.start + np.arange(len(ref))
                yield number, float((log_p[row, at, alt] - log_p[row, at, ref]).sum())


def _read(network: TitansLM, ids: Tensor) -> Tensor:
    hidden, _ = network.hidden(F.pad(ids, (1, 0), value=N))
    return F.linear(hidden[:, 1:], network.head.weight[:N])


def _around(genome: Genome, chrom: str, start: int, end: int, length: int) -> Interval:
    spare = max(0, length - (end - start)) // 2
    return Interval(chrom, max(0, start - spare), min(genome.lengths[chrom], end + spare))


def _batches(genome: Genome, windows: Iterable[Interval], batch_size: int, device: torch.device) -> Iterator[Tensor]:
    """Ids ``[B, T]`` of windows, ``batch_size`` at a time."""
    batch: list[str] = []
    for window in windows:
        batch.append(genome.fetch(window))
        if len(batch) == batch_size:
            yield torch.from_numpy(encode_batch(batch).ids).long().to(device)
            batch = []
    if batch:
        yield torch.from_numpy(encode_batch(batch).ids).long().to(device)
