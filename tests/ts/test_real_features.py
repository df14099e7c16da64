"""Every feature of the forecaster once on real data: ETTh1, small models."""

import copy

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from titans_datasets import load
from titans_ts import TitansForecaster
from titans_ts.plots import plot_backtest, plot_residuals, plot_surprise

SMALL = {
    "h": 24, "input_size": 48, "dim": 8, "num_layers": 1, "max_epochs": 2, "batch_size": 512, "learning_rate": 1e-2,
    "random_state": 0, "verbose": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def wide(real_data):
    return load("ETTh1").iloc[:2400][["HUFL", "MUFL", "OT"]]


@pytest.fixture(scope="module")
def long(wide):
    return wide.rename_axis("ds").reset_index().melt("ds", var_name="unique_id", value_name="y")


@pytest.fixture(scope="module")
def fitted(wide):
    return TitansForecaster(**SMALL).fit(wide.iloc[:2000])


def test_columns_of_every_kind_reach_the_forecast(wide, long):
    """Targets HUFL and OT; historical columns MUFL and MULL, future column LUFL, and a static column."""
    raw = load("ETTh1").iloc[:2400][["MULL", "LUFL"]].assign(MUFL=wide["MUFL"])
    frame = long[long["unique_id"] != "MUFL"].merge(raw.rename_axis("ds").reset_index(), on="ds")
    static = pd.DataFrame({"unique_id": ["HUFL", "OT"], "load": [1.0, 0.0]})
    exogenous = {"hist": ["MUFL", "MULL"], "futr": ["LUFL"], "stat": ["load"], "calendar": ["day"]}
    known, ahead = frame[frame["ds"] < wide.index[2000]], frame[frame["ds"] >= wide.index[2000]]
    model = TitansForecaster(**{**SMALL, "max_epochs": 4}, exogenous=exogenous).fit(known, static_df=static)
    future = ahead[ahead["ds"] < wide.index[2024]]
    found = model.predict(futr_df=future[["unique_id", "ds", "LUFL"]])["Titans"].to_numpy()
    deviation = future["unique_id"].map(wide.std()).to_numpy()
    of_mean = future["unique_id"].map(wide.iloc[:2000].mean()).to_numpy()
    truth = future["y"].to_numpy()
    assert np.mean(abs(found - truth) / deviation) < 0.7 * np.mean(abs(of_mean - truth) / deviation)

    def moved(known=known, future=future, static=static):
        return abs(
            model.predict(known, futr_df=future[["unique_id", "ds", "LUFL"]], static_df=static)["Titans"] - found
        ).max()

    assert moved() < 1e-4
    newest = known["ds"] >= wide.index[1990]
    for name in ("MUFL", "MULL", "LUFL"):
        assert moved(known.assign(**{name: known[name] + 5.0 * newest})) > 1e-3, name
    assert moved(future=future.assign(LUFL=future["LUFL"] + 5.0)) > 1e-3
    assert moved(static=static.assign(load=static["load"] + 5.0)) > 1e-3
    with pytest.raises(ValueError, match="LUFL"):
        model.predict()
    new = known.replace({"unique_id": {"OT": "new"}})
    with pytest.raises(ValueError, match="static_df"):
        model.predict(new, futr_df=future.replace({"unique_id": {"OT": "new"}}))


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["mask", "interpolate"])
def test_columns_may_have_gaps_where_the_policy_allows_them(wide, missing):
    frame = wide.rename_axis("ds").reset_index().rename(columns={"HUFL": "y"}).assign(unique_id="HUFL")
    holed = frame.assign(MUFL=frame["MUFL"].mask(np.random.default_rng(0).random(len(frame)) < 0.1))
    options = {**SMALL, "exogenous": {"hist": ["MUFL"]}}
    with pytest.raises(ValueError, match="column 'MUFL' that are NaN"):
        TitansForecaster(**options).fit(holed.iloc[:2000])
    scores = [TitansForecaster(**options, missing=missing).fit(df.iloc[:2000]).score(frame) for df in (frame, holed)]
    assert scores[1] > 1.1 * scores[0]  # minus an error: at most a tenth worse


@pytest.mark.slow
def test_a_backtest_is_reproducible_and_refit_trains_on_newer_rows(wide):
    wide = wide.iloc[:700]
    forecaster, options = TitansForecaster(**SMALL), {"n_windows": 2, "val_size": 100, "level": [80]}
    found = [[forecaster.cross_validation(wide, refit=refit, **options) for refit in (False, True)] for _ in range(2)]
    for first, again in zip(*found, strict=True):
        pd.testing.assert_frame_equal(again, first, check_exact=True)
    once, anew = found[0]
    at_first = once["cutoff"] == once["cutoff"].min()
    pd.testing.assert_frame_equal(once[at_first], anew[at_first], rtol=1e-5)  # of other batches
    assert (once[~at_first]["Titans"] != anew[~at_first]["Titans"]).mean() > 0.9
    alone = TitansForecaster(**SMALL).fit(wide.iloc[:-24], val_size=100).predict()
    last = anew[anew["cutoff"] == anew["cutoff"].max()].pivot(index="ds", columns="unique_id", values="Titans")
    np.testing.assert_allclose((last[wide.columns] - alone) / wide.std(), 0, atol=1e-5)


def test_a_score_is_the_error_of_all_its_forecasts(wide, fitted):
    part = wide.iloc[2000:2120]
    errors = [
        ((fitted.predict(part.iloc[:end]) - part.iloc[end : end + 24]) / fitted.scale_).abs().to_numpy().mean()
        for end in range(48, 120 - 24 + 1)
    ]
    assert fitted.score(part) == pytest.approx(-np.mean(errors), rel=1e-4)


def test_insample_forecasts_are_those_of_their_origins(wide, fitted):
    found = fitted.predict_insample(wide.iloc[:400], step_size=150, level=[80])
    assert found["cutoff"].unique().tolist() == [wide.index[47], wide.index[197], wide.index[347]]
    for cutoff, part in found.groupby("cutoff"):
        alone = fitted.predict(wide[wide.index <= cutoff], level=[80])
        for name, own in part.groupby("unique_id"):
            for column in ("Titans", "Titans-lo-80", "Titans-hi-80"):
                expected = alone[column.replace("Titans", name, 1)]
                np.testing.assert_allclose((own[column].to_numpy() - expected) / wide[name].std(), 0, atol=1e-4)
            np.testing.assert_array_equal(own["y"], wide.loc[own["ds"], name])


def test_a_saved_model_is_the_same_model(wide, fitted, tmp_path):
    fitted.save(tmp_path / "model")
    model, same = TitansForecaster.load(tmp_path / "model"), copy.deepcopy(fitted)
    pd.testing.assert_frame_equal(model.predict(level=[80]), fitted.predict(level=[80]), check_exact=True)
    for forecaster in (model, same):
        forecaster.update(wide.iloc[2000:2100])
    pd.testing.assert_frame_equal(model.predict(level=[80]), same.predict(level=[80]), check_exact=True)
    assert model.score(wide.iloc[2000:]) == fitted.score(wide.iloc[2000:])


@pytest.mark.slow
def test_a_related_series_known_in_the_future_helps(wide):
    """HUFL with the similar MUFL as a future column, compared with HUFL alone."""
    frame = wide.rename_axis("ds").reset_index().rename(columns={"HUFL": "y"}).assign(unique_id="HUFL")
    options = {**SMALL, "max_epochs": 4, "batch_size": 256, "learning_rate": 3e-2}
    error = {}
    for name, exogenous in {"alone": None, "futr": {"futr": ["MUFL"]}}.items():
        part = frame if exogenous else frame[["unique_id", "ds", "y"]]
        found = TitansForecaster(**options, exogenous=exogenous).cross_validation(part, n_windows=8, val_size=300)
        error[name] = (found["y"] - found["Titans"]).abs().mean()
    assert error["futr"] < 0.8 * error["alone"]


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["mask", "interpolate"])
def test_a_tenth_of_the_values_may_be_missing(wide, fitted, missing):
    holed = wide.mask(np.random.default_rng(0).random(wide.shape) < 0.1)
    model = TitansForecaster(**SMALL, missing=missing).fit(holed.iloc[:2000])
    truth = wide.iloc[2000:2024]
    error = ((model.predict() - truth) / wide.std()).abs().to_numpy().mean()
    assert error < 1.3 * ((fitted.predict() - truth) / wide.std()).abs().to_numpy().mean() + 0.1


def test_series_of_different_lengths_and_a_new_one(long, wide):
    part = long[~((long["unique_id"] == "OT") & (long["ds"] < wide.index[1200]))]
    model = TitansForecaster(**SMALL).fit(part)
    found = model.predict(level=[80])
    assert found["unique_id"].unique().tolist() == ["HUFL", "MUFL", "OT"]
    assert (found["Titans-lo-80"] < found["Titans-hi-80"]).all()
    new = load("ETTh1").iloc[1000:1200][["LULL"]]
    assert model.predict(new).shape == (24, 1)


def test_update_equals_reading_the_whole_history(wide, fitted):
    model = copy.deepcopy(fitted)
    assert model.memory_ is not None
    for at in range(2000, 2400, 37):
        model.update(wide.iloc[at : min(at + 37, 2400)])
    np.testing.assert_allclose((model.predict() - fitted.predict(wide)) / wide.std(), 0, atol=1e-4)


def test_a_clone_trains_on_a_polars_frame_to_the_same_model(long, fitted, wide):
    frame = pl.DataFrame({c: long[c].tolist() if c == "unique_id" else long[c].to_numpy() for c in long})
    found = clone(fitted).fit(frame.filter(pl.col("ds") < wide.index[2000])).predict(level=[80])
    expected = fitted.predict(level=[80])
    for suffix in ("", "-lo-80", "-hi-80"):
        own = found["Titans" + suffix].to_numpy().reshape(3, 24).T
        np.testing.assert_array_equal(own, expected[[name + suffix for name in wide]])


@pytest.mark.slow
def test_a_pipeline_and_a_grid_search_over_time_splits(wide):
    wide = wide.iloc[:1000]
    pipeline = make_pipeline(StandardScaler(), TitansForecaster(**{**SMALL, "max_epochs": 1}))
    search = GridSearchCV(
        pipeline, {"titansforecaster__learning_rate": [1e-7, 1e-2]}, cv=TimeSeriesSplit(n_splits=2, test_size=200)
    ).fit(wide.to_numpy())
    assert search.best_params_ == {"titansforecaster__learning_rate": 1e-2}
    assert search.predict(wide.to_numpy()).shape == (24, 3)


def test_plots_have_their_data(wide, long, fitted):
    forecast = fitted.plot(actual=wide.iloc[2000:2024], series=["OT"], level=[80, 95], history=60)
    (axes,) = forecast.axes
    labels = axes.get_legend_handles_labels()[1]
    assert labels == ["past", "actual", "95 %", "80 %", "Titans"]
    line = next(x for x in axes.get_lines() if x.get_label() == "Titans")
    np.testing.assert_allclose(line.get_ydata()[1:], fitted.predict()["OT"])

    history = fitted.cross_validation(wide.iloc[:1000], n_windows=3, level=[80])
    backtest = plot_backtest(history, series=["OT"])
    drawn = next(x for x in backtest.axes[0].get_lines() if x.get_color() == "#c4432b").get_ydata()
    assert np.isnan(drawn).sum() == 3
    own = history[(history["unique_id"] == "OT") & (history["cutoff"] == history["cutoff"].max())]
    np.testing.assert_allclose(drawn[-25:-1], own["Titans"])

    residuals = plot_residuals(history)
    by_step = residuals.axes[0].get_lines()[0].get_ydata()
    scaled = (history["y"] - history["Titans"]).abs() / history.groupby("unique_id")["y"].transform("std")
    assert by_step.mean() == pytest.approx(scaled.mean(), rel=1e-6)
    assert len(by_step) == 24

    surprise = fitted.surprise(wide)
    picture = plot_surprise(surprise, long, series=["OT"])
    own = surprise[surprise["unique_id"] == "OT"]["surprise"]
    above, below = picture.axes
    np.testing.assert_allclose(above.get_lines()[0].get_ydata(), wide["OT"])
    np.testing.assert_allclose(below.get_lines()[0].get_ydata(), own)
    assert forecast._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"lacks the columns \['cutoff'"):
        plot_backtest(long)
    with pytest.raises(ValueError, match=r"unknown series \['none'\]"):
        plot_backtest(history, series=["none"])


def test_time_stamps_of_a_forecast_follow(fitted, wide):
    assert fitted.predict().index[0] == wide.index[2000]
    assert isinstance(fitted.predict(), pd.DataFrame)


@pytest.mark.slow
def test_a_sample_of_ecl_with_203_series(real_data):
    frame = pd.read_csv(real_data / "ts" / "ecl_sample.csv.gz", index_col=0, parse_dates=True)
    assert frame.shape[1] > 200
    options = {**SMALL, "max_epochs": 1, "batch_size": 128, "exogenous": {"calendar": "auto"}}
    model = TitansForecaster(**options).fit(frame.iloc[:-24], val_size=168)
    error = (model.predict() - frame.iloc[-24:]).abs().mean() / frame.std()
    naive = (frame.shift(24).iloc[-24:] - frame.iloc[-24:]).abs().mean() / frame.std()
    assert error.median() < 1.5 * naive.median()
