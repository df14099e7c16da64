"""Laws of cross-validation: it uses only the past, is reproducible, and does not change the forecaster."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from titans_ts import TitansForecaster
from titans_ts.estimator.model import Model

SHORT_MEMORY = 8, 1e-2  # calmer than in other tests: coverage is measured here, and trainings are compared


@pytest.mark.slow
@pytest.mark.parametrize(("refit", "windows"), [(False, 3), (True, 2), (2, 3)])
def test_each_window_is_forecast_from_its_past_alone(tiny, wide, refit, windows):
    model = tiny(max_epochs=1)
    frame = model.cross_validation(wide, n_windows=windows, step_size=5, refit=refit, level=[80])
    assert list(frame.columns) == ["unique_id", "ds", "cutoff", "y", "Titans", "Titans-lo-80", "Titans-hi-80"]
    cutoffs = [wide.index[120 - 4 - 5 * i - 1] for i in reversed(range(windows))]
    assert frame["cutoff"].unique().tolist() == cutoffs
    assert frame.groupby("cutoff").size().tolist() == [12] * windows
    for cutoff, part in frame.groupby("cutoff"):
        for name, own in part.groupby("unique_id"):
            assert own["ds"].tolist() == pd.date_range(cutoff, periods=5, freq="h")[1:].tolist()
            np.testing.assert_array_equal(own["y"], wide.loc[own["ds"], name])
    # rows behind the last horizon's beginning change nothing but y
    changed = wide.copy()
    changed.iloc[-4:] = 1e3
    again = model.cross_validation(changed, n_windows=windows, step_size=5, refit=refit, level=[80])
    pd.testing.assert_frame_equal(again.drop(columns="y"), frame.drop(columns="y"), check_exact=True)
    assert not hasattr(model, "network_")


def test_a_backtest_window_equals_fit_update_and_predict(tiny, wide, to_long):
    frame = tiny().cross_validation(wide, n_windows=3, level=[80])
    model = tiny().fit(wide.iloc[:108])
    for cut in (108, 112, 116):
        if cut > 108:
            model.update(wide.iloc[cut - 4 : cut])
        own = frame[frame["cutoff"] == wide.index[cut - 1]]
        expected = model.predict(level=[80])
        for name in "abc":
            part = own[own["unique_id"] == name]
            for column, suffix in (("Titans", ""), ("Titans-lo-80", "-lo-80"), ("Titans-hi-80", "-hi-80")):
                np.testing.assert_allclose(
                    part[column], expected[name + suffix], rtol=1e-3, atol=1e-4 * wide[name].std()
                )


def test_refit_trains_on_the_newer_rows(tiny, wide):
    once = tiny().cross_validation(wide, n_windows=2, refit=False)
    anew = tiny().cross_validation(wide, n_windows=2, refit=True)
    first = once["cutoff"] == once["cutoff"].min()
    # on some processors the last digit of a forecast depends on how many are made at once, here two and one
    pd.testing.assert_frame_equal(once[first], anew[first], rtol=1e-6, atol=1e-7)
    assert (once[~first]["Titans"] - anew[~first]["Titans"]).abs().max() > 1e-4
    by_hand = tiny().fit(wide.iloc[:116]).predict()
    last = anew[anew["cutoff"] == anew["cutoff"].max()]
    np.testing.assert_allclose(last[last["unique_id"] == "b"]["Titans"], by_hand["b"], rtol=1e-5)


def test_insample_forecasts_have_the_actual_values(tiny, wide, to_long):
    long = to_long(wide)
    model = tiny().fit(long)
    frame = model.predict_insample(long)
    assert frame.groupby("unique_id")["cutoff"].nunique().tolist() == [27, 27, 27]
    one = frame[frame["cutoff"] == wide.index[51]]
    expected = model.predict(long[long["ds"] <= wide.index[51]])
    np.testing.assert_allclose(one["Titans"], expected["Titans"], rtol=1e-4, atol=1e-5)
    assert len(model.predict_insample(long, step_size=1)) == 105 * 12
    with pytest.raises(ValueError, match="a backtest needs exactly the series of fit"):
        model.predict_insample(long[long["unique_id"] != "a"])


def test_series_that_begin_later_have_windows_from_their_start_on(tiny, wide, to_long):
    long = to_long(wide)
    later = long[~((long["unique_id"] == "b") & (long["ds"] < wide.index[60]))]
    frame = tiny().fit(later, val_size=20).predict_insample(later)
    assert frame[frame["unique_id"] == "b"]["cutoff"].min() == wide.index[71]
    assert frame[frame["unique_id"] == "a"]["cutoff"].min() == wide.index[11]
    assert np.isfinite(frame["Titans"]).all()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"n_windows": 0}, "n_windows must be an integer >= 1, got 0"),
        ({"step_size": 1.5}, "step_size must be an integer >= 1, got 1.5"),
        ({"refit": -1}, "refit must be False, True or a number"),
        (
            {"n_windows": 30},
            r"30 windows of h=4 at step_size=4 leave 0 rows before the first, but training needs input_size \+ h = 16",
        ),
    ],
)
def test_impossible_backtests_are_refused_with_a_reason(tiny, wide, options, says):
    with pytest.raises(ValueError, match=says):
        tiny().cross_validation(wide, **options)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["mae", "quantile", "normal", "laplace", "student_t"])
def test_coverage_of_a_backtest_on_real_data_is_near_the_level(real_data, loss):
    """The validation rows of ETTh1 are less regular than its test rows; later errors correct for that."""
    from titans_datasets import load

    frame = load("ETTh1").iloc[7200:14400, :2]
    model = TitansForecaster(
        h=24, input_size=96, dim=16, num_layers=1, max_epochs=2, batch_size=1024, loss=loss, random_state=0, verbose=0
    )
    found = model.cross_validation(frame, n_windows=119, step_size=24, val_size=2880, level=[80, 95])
    for level in (80, 95):
        inside = found["y"].between(found[f"Titans-lo-{level}"], found[f"Titans-hi-{level}"])
        assert inside.mean() == pytest.approx(level / 100, abs=0.02)


def test_values_of_a_historical_column_after_the_origin_change_no_forecast(tiny, wide, to_long):
    """The column has a gap that continues after the origin."""
    frame = to_long(wide)
    frame["p"] = np.random.default_rng(1).normal(size=len(frame))
    hole = frame["ds"].between(wide.index[110], wide.index[117])
    frame.loc[hole, "p"] = np.nan
    later = frame.assign(p=frame["p"].where(frame["ds"] <= wide.index[117], 500.0))
    model = tiny(missing="interpolate", exogenous={"hist": ["p"]})
    found, again = (model.cross_validation(df, val_size=0) for df in (frame, later))
    pd.testing.assert_frame_equal(again, found, check_exact=True)
    model.fit(frame.assign(p=frame["p"].fillna(0.0)))
    before, after = (model.score(df[df["ds"] <= wide.index[119]]) for df in (frame, later))
    assert before == pytest.approx(after, abs=1e-9)


@pytest.mark.parametrize("multivariate", [False, True])
def test_no_series_is_forecast_before_its_start(tiny, wide, to_long, multivariate):
    frame = to_long(wide)
    frame = frame[(frame["unique_id"] != "b") | (frame["ds"] >= wide.index[60])]
    model = tiny(missing="mask", multivariate=multivariate).fit(frame, val_size=20)
    found = model.predict_insample(frame)
    assert found[found["unique_id"] == "b"]["cutoff"].min() >= wide.index[60 + 12 - 1]


def test_an_invalid_step_size_is_named(tiny_fitted, wide):
    model = tiny_fitted
    for step in (0, -1, 2.5):
        with pytest.raises(ValueError, match=f"step_size must be an integer >= 1, got {step}"):
            model.predict_insample(wide, step_size=step)


@pytest.mark.parametrize(
    ("settings", "options", "says"),
    [
        ({"loss": "quantile"}, {"level": [99], "val_size": 0}, "predicts levels up to"),
        ({}, {"level": [80], "val_size": 0}, "without validation rows"),
    ],
)
def test_an_impossible_level_is_refused_before_training(tiny, wide, monkeypatch, settings, options, says):
    monkeypatch.setattr(TitansForecaster, "_learned", lambda *args: pytest.fail("it trained"))
    with pytest.raises(ValueError, match=says):
        tiny(**settings).cross_validation(wide, **options)


def test_with_enough_errors_levels_beyond_the_outermost_quantile_work(tiny, wide):
    found = tiny(loss="quantile").cross_validation(wide, level=[97, 90], val_size=40)
    assert (found["Titans-hi-97"] >= found["Titans-hi-90"]).all()
    assert (found["Titans-hi-97"] > found["Titans-hi-90"]).any()


@pytest.mark.slow
@pytest.mark.parametrize("multivariate", [False, True])
def test_a_series_too_short_for_a_cutoff_is_left_out_there(tiny, wide, to_long, multivariate):
    frame = to_long(wide)
    frame = frame[(frame["unique_id"] != "c") | (frame["ds"] >= wide.index[98])]
    model = tiny(multivariate=multivariate, missing="mask", max_epochs=1)
    says = rf"1 series begin too late to train on before {wide.index[108]}.*\['c'\]"
    with pytest.warns(UserWarning, match=says) as warned:
        found = model.cross_validation(frame, n_windows=3, val_size=0, refit=True)
    young = [str(x.message) for x in warned if "begin too late" in str(x.message)]
    assert (len(young), warned[0].filename) == (1, __file__)  # once, though it is so before the second cutoff, too
    assert young[0].endswith("['c']. Some are also skipped in 1 of the 2 later trainings.")
    assert "With val_size" not in young[0]  # it begins too late for any
    with pytest.warns(UserWarning, match=r"\['c'\]\. Later trainings include them\.$"):
        model.cross_validation(frame, n_windows=2, val_size=0, refit=True)
    later = wide.index[94]  # three cutoffs from here 16 rows are there, of which a fifth is for validation
    with pytest.warns(UserWarning, match=r"skipped there: \['c'\]\. With val_size=6 there are enough rows"):
        model.cross_validation(to_long(wide).loc[lambda x: (x["unique_id"] != "c") | (x["ds"] >= later)])
    counts = found.groupby(["cutoff", "unique_id"]).size().unstack()
    assert counts.loc[wide.index[107], ["a", "b"]].tolist() == [4, 4]
    assert counts["c"].isna().tolist() == [True, True, False]
    alone = model.cross_validation(to_long(wide[["a", "b"]]), n_windows=3, val_size=0, refit=True)
    first = found["cutoff"] == wide.index[107]
    np.testing.assert_array_equal(found[first]["Titans"], alone[alone["cutoff"] == wide.index[107]]["Titans"])


@pytest.mark.slow
@pytest.mark.parametrize(("refit", "trainings"), [(0, 1), (False, 1), (np.False_, 1), (True, 4), (np.True_, 4), (3, 2)])
def test_refit_decides_the_number_of_trainings(tiny, wide, monkeypatch, refit, trainings):
    fits = []
    fit = TitansForecaster._learned
    monkeypatch.setattr(TitansForecaster, "_learned", lambda *a, **k: fits.append(1) or fit(*a, **k))
    tiny(max_epochs=1).cross_validation(wide.iloc[:70], n_windows=4, step_size=2, refit=refit)
    assert len(fits) == trainings


def test_a_training_reads_no_row_that_only_later_trainings_forecast(tiny, wide, monkeypatch):
    wide.iloc[-1, 0] = 1e4
    scored, scores = [], Model.scores
    monkeypatch.setattr(Model, "scores", lambda self, *a: scored.append(a[1].max()) or scores(self, *a))
    with pytest.warns(UserWarning, match="'a' is 10000 at") as told:
        tiny(max_epochs=1).cross_validation(wide, n_windows=4, refit=2, val_size=20, level=[80])
    assert scored == [112 - 4, 120 - 4]  # the newest errors that could become known before row 112, and 120
    assert sum("'a' is 10000 at" in str(each.message) for each in told) == 1


@pytest.mark.parametrize("back", [False, True])
def test_history_is_refilled_only_for_origins_inside_a_gap_that_ends(tiny, wide, monkeypatch, back):
    """After the end of a series there are no values, so the fill does not depend on the origin."""
    model = tiny(missing="interpolate").fit(wide.iloc[:80], val_size=0)
    holed = wide.copy()
    holed.iloc[90 : 110 if back else 120, 1] = np.nan
    expected = [model.predict(holed.iloc[:origin]) for origin in range(86, 114, 5)]
    read, rolling = [], Model.rolling
    monkeypatch.setattr(Model, "rolling", lambda self, *a, **k: read.append(1) or rolling(self, *a, **k))
    found = model.predict_insample(holed.iloc[74:117], step_size=5)
    assert len(read) == (1 + 4 if back else 1)  # 91, 96, 101, 106
    for frame, (_, own) in zip(expected, found.groupby("cutoff"), strict=True):
        np.testing.assert_allclose(own["Titans"].to_numpy().reshape(3, 4), frame.to_numpy().T, rtol=1e-4)


@pytest.mark.parametrize(("options", "read"), [({"loss": "quantile"}, [3, 1, 2, 1]), ({"multivariate": True}, [3] * 4)])
def test_only_the_series_in_a_gap_are_refilled(tiny, wide, to_long, monkeypatch, options, read):
    """With many series one of them nearly always has a gap: reading all of them at each origin would take hours."""
    frame = to_long(wide)
    frame["p"], frame["q"] = np.random.default_rng(1).normal(size=(2, len(frame)))
    static = pd.DataFrame({"unique_id": ["a", "b", "c"], "s": [0.0, 1.0, 2.0]})
    columns = {"hist": ["p"], "futr": ["q"], "stat": ["s"], "profile": ["day"]}
    model = tiny(missing="interpolate", exogenous=columns, **options)
    model.fit(frame[frame["ds"] < wide.index[80]], static_df=static, val_size=20)
    for name, column, first, last in [("b", "y", 88, 97), ("c", "p", 94, 97), ("c", "y", 100, 103)]:
        frame.loc[(frame["unique_id"] == name) & frame["ds"].between(*wide.index[[first, last]]), column] = np.nan
    origins = range(82, 108, 5)
    expected = []
    for origin in origins:
        ahead = frame[frame["ds"].between(*wide.index[[origin, origin + 3]])]
        known = frame[frame["ds"] < wide.index[origin]]
        expected.append(model.predict(known, futr_df=ahead[["unique_id", "ds", "q"]], level=[80]))
    series, rolling = [], Model.rolling
    monkeypatch.setattr(
        Model, "rolling", lambda self, table, *a: series.append(table.values.shape[1]) or rolling(self, table, *a)
    )
    found = model.predict_insample(frame[frame["ds"] <= wide.index[110]], step_size=5, level=[80])
    assert series == read
    for origin, own in zip(origins, expected, strict=True):
        there = found[found["cutoff"] == wide.index[origin - 1]]
        np.testing.assert_allclose(there[list(own.columns[2:])], own.iloc[:, 2:], rtol=1e-4)


def test_wrong_values_of_training_are_also_clipped_in_lookbacks(tiny, wide):
    wide.iloc[-10, 0] = 1e4
    with pytest.warns(UserWarning, match="series 'a' is 10000 at"):
        found = tiny().cross_validation(wide, n_windows=1, val_size=0)
    with pytest.warns(UserWarning, match="series 'a' is 10000 at"):
        model = tiny().fit(wide.iloc[:-4], val_size=0)
    forecast = model.predict()
    np.testing.assert_allclose(found["Titans"], forecast.melt()["value"], rtol=1e-4)
    assert found["Titans"].abs().max() < 1e3
    assert found["y"].tolist() == wide.iloc[-4:].melt()["value"].tolist()


def test_without_short_series_a_backtest_ends_with_the_others(tiny, wide, to_long):
    long = to_long(wide)
    ended, young = long["ds"] <= wide.index[80], long["ds"] >= wide.index[78]
    frame = long[(ended & (long["unique_id"] != "c")) | (young & (long["unique_id"] == "c"))]
    with pytest.warns(UserWarning, match=r"are skipped there: \['c'\]"):
        found = tiny(missing="mask").cross_validation(frame, n_windows=2)
    assert found["unique_id"].unique().tolist() == ["a", "b"]
    assert found["Titans"].notna().all()
    assert found["y"].isna().all()


@pytest.mark.parametrize("missing", ["error", "interpolate"])
def test_mixed_series_are_forecast_and_scored_from_the_youngest_start_on(tiny, wide, to_long, missing):
    model = tiny(multivariate=True, missing=missing, max_epochs=1).fit(wide)
    model.model_ = replace(model.model_, memory=None)  # which reads the others from their beginning
    long = to_long(wide)
    later = long[(long["unique_id"] != "b") | (long["ds"] >= wide.index[60])]
    found = model.predict_insample(later)
    assert found["Titans"].notna().all()
    assert found.groupby("unique_id")["cutoff"].min().tolist() == 3 * [wide.index[60 + 12 - 1]]
    assert model.score(later) == pytest.approx(model.score(wide.iloc[60:]), rel=1e-5)


def test_a_backtest_trains_on_a_gap_next_to_a_wrong_value_as_fit_does(tiny, wide):
    wide.iloc[80, 0], wide.iloc[81:84, 0] = 1e4, np.nan
    options = {"missing": "interpolate", "max_epochs": 1}
    with pytest.warns(UserWarning, match="series 'a' is 10000 at"):
        found = tiny(**options).cross_validation(wide, n_windows=1, val_size=0)
    with pytest.warns(UserWarning, match="series 'a' is 10000 at"):
        forecast = tiny(**options).fit(wide.iloc[:-4], val_size=0).predict()
    expected = forecast.melt()["value"]
    np.testing.assert_allclose(found["Titans"][4:], expected[4:], rtol=1e-3, atol=1e-5)
    # the memory reads a line to what the value counts as, in training one to the value, as far as it counts
    np.testing.assert_allclose(found["Titans"][:4], expected[:4], rtol=2e-2)
