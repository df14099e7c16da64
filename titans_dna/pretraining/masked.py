"""The masked objective: hidden bases are predicted from the sequence on both sides.

The networks of this library read in one direction. For this objective they read both strands, with hidden bases as N,
and the scores for a position are added: those of one strand, and the complemented scores of the other. Both readings
share all weights, so a sequence and its reverse complement have complementary scores by construction (as in Caduceus,
Schiff et al. 2024, arXiv:2403.03234). As with the other objective, an N is placed before the sequence.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titans_core import TitansLM
from titans_dna.genomes.tokenizer import PAD, N
from titans_dna.network.likelihood import base_logits
from titans_dna.network.strands import in_place, other_strand
from titans_dna.pretraining.windows import IGNORE

__all__ = ["masked_base_loss", "scores"]

# fraction of the known bases hidden in training
_HIDDEN = 0.15


def scores(network: TitansLM, ids: Tensor) -> Tensor:
    """Logits of A, C, G, T ``[B, T, 4]`` for ids ``[B, T]``, padded on the right, with hidden bases as N."""
    here, there = (_read(network, strand) for strand in (ids, other_strand(ids)))
    return here + in_place(there, ids != PAD).flip(-1)


def masked_base_loss(network: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    """Mean cross-entropy over A, C, G and T at the hidden bases of ``(tokens, targets)``, in nats; and their number.

    ``(tokens, targets)`` is a batch of :func:`titans_dna.pretraining.windows.batch_of`. In training, the hidden
    bases are drawn again for each batch; in validation, they are always the same.
    """
    tokens, targets = batch
    assert isinstance(network, TitansLM)
    known = targets != IGNORE
    if network.training:
        drawn = torch.rand(targets.shape, device=targets.device)
    else:
        drawn = torch.rand(targets.shape, generator=torch.Generator().manual_seed(0)).to(targets.device)
    # hide at least one known base: the one with the lowest draw
    hidden = known & ((drawn < _HIDDEN) | (drawn == drawn.where(known, 2).amin()))
    ids = targets.where(known & ~hidden, N).where(tokens != PAD, PAD)
    logits = scores(network, ids)[hidden].float()
    count = max(1, int(hidden.sum()))
    return F.cross_entropy(logits, targets[hidden], reduction="sum") / count, count


def _read(network: TitansLM, ids: Tensor) -> Tensor:
    hidden, _ = network.hidden(F.pad(ids, (1, 0), value=N))
    return base_logits(network, hidden[:, 1:])
