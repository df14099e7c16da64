"""Process a batch of very long windows in parts, to limit memory."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from titans_ts.network.simba import Simba
from titans_ts.network.windows import Batch

STEPS = 1 << 20  # maximum total length of the lookbacks of a part


def normalised_in_parts(network: Simba, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """:meth:`Simba.normalised` of a batch, with bounded memory.

    A batch of more than :data:`STEPS` steps is processed in parts, with gradient checkpointing (Chen et al. 2016,
    arXiv:1604.06174). This takes a third more time and gives the same result, except for other dropout masks.
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
