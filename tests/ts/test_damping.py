"""How far forecasts are drawn towards the newest value."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from titans_ts import TitansForecaster
from titans_ts.damping import SHARES, damped, damping_of, newest_known
from titans_ts.objective import objective_of
from titans_ts.simba import Simba, SimbaConfig
from titans_ts.windows import Batch

H, L = 4, 12


def with_damping(model, share):
    """A fitted forecaster whose network keeps this share."""
    model.network_.config = replace(model.network_.config, damping=share)
    return model


def test_newest_known_value_skips_nan_and_is_nan_where_there_is_none():
    x = torch.tensor([[1.0, 2.0], [3.0, torch.nan], [torch.nan, torch.nan]]).unsqueeze(0)
    assert newest_known(x).tolist() == [[[3.0, 2.0]]]
    assert newest_known(torch.full((1, 3, 1), torch.nan)).isnan().all()


def test_a_window_without_a_known_value_keeps_its_forecast():
    x, point = torch.tensor([[[torch.nan, 2.0]]]), torch.tensor([[[5.0, 6.0], [7.0, 8.0]]])
    torch.testing.assert_close(damped(point, x, 0.5), torch.tensor([[[5.0, 4.0], [7.0, 5.0]]]))
    assert damped(point, x, 1) is point


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Simba(SimbaConfig(h=H, input_size=L, patch_size=4, dim=8, num_layers=1)).eval()


@pytest.mark.parametrize("share", [1.0, 0.8, 0.5])
@pytest.mark.parametrize("loss", ["mae", "mse", "huber"])
def test_the_share_is_half_way_to_the_one_that_costs_least(network, loss, share):
    """What came is exactly ``share`` of the way from the newest value to the forecast, and unknown here and there."""
    x = torch.randn(40, L, 1)
    with torch.no_grad():
        y = damped(network(x), x, share)
    y[::3, 1] = torch.nan
    batches = [Batch(x[:15], y[:15]), Batch(x[15:], y[15:], unit=torch.full((25, 1, 1), 3.0))]
    found = damping_of(network, objective_of(loss), batches)
    best = min(SHARES, key=lambda each: abs(each - share))
    assert found == pytest.approx((1 + best) / 2)


def test_what_came_farther_out_than_forecast_is_not_exaggerated(network):
    x = torch.randn(40, L, 1)
    with torch.no_grad():
        y = damped(network(x), x, 1.5)
    assert damping_of(network, objective_of("mae"), [Batch(x, y)]) == 1


def walks(T=400, N=3):
    """Random walks: the best forecast is the newest value."""
    rng = np.random.default_rng(0)
    index = pd.date_range("2024-01-01", periods=T, freq="h", name="ds")
    return pd.DataFrame(rng.normal(size=(T, N)).cumsum(axis=0), index=index, columns=list("abc"))


@pytest.fixture(scope="module")
def of_walks():
    df = walks()
    options = dict(h=H, input_size=L, patch_size=4, dim=8, num_layers=1, random_state=0, verbose=0, dropout=0.0)
    return TitansForecaster(**options, max_epochs=12, learning_rate=1e-2).fit(df.iloc[:350]), df


def test_forecasts_of_random_walks_are_drawn_to_the_newest_value_and_better_for_it(of_walks):
    model, df = of_walks
    assert 0.7 <= model.damping_ < 1
    later = df.iloc[320:]
    drawn = model.score(later)
    share = model.damping_
    try:
        assert with_damping(model, 1.0).score(later) < drawn
    finally:
        with_damping(model, share)


def test_every_entrance_forecasts_damped(of_walks, tmp_path):
    """``predict``, ``predict_windows``, ``predict_insample`` and a saved model."""
    model, df = of_walks
    share, past = model.damping_, df.iloc[:350]
    windows = past.to_numpy()[None, -L:]
    found = model.predict_windows(windows)
    try:
        plain = with_damping(model, 1.0).predict_windows(windows)
    finally:
        with_damping(model, share)
    newest = windows[:, -1:]
    np.testing.assert_allclose(found, newest + share * (plain - newest), rtol=1e-5, atol=1e-5)
    model.save(tmp_path / "model")
    loaded = TitansForecaster.load(tmp_path / "model")
    assert loaded.damping_ == share
    pd.testing.assert_frame_equal(loaded.predict(), model.predict())
    insample = model.predict_insample(df, step_size=1)
    at = insample[insample["cutoff"] == past.index[-1]].pivot(index="ds", columns="unique_id", values="Titans")
    np.testing.assert_allclose(at.to_numpy(), model.predict(past).to_numpy(), rtol=1e-4, atol=1e-4)


def test_a_pattern_that_holds_is_left_alone(tiny):
    t = np.arange(600)
    df = pd.DataFrame({"a": np.sin(t / 6 * np.pi), "b": np.cos(t / 4 * np.pi)})
    assert tiny(max_epochs=8, learning_rate=1e-2).fit(df).damping_ == 1


@pytest.mark.parametrize("loss", ["mae", "quantile", "student_t"])
def test_intervals_lie_around_damped_forecasts(tiny, loss):
    model = tiny(loss=loss).fit(walks(200))
    found = with_damping(model, 0.7).predict(level=[80])
    for name in "abc":
        assert (found[f"{name}-lo-80"] <= found[name]).all()
        assert (found[f"{name}-hi-80"] >= found[name]).all()


@pytest.mark.parametrize("val_size", [0, 6])
def test_few_validation_rows_say_nothing(tiny, val_size):
    """Six rows hold one horizon of each of three series."""
    assert tiny().fit(walks(200), val_size=val_size).damping_ == 1
