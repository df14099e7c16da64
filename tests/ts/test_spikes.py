"""Single wrong values: they are reported, and do not influence units."""

import warnings

import numpy as np
import pandas as pd
import pytest

from titans_datasets import load, protocol_split
from titans_ts.estimator.reading import read_known
from titans_ts.frames.spikes import limits_of, odd_ones, single_beyond, spikes_of


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
        (with_values(np.zeros(160), r10=1, r40=5, r70=6, r100=7), []),  # seldom sold
        (with_values(np.random.default_rng(0).poisson(1, 104).astype(float), r51=20, r103=20), []),  # at New Year
        (np.random.default_rng(0).standard_cauchy(200), []),
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
def test_spikes_are_single_values_that_dominate_the_deviation(values, spikes):
    beside = np.full((3 * len(values), 2), np.nan)  # as far as it is known, whatever stands beside it
    beside[: len(values), 0], beside[:, 1] = values, np.arange(3 * len(values))
    found = spikes_of(beside)
    assert np.flatnonzero(spikes_of(values[:, None])).tolist() == np.flatnonzero(found[:, 0]).tolist() == spikes
    assert not found[:, 1].any()


def test_values_beyond_the_limits_for_long_are_a_new_level():
    limits = limits_of(np.array([[0.0, 5, np.nan], [1, 5, np.nan]]))
    np.testing.assert_array_equal(limits, [[-1, -np.inf, -np.inf], [2, np.inf, np.inf]])
    values = np.zeros((100, 3))
    values[[7, 50, 60]] = 9.0
    assert single_beyond(values, limits).sum(axis=0).tolist() == [3, 0, 0]
    values[50:60] = 9.0
    assert not single_beyond(values, limits).any()


def test_five_is_not_an_outlier_in_sparse_counts_of_one_or_two():
    """Otherwise every call would warn of the largest order among thousands of slow-moving items."""
    trained = np.zeros((200, 2))
    trained[::5, 0], trained[:, 1] = 1 + np.arange(40) % 2, np.arange(200) / 100  # from 0 to 2, both
    later = trained.copy()
    later[150] = 5.0
    assert odd_ones(later, limits_of(trained)).sum(axis=0).tolist() == [0, 1]
    later[150] = 50.0
    assert odd_ones(later, limits_of(trained)).sum(axis=0).tolist() == [1, 1]


@pytest.mark.real_data
def test_in_real_series_only_codes_for_missing_values_are_spikes():
    """In weather, -9999 marks missing values: in two columns it is far from all other values; in a third, where it is
    only four times the range away, it is kept."""
    for name in ("ETTh1", "ETTh2", "ETTm1", "ETTm2", "weather"):
        frame = load(name)
        values = frame.to_numpy()[protocol_split(name, len(frame)).train]
        found = spikes_of(values)
        assert (values[found] == -9999).all()
        assert found.sum() == (51 if name == "weather" else 0)


@pytest.mark.slow
@pytest.mark.parametrize(("row", "profile"), [(40, {"profile": ["day"]}), (104, None)])  # of training, of validation
def test_one_wrong_value_changes_no_unit_and_no_forecast(tiny, wide, monkeypatch, profile, row):
    monkeypatch.setattr(
        "titans_ts.estimator.training.FEW", 0
    )  # two trainings on mirrored windows differ more by themselves
    options = dict(exogenous=profile, max_epochs=8, learning_rate=1e-2)
    clean = tiny(**options).fit(wide)
    wrong = wide.copy()
    wrong.iloc[row, 1] = 1e6
    with pytest.warns(
        UserWarning, match=r"'b' is 1e\+06 at 2024-01-0\S+ \S+, far from its training range .* It is clipped to .* NaN"
    ) as warned:
        model = tiny(**options).fit(wrong)
    assert len([w for w in warned if "1e+06" in str(w.message)]) == 1
    assert warned[0].filename == __file__
    np.testing.assert_allclose(model.mean_ / clean.mean_, 1, atol=0.05)
    np.testing.assert_allclose(model.scale_ / clean.scale_, 1, atol=0.1)
    val_loss = [min(epoch["val_loss"] for epoch in x.history_.epochs) for x in (model, clean)]
    assert val_loss[0] < 5 * val_loss[1]
    off = (model.predict(wide) - clean.predict(wide)).abs() / wide.std()
    assert off.max(axis=None) < 0.5
    assert model.score(wide) == pytest.approx(clean.score(wide), rel=0.15)
    ahead = (model.predict() - clean.predict()).abs() / wide.std()
    assert ahead.max(axis=None) < 0.5
    with pytest.warns(UserWarning, match=r"'b' is 1e\+06 at"):
        assert model.score(wrong) < 100 * clean.score(wide)  # what came is what counts


def test_a_level_shift_is_followed_despite_an_earlier_wrong_value(tiny):
    t, rng = np.arange(800), np.random.default_rng(0)
    calm = pd.Series(10 + np.sin(t / 4) + 0.1 * rng.normal(size=800))
    frame = calm.set_axis(pd.date_range("2024-01-01", periods=800, freq="h", name="ds")).to_frame("a")
    moved = frame.iloc[400:] * 2 + 30
    wrong = frame.iloc[:400].copy()
    wrong.iloc[50] = 1e5
    with pytest.warns(UserWarning, match="is 100000 at"):
        model = tiny().fit(wrong)
    assert abs(model.predict(moved)["a"].mean() - moved["a"].iloc[-12:].mean()) < 5
    for end in (319, 320, 400):  # three rows before the border, and of the whole: a move and no wrong value
        shifted = frame.iloc[:400].copy()
        shifted.iloc[end - 3 :] += 200
        model = tiny().fit(shifted, val_size=80)
        np.testing.assert_array_equal(model.context_.values, shifted.to_numpy()[-len(model.context_.values) :])
        assert abs(model.predict(frame.iloc[400:] + 200)["a"].mean() - 210) < 5


def test_interpolation_to_a_wrong_value_harms_no_more_than_the_value(tiny, wide):
    wrong = wide.copy()
    wrong.iloc[104:110, 1], wrong.iloc[110, 1] = np.nan, 1e6
    with pytest.warns(
        UserWarning, match=r"'b' is 1e\+06 at 2024-01-05 14:00:00, far from its training range \S+ to \S+\. It"
    ):
        model = tiny(missing="interpolate").fit(wrong)
    assert model.history_.epochs[-1]["val_loss"] < 10


def test_a_wrong_value_does_not_set_the_unit_of_a_new_series(tiny, wide):
    model = tiny(input_size=100).fit(pd.concat([wide] * 3).set_axis(pd.RangeIndex(360, name="ds")))
    new = wide.iloc[:101].set_axis(pd.RangeIndex(101, name="ds")).add_suffix("2")
    wrong = new.copy()
    wrong.iloc[0, 1] = 1e6
    panels = [read_known(model, df) for df in (new, wrong)]
    units = [model.scaling_.units_of(panel, model.context_).deviation for panel in panels]
    np.testing.assert_allclose(*units, rtol=0.05)


def test_a_wrong_value_that_comes_later_is_named_once(tiny, wide):
    model = tiny().fit(wide.iloc[:100])
    later = wide.copy()
    later.iloc[105, 2] = -9999
    with pytest.warns(
        UserWarning, match=r"series 'c' is -9999 at 2024-01-05 09:00:00, far from its training range -0.01\S* to 0.01"
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
