"""Windows in training: each epoch has each of them once, in an order that the seed and the epoch decide."""

import numpy as np
import pytest
import torch

from titans_core.train import TrainingOptions, train_network
from titans_core.train.batches import loader
from titans_ts.network.windows import Table, all_windows_of, stale_parts

INPUT_SIZE, H, ROWS = 4, 2, 20


class PowerCutError(Exception):
    pass


def windows(values, start=0, stop=ROWS, together=False):
    return all_windows_of(Table(values), INPUT_SIZE, H, start, stop, together)


def trained_on(seed, noise=0, epochs=3, checkpoint_dir=None, cut_after=None):
    """First rows of the windows that training read, for each epoch."""
    seen = []

    def loss(net, batch):
        inputs, targets = batch[:2]
        if len(seen) == cut_after:
            raise PowerCutError
        seen.extend(inputs[:, 0, 0].tolist())
        return (net(inputs.mT) - targets.mT).square().mean(), targets.numel()

    torch.manual_seed(noise)
    batches = loader(windows(torch.arange(float(ROWS))[:, None]), 4, seed)
    options = TrainingOptions(max_epochs=epochs, progress=False, device="cpu", seed=seed, checkpoint_dir=checkpoint_dir)
    train_network(torch.nn.Linear(INPUT_SIZE, H), loss, batches, None, options)
    return [seen[i : i + 15] for i in range(0, len(seen), 15)]


def test_every_epoch_trains_on_every_window_once_in_an_order_of_its_own():
    epochs = trained_on(seed=1, noise=0)
    assert len(epochs) == 3
    assert all(sorted(epoch) == list(range(15)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_the_order_is_the_seeds_and_not_the_callers():
    assert trained_on(seed=1, noise=0) == trained_on(seed=1, noise=7)
    assert trained_on(seed=1, noise=0) != trained_on(seed=2, noise=0)


@pytest.mark.parametrize("whole_epochs", [1, 2])
def test_a_resumed_epoch_has_the_order_that_it_would_have_had(tmp_path, whole_epochs):
    with pytest.raises(PowerCutError):
        trained_on(seed=1, checkpoint_dir=tmp_path, cut_after=15 * whole_epochs + 4)
    assert trained_on(seed=1, checkpoint_dir=tmp_path) == trained_on(seed=1)[whole_epochs:]


@pytest.mark.parametrize("border", [10, 15, 18])
def test_training_and_validation_targets_share_no_row_and_leave_none_out(border):
    values = torch.arange(float(ROWS))[:, None]

    def targets(start, stop):
        part = windows(values, start, stop)
        return part[list(range(len(part)))][1]

    train, val = targets(0, border), targets(border, ROWS)
    assert train.unique().tolist() == list(range(INPUT_SIZE, border))
    assert val.unique().tolist() == list(range(border, ROWS))


def test_a_window_is_a_lookback_and_the_values_after_it():
    values = torch.arange(2.0 * ROWS).reshape(ROWS, 2)
    both = windows(values, together=True)[[14, 0]]
    assert torch.equal(both.x[0], values[14:18])
    assert torch.equal(both.y[0], values[18:20])
    assert torch.equal(both.x[1], values[:4])
    apart = windows(values)
    assert len(apart) == 30
    assert torch.equal(apart[[29, 0]].x[0], values[14:18, 1:])
    assert torch.equal(apart[[29, 0]].y[1], values[4:6, :1])


@pytest.mark.parametrize(("stop", "count"), [(5, 0), (6, 1), (7, 2)])
def test_too_few_rows_give_no_window(stop, count):
    assert len(windows(torch.zeros(ROWS, 1), stop=stop)) == count


@pytest.mark.parametrize("seed", [None, 3])
def test_the_last_batch_is_smaller_and_kept(seed):
    batches = loader(windows(torch.zeros(ROWS, 1)), 4, seed)
    assert [len(batch.x) for batch in batches] == [4, 4, 4, 3]
    assert len(batches) == 4


def test_an_epoch_has_a_maximum_of_batches_and_different_ones_each_time():
    batches = loader(windows(torch.arange(float(ROWS))[:, None]), 4, seed=1, most=2)
    assert len(batches) == 2
    epochs = []
    for epoch in range(3):
        batches.sampler.set_epoch(epoch)
        epochs.append(torch.cat([batch.x[:, 0, 0] for batch in batches]).tolist())
    assert all(len(set(epoch)) == 8 for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_a_series_that_begins_later_has_windows_once_its_lookback_is_complete():
    values = torch.arange(2.0 * ROWS).reshape(ROWS, 2)
    values[:10, 1] = float("nan")
    found = windows(values)
    batch = found[list(range(len(found)))]
    assert batch.x.isfinite().all()
    assert (found.series == 0).sum() == 15
    assert found.origins[found.series == 1].tolist() == [14, 15, 16, 17, 18]


@pytest.mark.parametrize("filled", [False, True])
def test_the_stale_part_of_a_lookback_is_after_its_newest_known_value(filled):
    rng = np.random.default_rng(0)
    hidden = torch.from_numpy(rng.random((30, 4)) < 0.6)
    hidden[12:, 2] = True
    hidden[:, 3] = False
    values = torch.zeros(30, 4) if filled else torch.zeros(30, 4).masked_fill(hidden, float("nan"))
    table = Table(values, imputed=hidden.unsqueeze(-1) if filled else None)
    origins = torch.tensor([8, 13, 21, 30])
    expected = torch.zeros(4, 4)
    for i, origin in enumerate(origins.tolist()):
        for series in range(4):
            known = (~hidden[:origin, series]).nonzero()
            expected[i, series] = min(1.0, (origin - 1 - int(known[-1])) / 8) if len(known) else 1.0
    torch.testing.assert_close(stale_parts(table, origins, 8), expected)
    torch.testing.assert_close(stale_parts(table.extended(None, 3), origins, 8), expected)
    assert stale_parts(Table(torch.zeros(30, 4)), origins, 8) is None


def test_exogenous_columns_come_with_their_rows_and_series():
    T, N = ROWS, 2
    row, series = torch.arange(float(T))[:, None], torch.arange(float(N))
    hist = (100 * row + series).unsqueeze(-1)
    futr = (1000 * row.expand(T, 1)).unsqueeze(-1)  # shared by all series
    stat = series[:, None] + 7
    table = Table(row + 0.1 * series, hist, futr, stat)
    apart = all_windows_of(table, INPUT_SIZE, H, 0, T, together=False)[[20]]  # the second series from row 5
    assert apart.hist.flatten().tolist() == [501, 601, 701, 801]
    assert apart.futr.flatten().tolist() == [5000, 6000, 7000, 8000, 9000, 10000]
    assert apart.stat.tolist() == [[[8.0]]]
    mixed = all_windows_of(table, INPUT_SIZE, H, 0, T, together=True)[[5, 6]]
    assert mixed.hist[0, :, 1, 0].tolist() == [501, 601, 701, 801]
    assert mixed.futr.shape == (2, 6, 1, 1)
    assert mixed.futr[1, :, 0, 0].tolist() == [6000, 7000, 8000, 9000, 10000, 11000]
    assert mixed.stat.tolist() == [[[7.0], [8.0]]] * 2


@pytest.mark.parametrize("together", [False, True])
def test_interpolated_values_are_not_targets(together):
    """Forecasts from inside a gap interpolated to later values do not count, of mixed series those of all; those after
    the end of a series do."""
    values = torch.arange(2.0 * ROWS).reshape(ROWS, 2)
    imputed = torch.zeros(ROWS, 2, 1, dtype=torch.bool)
    imputed[8:11, 0] = True  # a hole
    imputed[18:, 1] = True  # behind the end
    found = all_windows_of(Table(values, imputed=imputed), INPUT_SIZE, H, 0, ROWS, together)
    batch = found[list(range(len(found)))]
    known = {}  # of a forecast, by its origin and series, which of its steps count
    for i, origin in enumerate(found.origins.tolist()):
        for m, n in enumerate((0, 1) if together else (int(found.series[i]),)):
            known[origin, n] = batch.y[i, :, m].isfinite().tolist()
            came = values[origin : origin + H, n]
            assert torch.equal(batch.y[i, :, m].nan_to_num(-1.0), came.where(torch.tensor(known[origin, n]), -1.0))
            assert torch.equal(batch.x[i, :, m], values[origin - INPUT_SIZE : origin, n])
    inside = {(origin, n) for origin in (9, 10, 11) for n in range(1 + together)}
    for origin in range(INPUT_SIZE, ROWS - H + 1):
        for n in (0, 1):
            counts = [not bool(imputed[origin + step, n, 0]) and (origin, n) not in inside for step in range(H)]
            assert known.get((origin, n), [False] * H) == counts
    assert inside.isdisjoint(known)  # and no time is lost over them
