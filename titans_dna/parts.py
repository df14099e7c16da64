"""A batch of sequences read in parts, so that one long sequence does not make all others as long.

    a batch of up to 131,072 padded bases     read as one
    a larger one                              sequences of like length together, none longer than twice another
    still more than 524,288 in all            parts of up to 131,072, of which only the scores are kept: each is read
                                              again in the backward pass, for about a third more time

Scores and gradients are those of the whole batch, but for rounding and what dropout draws; an optimiser step is of as
many sequences as ever. Memory is bounded by a part, or by one sequence that is longer than that.
"""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from titans_dna.tokenizer import PAD

__all__ = ["in_parts"]

_PART, _KEPT = 1 << 17, 1 << 19


def in_parts(network: nn.Module, ids: Tensor) -> Tensor:
    """``network(ids)``, ids ``[B, T]`` padded on the right."""
    if ids.numel() <= _PART:
        scores: Tensor = network(ids)
        return scores
    lengths, order = (ids != PAD).sum(1).sort(descending=True, stable=True)
    sizes = _sizes(lengths.tolist())
    again = sum(size * longest for size, longest in sizes) > _KEPT
    if again:
        sizes = _sizes(lengths.tolist(), _PART)
    found, rest = [], order
    for size, longest in sizes:
        rows, rest = rest[:size], rest[size:]
        part = ids[rows, :longest]
        found.append(checkpoint(network, part, use_reentrant=False) if again else network(part))
    return torch.cat(found)[order.argsort()]


def _sizes(lengths: list[int], most: int | None = None) -> list[tuple[int, int]]:
    """Parts of sequences from the longest to the shortest: how many sequences each has, and how long its longest is."""
    sizes: list[tuple[int, int]] = []
    for length in lengths:
        size, longest = sizes[-1] if sizes else (0, 0)
        if size and 2 * length >= longest and (most is None or (size + 1) * longest <= most):
            sizes[-1] = size + 1, longest
        else:
            sizes.append((1, length))
    return sizes
