"""Batches of very long windows are read part by part: the same numbers, in memory that does not grow with the batch."""

import pytest
import torch

from titans_ts.network import parts
from titans_ts.network.objective import DecayingError, objective_of
from titans_ts.network.simba import Simba, SimbaConfig
from titans_ts.network.windows import Batch

LOOKBACK, H = 24, 3


@pytest.mark.parametrize("together", [False, True])
def test_parts_have_the_error_and_the_gradient_of_the_whole(monkeypatch, together):
    torch.manual_seed(0)
    series = 2 if together else 1
    config = SimbaConfig(
        H,
        LOOKBACK,
        series if together else None,
        patch_size=8,
        dim=8,
        num_layers=1,
        dropout=0.0,
        hist=1,
        futr=2,
        stat=1,
    )
    network = Simba(config).double()
    for p in network.parameters():  # what starts at 0 passes nothing on
        torch.nn.init.normal_(p, std=0.3)

    def drawn(*shape):
        return torch.randn(*shape, dtype=torch.float64)

    batch = Batch(
        drawn(7, LOOKBACK, series), drawn(7, H, series), drawn(7, LOOKBACK, series, 1),
        drawn(7, LOOKBACK + H, 1, 2), drawn(7, series, 1),
    )  # fmt: skip
    read, normalised = [], network.normalised
    network.normalised = lambda x, *columns: read.append(len(x)) or normalised(x, *columns)
    found = {}
    for steps in (parts.STEPS, 3 * LOOKBACK * series, 1):
        monkeypatch.setattr(parts, "STEPS", steps)
        error, count = DecayingError(objective_of("mae"))(network, batch)
        found[steps] = (error, count, *torch.autograd.grad(error, list(network.parameters())))
    assert read[:4] == [7, 3, 3, 1]
    whole, *others = found.values()
    for other in others:
        for a, b in zip(whole, other, strict=True):
            torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_a_lookback_of_50000_steps_fits_in_2_gib_with_the_defaults(real_data, measured):
    """A default batch of 72 windows of ETTm1; read at once it would need 0.3 GiB more than allowed."""
    script = """
import torch
from titans_datasets import load
from titans_ts import TitansForecaster

torch.set_num_threads(1)
frame = load("ETTm1").iloc[: 50_000 + 96 + 11 + 96, :6]
model = TitansForecaster(h=96, input_size=50_000, max_epochs=1, random_state=0, verbose=0).fit(frame, val_size=96)
assert model.predict(frame).notna().all(axis=None)
print(megabytes("VmHWM") / 1024)
"""
    [gib] = measured(script)
    assert gib < 2
