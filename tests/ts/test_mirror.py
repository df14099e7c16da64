"""Mirrored windows in trainings with few windows."""

import pytest
import torch

from titans_ts import mirror, training
from titans_ts.mirror import Mirrored, mirrored
from titans_ts.objective import DecayingError, objective_of
from titans_ts.simba import Simba, SimbaConfig
from titans_ts.windows import Batch


def batch_of(B=64):
    x, y = torch.randn(B, 12, 2), torch.randn(B, 4, 2)
    x[:, 3] = torch.nan
    return Batch(x, y, torch.randn(B, 12, 2, 3), torch.randn(B, 16, 1, 2), torch.randn(B, 2, 5), torch.rand(B, 1, 2))


def test_a_window_is_turned_with_all_that_belongs_to_it():
    batch = batch_of()
    found = mirrored(batch)
    sign = (found.y / batch.y)[:, 0, 0]
    assert set(sign.tolist()) == {-1.0, 1.0}
    for name in ("x", "y", "hist", "futr", "stat"):
        expected = torch.einsum("b,b...->b...", sign, getattr(batch, name))
        torch.testing.assert_close(getattr(found, name), expected, rtol=0, atol=0, equal_nan=True)
    assert found.unit is batch.unit
    plain = mirrored(Batch(batch.x, batch.y))
    assert plain.hist is plain.futr is plain.stat is plain.unit is None


def test_signs_are_drawn_anew_each_time():
    batch = batch_of()
    assert not torch.equal(mirrored(batch).y, mirrored(batch).y)


def test_only_training_windows_are_turned():
    config = SimbaConfig(4, 12, dim=8, num_layers=1, dropout=0.0)
    network, batch = Simba(config), Batch(torch.randn(32, 12, 2), torch.randn(32, 4, 2))
    loss = DecayingError(objective_of("mae"))
    network.eval()
    assert torch.equal(Mirrored(loss)(network, batch)[0], loss(network, batch)[0])
    network.train()
    assert not torch.equal(Mirrored(loss)(network, batch)[0], loss(network, batch)[0])


@pytest.mark.parametrize("name", ["mae", "mse", "huber"])
def test_a_network_with_mirror_images_for_mirror_images_has_the_same_loss(name):
    class Odd(torch.nn.Module):
        def normalised(self, x, hist, futr, stat):
            y = (x[:, -4:] ** 3 + futr[:, -4:, :, 0] + hist[:, -4:, :, 1]).unsqueeze(-1)
            return y, torch.zeros(len(x), 1, 2), torch.ones(len(x), 1, 2)

    batch, loss = batch_of()._replace(x=torch.randn(64, 12, 2)), DecayingError(objective_of(name))
    torch.testing.assert_close(Mirrored(loss)(Odd().train(), batch), loss(Odd(), batch))


@pytest.mark.parametrize("multivariate", [False, True])
def test_a_fit_turns_windows_only_where_there_are_few(tiny, wide, monkeypatch, multivariate):
    """The number is that of windows of single series."""
    turned = []
    monkeypatch.setattr(mirror, "mirrored", lambda batch: turned.append(len(batch.x)) or batch)
    model = tiny(max_epochs=1, multivariate=multivariate)
    model.fit(wide, val_size=30)
    count = 3 * (len(wide) - 30 - 12 - 4 + 1)
    assert sum(turned) == count // (3 if multivariate else 1)
    for few, at_all in ((count, False), (count + 1, True)):
        turned.clear()
        monkeypatch.setattr(training, "FEW", few)
        model.fit(wide, val_size=30)
        assert bool(turned) is at_all
