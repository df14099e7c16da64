"""A batch of very long windows, read part by part."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from titans_ts.simba import Simba
from titans_ts.windows import Batch

STEPS = 1 << 20  # of all lookbacks of a part


def normalised_in_parts(network: Simba, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """:meth:`Simba.normalised` of a batch, in memory that does not grow with it.

    A batch of more than :data:`STEPS` steps is read in parts, and what the gradient takes of each is made again when it
    is asked for (Chen et al. 2016, arXiv:1604.06174): a third more time, and the same numbers but for what dropout
    draws.
    """
    columns = batch.x, batch.hist, batch.futr, batch.stat
    size = max(1, STEPS * len(batch.x) // batch.x.numel())
    if len(batch.x) <= size:
        return network.normalised(*columns)
    found = []
    for begin in range(0, len(batch.x), size):
        part = [None if column is None else column[begin : begin + size] for column in columns]
        found.append(checkpoint(network.normalised, *part, use_reentrant=False))
    raw, center, scale = (torch.cat(tensors) for tensors in zip(*found, strict=True))
    return raw, center, scale
