"""Windows over a table of values: what a network sees, and what it should have said."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, SequentialSampler


class Windows(Dataset):
    """Windows of ``input_size + h`` rows, at every row where one begins (stride 1).

    Args:
        values: ``[T, N]``.
        input_size: lookback, in rows.
        h: horizon, in rows.
        start: the first row that may be a target.
        stop: one past the last row that may be a target.
    """

    def __init__(self, values: Tensor, input_size: int, h: int, start: int, stop: int) -> None:
        self.values, self.input_size, self.h = values, input_size, h
        self.first = max(0, start - input_size)
        self.count = max(0, stop - self.first - input_size - h + 1)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: list[int]) -> tuple[Tensor, Tensor]:
        """A batch at once: inputs ``[B, input_size, N]`` and targets ``[B, h, N]``."""
        rows = torch.as_tensor(index)[:, None] + torch.arange(self.first, self.first + self.input_size + self.h)
        both = self.values[rows]
        return both[:, : self.input_size], both[:, self.input_size :]


class ShuffledBatches(Sampler[list[int]]):
    """Batches of indices, shuffled anew in each epoch in a way that the seed and the epoch alone decide.

    So a run resumed at an epoch sees what an unbroken one would. Lightning calls :meth:`set_epoch`.
    """

    def __init__(self, count: int, batch_size: int, seed: int) -> None:
        self.count, self.batch_size, self.seed, self.epoch = count, batch_size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-self.count // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        # a generator, so that the order is drawn at the first batch: a resumed run sets the epoch after asking for this
        order = torch.randperm(self.count, generator=torch.Generator().manual_seed(self.seed + self.epoch))
        yield from (batch.tolist() for batch in order.split(self.batch_size))


def loader(windows: Windows, batch_size: int, seed: int | None = None) -> DataLoader:
    """All windows in batches, none dropped: in order, or shuffled by ``seed``."""
    if seed is None:
        batches: Sampler[list[int]] = BatchSampler(SequentialSampler(windows), batch_size, drop_last=False)
    else:
        batches = ShuffledBatches(len(windows), batch_size, seed)
    # a batch of indices is one item, so that a batch is cut out by one indexing operation
    return DataLoader(windows, batch_size=None, sampler=batches)


def all_windows(values: np.ndarray, input_size: int, h: int) -> tuple[np.ndarray, np.ndarray]:
    """Every window of ``values`` ``[T, N]``, uncopied: inputs ``[W, input_size, N]`` and targets ``[W, h, N]``."""
    both = np.lib.stride_tricks.sliding_window_view(values, input_size + h, axis=0).transpose(0, 2, 1)
    return both[:, :input_size], both[:, input_size:]
