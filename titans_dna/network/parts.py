"""Reading a batch in parts, so that one long sequence does not force padding of all others to its length.

    up to 131,072 padded bases          read at once
    more                                split into parts of similar lengths (at most a factor of 2)
    still more than 524,288 in total    split into parts of up to 131,072; only their scores are kept, and each part is
                                        read again in the backward pass, which takes about a third more time

Scores and gradients are those of the whole batch, except for rounding and random dropout, and an optimiser step still
uses the whole batch. Memory use is limited by a part, or by a single sequence that is longer than that.
"""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from titans_dna.genomes.tokenizer import PAD

__all__ = ["in_parts"]

_PART, _KEPT = 1 << 17, 1 << 19


def in_parts(network: nn.Module, ids: Tensor) -> Tensor:
    """Compute ``network(ids)`` in parts, for ids ``[B, T]`` padded on the right."""
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
    """Number of sequences and longest length of each part, from the longest sequences to the shortest."""
    sizes: list[tuple[int, int]] = []
    for length in lengths:
        size, longest = sizes[-1] if sizes else (0, 0)
        if size and 2 * length >= longest and (most is None or (size + 1) * longest <= most):
            sizes[-1] = size + 1, longest
        else:
            sizes.append((1, length))
    return sizes
