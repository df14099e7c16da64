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
) -> NDArray[np.float64]:
    """``log P(alt) - log P(ref)`` of substitutions, in nats, while the bases in question are hidden, [V].

    Args:
        length: bases read in all, half of them on either side, fewer at a chromosome's end.

    NaN for insertions and deletions, whose alleles stand in no common place, and where an allele has an N.
    """
    found = np.full(len(variants), np.nan)
    same = [i for i, v in enumerate(variants) if len(v.ref) == len(v.alt)]
    for first in range(0, len(same), batch_size):
        rows = same[first : first + batch_size]
        windows = [_around(genome, variants[i], length) for i in rows]
        (ids,) = _batches(genome, windows, len(rows), network.embedding.weight.device)
        for row, (i, window) in enumerate(zip(rows, windows, strict=True)):
            start = variants[i].start - window.start
            ids[row, start : start + len(variants[i].ref)] = N
        log_p = scores(network, ids).log_softmax(-1).double().cpu().numpy()
        for row, (i, window) in enumerate(zip(rows, windows, strict=True)):
            ref, alt = (encode(allele.upper()).astype(int) for allele in (variants[i].ref, variants[i].alt))
            if max(*ref, *alt) < N:
                places = variants[i].start - window.start + np.arange(len(ref))
                found[i] = (log_p[row, places, alt] - log_p[row, places, ref]).sum()
    return found


def _read(network: TitansLM, ids: Tensor) -> Tensor:
    hidden, _ = network.hidden(F.pad(ids, (1, 0), value=N))
    return F.linear(hidden[:, 1:], network.head.weight[:N])


def _around(genome: Genome, variant: Variant, length: int) -> Interval:
    spare = max(0, length - len(variant.ref)) // 2
    start, end = max(0, variant.start - spare), min(genome.lengths[variant.chrom], variant.end + spare)
    return Interval(variant.chrom, start, end)


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
