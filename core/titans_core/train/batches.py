"""Batches of a data set whose items are whole batches, in order or in a resumable shuffled order."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from titans_core.train.processes import processes

__all__ = ["Batches", "EpochBatches", "loader"]

Item = TypeVar("Item")

# number of batches whose items are sorted by length together
_SORTED = 16


class EpochBatches(Sampler[list[Item]]):
    """Batches that depend only on the seed and the epoch, so a resumed run sees those of an uninterrupted one.

    Lightning calls :meth:`set_epoch`. If several processes train together, each gets its share of every batch; together
    they see the batches of a single process.

    Args:
        batches: number of batches per epoch.
        seed: seed of the order; None: the same order in each epoch.
    """

    def __init__(self, batches: int, seed: int | None) -> None:
        self.batches, self.seed, self.epoch = batches, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[Item]]:
        # a generator: the order is drawn at the first batch, because a resumed run sets the epoch after calling iter()
        rank, world = processes()
        for batch in islice(self._order(), self.batches):
            # a batch too small to share goes to every process
            yield batch[rank::world] if len(batch) >= world else batch

    @abstractmethod
    def _order(self) -> Iterable[list[Item]]:
        """The batches of this epoch, at least ``batches`` of them."""


class Batches(EpochBatches[int]):
    """Batches of indices, in order or reshuffled in each epoch.

    If there are more than ``most`` batches, an epoch uses the first ``most`` of its order.

    With ``versions``, item ``i`` is one of ``versions`` items ``i``, ``i + count``, ..., chosen at random in each epoch
    of a shuffled order, such as a window or its mirror image.

    With ``lengths`` ``[count]``, a batch contains items of similar length, which reduces padding. Without shuffling,
    items go from shortest to longest. With shuffling, groups of 16 batches are sorted by length, and their batches
    shuffled.
    """

    def __init__(
        self,
        count: int,
        batch_size: int,
        seed: int | None = None,
        most: int | None = None,
        lengths: Tensor | None = None,
        versions: int = 1,
    ) -> None:
        batches = -(-count // batch_size)
        super().__init__(batches if most is None else min(most, batches), seed)
        self.count, self.batch_size, self.versions = count, int(batch_size), versions
        # if all lengths are equal, there is nothing to sort
        self.lengths = None if lengths is None or len(lengths.unique()) <= 1 else lengths

    def _order(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self._drawn())

    def _drawn(self) -> Sequence[Tensor]:
        if self.seed is None:
            order = torch.arange(self.count) if self.lengths is None else self.lengths.argsort(stable=True)
            return order.split(self.batch_size)
        drawn = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.count, generator=drawn)
        if self.versions > 1:
            order += self.count * torch.randint(self.versions, (self.count,), generator=drawn)
        if self.lengths is None:
            return order.split(self.batch_size)
        batches = []
        for some in order.split(self.batch_size * _SORTED):
            alike = some[self.lengths[some % self.count].argsort(stable=True)].split(self.batch_size)
            batches += [alike[i] for i in torch.randperm(len(alike), generator=drawn).tolist()]
        return batches


def loader(
    data: Dataset,
    batch_size: int,
    seed: int | None = None,
    most: int | None = None,
    lengths: Tensor | None = None,
    versions: int = 1,
) -> DataLoader:
    """Build a DataLoader of whole batches.

    Args:
        data: a data set with a length that returns one batch for a list of indices.
        batch_size: items per batch.
        seed: seed of the shuffle; None: in order.
        most: maximum number of batches per epoch; None: all.
        lengths: lengths of the items, to batch items of similar length.
        versions: number of versions of each item in the data set: first all items in their first version, then all in
            the second, and so on. Each epoch of a shuffled order takes one version of each.
    """
    assert isinstance(data, Sized)
    sampler = Batches(len(data) // versions, batch_size, seed, most, lengths, versions)
    # a list of indices is one item, so that a batch takes one indexing operation
    return DataLoader(data, batch_size=None, sampler=sampler)
