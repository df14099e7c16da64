"""Cached forecasts: equal to recomputed ones, each computed once. And parts of forecasts."""

import dataclasses

import pytest
import torch

from titans_ts.network import online, rolling
from titans_ts.network.objective import objective_of
from titans_ts.network.simba import Simba, SimbaConfig
from titans_ts.network.windows import Table, Windows

H, LOOKBACK, ROWS, SERIES = 3, 8, 40, 2


@pytest.fixture(params=[True, False], ids=["mixed", "apart"])
def network(request):
    torch.manual_seed(0)
    config = SimbaConfig(H, LOOKBACK, SERIES if request.param else None, patch_size=4, dim=8, num_layers=1)
    return Simba(config).eval()


@pytest.fixture
def table():
    return Table(torch.randn(ROWS, SERIES, generator=torch.Generator().manual_seed(1)))


@pytest.fixture
def made(network):
    """The number of windows that the network read in each call."""
    counts = []
    normalised = network.normalised

    def counted(x, *columns):
        counts.append(len(x))
        return normalised(x, *columns)

    network.normalised = counted
    return counts


def anew(network, table, origins, series):
    together = network.config.together
    windows = Windows(table, LOOKBACK, H, origins, None if together else series)
    return rolling.forecast_windows(network, objective_of("mae"), windows).point


@pytest.mark.parametrize("kept", [1 << 25, 0])
def test_cached_forecasts_equal_recomputed_ones(network, table, monkeypatch, kept):
    monkeypatch.setattr(rolling, "KEPT", kept)
    forecasts = rolling.KeptForecasts(network, objective_of("mae"), table)
    rng = torch.Generator().manual_seed(2)
    for _ in range(3):
        origins = torch.randint(LOOKBACK, ROWS - H + 1, (9,), generator=rng)
        series = torch.randint(SERIES, (9,), generator=rng)
        found = forecasts.point(origins, series)
        torch.testing.assert_close(found, anew(network, table, origins, series), rtol=0, atol=1e-6)


def test_each_forecast_is_computed_once_unless_too_many_to_cache(network, table, made, monkeypatch):
    origins, series = torch.tensor([9, 9, 12, 30]), torch.tensor([0, 1, 1, 0])
    windows = len(set(origins.tolist())) if network.config.num_series else len(origins)
    forecasts = rolling.KeptForecasts(network, objective_of("mae"), table)
    first = forecasts.point(origins, series)
    assert made == [windows]
    again = forecasts.point(origins.flip(0), series.flip(0))
    assert made == [windows]
    assert torch.equal(again, first.flip(0))

    monkeypatch.setattr(rolling, "KEPT", ROWS * SERIES * H - 1)
    forecasts = rolling.KeptForecasts(network, objective_of("mae"), table)
    made.clear()
    for _ in range(2):
        forecasts.point(origins, series)
    assert made == [len(origins)] * 2


def test_selecting_an_origin_keeps_all_parts_of_its_forecasts():
    parts = (torch.randn(3, H, 2), torch.randn(3, H, 2, 5), torch.rand(3, 2), torch.rand(3, 2), torch.rand(3, 2))
    found = rolling.Forecasts(*parts)
    for field in dataclasses.fields(found):
        assert torch.equal(getattr(found.at(1), field.name), getattr(found, field.name)[1:2]), field.name


def test_a_memory_reads_each_series_from_its_own_beginning():
    torch.manual_seed(0)
    memory, values = online.OnlineMemory(12, H).eval(), torch.randn(90, 3)
    torch.nn.init.normal_(memory.out.weight)
    values[:17, 1] = float("nan")
    origins = torch.tensor([20, 60, 75, 90])
    found = rolling.corrections(memory, Table(values), origins)
    alone = rolling.corrections(memory, Table(values[17:, 1:2]), origins - 17)
    torch.testing.assert_close(found[..., 1:2], alone, rtol=1e-5, atol=1e-6)
    assert alone[0].count_nonzero() == 0  # too young to have been told anything
    assert alone[1:].abs().amin() > 0
