"""The outer loop: best weights, early stopping, exact resumption, and no side effects."""

from types import SimpleNamespace

import lightning as L
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from titans_core.train import TrainingOptions, train_network
from titans_core.train.callbacks import Averaged

OPTIONS = {"learning_rate": 1e-2, "max_epochs": 4, "patience": 10, "progress": False, "device": "cpu", "seed": 3}


def data(n=64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator)
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 1))


def squared_error(net, batch):
    x, y = batch
    error = (net(x) - y).square()
    return error.mean(), error.numel()


def val_loss(net):
    x, y = (torch.cat(parts) for parts in zip(*data(seed=5), strict=True))
    with torch.no_grad():
        return (net(x) - y).square().mean().item()


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


def test_a_run_that_was_cut_and_resumed_is_the_run_that_was_not(tmp_path):
    unbroken = network()
    expected = train_network(unbroken, squared_error, data(), data(seed=5), TrainingOptions(**OPTIONS))

    class PowerCutError(Exception):
        pass

    calls = {"n": 0}

    def cut_in_the_third_epoch(net, batch):
        calls["n"] += net.training
        if calls["n"] > 10:
            raise PowerCutError
        return squared_error(net, batch)

    options = TrainingOptions(**OPTIONS, checkpoint_dir=tmp_path / "run")
    with pytest.raises(PowerCutError):
        train_network(network(), cut_in_the_third_epoch, data(), data(seed=5), options)
    torch.manual_seed(99)  # another process has another random state
    resumed = network()
    history = train_network(resumed, squared_error, data(), data(seed=5), options)
    assert history == expected
    for a, b in zip(resumed.parameters(), unbroken.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_callers_random_state_and_folder_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(7)
    net = network()
    before = torch.random.get_rng_state()
    train_network(net, squared_error, data(), data(), TrainingOptions(**OPTIONS))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert list(tmp_path.iterdir()) == []


def test_a_loss_that_is_not_finite_is_an_error_that_says_what_to_do():
    def nan(net, batch):
        return squared_error(net, batch)[0] * float("nan"), 1

    with pytest.raises(FloatingPointError, match="Lower learning_rate"):
        train_network(network(), nan, data(), data(), TrainingOptions(**OPTIONS))


@pytest.mark.parametrize(
    ("device", "says"), [("cuda:7", "is not available on this machine"), ("tpu", "device must be 'auto' or one of")]
)
def test_a_device_that_is_not_there_is_named(device, says):
    if device.startswith("cuda") and torch.cuda.is_available():
        device = "mps"
    with pytest.raises(ValueError, match=says):
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
