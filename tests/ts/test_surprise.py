"""Laws of the surprise: high where the memory did not expect a value, at its own row, and only for known values."""

import warnings
from copy import copy

import numpy as np
import pytest
import torch

from titans_ts.network import online


@pytest.fixture(scope="module")
def waves(two_waves):
    return two_waves


@pytest.fixture(scope="module")
def model(tiny, waves):
    return tiny(max_epochs=3, missing="mask").fit(waves.iloc[:400])


def of(found, name="a"):
    return found[found["unique_id"] == name].set_index("ds")["surprise"]


def by_definition(memory, values, step):
    """Row by row, one series: the inner loop of Titans (Eq. 12-14) written out for a linear memory."""
    S, span = memory.stride, memory.span

    def code(end):
        return memory._code(values[end - span : end])[0]

    def head(layer, end, unit=False):
        return memory._heads(layer, code(end), unit)

    M = anchor = memory.start
    momentum, found, writes = torch.zeros_like(M), [], 0
    for end in range(span + S, len(values) + 1):
        k, v = head(memory.key, end - S, unit=True), head(memory.value, end)
        error = torch.einsum("hk,hkv->hv", k, M) - v
        if (end - span - S) % step == 0:
            found.append(error.square().sum())
        if (end - span - S) % S == 0:
            if writes % online.CHUNK == 0:
                anchor = M
            alpha, eta, theta = memory.gates(code(end)).sigmoid().reshape(3, online.HEADS, 1, 1)
            gradient = torch.einsum("hk,hv->hkv", k, torch.einsum("hk,hkv->hv", k, anchor) - v)
            momentum = eta * momentum - theta * (1 - eta) * (2 / online.CHUNK) * gradient
            M, writes = (1 - alpha) * M + momentum, writes + 1
    return torch.stack(found)


@pytest.mark.parametrize("step", [1, 3, 4, 9, 400])
@torch.no_grad()
def test_surprise_is_the_associative_loss_of_the_memory_before_the_write(step):
    torch.manual_seed(0)
    memory = online.OnlineMemory(12, 3).double().eval()  # a stride is 4 rows
    torch.nn.init.normal_(memory.gates.weight)
    torch.nn.init.normal_(memory.start)
    values = torch.randn(150, 2, dtype=torch.float64)
    rows, found = online.surprises(memory, values, torch.zeros(150, 2, dtype=torch.bool), step)
    assert rows.tolist() == list(range(16, 151, step))
    for series in (0, 1):
        torch.testing.assert_close(found[:, series], by_definition(memory, values[:, series], step))


def test_many_series_are_read_in_groups(monkeypatch):
    memory, values, unknown = online.OnlineMemory(12, 3).eval(), torch.randn(80, 5), torch.zeros(80, 5).bool()
    expected = online.surprises(memory, values, unknown, 1)[1]
    for series_and_writes in (2, 8, 40):
        monkeypatch.setattr(online, "FLOATS", series_and_writes * 4 * (2 * 12 + 8 * online.DIM))
        torch.testing.assert_close(online.surprises(memory, values, unknown, 1)[1], expected)


def test_surprise_is_given_at_every_row_or_every_step_rows(model, waves):
    each, S = model.surprise(waves), model.memory_.stride
    assert list(each.columns) == ["unique_id", "ds", "surprise"]
    own, first = of(each), model.memory_.span + S - 1
    assert own.index.equals(waves.index[first:])
    for step in (S, 7):
        np.testing.assert_allclose(of(model.surprise(waves, step_size=step)), own.iloc[::step], rtol=1e-5)
    with pytest.raises(ValueError, match=r"step_size must be an integer >= 1, got 0"):
        model.surprise(waves, step_size=0)


@pytest.mark.parametrize("at", [300, 301, 302, 303])
def test_a_spike_shows_at_its_own_row(model, waves, at):
    """Whichever row of a stride it is in."""
    spiked = waves.copy()
    spiked.iloc[at, 0] += 40 * waves["a"].std()
    calm, found = of(model.surprise(waves)), of(model.surprise(spiked))
    moved = (found - calm).abs()
    assert moved[: waves.index[at - 1]].max() < 1e-5  # causal
    assert moved[waves.index[at]] > 0.1 * calm.mean()


@pytest.mark.parametrize("missing", ["mask", "interpolate"])
def test_missing_values_have_no_surprise(model, waves, missing):
    model = copy(model).set_params(missing=missing)
    holed = waves.copy()
    holed.iloc[300:320, 0] = np.nan
    found, whole = model.surprise(holed), model.surprise(waves)
    own, reach = of(found), model.memory_.span + model.memory_.stride
    expected = (waves.index >= waves.index[300]) & (waves.index < waves.index[320 + reach - 1])
    np.testing.assert_array_equal(own.isna(), expected[reach - 1 :])
    np.testing.assert_allclose(own[: waves.index[299]], of(whole)[: waves.index[299]], rtol=1e-5)
    np.testing.assert_allclose(of(found, "b"), of(whole, "b"), rtol=1e-5)
    # the memory is that of the forecasts, which was told lines or means
    later = holed.interpolate() if missing == "interpolate" else holed.fillna(model.mean_[0])
    np.testing.assert_allclose(own.dropna(), of(model.surprise(later))[own.notna()], rtol=1e-3)


def test_surprise_of_a_series_that_begins_late_and_ends_early(model, waves):
    waves = waves.copy()
    waves.iloc[:100, 0], waves.iloc[450:, 0] = np.nan, np.nan
    own = of(model.surprise(waves))
    assert own.index[0] == waves.index[100 + model.memory_.span + model.memory_.stride - 1]
    assert own.last_valid_index() == waves.index[449]
    assert not own[: waves.index[449]].isna().any()


def test_a_series_without_long_enough_known_stretches_is_named(model, waves):
    holed = waves.copy()
    holed.iloc[::10, 0] = np.nan
    with pytest.warns(UserWarning, match=r"series \['a'\] have no surprise: it needs 16 consecutive rows without NaN"):
        found = model.surprise(holed)
    assert of(found).isna().all()
    assert of(found, "b").notna().all()
    young = waves.copy()
    young.iloc[:490, 0] = np.nan
    for frame, named in ((young, "'a'"), (waves.iloc[:15], "'a', 'b'")):
        with pytest.warns(UserWarning, match=rf"series \[{named}\] have no surprise"):
            found = model.surprise(frame)
        assert set(found["unique_id"]) == ({"b"} if frame is young else set())
    with pytest.raises(ValueError, match="df has no known value"):
        model.surprise(waves * np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert of(model.surprise(holed.interpolate(limit=1))).iloc[1:].notna().all()
