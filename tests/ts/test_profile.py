"""The mean shape of a day, taken from each series and given back to its forecasts."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from titans_ts import TitansForecaster
from titans_ts.exogenous import calendar_features
from titans_ts.scaling import Units

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


def test_a_daily_wave_in_the_data_is_in_the_forecast_and_changes_nothing_else(tiny, wide, shape, fitted):
    with_wave = tiny(exogenous=DAY, max_epochs=3).fit(wide + shape.loc[wide.index])
    change = with_wave.predict() - fitted.predict()
    error = (change - shape.loc[change.index]).abs() / wide.std()
    assert error.to_numpy().max() < 1e-4
    np.testing.assert_allclose(with_wave.scale_, fitted.scale_, rtol=1e-10)
    errors = (
        (frame["y"] - frame["Titans"]) / frame["unique_id"].map(wide.std())
        for frame in (with_wave.predict_insample(wide + shape.loc[wide.index]), fitted.predict_insample(wide))
    )
    np.testing.assert_allclose(*errors, rtol=0, atol=1e-4)
    assert shape.loc[change.index].abs().div(wide.std()).to_numpy().max() > 0.5


def test_every_entrance_gives_the_same_forecasts(tiny, fitted, wide, tmp_path):
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


def test_a_cycle_that_a_series_does_not_go_through_twice_has_no_shape(wide):
    values = wide.to_numpy().copy()
    values[: len(wide) - 40, 0] = np.nan  # begins 40 hours before the end
    profile = Units.of(values, wide.index, ("day", "week")).profile
    assert profile.shape == (2 * (12 + 8), 3)
    assert not profile[:, 0].any()
    assert profile[:24, 1:].any(axis=0).all()
    assert not profile[24:].any()  # five days


def test_holes_are_left_out_of_a_profile(wide, shape):
    values = shape.loc[wide.index].to_numpy().copy()
    values[::7] = np.nan  # no hour is left out of every day
    found = Units.of(values, wide.index, ("day",)).shape(shape.index)
    assert (np.abs(found - shape) / wide.std()).to_numpy().max() < 1e-8


def test_what_a_profile_needs_is_said(tiny, wide, fitted):
    with pytest.raises(ValueError, match=r"exogenous profile must be 'auto' or a list of .*\['moon'\]"):
        tiny(exogenous={"profile": ["moon"]}).fit(wide)
    with pytest.raises(ValueError, match=r"exogenous profile=\['day'\] needs time stamps, got int64 ones"):
        tiny(exogenous=DAY).fit(wide.reset_index(drop=True))
    with pytest.raises(ValueError, match="a calendar or a profile needs the time stamp of each window"):
        fitted.predict_windows(wide.to_numpy()[None, : fitted.input_size])
    assert tiny(exogenous={"profile": "auto"}, max_epochs=1).fit(wide).scaling_.columns.profile == ("day",)
