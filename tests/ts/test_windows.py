"""Windows in training: each epoch has each of them once, in an order that the seed and the epoch decide."""

import pytest
import torch

from titans_core.train import TrainingOptions, train_network
from titans_ts.windows import Windows, loader

INPUT_SIZE, H, ROWS = 4, 2, 20


class PowerCutError(Exception):
    pass


def trained_on(seed, noise=0, epochs=3, checkpoint_dir=None, cut_after=None):
    """First rows of the windows that an outer loop of some epochs saw, epoch by epoch."""
    seen = []

    def loss(net, batch):
        inputs, targets = batch
        if len(seen) == cut_after:
            raise PowerCutError
        seen.extend(inputs[:, 0, 0].tolist())
        return (net(inputs.mT) - targets.mT).square().mean(), targets.numel()

    torch.manual_seed(noise)
    batches = loader(Windows(torch.arange(float(ROWS))[:, None], INPUT_SIZE, H, 0, ROWS), 4, seed)
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
        part = Windows(values, INPUT_SIZE, H, start, stop)
        return part[list(range(len(part)))][1]

    train, val = targets(0, border), targets(border, ROWS)
    assert train.unique().tolist() == list(range(INPUT_SIZE, border))
    assert val.unique().tolist() == list(range(border, ROWS))


def test_a_window_is_a_lookback_and_what_came_next():
    values = torch.arange(2.0 * ROWS).reshape(ROWS, 2)
    inputs, targets = Windows(values, INPUT_SIZE, H, 0, ROWS)[[14, 0]]
    assert torch.equal(inputs[0], values[14:18])
    assert torch.equal(targets[0], values[18:20])
    assert torch.equal(inputs[1], values[:4])


@pytest.mark.parametrize(("stop", "count"), [(5, 0), (6, 1), (7, 2)])
def test_too_few_rows_are_no_window(stop, count):
    assert len(Windows(torch.zeros(ROWS, 1), INPUT_SIZE, H, 0, stop)) == count


@pytest.mark.parametrize("seed", [None, 3])
def test_the_last_batch_is_smaller_and_kept(seed):
    batches = loader(Windows(torch.zeros(ROWS, 1), INPUT_SIZE, H, 0, ROWS), 4, seed)
    assert [len(inputs) for inputs, _ in batches] == [4, 4, 4, 3]
    assert len(batches) == 4
