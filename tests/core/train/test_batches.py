"""Batches of a training: the contents of an epoch, and its order."""

from itertools import chain

import pytest
import torch
from torch.utils.data import Dataset

from titans_core.train import batches as module
from titans_core.train.batches import Batches, loader


class Squares(Dataset):
    def __len__(self):
        return 23

    def __getitem__(self, index):
        return torch.tensor(index) ** 2


def order(seed, epoch, **options):
    batches = Batches(23, 5, seed, **options)
    batches.set_epoch(epoch)
    found = list(batches)
    assert len(found) == len(batches)
    return found


def test_an_epoch_has_every_row_once_in_an_order_of_seed_and_epoch():
    assert [len(batch) for batch in order(1, 0)] == [5, 5, 5, 5, 3]
    assert sorted(chain(*order(1, 0))) == list(range(23))
    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)
    assert list(chain(*order(None, 1))) == list(range(23))


def test_an_epoch_may_have_a_part_of_its_order():
    assert order(1, 0, most=2) == order(1, 0)[:2]
    assert order(1, 0, most=9) == order(1, 0)


def test_batches_of_like_lengths_hold_every_item_once_and_little_padding():
    lengths = torch.randint(5, 3000, (1000,), generator=torch.Generator().manual_seed(0))

    def batches(epoch, seed=1, lengths=lengths, **options):
        found = Batches(1000, 8, seed, lengths=lengths, **options)
        found.set_epoch(epoch)
        return list(found)

    def read(batches):
        return sum(int(lengths[batch].max()) * len(batch) for batch in batches)

    whole = batches(0)
    assert sorted(chain(*whole)) == list(range(1000))
    assert read(whole) < 1.1 * lengths.sum() < 1.6 * lengths.sum() < read(batches(0, lengths=None))
    # neither an epoch nor a part of it goes from the short to the long
    means = torch.stack([lengths[batch].float().mean() for batch in whole])
    assert abs(torch.corrcoef(torch.stack((means, torch.arange(125.0))))[0, 1]) < 0.3
    assert abs(torch.corrcoef(torch.stack((means[:16], torch.arange(16.0))))[0, 1]) < 0.8
    assert batches(0) == whole != batches(1)
    assert batches(0, most=9) == whole[:9]
    assert list(chain(*batches(0, seed=None))) == lengths.argsort(stable=True).tolist()


@pytest.mark.parametrize("lengths", [None, torch.arange(23)])
def test_an_epoch_has_one_version_of_each_item(lengths):
    epochs = [list(chain(*order(1, epoch, versions=3, lengths=lengths))) for epoch in range(2)]
    for epoch in epochs:
        assert sorted(i % 23 for i in epoch) == list(range(23))
        assert {i // 23 for i in epoch} == {0, 1, 2}
    assert set(epochs[0]) != set(epochs[1])
    assert order(None, 0, versions=3) == order(None, 0)
    assert [i % 23 for i in chain(*order(1, 0, versions=3))] == list(chain(*order(1, 0)))


@pytest.mark.parametrize("seed", [None, 1])
def test_items_of_one_length_come_as_without_lengths(seed):
    assert order(seed, 0, lengths=torch.full((23,), 70)) == order(seed, 0)


def test_processes_share_each_batch_and_together_read_what_one_would(monkeypatch):
    whole = order(1, 0)
    parts = []
    for rank in range(2):
        monkeypatch.setattr(module, "processes", lambda rank=rank: (rank, 2))
        parts.append(order(1, 0))
    assert [sorted(a + b) for a, b in zip(*parts, strict=True)] == [sorted(batch) for batch in whole]


def test_a_batch_of_fewer_items_than_processes_is_whole_in_each(monkeypatch):
    """Otherwise some process would compute the mean loss of an empty batch, which is NaN."""
    for rank in range(4):
        monkeypatch.setattr(module, "processes", lambda rank=rank: (rank, 4))
        shares = order(None, 0)
        assert shares[-1] == [20, 21, 22]
        assert all(shares)


@pytest.mark.parametrize("seed", [None, 3])
def test_a_loader_gives_what_the_data_make_of_each_batch(seed):
    found = list(loader(Squares(), 5, seed))
    assert [len(batch) for batch in found] == [5, 5, 5, 5, 3]
    assert sorted(torch.cat(found).tolist()) == [i * i for i in range(23)]
