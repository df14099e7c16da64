"""Batches of a data set whose items are whole batches: in order, or shuffled so that a run can be resumed."""

from collections.abc import Iterator, Sized

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from titans_core.train.processes import processes

__all__ = ["Batches", "loader"]


class Batches(Sampler[list[int]]):
    """Batches of indices: in order, or shuffled anew in each epoch in a way that the seed and the epoch alone decide.

    So a run resumed at an epoch sees what an unbroken one would. Lightning calls :meth:`set_epoch`. Where there are
    more than ``most`` batches, an epoch has the first ``most`` of its order. Of several processes that train together
    each has its part of every batch, so that together they see what one would.
    """

    def __init__(self, count: int, batch_size: int, seed: int | None = None, most: int | None = None) -> None:
        self.count, self.batch_size, self.seed, self.epoch = count, int(batch_size), seed, 0
        self.batches = -(-count // batch_size) if most is None else min(most, -(-count // batch_size))

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[int]]:
        # a generator, so that the order is drawn at the first batch: a resumed run sets the epoch after asking for this
        order = torch.arange(self.count)
        if self.seed is not None:
            order = torch.randperm(self.count, generator=torch.Generator().manual_seed(self.seed + self.epoch))
        rank, world = processes()
        for batch in order.split(self.batch_size)[: self.batches]:
            # too few to share: all have them
            yield (batch[rank::world] if len(batch) >= world else batch).tolist()


def loader(data: Dataset, batch_size: int, seed: int | None = None, most: int | None = None) -> DataLoader:
    """Batches of ``data``, which has a length and takes a list of indices for one batch: all in order, or shuffled by
    ``seed``, at most ``most`` an epoch."""
    assert isinstance(data, Sized)
    # a batch of indices is one item, so that a batch is cut out by one indexing operation
    return DataLoader(data, batch_size=None, sampler=Batches(len(data), batch_size, seed, most))
