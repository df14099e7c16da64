"""An interrupted run resumes exactly, wherever it was interrupted; and the files that a run leaves."""

import tempfile
import zipfile

import numpy as np
import pytest
import torch
from small_training import OPTIONS, data, network, squared_error, val_loss
from torch import nn

from titans_core.train import TrainingOptions, digest, train_network
from titans_core.train.checkpoints import WholeCheckpoints

STEPS = 4  # batches in an epoch


class PowerCutError(Exception):
    pass


def cut_after(steps, error, loss=squared_error):
    done = 0

    def interrupted(net, batch):
        nonlocal done
        if net.training:
            if done == steps:
                raise error
            done += 1
        return loss(net, batch)

    return interrupted


@pytest.mark.parametrize("with_val", [True, False], ids=["val", "no-val"])
@pytest.mark.parametrize("steps", [1, STEPS, STEPS + 2, 3 * STEPS + 3])
@pytest.mark.parametrize("average", [0, 5], ids=["as-is", "averaged"])
def test_resuming_is_exact_wherever_the_run_was_cut(tmp_path, steps, with_val, average):
    val = data(seed=5) if with_val else None
    unbroken = network()
    expected = train_network(unbroken, squared_error, data(), val, TrainingOptions(**OPTIONS, average=average))
    options = TrainingOptions(**OPTIONS, average=average, checkpoint_dir=tmp_path / "run")
    with pytest.raises(PowerCutError):
        train_network(network(), cut_after(steps, PowerCutError), data(), val, options)
    torch.manual_seed(99)  # another process has another random state
    resumed = network()
    assert train_network(resumed, squared_error, data(), val, options) == expected
    assert len(expected.epochs) == 4
    for a, b in zip(resumed.state_dict().values(), unbroken.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert [f.name for f in (tmp_path / "run").iterdir()] == ["last.ckpt"]


@pytest.mark.parametrize("average", [0, 5], ids=["as-is", "averaged"])
def test_resuming_is_exact_in_double_precision(tmp_path, average):
    seen = []

    def doubled(net, batch):
        seen.append([p.detach().clone() for p in net.parameters()])  # by steps, and by the average in validation
        return squared_error(net, [x.double() for x in batch])

    settings = {**OPTIONS, "average": average, "precision": "64-true"}
    train_network(network(), doubled, data(), data(seed=5), TrainingOptions(**settings))
    expected = seen.copy()
    options = TrainingOptions(**settings, checkpoint_dir=tmp_path)
    with pytest.raises(PowerCutError):
        train_network(network(), cut_after(2 * STEPS, PowerCutError, doubled), data(), data(seed=5), options)
    resumed = network()
    seen.clear()
    train_network(resumed, doubled, data(), data(seed=5), options)
    for found, weights in zip(seen, expected[-len(seen) :], strict=True):
        assert all(torch.equal(a, b) and a.dtype == torch.float64 for a, b in zip(found, weights, strict=True))
    assert next(resumed.parameters()).dtype == torch.float32


def test_patience_continues_counting_after_an_interruption(tmp_path):
    def constant(net, batch):
        return squared_error(net, batch)[0] * 0 + 1.0, 1

    options = TrainingOptions(**{**OPTIONS, "max_epochs": 50, "patience": 3}, checkpoint_dir=tmp_path)
    with pytest.raises(PowerCutError):
        train_network(network(), cut_after(2 * STEPS + 1, PowerCutError, constant), data(), data(), options)
    assert len(train_network(network(), constant, data(), data(), options).epochs) == 4


def test_a_training_that_stopped_early_does_not_continue_on_a_second_call(tmp_path):
    def constant(net, batch):
        return squared_error(net, batch)[0] * 0 + 1.0, 1

    options = TrainingOptions(**{**OPTIONS, "max_epochs": 50, "patience": 2}, checkpoint_dir=tmp_path)
    first, again = network(), network()
    expected = train_network(first, constant, data(), data(), options)
    assert len(expected.epochs) == 3
    for _ in range(2):
        assert train_network(again, constant, data(), data(), options) == expected
        assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


def test_the_best_weights_may_be_those_of_before_the_cut(tmp_path):
    """From the second epoch on the targets are wrong, so the best weights are only in the checkpoint."""

    def wrong(net, batch):
        x, y = batch
        return squared_error(net, (x, -10 * y if net.training else y))

    options = TrainingOptions(**{**OPTIONS, "learning_rate": 0.1}, checkpoint_dir=tmp_path)
    with pytest.raises(PowerCutError):
        train_network(network(), cut_after(STEPS, PowerCutError), data(), data(seed=5), options)
    resumed = network()
    history = train_network(resumed, wrong, data(), data(seed=5), options)
    losses = [epoch["val_loss"] for epoch in history.epochs]
    assert history.best_epoch == 0
    assert val_loss(resumed) == pytest.approx(losses[0], rel=1e-5)
    assert val_loss(resumed) < min(losses[1:])


def test_a_keyboard_interrupt_reaches_the_caller_and_the_run_can_be_resumed(tmp_path):
    options = TrainingOptions(**OPTIONS, checkpoint_dir=tmp_path)
    # BaseException: an exit of the whole process, say, must not end this test run
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        train_network(network(), cut_after(6, KeyboardInterrupt), data(), data(seed=5), options)
    resumed, unbroken = network(), network()
    history = train_network(resumed, squared_error, data(), data(seed=5), options)
    assert history == train_network(unbroken, squared_error, data(), data(seed=5), TrainingOptions(**OPTIONS))
    assert caught.type is KeyboardInterrupt


def test_a_learning_rate_of_numpy_is_no_obstacle_to_resuming(tmp_path):
    settings = {**OPTIONS, "max_epochs": 2}
    of_numpy = TrainingOptions(**{**settings, "learning_rate": np.float64(1e-2)}, checkpoint_dir=tmp_path)
    with pytest.raises(PowerCutError):
        train_network(network(), cut_after(STEPS, PowerCutError), data(), None, of_numpy)
    expected = train_network(network(), squared_error, data(), None, TrainingOptions(**settings))
    assert train_network(network(), squared_error, data(), None, of_numpy) == expected


@pytest.mark.parametrize(
    ("steps", "says"),
    [(2, "in epoch 1"), (2 * STEPS + 1, "after epoch 2")],
)
def test_a_keyboard_interrupt_says_what_was_kept_and_how_to_keep_it(tmp_path, steps, says):
    with pytest.raises(KeyboardInterrupt, match=r"nothing is kept\. Give checkpoint_dir"):
        train_network(network(), cut_after(steps, KeyboardInterrupt), data(), None, TrainingOptions(**OPTIONS))
    options = TrainingOptions(**OPTIONS, checkpoint_dir=tmp_path)
    with pytest.raises(KeyboardInterrupt, match=says) as caught:
        train_network(network(), cut_after(steps, KeyboardInterrupt), data(), None, options)
    assert ("to resume from" in str(caught.value)) == (tmp_path / "last.ckpt").exists() == (steps > STEPS)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"max_epochs": 9}, "max_epochs is 4 there and 9 here"),
        ({"learning_rate": 0.5}, "learning_rate is 0.01 there and 0.5 here"),
    ],
)
def test_a_checkpoint_of_other_settings_is_refused_and_left_alone(tmp_path, change, says):
    train_network(network(), squared_error, data(), None, TrainingOptions(**OPTIONS, checkpoint_dir=tmp_path))
    before = (tmp_path / "last.ckpt").read_bytes()
    options = TrainingOptions(**{**OPTIONS, **change}, checkpoint_dir=tmp_path)
    with pytest.raises(
        ValueError, match=f"the checkpoint of another run: {says}. Give another checkpoint_dir, or delete"
    ):
        train_network(network(), squared_error, data(), None, options)
    assert (tmp_path / "last.ckpt").read_bytes() == before


def test_a_checkpoint_of_other_data_or_another_network_is_refused(tmp_path):
    options = TrainingOptions(**OPTIONS, checkpoint_dir=tmp_path)
    train_network(network(), squared_error, data(), None, options, {"data": digest(np.zeros(3))})
    with pytest.raises(ValueError, match="another run: the data differs"):
        train_network(network(), squared_error, data(), None, options, {"data": digest(np.ones(3))})
    wider = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    with pytest.raises(ValueError, match="another run: the network differs"):
        train_network(wider, squared_error, data(), None, options, {"data": digest(np.zeros(3))})


def test_a_damaged_checkpoint_is_refused_with_advice(tmp_path):
    options = TrainingOptions(**OPTIONS, checkpoint_dir=tmp_path)
    train_network(network(), squared_error, data(), None, options)
    checkpoint = tmp_path / "last.ckpt"
    whole = checkpoint.read_bytes()
    with zipfile.ZipFile(checkpoint) as parts:
        at = whole.index(parts.read(max(parts.infolist(), key=lambda part: part.file_size)))
    # torch would read the second, with another number in it
    for damaged in (whole[:500], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
        checkpoint.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"last.ckpt cannot be read: it is damaged.*or delete"):
            train_network(network(), squared_error, data(), None, options)
    torch.save({"state_dict": {}}, checkpoint)
    with pytest.raises(ValueError, match="was not written by this library"):
        train_network(network(), squared_error, data(), None, options)


@pytest.mark.parametrize(
    "change",
    [{"learning_rate": 0.5}, {"weight_decay": 0.5}, {"patience": 4}, {"clip": 0.5}, {"average": 7}, {"max_epochs": 2}],
)
def test_a_checkpoint_of_other_options_is_refused(tmp_path, change):
    options = {**OPTIONS, "max_epochs": 1, "checkpoint_dir": tmp_path}
    train_network(network(), squared_error, data(), None, TrainingOptions(**options))
    with pytest.raises(ValueError, match=f"checkpoint of another run: {next(iter(change))} is"):
        train_network(network(), squared_error, data(), None, TrainingOptions(**options | change))


def test_a_folder_that_cannot_be_written_to_is_refused_before_training(tmp_path):
    (tmp_path / "file").touch()
    options = TrainingOptions(**OPTIONS, checkpoint_dir=tmp_path / "file")
    begun = network()
    before = [p.clone() for p in begun.parameters()]
    with pytest.raises(OSError, match=r"checkpoint_dir: .*file cannot be written to .*Give another folder"):
        train_network(begun, squared_error, data(), None, options)
    assert all(map(torch.equal, before, begun.parameters()))


def test_a_checkpoint_needs_no_room_in_the_folder_for_temporary_files(tmp_path, monkeypatch):
    """Which may be on another disk, from where a file would be copied over the last checkpoint."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    options = TrainingOptions(**OPTIONS, checkpoint_dir=tmp_path / "run")
    train_network(network(), squared_error, data(), None, options)
    assert [f.name for f in (tmp_path / "run").iterdir()] == ["last.ckpt"]


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path):
    resource = pytest.importorskip("resource")
    files, file = WholeCheckpoints(), tmp_path / "last.ckpt"
    (tmp_path / "unfinished.part").write_bytes(b"of a process that was killed")
    files.save_checkpoint({"epoch": 1}, file)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))  # in place of a full disk
    try:
        with pytest.raises(OSError, match="File too large"):
            files.save_checkpoint({"epoch": 2, "weights": torch.zeros(10_000)}, file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [f.name for f in tmp_path.iterdir()] == ["last.ckpt"]
    assert torch.load(file) == {"epoch": 1}
