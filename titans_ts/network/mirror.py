"""Mirrored windows, for a training with few of them (``benchmarks/forecast_small.py``)."""

import torch
from torch import Tensor
from torch.utils.data import Dataset

from titans_ts.network.windows import Batch, Windows

FEW = 8192  # windows of single series; below, a training mirrors them


class Mirrored(Dataset):
    """Windows as they are and, after them, with the opposite sign.

    A network trained on both learns to forecast the mirror image of what it forecasts for the mirror image of a
    lookback, as any linear forecast does. Trends and shapes that merely happened in the training rows, such as more
    rises than falls, then weigh less. Columns change their sign with the target, so their effect on it stays the same.
    Each epoch has each window once, in one of the two versions
    (``versions`` of :class:`titans_core.train.batches.Batches`).
    """

    def __init__(self, windows: Windows) -> None:
        self.windows = windows

    def __len__(self) -> int:
        return 2 * len(self.windows)

    def __getitem__(self, index: list[int]) -> Batch:
        """A whole batch."""
        chosen = torch.as_tensor(index)
        count = len(self.windows)
        batch = self.windows[chosen % count]
        sign = torch.where(chosen < count, 1.0, -1.0).to(batch.x)

        def signed(x: Tensor) -> Tensor:
            return x * sign.view(-1, *[1] * (x.ndim - 1))

        hist, futr, stat = (None if x is None else signed(x) for x in (batch.hist, batch.futr, batch.stat))
        return Batch(signed(batch.x), signed(batch.y), hist, futr, stat, batch.unit)
