"""Units of training and of errors: from known values only, and independent of the settings."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from titans_ts import TitansForecaster
from titans_ts.estimator import scoring
from titans_ts.estimator.reading import read_known
from titans_ts.estimator.training import _batches
from titans_ts.network.memory_training import _Streams
from titans_ts.network.objective import DecayingError, objective_of
from titans_ts.network.simba import Simba, SimbaConfig
from titans_ts.network.windows import Batch, Table

DAY = {"profile": ["day"]}
HOURS = pd.date_range("2024-01-01", periods=20 * 24, freq="h", name="ds")


def daily(noise, seed=0):
    """Two series with a shape of the day, and noise on top."""
    rng = np.random.default_rng(seed)
    days = np.tile(rng.normal(size=(24, 2)), (20, 1)) * [1, 50]
    return pd.DataFrame(days + noise * rng.normal(size=days.shape) * [1, 20], index=HOURS, columns=["a", "b"])


@pytest.mark.parametrize("exogenous", [None, DAY])
def test_errors_are_in_deviations_of_the_series_including_its_profile(tiny, exogenous):
    frame, cut = daily(0.5), 400
    model = tiny(exogenous=exogenous).fit(frame, val_size=len(frame) - cut)
    deviation = frame.iloc[:cut].std(ddof=0)
    forecasts = model.predict_insample(frame, step_size=1)
    error = (forecasts["y"] - forecasts["Titans"]).abs() / forecasts["unique_id"].map(deviation)
    assert model.score(frame) == pytest.approx(-error.mean(), rel=1e-5)
    # of the network alone, step t of the horizon weighs t ** -0.5
    rows = np.arange(cut, len(frame) - model.h + 1)
    windows = np.stack([frame.iloc[t - model.input_size : t] for t in rows])
    truth = np.stack([frame.iloc[t : t + model.h] for t in rows])
    wrong = np.abs(model.predict_windows(windows, frame.index[rows]) - truth) / deviation.to_numpy()
    weight = np.arange(1, model.h + 1) ** -0.5
    expected = (wrong * weight[:, None]).mean() / weight.mean()
    assert model.history_.epochs[model.history_.best_epoch]["val_loss"] == pytest.approx(expected, rel=1e-4)


def test_a_series_explained_by_its_profile_has_the_same_weight(tiny):
    frame = daily(0.5)
    frame["tariff"] = np.where((HOURS.hour >= 8) & (HOURS.hour < 20), 0.30, 0.18)
    frame.iloc[-60:-36, 2] = 0.18  # a day off
    model = tiny(exogenous=DAY).fit(frame, val_size=80)
    tariff = frame["tariff"].iloc[:400].std(ddof=0)
    assert model.scale_[2] == pytest.approx(1e-3 * tariff, rel=1e-6)
    assert min(epoch["val_loss"] for epoch in model.history_.epochs) < 2
    assert model.memory_report_.without < 2
    assert model.score(frame) > -2
    pd.testing.assert_series_equal(
        model.predict()["tariff"], frame["tariff"].iloc[:4].set_axis(model.predict().index), rtol=2e-3, check_freq=False
    )


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_series_of_zeros_has_the_unit_of_the_others(tiny, unit):
    frame = pd.DataFrame({"sold": unit * (3 + np.sin(np.arange(200) / 4)), "never": 0.0, "rarely": 0.0})
    frame.loc[7, "rarely"] = 2 * unit
    model = tiny().fit(frame, val_size=40)
    np.testing.assert_allclose(model.scale_[1], np.median(model.scale_[[0, 2]]))
    forecast = model.predict()
    assert np.abs(forecast["never"]).max() < 0.05 * forecast["sold"].mean()


def test_units_come_from_known_values_not_from_interpolated_ones(tiny):
    frame = daily(0.1)
    frame.iloc[100:200, 0] = np.nan
    drawn, masked = (tiny(exogenous=DAY, missing=how).fit(frame) for how in ("interpolate", "mask"))
    for name in ("mean_", "scale_"):
        np.testing.assert_allclose(getattr(drawn, name), getattr(masked, name), rtol=1e-9)
    np.testing.assert_allclose(drawn.scaling_.units.profile, masked.scaling_.units.profile, rtol=1e-9, atol=1e-12)
    holes = frame.copy()
    holes.iloc[:200, 0] = np.nan  # a new series, of which half is a hole
    new = holes.rename(columns={"a": "x"})
    np.testing.assert_allclose(
        drawn.predict(new)["x"].std(), masked.predict(new)["x"].std(), rtol=0.5
    )  # its daily wave is in both


@pytest.mark.parametrize("loss", ["normal", "laplace", "student_t"])
def test_a_likelihood_is_in_units_of_the_series(loss):
    """So that lookbacks, whose deviations differ, can be compared."""
    torch.manual_seed(0)
    objective = objective_of(loss)
    network = Simba(SimbaConfig(3, 8, patch_size=4, dim=8, num_layers=1, outputs=objective.outputs)).eval()
    x, y = torch.randn(5, 8, 1) * 4 + 2, torch.randn(5, 3, 1)
    with torch.no_grad():
        found, _ = DecayingError(objective)(network, Batch(x, y))
    raw, center, scale = network.normalised(x)
    loc = (raw[..., 0] * scale + center).detach()
    spread = ((torch.nn.functional.softplus(raw[..., 1]) + 1e-3) * scale).detach()
    if loss == "student_t":
        freedom = (torch.nn.functional.softplus(raw[..., 2]) + 2).detach()
        density = stats.t.logpdf(y, freedom, loc, spread)
    else:
        density = (stats.norm if loss == "normal" else stats.laplace).logpdf(y, loc, spread)
    weight = np.arange(1, 4)[:, None] ** -0.5
    assert float(found) == pytest.approx(-(density * weight).mean() / weight.mean(), rel=1e-5)


@pytest.mark.parametrize("multivariate", [False, True])
def test_a_score_in_pieces_is_the_same_score(tiny, wide, monkeypatch, multivariate):
    model = tiny(multivariate=multivariate, max_epochs=1).fit(wide)
    whole = model.score(wide)
    parts = []
    rolling = type(model.model_).rolling
    monkeypatch.setattr(
        type(model.model_), "rolling", lambda m, table, at: parts.append(at.tolist()) or rolling(m, table, at)
    )
    # 30 (10) origins of one series (all), or all of two (83 of all)
    for at_once, pieces in ((120, 11 if multivariate else 12), (1000, 2)):
        parts.clear()
        monkeypatch.setattr(scoring, "_AT_ONCE", at_once)
        assert model.score(wide) == pytest.approx(whole, rel=1e-6)
        assert len(parts) == pieces


def test_a_frame_without_values_to_score_is_refused(tiny, wide):
    model = tiny(missing="mask", max_epochs=1).fit(wide.iloc[:60])
    silent = wide.iloc[:16].copy()
    silent.iloc[-4:] = np.nan
    with pytest.raises(ValueError, match="nothing to score"):
        model.score(silent)


@pytest.mark.parametrize("rows", [16, 56])
def test_a_memory_of_mixed_series_reads_no_row_after_the_border(tiny, rows, monkeypatch):
    """Whose youngest series is too short to learn from."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(400, 2)).cumsum(0), index=HOURS[:400], columns=["a", "b"])
    frame.iloc[: 400 - rows, 1] = np.nan
    read = []
    known = _Streams._known
    monkeypatch.setattr(
        _Streams, "_known", lambda s, origins, series: read.append(origins) or known(s, origins, series)
    )
    model = tiny(multivariate=True, missing="mask").fit(frame, val_size=0 if rows == 16 else 40)
    assert model.memory_report_.steps == 0
    assert not read
    together = tiny(multivariate=True, missing="mask").fit(frame.iloc[:, :1].assign(c=frame["a"]), val_size=40)
    assert together.memory_report_.steps > 0
    assert int(torch.cat([t.flatten() for t in read]).max()) + together.h <= 360


def test_a_matrix_has_the_series_of_fit(wide, tiny_fitted):
    model = tiny_fitted
    np.testing.assert_array_equal(model.predict(wide.to_numpy()), model.predict(wide).to_numpy())
    assert isinstance(model, TitansForecaster)


@pytest.mark.parametrize(("loss", "errors"), [("mae", [0.5, 3.0]), ("mse", [0.25, 9.0]), ("huber", [0.125, 2.5])])
def test_a_point_loss_is_what_its_name_says(loss, errors):
    raw, target = torch.tensor([[0.25], [-1.5]]), torch.zeros(2)
    assert objective_of(loss).error(raw, target, torch.full((2,), 2.0)).tolist() == errors


@pytest.mark.parametrize("loss", ["normal", "laplace"])
def test_quantiles_are_those_of_the_distribution(loss):
    raw, objective = torch.tensor([[1.0, 0.3], [-2.0, 1.5]]), objective_of(loss)
    spread = torch.nn.functional.softplus(raw[:, 1:]) + 1e-3
    family = {"normal": torch.distributions.Normal, "laplace": torch.distributions.Laplace}[loss]
    for level in (0, 50, 80, 95):
        offset = objective.nominal(raw, level, 1)
        p = torch.tensor([(1 + level / 100) / 2])
        torch.testing.assert_close(raw[:, :1] + offset[:, None], family(raw[:, :1], spread).icdf(p))


def test_training_loss_is_in_units_of_the_network_and_validation_loss_in_units_of_the_series(tiny):
    table = Table(torch.randn(60, 2), unit=torch.tensor([0.5, 2.0]))
    train, val, _ = _batches(tiny(), table, 40, 0)
    assert train.dataset.windows.table.unit is None  # the few windows are mirrored
    assert val.dataset.table.unit.tolist() == [0.5, 2.0]


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e6])
def test_a_new_series_of_zeros_has_the_unit_of_the_series_of_fit(tiny, wide, size):
    model = tiny(max_epochs=1).fit(size * wide[["a", "b"]])
    alone = pd.DataFrame({"z": np.zeros(40)}, index=pd.date_range("2024-02-01", periods=40, freq="h", name="ds"))
    beside = alone.assign(large=4e6 * size * (3 + np.sin(np.arange(40))))
    found = model.predict(alone)["z"]
    np.testing.assert_allclose(model.predict(beside)["z"], found, rtol=1e-4, atol=1e-6 * size)
    assert 0 < found.abs().max() < 100 * size


def test_values_whose_squares_overflow_have_forecasts_and_errors(tiny_fitted, wide):
    model = tiny_fitted
    far = wide.copy()
    far.iloc[60, 0] = 1e37
    with pytest.warns(UserWarning, match="1e.37"):
        score = model.score(far)
    assert np.isfinite(score)
    assert score < -1e12
    with pytest.warns(UserWarning, match="1e.37"):
        forecasts = model.predict_insample(far, step_size=1)
    assert np.isfinite(forecasts["Titans"]).all()
    assert forecasts.groupby("unique_id").size().nunique() == 1


def test_a_score_of_forecasts_that_are_not_finite_is_refused(tiny_fitted, wide):
    model = tiny_fitted
    with torch.no_grad():
        next(model.network_.parameters()).fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="not finite"):
        model.score(wide)


def test_windows_of_values_whose_squares_overflow_have_forecasts(tiny_fitted, wide):
    window = wide.iloc[-12:].to_numpy().copy()
    window[3, 0] = 1e37
    assert np.isfinite(tiny_fitted.predict_windows(window[None])).all()


@pytest.mark.parametrize("fitted", [True, False])
def test_zeros_have_one_unit_in_training_and_as_a_new_series(tiny, fitted):
    t, index = np.arange(60), pd.date_range("2024", periods=60, freq="h", name="ds")
    levels = pd.DataFrame({"a": 1000 + np.sin(t / 3), "b": 2000 + np.cos(t / 3)}, index=index)
    zeros = levels.assign(z=0.0)
    model = tiny(max_epochs=1).fit(zeros if fitted else levels)
    units = model.scaling_.units_of(read_known(model, zeros), model.context_)
    np.testing.assert_allclose(units.deviation[2], np.median(units.deviation[:2]))
