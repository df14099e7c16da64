"""Single values that are no measurements: named, and no part of any unit."""

import warnings

import numpy as np
import pandas as pd
import pytest

from titans_datasets import load, protocol_split
from titans_ts import TitansForecaster
from titans_ts.spikes import limits_of, single_beyond, spikes_of


def noise(rows=1000):
    return np.random.default_rng(0).normal(size=rows)


def with_values(values, **at):
    values = values.copy()
    for row, value in at.items():
        values[int(row[1:])] = value
    return values


@pytest.mark.parametrize(
    ("values", "spikes"),
    [
        (with_values(noise(), r500=1e6), [500]),
        (with_values(noise(), r500=1e6, r3=-9999, r501=1e6), [3, 500, 501]),
        (with_values(1e6 + noise(), r700=0), [700]),
        (with_values(noise(), r500=1e30), [500]),
        (with_values(noise(24), r20=1e6), [20]),
        (with_values(noise(), r500=12), []),  # far, but no more than a tenth of the deviation is due to it
        (with_values(np.zeros(1000), r500=3.0), []),  # of one sale nothing says that it was none
        (np.where(np.arange(1000) % 33 == 0, 400 + noise(), noise()), []),  # a campaign a month
        (np.random.default_rng(0).standard_t(2, size=1000), []),
        (np.random.default_rng(0).lognormal(sigma=1.5, size=1000), []),
        (np.where(np.arange(1000) < 900, noise(), 500 + noise()), []),
        (np.exp(np.arange(1000) / 100), []),
        (noise(15), []),
        (np.full(1000, np.nan), []),
    ],
)
def test_spikes_are_single_values_that_make_the_deviation(values, spikes):
    beside = np.full((3 * len(values), 2), np.nan)  # as far as it is known, whatever stands beside it
    beside[: len(values), 0], beside[:, 1] = values, np.arange(3 * len(values))
    found = spikes_of(beside)
    assert np.flatnonzero(spikes_of(values[:, None])).tolist() == np.flatnonzero(found[:, 0]).tolist() == spikes
    assert not found[:, 1].any()


def test_what_is_beyond_the_limits_for_long_is_where_a_series_has_moved():
    limits = limits_of(np.array([[0.0, 5, np.nan], [1, 5, np.nan]]))
    np.testing.assert_array_equal(limits, [[-1, -np.inf, -np.inf], [2, np.inf, np.inf]])
    values = np.zeros((100, 3))
    values[[7, 50, 60]] = 9.0
    assert single_beyond(values, limits).sum(axis=0).tolist() == [3, 0, 0]
    values[50:60] = 9.0
    assert not single_beyond(values, limits).any()


@pytest.mark.real_data
def test_of_real_series_just_the_known_codes_for_nothing_are_spikes():
    """In weather -9999 stands for what was not measured: in two columns it is far from all that was; in a third, of
    which it is four times the range, it stays."""
    for name in ("ETTh1", "ETTh2", "ETTm1", "ETTm2", "weather"):
        frame = load(name)
        values = frame.to_numpy()[protocol_split(name, len(frame)).train]
        found = spikes_of(values)
        assert (values[found] == -9999).all()
        assert found.sum() == (51 if name == "weather" else 0)


@pytest.mark.parametrize("row", [40, 110])  # of training, and of validation
@pytest.mark.parametrize("profile", [None, {"profile": ["day"]}])
def test_one_wrong_value_spoils_no_unit_and_no_forecast(tiny, wide, tmp_path, profile, row):
    options = dict(exogenous=profile, max_epochs=8, learning_rate=1e-2)
    clean = tiny(**options).fit(wide)
    wrong = wide.copy()
    wrong.iloc[row, 1] = 1e6
    with pytest.warns(UserWarning, match=r"'b' is 1e\+06 at 2024-01-0\S+ \S+, and from .* It counts as .* NaN") as said:
        model = tiny(**options).fit(wrong)
    assert len([w for w in said if "1e+06" in str(w.message)]) == 1
    assert said[0].filename == __file__
    for name in ("mean_", "scale_"):
        np.testing.assert_allclose(getattr(model, name), getattr(clean, name), rtol=0.02, atol=1e-3)
    val_loss = [min(epoch["val_loss"] for epoch in x.history_.epochs) for x in (model, clean)]
    assert val_loss[0] < 5 * val_loss[1]
    off = (model.predict(wide) - clean.predict(wide)).abs() / wide.std()
    assert off.max(axis=None) < 0.5
    assert model.score(wide) == pytest.approx(clean.score(wide), rel=0.15)
    with pytest.warns(UserWarning, match=r"'b' is 1e\+06 at"):
        score = model.score(wrong)
    assert score > 5 * clean.score(wide)  # of an error that is counted as it stands it would be thousands
    model.save(tmp_path)
    loaded = TitansForecaster.load(tmp_path)
    with pytest.warns(UserWarning, match="It counts as"):
        pd.testing.assert_frame_equal(loaded.predict(wrong, level=[80]), model.predict(wrong, level=[80]))


def test_a_wrong_value_that_comes_later_is_named_once(tiny, wide):
    model = tiny().fit(wide.iloc[:100])
    later = wide.copy()
    later.iloc[105, 2] = -9999
    with pytest.warns(
        UserWarning, match=r"series 'c' is -9999 at 2024-01-05 09:00:00, and from -0.01\S* to 0.01\S* in tr"
    ):
        model.predict(later)
    with pytest.warns(UserWarning, match="-9999 at 2024-01-05 09"):
        model.cross_validation(later, n_windows=2, val_size=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.update(later.iloc[100:105])
    with pytest.warns(UserWarning, match="-9999 at 2024-01-05 09"):
        model.update(later.iloc[105:106])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.update(later.iloc[106:])
        moved = wide * [1, 1, 1] + wide.std() * [0, 0, 50]
        model.predict(moved.iloc[100:])  # all of it is elsewhere: a series has moved


def test_surprise_shows_what_units_leave_out(tiny, wide):
    wrong = pd.concat([wide] * 4).set_axis(pd.date_range("2024-01-01", periods=480, freq="h", name="ds"))
    wrong.iloc[300, 0] = 1e5
    with pytest.warns(UserWarning, match="is 100000 at"):
        model = tiny().fit(wrong, val_size=0)
    found = model.surprise(wrong[["a"]]).set_index("ds")["surprise"]
    assert found[wrong.index[300]] > 5 * found[wrong.index[290:300]].max()
