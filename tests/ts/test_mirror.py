"""Mirrored windows in trainings with few windows."""

from itertools import chain

import pytest
import torch
from torch.utils.data import DataLoader

from titans_ts.estimator import training
from titans_ts.network.mirror import Mirrored
from titans_ts.network.windows import Table, all_windows_of

T, N = 20, 2


def windows_of(together: bool, columns: bool = True):
    values = torch.randn(T, N)
    values[7, 0] = torch.nan
    table = Table(values)
    if columns:
        table = Table(values, torch.randn(T, N, 3), torch.randn(T, 1, 2), torch.randn(N, 5), unit=torch.rand(N))
    return all_windows_of(table, 6, 3, 0, T, together)


@pytest.mark.parametrize("together", [False, True])
def test_after_the_windows_come_their_mirror_images_with_all_that_belongs_to_them(together):
    windows = windows_of(together)
    count = len(windows)
    assert len(Mirrored(windows)) == 2 * count
    chosen = torch.randperm(2 * count)
    found, expected = Mirrored(windows)[chosen.tolist()], windows[chosen % count]
    sign = torch.where(chosen < count, 1.0, -1.0)
    for name in ("x", "y", "hist", "futr", "stat"):
        turned = torch.einsum("b,b...->b...", sign, getattr(expected, name))
        torch.testing.assert_close(getattr(found, name), turned, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(found.unit, expected.unit)


def test_without_columns_there_are_none():
    batch = Mirrored(windows_of(False, columns=False))[[0, 20]]
    assert batch.hist is batch.futr is batch.stat is batch.unit is None


@pytest.mark.parametrize("multivariate", [False, True])
def test_a_fit_mirrors_windows_only_where_there_are_few(tiny, wide, monkeypatch, multivariate):
    """The number is that of windows of single series. Either way an epoch has as many batches."""
    read = []

    def spy(network, objective, batches, *rest, **options):
        read.append(batches)
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train_network", spy)
    series = 3 if multivariate else 1
    count = 3 * (len(wide) - 30 - 12 - 4 + 1)
    for few, mirrors in ((count, False), (count + 1, True)):
        monkeypatch.setattr(training, "FEW", few)
        with pytest.raises(KeyboardInterrupt):
            tiny(multivariate=multivariate).fit(wide, val_size=30)
        batches: DataLoader = read.pop()
        assert isinstance(batches.dataset, Mirrored) is mirrors
        assert len(batches.dataset) == count // series * (2 if mirrors else 1)
        assert len(batches) == -(-count // series // batches.sampler.batch_size)


def test_an_epoch_has_each_window_once_and_about_half_of_them_mirrored(tiny, wide, monkeypatch):
    """Others in each epoch."""
    read = []
    whole = Mirrored.__getitem__
    monkeypatch.setattr(Mirrored, "__getitem__", lambda self, index: read.append(index) or whole(self, index))
    tiny(max_epochs=2, batch_size=10).fit(wide, val_size=30)
    count = 3 * (len(wide) - 30 - 12 - 4 + 1)
    read = list(chain.from_iterable(read))
    first, second = read[:count], read[count:]
    for epoch in (first, second):
        assert sorted(i % count for i in epoch) == list(range(count))
        assert sum(i >= count for i in epoch) == pytest.approx(count / 2, rel=0.2)
    assert {i for i in first if i >= count} != {i for i in second if i >= count}
