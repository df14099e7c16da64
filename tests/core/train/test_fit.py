"""The outer loop: best weights, early stopping, and no side effects."""

import logging
import random
from types import SimpleNamespace

import lightning as L
import numpy as np
import pytest
import torch
from lightning.fabric.utilities.rank_zero import rank_zero_module
from small_training import OPTIONS, data, network, squared_error, val_loss
from torch import nn
from torch.utils.data import DataLoader

from titans_core.train import TrainingOptions, borrowed_randomness, train_network
from titans_core.train.callbacks import Averaged


@pytest.mark.parametrize("average", [0, 2])
def test_the_weights_are_those_of_the_best_epoch_on_the_cpu_in_evaluation_mode(average):
    net = network()
    calls = {"n": 0}

    def spoiled(net, batch):
        # from the third epoch on the training target is wrong, so validation gets worse
        calls["n"] += net.training
        x, y = batch
        return squared_error(net, (x, y if calls["n"] <= 8 or not net.training else -10 * y))

    options = TrainingOptions(**{**OPTIONS, "learning_rate": 0.1, "max_epochs": 6, "average": average})
    history = train_network(net, spoiled, data(), data(seed=5), options)
    losses = [epoch["val_loss"] for epoch in history.epochs]
    assert history.best_epoch == losses.index(min(losses)) < 5
    assert val_loss(net) == pytest.approx(min(losses), rel=1e-5)
    assert not net.training
    assert all(p.device.type == "cpu" for p in net.parameters())


def test_training_stops_when_validation_does_not_get_better():
    def constant(net, batch):
        return squared_error(net, batch)[0] * 0 + 1.0, 1

    history = train_network(
        network(), constant, data(), data(), TrainingOptions(**{**OPTIONS, "max_epochs": 50, "patience": 2})
    )
    assert len(history.epochs) == 3


def test_patience_is_at_least_one_epoch():
    with pytest.raises(ValueError, match="patience must be an integer >= 1, got 0"):
        TrainingOptions(patience=0)


def test_without_validation_the_last_weights_are_kept():
    history = train_network(network(), squared_error, data(), None, TrainingOptions(**OPTIONS))
    assert history.best_epoch == 3
    assert "val_loss" not in history.epochs[0]


def test_averaging_changes_no_step_and_keeps_the_moving_average_of_the_weights():
    passed = []

    def recorded(net, batch):
        passed.append([p.detach().clone() for p in net.parameters()])  # before the step
        return squared_error(net, batch)

    plain, averaged = network(), network()
    train_network(plain, recorded, data(), None, TrainingOptions(**OPTIONS))
    train_network(averaged, squared_error, data(), None, TrainingOptions(**OPTIONS, average=4))
    after = [*passed[1:], [p.detach() for p in plain.parameters()]]
    assert len(after) == 16
    expected = after[0]
    for n, weights in enumerate(after[1:], start=1):
        keep = min(3 / 4, (1 + n) / (10 + n))
        expected = [keep * e + (1 - keep) * w for e, w in zip(expected, weights, strict=True)]
    for found, e, last in zip(averaged.parameters(), expected, after[-1], strict=True):
        torch.testing.assert_close(found.detach(), e)
        assert not torch.allclose(found, last, atol=1e-4)


def test_the_callers_random_state_and_folder_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(7)
    net = network()
    before = torch.random.get_rng_state()
    train_network(net, squared_error, data(), data(), TrainingOptions(**OPTIONS))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert list(tmp_path.iterdir()) == []


def test_training_on_a_cpu_leaves_gpus_alone(monkeypatch):
    def touched(*_):
        raise AssertionError("a GPU was initialised")

    net = network()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name in ("get_rng_state", "set_rng_state", "manual_seed_all"):
        monkeypatch.setattr(torch.cuda, name, touched)
    train_network(net, squared_error, data(), data(), TrainingOptions(**OPTIONS))


def test_several_gpus_are_no_reason_for_a_warning(monkeypatch, recwarn):
    monkeypatch.setattr(torch.random, "_fork_rng_warned_already", False)  # it warns once
    states = {0: "first", 1: "second"}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_rng_state", states.get)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: states.update({device: state}))
    with borrowed_randomness(devices=True):
        states[1] = "drawn from"
    assert states == {0: "first", 1: "second"}
    assert not recwarn.list


@pytest.mark.parametrize("with_val", [True, False], ids=["val", "no-val"])
@pytest.mark.parametrize(("spoil", "good"), [(float("nan"), 0), (float("nan"), 8), (float("inf"), 8)])
def test_a_loss_that_is_not_finite_is_an_error_that_says_what_to_do_in_every_epoch(spoil, good, with_val):
    done = 0

    def spoiled(net, batch):
        nonlocal done
        done += net.training
        loss, count = squared_error(net, batch)
        return loss * (spoil if done > good else 1), count

    with pytest.raises(FloatingPointError, match=r"epoch.*Lower learning_rate"):
        train_network(network(), spoiled, data(), data(seed=5) if with_val else None, TrainingOptions(**OPTIONS))


def test_the_validation_loss_is_the_mean_over_all_values_whatever_the_batch():
    losses = [
        train_network(
            network(), squared_error, data(), data(50, seed=5, batch_size=b), TrainingOptions(**OPTIONS)
        ).epochs[0]["val_loss"]
        for b in (50, 7, 1)
    ]
    assert losses[1:] == [pytest.approx(losses[0], rel=1e-5)] * 2


def test_weight_decay_is_for_matrices_only():
    def nothing(net, batch):
        return 0 * squared_error(net, batch)[0], 1

    net, start = network(), network().state_dict()
    train_network(net, nothing, data(), None, TrainingOptions(**OPTIONS, weight_decay=0.5))
    for name, p in net.state_dict().items():
        ratio = p.norm() / start[name].norm()
        assert 0.8 < ratio < 0.99 if name.endswith("weight") else ratio == 1


def test_another_seed_is_another_run_and_the_same_seed_the_same():
    runs = []
    for seed, noise in ((3, 0), (3, 1), (4, 0)):
        net = network()
        torch.manual_seed(noise)  # the state of the caller plays no part
        train_network(net, squared_error, data(), None, TrainingOptions(**{**OPTIONS, "seed": seed}))
        runs.append(net[0].weight)
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_a_run_is_silent_and_gives_back_random_states_and_loggers(capfd):
    logger = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    net = network()
    before = random.getstate(), logger.level
    numpy_state = np.random.get_state()[1].copy()  # noqa: NPY002 (the global state is what must not move)
    train_network(net, squared_error, data(), data(), TrainingOptions(**OPTIONS))
    assert (random.getstate(), logger.level) == before
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    assert capfd.readouterr() == ("", "")


def test_a_run_is_silent_where_pytorch_lightning_is_imported_too(caplog, monkeypatch):
    logger = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    monkeypatch.setattr(rank_zero_module, "log", logger)  # as that package does, which neuralforecast and darts import
    with caplog.at_level(logging.INFO, logger=logger.name):
        train_network(network(), squared_error, data(), data(), TrainingOptions(**OPTIONS))
        assert logger.level == logging.INFO
    assert not caplog.records


def test_a_device_may_have_a_number():
    history = train_network(network(), squared_error, data(), None, TrainingOptions(**{**OPTIONS, "device": "cpu:0"}))
    assert history.epochs


@pytest.mark.parametrize(
    ("device", "says"),
    [
        ("mps" if torch.cuda.is_available() else "cuda:7", "device='{}' is not available on this machine"),
        ("cpu:1", "device='{}': there is only one cpu device"),
        ("gpu", "device must be 'auto' or one of .*, got '{}'"),
        ("", "device must be 'auto' or one of .*, got '{}'"),
    ],
)
def test_a_device_that_is_not_there_is_named(device, says):
    with pytest.raises(ValueError, match=says.format(device)):
        train_network(network(), squared_error, data(), None, TrainingOptions(**{**OPTIONS, "device": device}))


def test_gradients_are_clipped(monkeypatch):
    norms, step = [], torch.optim.AdamW.step

    def watched(optimizer, closure):
        closure()  # Lightning's makes the gradients, and clips them
        norms.append(float(nn.utils.get_total_norm([p.grad for g in optimizer.param_groups for p in g["params"]])))
        return step(optimizer)

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    data = DataLoader(torch.randn(8, 3), batch_size=4)
    options = TrainingOptions(max_epochs=1, progress=False, device="cpu", seed=0)
    train_network(nn.Linear(3, 1), lambda net, x: (1e3 * net(x).square().mean(), len(x)), data, None, options)
    assert norms
    assert max(norms) <= options.clip * (1 + 1e-4)


def test_averaged_weights_are_on_the_device_of_the_module():
    """Lightning moves a module only after the callbacks' setup."""
    averaged, module = Averaged(steps=4), L.LightningModule()
    trainer = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device("meta")))
    module.network = nn.Linear(2, 2)
    averaged.setup(trainer, module, "fit")
    assert averaged.network.weight.device.type == "meta"
