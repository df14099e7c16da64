"""The mean shape of a day, removed from each series and added back to its forecasts."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from titans_ts import TitansForecaster
from titans_ts.evaluation import load_protocol
from titans_ts.frames.exogenous import calendar_features
from titans_ts.units.profile import profiles_of, waves_of
from titans_ts.units.scaling import Units

DAY = {"profile": ["day"]}


@pytest.fixture
def shape(wide):
    """A wave of the day for each series, over the rows of ``wide`` and beyond."""
    index = pd.date_range(wide.index[0], periods=len(wide) + 24, freq="h", name="ds")
    weights = np.random.default_rng(5).normal(size=(6, 3)) * wide.std().to_numpy()
    return pd.DataFrame(calendar_features(index, ("day",)) @ weights, index=index, columns=wide.columns)


@pytest.fixture
def fitted(tiny, wide):
    return tiny(exogenous=DAY, max_epochs=3).fit(wide)


def test_a_daily_wave_in_the_data_is_in_the_forecast(tiny, wide, shape):
    waves = 100 * shape
    model = tiny(exogenous=DAY, max_epochs=3).fit(wide + waves.loc[wide.index])
    with_wave, without = model.predict(), tiny(max_epochs=3).fit(wide).predict()
    error = (with_wave - without - waves.loc[with_wave.index]).abs() / waves.std()
    assert error.to_numpy().max() < 0.02
    assert (waves.loc[with_wave.index] - waves.mean()).abs().div(waves.std()).to_numpy().max() > 1
    np.testing.assert_allclose(model.scale_, wide.std(), rtol=0.2)
    inside = model.predict_insample(wide + waves.loc[wide.index], step_size=1)
    assert ((inside["y"] - inside["Titans"]).abs() / inside["unique_id"].map(wide.std())).mean() < 1.5


def test_the_removed_profile_is_an_input_of_the_network(tiny, wide, shape):
    frame = wide + 5 * shape.loc[wide.index]
    model = tiny(exogenous={**DAY, "calendar": ["day"]}).fit(frame)
    units, index = model.scaling_.units, shape.index
    inputs = model.scaling_.future(index, np.empty((len(index), 3, 0)))
    assert inputs.shape == (len(index), 3, 6 + 1) == (*inputs.shape[:2], model.network_.config.futr)
    np.testing.assert_allclose(inputs[..., -1], units.shape(index) / units.deviation, atol=1e-6)
    np.testing.assert_allclose(inputs[:, 0, :-1], calendar_features(index, ("day",)), atol=1e-6)
    whole = model.scaling_.table(model.context_)
    torch.testing.assert_close(whole.futr, inputs[len(wide) - len(whole.values) : len(wide)], rtol=0, atol=1e-6)
    # a new series is told its own
    new = model.predict(-frame.rename(columns=str.upper))
    np.testing.assert_allclose(new, -model.predict(frame), rtol=0, atol=0.5 * frame.std().max())


def test_a_profile_is_shrunk_to_what_generalises(wide):
    """Compared with a search for the factor of the other parts' shape that leaves the smallest residual of a part."""
    rng = np.random.default_rng(0)
    index = pd.date_range("2024-01-01", periods=40 * 24, freq="h")
    day = calendar_features(index, ("day",)) @ rng.normal(size=6)
    size = np.repeat([1.4, 0.6], len(index) // 2)
    values = np.stack(
        [day, size * day, day + 3 * rng.normal(size=len(day)), rng.normal(size=len(day)).cumsum()], axis=1
    )
    found = profiles_of(values, index, ("day",))
    line = np.stack((np.ones(len(index)), np.arange(len(index))), axis=1)
    waves = waves_of(index, ("day",))
    for column, x in enumerate(values.T):
        shapes, rest = [], []
        for part in np.array_split(np.arange(len(x)), 8):
            others = np.setdiff1d(np.arange(len(x)), part)
            weights = np.linalg.lstsq(np.c_[line, waves][others], x[others], rcond=1e-9)[0][2:]
            for of, into in ((waves[part] @ weights, shapes), (x[part], rest)):
                into.append(of - line[part] @ np.linalg.lstsq(line[part], of)[0])
        factors = np.linspace(0, 1, 2001)
        left = [np.square(np.concatenate(rest) - f * np.concatenate(shapes)).sum() for f in factors]
        best = factors[np.argmin(left)]
        whole = np.linalg.lstsq(np.c_[line, waves], x, rcond=1e-9)[0][2:]
        np.testing.assert_allclose(found[:, column], (best if best >= 0.5 else 0) * whole, atol=5e-4)
    assert not found[:, 3].any()  # a random walk has none
    np.testing.assert_allclose(waves @ found[:, 0], day, atol=1e-9)  # all of what is there each day alike


@pytest.mark.parametrize(
    ("cycle", "freq", "steps"),
    [("day", "h", 24 * days + 1) for days in (2, 3, 3.5, 7)] + [("year", "D", 366 * years) for years in (2, 3, 4)],
)
def test_a_trend_is_not_a_profile_and_hides_none(cycle, freq, steps):
    index = pd.date_range("2020-01-01", periods=int(steps), freq=freq)
    waves = waves_of(index, (cycle,))
    trend = np.linspace(0, 100, len(index))
    values = np.stack([trend, trend + waves[:, 0]], axis=1)
    found = waves @ profiles_of(values, index, (cycle,))
    np.testing.assert_allclose(found[:, 0], 0, atol=1e-6)
    if steps > 49:  # of two days, each foretold by the other, a trend takes too much
        np.testing.assert_allclose(found[:, 1], waves[:, 0], atol=1e-6)


def test_an_outlier_is_not_a_profile_and_hides_none():
    index = pd.date_range("2024-01-01", periods=40 * 24, freq="h")
    day = waves_of(index, ("day",))[:, 0]
    values = np.stack([day, day], axis=1)
    values[500, 1] = 300
    profiles = waves_of(index, ("day",)) @ profiles_of(values, index, ("day",))
    np.testing.assert_allclose(profiles[:, 0], day, atol=1e-9)
    np.testing.assert_allclose(profiles[:, 1], day, atol=0.1)


def test_each_cycle_is_shrunk_separately():
    index = pd.date_range("2024-01-01", periods=16 * 7 * 24, freq="h")
    day, week = calendar_features(index, ("day",))[:, 0], calendar_features(index, ("week",))[:, 1]
    turned = np.where(np.arange(len(index)) // (14 * 24) % 2, 1, -1) * week
    found = profiles_of(np.stack([20 * day + week, 20 * day + turned], axis=1), index, ("day", "week"))
    np.testing.assert_allclose(waves_of(index, ("day", "week")) @ found[:, 0], 20 * day + week, atol=1e-9)
    np.testing.assert_allclose(waves_of(index, ("day", "week")) @ found[:, 1], 20 * day, atol=0.05)
    assert not found[24:, 1].any()


@pytest.mark.parametrize("days", [2, 3])
def test_a_short_series_has_the_shape_shared_by_its_days(days):
    index = pd.date_range("2024-01-01", periods=24 * days + 1, freq="h")
    rng = np.random.default_rng(0)
    shape = np.tile(rng.normal(size=24), days + 1)[: len(index)]
    values = np.stack([shape + 0.1 * rng.normal(size=len(index)), rng.normal(size=len(index)).cumsum()], axis=1)
    profile = waves_of(index, ("day",)) @ profiles_of(values, index, ("day",))
    assert np.corrcoef(profile[:, 0], shape)[0, 1] > 0.9


def test_series_with_the_same_gaps_are_fitted_together_without_affecting_each_other(wide, shape):
    values = (wide + 3 * shape.loc[wide.index]).to_numpy()
    holes = values.copy()
    holes[10:20, 1] = np.nan
    together = profiles_of(np.concatenate((values, holes), axis=1), wide.index, ("day",))
    for column, series in enumerate(np.concatenate((values, holes), axis=1).T):
        np.testing.assert_allclose(together[:, [column]], profiles_of(series[:, None], wide.index, ("day",)), atol=1e-9)


def test_rain_has_no_daily_profile_and_temperature_has_one(real_data):
    data = load_protocol("weather")
    training = data.frame.iloc[data.split.train]
    found = pd.Series(np.square(profiles_of(training.to_numpy(), training.index, ("day",))).sum(0), training.columns)
    assert (found[["rain (mm)", "raining (s)", "VPact (mbar)"]] == 0).all()
    # of wind a single reading of -9999 is among the training rows
    assert (found[["T (degC)", "rh (%)", "Tlog (degC)", "wv (m/s)"]] > 0).all()


def test_every_method_gives_the_same_forecasts(tiny, fitted, wide, tmp_path):
    alone = tiny(exogenous=DAY, max_epochs=2).fit(wide)
    alone.model_ = replace(alone.model_, memory=None)  # windows are forecast by the network alone
    ends = [40, 70]
    windows = np.stack([wide.iloc[i - alone.input_size : i] for i in ends])
    everywhere = alone.predict_insample(wide, step_size=1)
    for end, found in zip(ends, alone.predict_windows(windows, wide.index[ends]), strict=True):
        there = everywhere[everywhere["cutoff"] == wide.index[end - 1]]
        there = there.pivot(index="ds", columns="unique_id", values="Titans")
        assert (np.abs(found - there) / alone.scale_).to_numpy().max() < 1e-5
        assert (np.abs(alone.predict(wide.iloc[:end]) - there) / alone.scale_).to_numpy().max() < 1e-5

    fitted.save(tmp_path / "m")
    loaded = TitansForecaster.load(tmp_path / "m")
    pd.testing.assert_frame_equal(loaded.predict(), fitted.predict(), check_exact=True)
    pd.testing.assert_frame_equal(loaded.predict_insample(wide), fitted.predict_insample(wide), check_exact=True)
    bands = fitted.predict(level=[80])
    assert (bands["a-lo-80"] <= bands["a"]).all()


def test_after_update_forecasts_are_those_of_the_whole_history(tiny, wide):
    model = tiny(exogenous=DAY, max_epochs=2).fit(wide.iloc[:100])
    expected = model.predict(wide)
    got = model.update(wide.iloc[100:]).predict()
    pd.testing.assert_frame_equal(got, expected, rtol=1e-5)


def test_a_new_series_has_a_profile_of_its_own(fitted, wide, shape):
    new = (3 * shape[["a"]].loc[wide.index]).rename(columns={"a": "new"})
    expected = 3 * shape["a"].loc[shape.index > wide.index[-1]].iloc[: fitted.h]
    np.testing.assert_allclose(fitted.predict(new)["new"], expected, atol=1e-3 * expected.abs().max())


def test_rows_before_a_series_do_not_change_its_profile():
    index = pd.date_range("2024-01-01", periods=200, freq="D")
    values = np.tile([0.0, 3, 1, 4, 1, 5, 9], 29)[:200, None] + np.linspace(0, 50, 200)[:, None]
    late = np.where(np.arange(200)[:, None] < 160, np.nan, values)
    found, expected = profiles_of(late, index, ("week",)), profiles_of(values[160:], index[160:], ("week",))
    assert expected.any()
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_a_cycle_not_completed_twice_has_no_profile(wide, shape):
    values = (wide + 3 * shape.loc[wide.index]).to_numpy().copy()
    values[: len(wide) - 40, 0] = np.nan  # begins 40 hours before the end
    profile = Units.of(values, wide.index, ("day", "week")).profile
    assert profile.shape == (2 * (12 + 8), 3)
    assert not profile[:, 0].any()
    assert profile[:24, 1:].any(axis=0).all()
    assert not profile[24:].any()  # five days


def test_gaps_are_left_out_of_a_profile(wide, shape):
    values = shape.loc[wide.index].to_numpy().copy()
    values[::7] = np.nan  # no hour is left out of every day
    found = Units.of(values, wide.index, ("day",)).shape(shape.index)
    assert (np.abs(found - shape) / wide.std()).to_numpy().max() < 1e-8


def test_requirements_of_a_profile_are_named(tiny, wide, fitted):
    with pytest.raises(ValueError, match=r"exogenous profile must be 'auto' or a list of .*\['moon'\]"):
        tiny(exogenous={"profile": ["moon"]}).fit(wide)
    with pytest.raises(ValueError, match=r"exogenous profile=\['day'\] needs datetime time stamps, got int64"):
        tiny(exogenous=DAY).fit(wide.reset_index(drop=True))
    with pytest.raises(ValueError, match="a calendar or a profile needs origins: the time stamp of each window"):
        fitted.predict_windows(wide.to_numpy()[None, : fitted.input_size])
    with pytest.raises(ValueError, match=r"has a calendar or a profile \(day\), which needs datetime time stamps"):
        fitted.predict(wide.to_numpy())
    assert tiny(exogenous={"profile": "auto"}, max_epochs=1).fit(wide).scaling_.columns.profile == ("day",)
