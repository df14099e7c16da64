"""Likelihoods of bases, from the hidden states of a language model.

Only the outputs for A, C, G and T are used, which are the first N by the ids of :mod:`titans_dna.genomes.tokenizer`: N
and padding are read but never predicted.
"""

import torch.nn.functional as F
from torch import Tensor

from titans_core import TitansLM
from titans_dna.genomes.tokenizer import N

__all__ = ["base_logits", "log_probabilities", "of_bases"]


def base_logits(network: TitansLM, hidden: Tensor) -> Tensor:
    """Logits of A, C, G and T, ``[..., dim] -> [..., 4]``."""
    return F.linear(hidden, network.head.weight[:N])


def log_probabilities(network: TitansLM, hidden: Tensor) -> Tensor:
    """Natural log-probabilities of A, C, G and T, ``[..., dim] -> [..., 4]``."""
    return base_logits(network, hidden).log_softmax(-1)


def of_bases(log_p: Tensor, bases: Tensor, unknown: float) -> Tensor:
    """The log-probability of each base, ``[..., 4]`` and ``[...]`` -> ``[...]``; ``unknown`` at N and padding."""
    return log_p.gather(-1, bases.clamp(max=N - 1).unsqueeze(-1)).squeeze(-1).where(bases < N, unknown)
