"""Batches of a data set whose items are whole batches: in order, or shuffled so that a run can be resumed."""

from collections.abc import Iterator, Sized

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from titans_core.train.processes import processes

__all__ = ["Batches", "loader"]

# batches' worth of items that are sorted by length before they are cut into batches
_SORTED = 16


class Batches(Sampler[list[int]]):
    """Batches of indices: in order, or shuffled anew in each epoch in a way that the seed and the epoch alone decide.

    So a run resumed at an epoch sees what an unbroken one would. Lightning calls :meth:`set_epoch`. Where there are
    more than ``most`` batches, an epoch has the first ``most`` of its order. Of several processes that train together
    each has its part of every batch, so that together they see what one would.

    With ``lengths`` ``[count]`` a batch has items of like length, so that little of it is padding: in order means from
    the shortest to the longest; of a shuffled order as much as makes 16 batches is sorted, and its batches shuffled.
    """

    def __init__(
        self,
        count: int,
        batch_size: int,
        seed: int | None = None,
        most: int | None = None,
        lengths: Tensor | None = None,
    ) -> None:
        self.count, self.batch_size, self.seed, self.epoch = count, int(batch_size), seed, 0
        # where all are alike there is nothing to sort
        self.lengths = None if lengths is None or len(lengths.unique()) <= 1 else lengths
        self.batches = -(-count // batch_size) if most is None else min(most, -(-count // batch_size))

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[int]]:
        # a generator, so that the order is drawn at the first batch: a resumed run sets the epoch after asking for this
        rank, world = processes()
        for batch in self._order()[: self.batches]:
            # too few to share: all have them
            yield (batch[rank::world] if len(batch) >= world else batch).tolist()

    def _order(self) -> list[Tensor]:
        """The batches of this epoch."""
        if self.seed is None:
            order = torch.arange(self.count) if self.lengths is None else self.lengths.argsort(stable=True)
            return list(order.split(self.batch_size))
        drawn = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.count, generator=drawn)
        if self.lengths is None:
            return list(order.split(self.batch_size))
        batches = []
        for some in order.split(self.batch_size * _SORTED):
            alike = some[self.lengths[some].argsort(stable=True)].split(self.batch_size)
            batches += [alike[i] for i in torch.randperm(len(alike), generator=drawn).tolist()]
        return batches


def loader(
    data: Dataset,
    batch_size: int,
    seed: int | None = None,
    most: int | None = None,
    lengths: Tensor | None = None,
) -> DataLoader:
    """Batches of ``data``, which has a length and takes a list of indices for one batch: all in order, or shuffled by
    ``seed``, at most ``most`` an epoch, of items of like ``lengths``."""
    assert isinstance(data, Sized)
    # a batch of indices is one item, so that a batch is cut out by one indexing operation
    return DataLoader(data, batch_size=None, sampler=Batches(len(data), batch_size, seed, most, lengths))
