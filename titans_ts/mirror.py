"""Mirrored windows, for a training with few of them (``benchmarks/forecast_small.py``)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from titans_core.train import Loss
from titans_ts.windows import Batch

FEW = 8192  # windows of single series; below, a training mirrors them


@dataclass(frozen=True)
class Mirrored:
    """A loss for which half of the windows of a training batch, chosen at random, change their sign.

    So the network learns to forecast the mirror image of what it forecasts for the mirror image of a lookback, as any
    linear forecast does. Trends and shapes that merely happened in the training rows, such as more rises than falls,
    then weigh less. Columns change their sign with the target, so their effect on it stays the same. Validation windows
    are left as they are.
    """

    loss: Loss

    def __call__(self, network: nn.Module, batch: Batch) -> tuple[Tensor, int]:
        return self.loss(network, mirrored(batch) if network.training else batch)


def mirrored(batch: Batch) -> Batch:
    """The batch with a random sign for each window, the same for all that belongs to it."""
    sign = (2 * torch.randint(2, (len(batch.x),), device=batch.x.device) - 1).to(batch.x.dtype)

    def signed(x: Tensor) -> Tensor:
        return x * sign.view(-1, *[1] * (x.ndim - 1))

    hist, futr, stat = (None if x is None else signed(x) for x in (batch.hist, batch.futr, batch.stat))
    return Batch(signed(batch.x), signed(batch.y), hist, futr, stat, batch.unit)
