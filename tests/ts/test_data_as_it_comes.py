"""Frames as users have them: constants, dates, gaps, time zones, outages, odd time steps, unequal lengths."""

import copy
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from pandas.tseries.holiday import USFederalHolidayCalendar
from pandas.tseries.offsets import CustomBusinessDay
from sklearn.base import clone

from titans_ts import TitansForecaster
from titans_ts.estimator.reading import read_known
from titans_ts.frames.exogenous import Columns, read_future, read_static
from titans_ts.frames.frame import read_frame
from titans_ts.tune import tune
from titans_ts.units.scaling import level_of, size_of

HOURS = pd.date_range("2024-01-01", periods=120, freq="h", name="ds")


def long(rows=120, ids=("a", "b"), index=HOURS):
    rng = np.random.default_rng(0)
    parts = [
        pd.DataFrame(
            {"unique_id": name, "ds": index[:rows], "y": np.sin(np.arange(rows) / 4) + 0.1 * rng.normal(size=rows)}
        )
        for name in ids
    ]
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize("constant", [0.0, 0.1, 4.99, -7e8, 1e-9])
def test_constant_values_have_a_scale_of_one(constant):
    values = np.full((900, 2), constant)
    mean, scale = level_of(values, size_of(values), 1.0)
    assert scale.tolist() == [1, 1]
    np.testing.assert_allclose(mean, constant)


def test_small_changes_of_large_numbers_are_changes():
    values = 1e6 + 1e-3 * np.sin(np.arange(900))[:, None]
    assert level_of(values, size_of(values), 1.0)[1] == pytest.approx(values.std(), rel=1e-3)


def test_a_column_constant_in_training_has_no_effect_when_it_changes(tiny, tmp_path):
    frame = long(ids=("a",)).assign(price=4.99)
    model = tiny(exogenous={"futr": ["price"]})
    with pytest.warns(
        UserWarning, match=r"exogenous columns \['price'\] are constant in the training rows.*forecasts do not use"
    ):
        model.fit(frame)
    future = pd.DataFrame({"unique_id": "a", "ds": model.context_.future(4), "price": 4.99})
    expected = model.predict(futr_df=future)
    pd.testing.assert_frame_equal(model.predict(futr_df=future.assign(price=5e3)), expected)
    model.save(tmp_path / "model")
    pd.testing.assert_frame_equal(type(model).load(tmp_path / "model").predict(futr_df=future), expected)


@pytest.mark.slow
@pytest.mark.parametrize("exogenous", [None, {"profile": ["day"]}])
def test_a_constant_series_has_a_unit_of_its_size(tiny, exogenous):
    frame = long(ids=("a",)).assign(y=0.1)
    model = tiny(exogenous=exogenous).fit(frame)
    assert model.scale_ == pytest.approx(1e-4)
    np.testing.assert_allclose(model.predict()["Titans"], 0.1, atol=1e-4)
    assert tiny(max_epochs=1).fit(frame.assign(y=0.0).iloc[:60]).scale_.tolist() == [1]


@pytest.mark.parametrize("layout", ["long", "wide"])
def test_dates_of_polars_come_back_as_dates(tiny, layout):
    days = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 2, 29), eager=True)
    y = np.sin(np.arange(len(days)))
    frame = pl.DataFrame({"ds": days, "y": y})
    if layout == "long":
        frame = frame.with_columns(unique_id=pl.lit("a"))
    model = tiny().fit(frame)
    assert (
        model.predict()["ds"].to_list() == pl.date_range(pl.date(2024, 3, 1), pl.date(2024, 3, 4), eager=True).to_list()
    )
    found = model.cross_validation(frame, n_windows=2)
    assert found["ds"].dtype == found["cutoff"].dtype == pl.Date
    assert len(found.join(frame, on="ds")) == 8


def test_decimals_are_read_as_numbers():
    frame = long(ids=("a",))
    plain = pl.DataFrame(
        {name: frame[name].to_numpy() if name != "unique_id" else ["a"] * len(frame) for name in frame}
    )
    decimal = plain.with_columns(pl.col("y").cast(pl.Decimal(scale=12)))
    as_objects = frame.assign(y=pd.Series(decimal["y"].to_list(), dtype=object))
    wide = as_objects.set_index("ds")[["y"]]
    for given in (decimal, as_objects, wide):
        np.testing.assert_allclose(read_frame(given).values, read_frame(plain).values, atol=1e-11)
    wide.iloc[3] = None
    assert np.isnan(read_frame(wide, missing="mask").values).nonzero()[0].tolist() == [3]
    flags = frame.assign(y=pd.Series([True, None] * 60, dtype=object))  # as booleans of polars with nulls
    np.testing.assert_array_equal(read_frame(flags, missing="mask").values[:2], [[1.0], [np.nan]])
    with pytest.raises(ValueError, match="column 'y' must be numeric, got object"):
        read_frame(frame.assign(y=pd.Series([{}] * 120)))


def test_a_gap_across_a_cutoff_is_not_filled_with_later_values(tiny):
    frame = long(100, ids=("a",))
    frame.loc[93:96, "y"] = np.nan  # the cutoff is row 95
    other = frame.copy()
    other.loc[96:, "y"] += 1000
    model = tiny(missing="interpolate")
    found, again = (model.cross_validation(f) for f in (frame, other))
    np.testing.assert_array_equal(found["Titans"], again["Titans"])
    np.testing.assert_allclose(found["Titans"], model.fit(frame.iloc[:96]).predict()["Titans"], atol=1e-6)
    assert found["y"].isna().tolist() == [True, False, False, False]
    inside = model.predict_insample(frame, step_size=1)
    moved = model.predict_insample(other, step_size=1)
    early = inside["cutoff"] <= HOURS[95]
    np.testing.assert_array_equal(inside["Titans"][early], moved["Titans"][early])


def test_a_gap_of_a_future_column_is_filled_in_a_backtest_as_in_a_forecast(tiny):
    frame = long(70, ids=("a",)).assign(price=np.random.default_rng(1).normal(size=70))
    frame.loc[[*range(30, 33), *range(40, 46), *range(52, 55), 69], "price"] = np.nan
    model = tiny(missing="interpolate", max_epochs=1, exogenous={"futr": ["price"]}).fit(frame)
    found = model.predict_insample(frame, step_size=1)
    for origin in (20, *range(27, 57), 66):
        ahead = frame[["ds", "price"]].iloc[origin : origin + 4]
        expected = model.predict(frame.iloc[:origin], ahead)["Titans"].to_numpy()
        own = found.loc[found["cutoff"] == HOURS[origin - 1], "Titans"]
        np.testing.assert_allclose(own, expected, atol=1e-5, err_msg=str(origin))


def test_scores_skip_missing_values(tiny):
    frame = long(100, ids=("a",))
    holes = frame.copy()
    holes.loc[50:69, "y"] = np.nan
    model = tiny(missing="interpolate").fit(holes)
    expected, T = [], 100
    forecasts = model.predict_insample(holes, step_size=1)
    for origin in range(12, T - 4 + 1):
        if np.isnan(holes["y"][origin - 1]):
            continue
        own = forecasts[forecasts["cutoff"] == HOURS[origin - 1]]
        expected += ((own["Titans"] - own["y"]).abs() / model.scale_[0]).dropna().tolist()
    assert model.score(holes) == pytest.approx(-np.mean(expected), rel=1e-5)


def test_a_column_that_starts_late_is_not_a_gap_and_earlier_rows_are_scored(tiny):
    frame = long(100, ids=("a",)).assign(late=np.random.default_rng(1).normal(size=100))
    frame.loc[:59, "late"] = np.nan
    model = tiny(missing="interpolate", exogenous={"hist": ["late"]}).fit(frame)
    forecasts = model.predict_insample(frame, step_size=1)
    expected = (forecasts["Titans"] - forecasts["y"]).abs().mean() / model.scale_[0]
    assert model.score(frame) == pytest.approx(-expected, rel=1e-5)


def test_an_update_that_begins_with_a_gap_interpolates_from_the_last_known_value(tiny):
    frame = long(110, ids=("a",))
    frame.loc[100:102, "y"] = np.nan
    model = tiny(missing="interpolate").fit(frame.iloc[:100])
    whole = model.predict(frame)
    np.testing.assert_allclose(model.update(frame.iloc[100:]).predict()["Titans"], whole["Titans"], atol=1e-5)


def test_stamps_of_another_time_zone_are_converted_to_that_of_fit(tiny):
    zone = "Europe/Berlin"
    frame = long(ids=("a",), index=HOURS.tz_localize(zone))
    frame["y"] = frame["ds"].dt.hour.between(8, 10) * 5.0 + 0.01 * np.arange(120) % 0.03
    model = tiny(exogenous={"profile": ["day"]}).fit(frame.iloc[:110])
    utc = frame.assign(ds=frame["ds"].dt.tz_convert("UTC"))
    expected = model.predict(frame)
    pd.testing.assert_frame_equal(model.predict(utc), expected)
    pd.testing.assert_frame_equal(model.update(utc.iloc[110:]).predict(), expected, rtol=1e-4)
    assert str(model.context_.index.tz) == zone
    with pytest.raises(ValueError, match="have no time zone, but those of fit had Europe/Berlin"):
        model.predict(frame.assign(ds=frame["ds"].dt.tz_localize(None)))


def test_too_few_errors_for_a_level_are_warned_of(tiny):
    model = tiny().fit(long(30, ids=("a",)), val_size=6)  # 3 windows
    with pytest.warns(UserWarning, match="intervals of 95 % may be too narrow: the 3 validation windows"):
        model.predict(level=[95])


def test_a_time_step_without_a_name_is_saved_exactly_or_refused(tiny, tmp_path):
    months = pd.date_range("2016-01-15", periods=80, freq=pd.DateOffset(months=1), name="ds")
    model = tiny(freq=pd.DateOffset(months=1)).fit(long(80, index=months))
    model.save(tmp_path / "months")
    again = TitansForecaster.load(tmp_path / "months")
    pd.testing.assert_frame_equal(again.predict(), model.predict())
    pd.testing.assert_frame_equal(again.predict(long(80, index=months)), model.predict(long(80, index=months)))
    step = CustomBusinessDay(calendar=USFederalHolidayCalendar())
    days = pd.date_range("2024-01-02", periods=80, freq=step, name="ds")
    model = tiny(freq=step).fit(long(80, index=days))
    model.save(tmp_path / "days")
    again = TitansForecaster.load(tmp_path / "days")
    pd.testing.assert_frame_equal(again.predict(), model.predict())
    assert again.update(long(81, index=days.union([days[-1] + step]))[80::81]).context_.index[-1] == days[-1] + step
    hours = pd.offsets.CustomBusinessHour(start="08:00")
    with pytest.warns(UserWarning, match=r"save\(\) will fail.*so the model cannot be saved"):  # before the training
        model = tiny(freq=hours).fit(long(80, index=pd.date_range("2024-01-02", periods=80, freq=hours, name="ds")))
    with pytest.raises(ValueError, match="so the model cannot be saved"):
        model.save(tmp_path / "hours")


def test_wide_polars_frames_and_frames_without_a_row_at_a_cutoff_can_be_backtested(tiny, wide):
    found = tiny().cross_validation(pl.from_pandas(wide.reset_index()), n_windows=2)
    expected = tiny().cross_validation(wide, n_windows=2)
    np.testing.assert_array_equal(found["Titans"], expected["Titans"])
    frame = long(100)
    frame = frame[~((frame["unique_id"] == "b") & (frame["ds"] == HOURS[95]))]
    for missing in ("mask", "interpolate"):
        assert np.isfinite(tiny(missing=missing, max_epochs=1).cross_validation(frame)["Titans"]).all()


def test_a_network_trained_without_gaps_refuses_gaps(tiny):
    frame = long(100)
    model = tiny().fit(frame)
    holes = frame.assign(y=frame["y"].where(frame.index != 97))
    with pytest.raises(ValueError, match="or before fit missing='mask'"):
        model.predict(holes)
    with pytest.raises(ValueError, match="was not fitted with missing='mask'"):
        model.set_params(missing="mask").predict(holes)


def test_a_series_continues_after_an_outage(tiny):
    frame = long(100, ids=("a",))
    frame.loc[80:94, "y"] = np.nan
    model = tiny(missing="mask").fit(frame.iloc[:70], val_size=10)
    model.update(frame.iloc[70:])
    np.testing.assert_allclose(model.predict()["Titans"], model.predict(frame)["Titans"], atol=1e-5)


def test_tune_searches_what_the_shortest_series_allows(tiny):
    frame = long(100)
    frame = frame[(frame["unique_id"] == "a") | (frame["ds"] >= HOURS[70])]
    found = tune(frame, tiny(), n_trials=2, random_state=0, verbose=0)
    assert found.input_size <= 6
    with pytest.raises(ValueError, match="val_size=0 is too small: trials need at least h=4 validation rows"):
        tune(frame, tiny(), val_size=0, n_trials=1, verbose=0)


@pytest.mark.parametrize("columns", [1, 2])
def test_changing_a_frame_after_fit_changes_no_forecast(tiny, columns):
    values = np.sin(np.arange(240) / 4).reshape(-1, columns)
    frame = pd.DataFrame(values, index=pd.date_range("2024", periods=len(values), freq="h"), copy=False)
    model = tiny().fit(frame)
    before = model.predict()
    frame.iloc[-10:] = 1e3
    values[-10:] = 1e3
    pd.testing.assert_frame_equal(model.predict(), before, check_exact=True)


def test_business_days_with_holidays_are_recognised(tiny):
    days = pd.bdate_range("2024-01-01", periods=120).delete([40, 41, 73])
    frame = pd.DataFrame({"a": np.sin(np.arange(117) / 4)}, index=days)
    forecast = tiny(missing="mask").fit(frame).predict()
    assert (forecast.index.dayofweek < 5).all()


def test_a_masked_model_accepts_a_lookback_that_begins_with_missing_rows(tiny, wide):
    model = tiny(missing="mask").fit(wide)
    lookback = wide.iloc[-12:].copy()
    lookback.iloc[:5, 0] = np.nan
    expected = model.predict_windows(lookback.to_numpy()[None])[0]
    plain = copy.copy(model)
    plain.model_ = replace(model.model_, memory=None)
    np.testing.assert_allclose(plain.predict(lookback), expected, rtol=1e-5)
    lookback.iloc[:, 0] = np.nan
    with pytest.raises(ValueError, match="series 'a' has no value"):
        model.predict(lookback)


@pytest.mark.parametrize("missing", ["mask", "interpolate"])
def test_rows_that_are_still_to_come_are_told(tiny, wide, missing):
    model = tiny(missing=missing, max_epochs=1).fit(wide.iloc[:115])
    open_end = wide.copy()
    open_end.iloc[115:] = np.nan
    says = f"the last 5 rows of df, from {wide.index[115]} on, have no value in any series"
    for use in (model.predict, tiny(missing=missing, max_epochs=1).fit):
        with pytest.warns(UserWarning, match=says):
            use(open_end)


@pytest.mark.parametrize("missing", ["mask", "interpolate"])
def test_series_without_a_value_are_said_to_have_none(tiny, wide, missing):
    with pytest.warns(UserWarning, match=r"^1 series have no value and are skipped: \['dead'\]"):
        model = tiny(missing=missing).fit(wide.assign(dead=np.nan))
    assert list(model.predict()) == list(wide)
    with pytest.raises(ValueError, match="df has no values: all are NaN"):
        tiny(missing=missing).fit(wide * np.nan)


def test_nan_in_a_matrix_is_told_as_in_a_frame(tiny, wide):
    values = wide.to_numpy().copy()
    values[3, 0] = np.nan
    for use in (tiny().fit, tiny().fit(wide.to_numpy()).predict):
        with pytest.raises(ValueError, match=r"first: NaN in series 0 at 3\. .*missing='interpolate'"):
            use(values)


def test_booleans_of_polars_may_have_nulls(tiny):
    frame = pl.from_pandas(long())
    frame = frame.with_columns(pl.when(pl.int_range(pl.len()) != 3).then(pl.col("y") > 0).alias("promo"))
    model = tiny(missing="mask", exogenous={"hist": ["promo"]}).fit(frame)
    assert np.isfinite(model.predict()["Titans"].to_numpy()).all()


@pytest.mark.parametrize("kind", ["boolean", "bool[pyarrow]"])
def test_booleans_of_pandas_may_be_of_any_library_and_have_missing_values(kind):
    pytest.importorskip("pyarrow")
    flags = pd.Series([True, False, None] * 80, dtype=kind)
    columns, numbers = Columns(hist=("flag",), futr=("futr",), stat=("stat",)), [1.0, 0.0, np.nan]
    panel = read_frame(long().assign(flag=flags, futr=flags), columns=columns, missing="mask")
    np.testing.assert_array_equal(panel.hist[:3, 0, 0], numbers)
    np.testing.assert_array_equal(panel.futr[:3, 0, 0], numbers)
    future = pd.DataFrame({"ds": panel.index[:3], "futr": flags[:3]})
    np.testing.assert_array_equal(read_future(future, ["a"], panel.index[:3], ("futr",), "mask")[:, 0, 0], numbers)
    static = pd.DataFrame({"unique_id": ["a", "b", "c"], "stat": flags[:3]})
    np.testing.assert_array_equal(read_static(static, ["a", "b", "c"], ("stat",), gaps=True)[:, 0], numbers)
    wide = long().assign(y=flags).pivot(index="ds", columns="unique_id", values="y").astype(kind)
    np.testing.assert_array_equal(read_frame(wide, missing="mask").values[:3, 0], numbers)


def test_columns_of_polars_that_are_not_used_may_be_nested():
    frame = pl.from_pandas(long())
    both = pl.concat_list("y", "y")
    nested = frame.with_columns(
        both.alias("list"), both.list.to_array(2).alias("array"), pl.struct("ds", "y").alias("s")
    )
    with pytest.warns(UserWarning, match=r"\['list', 'array', 's'\] of the long frame are ignored"):
        found = read_frame(nested)
    np.testing.assert_array_equal(found.values, read_frame(frame).values)


def test_an_empty_frame_is_refused_with_a_plain_message(tiny, wide):
    model = tiny(max_epochs=1).fit(wide.to_numpy()[:60])
    with pytest.raises(ValueError, match="the matrix has no rows"):
        model.update(np.empty((0, 3)))


def test_origins_of_another_time_zone_are_converted_to_that_of_fit(tiny):
    stamps = pd.date_range("2024-03-28", periods=120, freq="h", tz="Europe/Berlin")
    frame = pd.DataFrame({"a": np.sin(np.arange(120) / 4)}, index=stamps)
    model = tiny(exogenous={"calendar": ["day"]}).fit(frame)
    windows, origins = np.stack([frame.to_numpy()[i : i + 12] for i in range(5)]), stamps[12:17]
    expected = model.predict_windows(windows, origins)
    np.testing.assert_array_equal(model.predict_windows(windows, origins.tz_convert("UTC")), expected)
    with pytest.raises(ValueError, match="no time zone, but those of fit had Europe/Berlin"):
        model.predict_windows(windows, origins.tz_localize(None))


@pytest.mark.parametrize(("freq", "layout"), [("D", "wide"), ("D", "long"), ("MS", "long"), ("h", "wide")])
def test_the_same_moments_in_another_zone_are_the_same_frame(tiny, freq, layout):
    """Days of Berlin begin at 22 or 23 h UTC, as a database may return them."""
    stamps = pd.date_range("2000-01-01", periods=120, freq=freq, tz="Europe/Berlin", name="ds")
    frame = pd.DataFrame({"a": np.sin(np.arange(120) / 4)}, index=stamps)
    other = frame.set_axis(stamps.tz_convert("UTC"))
    if layout == "long":
        frame, other = (df.reset_index().melt("ds", var_name="unique_id", value_name="y") for df in (frame, other))
    model = tiny(max_epochs=1).fit(frame.iloc[:100])
    pd.testing.assert_frame_equal(model.predict(other.iloc[:100]), model.predict(), check_exact=True)
    model.update(other.iloc[100:])
    assert model.predict().shape == (4, 1 if layout == "wide" else 3)


def test_stamps_of_another_kind_than_those_of_fit_are_refused(tiny, wide, to_long):
    counted = wide.reset_index(drop=True)
    for frame, other in ((wide, counted), (counted, wide)):
        model = tiny(max_epochs=1).fit(frame)
        for given in (other, to_long(other.rename_axis("ds"))):
            for read in (model.predict, model.update, model.score):
                with pytest.raises(ValueError, match=r"have another type than those of fit: .* Convert"):
                    read(given)


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_pyarrow_time_stamps_are_read_as_pandas_ones(tiny, zone):
    pytest.importorskip("pyarrow")
    frame = long().assign(ds=lambda df: df["ds"].dt.tz_localize(zone))
    arrow = frame.convert_dtypes(dtype_backend="pyarrow")
    assert isinstance(arrow["ds"].dtype, pd.ArrowDtype)
    model = tiny().fit(frame)
    pd.testing.assert_frame_equal(tiny().fit(arrow).predict(), model.predict(), check_dtype=False)
    wide = arrow.pivot(index="ds", columns="unique_id", values="y")
    found = tiny().fit(wide).predict()
    np.testing.assert_allclose(found["a"], model.predict()["Titans"][:4], rtol=1e-6)


def test_pyarrow_dates_are_read_as_pandas_ones(tiny):
    """As read from a Parquet file with a date column."""
    pa = pytest.importorskip("pyarrow")
    frame = long().assign(ds=lambda df: df.groupby("unique_id").cumcount().map(pd.Timedelta("1D").__mul__))
    frame["ds"] += pd.Timestamp("2024-01-01")
    expected = tiny().fit(frame).predict()
    for dates in (pa.date32(), pa.date64()):
        dated = frame.assign(ds=frame["ds"].astype("timestamp[ms][pyarrow]").astype(pd.ArrowDtype(dates)))
        pd.testing.assert_frame_equal(tiny().fit(dated).predict(), expected, check_dtype=False)


@pytest.mark.slow
@pytest.mark.parametrize(("missing", "multivariate"), [("interpolate", False), ("interpolate", True), ("mask", True)])
def test_a_series_that_ended_has_forecasts_and_intervals_and_does_not_affect_others(
    tiny, wide, to_long, missing, multivariate
):
    long = to_long(wide)
    ended = long[(long["unique_id"] != "a") | (long["ds"] < wide.index[80])]
    known = ended[ended["ds"] < wide.index[110]]
    model = tiny(missing=missing, multivariate=multivariate).fit(known, val_size=20)
    found = model.predict(level=[50])
    assert np.isfinite(found.drop(columns=["unique_id", "ds"])).all(axis=None)
    assert (found["Titans-hi-50"] > found["Titans-lo-50"]).all()
    model.update(ended[ended["ds"] >= wide.index[110]])  # without a row of the series that ended
    assert np.isfinite(model.predict()["Titans"]).all()
    back = tiny(missing=missing, multivariate=multivariate).cross_validation(
        ended, n_windows=2, val_size=20, level=[50]
    )
    assert np.isfinite(back[["Titans", "Titans-lo-50", "Titans-hi-50"]]).all(axis=None)
    assert model.score(ended) < 0


def test_a_column_that_ends_inside_a_gap_of_its_series_hides_no_value(tiny):
    """The gap was interpolated to later values, whatever its column does."""
    frame = long(100, ids=("a",))
    frame["p"] = np.random.default_rng(3).normal(size=100)
    frame.loc[60:79, "y"] = np.nan
    frame.loc[70:, "p"] = np.nan
    model = tiny(missing="interpolate", exogenous={"hist": ["p"]}).fit(frame.assign(p=frame["p"].fillna(0.0)))
    panel = read_known(model, frame).filled("interpolate")
    scores = model.model_.scores(model.scaling_.table(panel), torch.arange(56, 90))[..., 0]
    known = ~np.isnan(frame["y"].to_numpy())[np.arange(56, 90)[:, None] + np.arange(4)]
    from_inside = (np.arange(56, 90) > 60) & (np.arange(56, 90) <= 80)
    assert known.shape == scores.shape
    np.testing.assert_array_equal(np.isfinite(scores), known & ~from_inside[:, None])


def test_known_targets_count_where_a_column_is_missing(tiny):
    frame = long(100, ids=("a",))
    frame["p"] = np.random.default_rng(3).normal(size=100)
    frame.loc[::2, "p"] = np.nan
    frame.loc[0, "p"] = 0.0
    holed = tiny(missing="interpolate", exogenous={"hist": ["p"]}).fit(frame)
    whole = tiny(exogenous={"hist": ["p"]}).fit(frame.assign(p=0.0))
    np.testing.assert_array_equal(holed.mean_, whole.mean_)
    np.testing.assert_array_equal(holed.scale_, whole.scale_)


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_numbers_beyond_float32_are_refused(tiny, layout):
    frame = long() if layout == "long" else long().pivot(index="ds", columns="unique_id", values="y")
    for missing in ("error", "mask"):
        with pytest.raises(ValueError, match=r"beyond 3\.4e\+38, the largest float32 number, first: .* series 'a'"):
            tiny(missing=missing).fit(frame.assign(**{"y" if layout == "long" else "a": 1e150}))


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_complex_numbers_are_refused(tiny, layout):
    frame = long() if layout == "long" else long().pivot(index="ds", columns="unique_id", values="y")
    name = "y" if layout == "long" else "a"
    with pytest.raises(ValueError, match=r"must be numeric.*, got complex128"):
        tiny().fit(frame.assign(**{name: frame[name] * 1j}))


@pytest.mark.parametrize("counted", [False, True])
def test_a_short_series_alone_is_forecast_as_with_a_long_one(tiny, wide, to_long, counted):
    wide = wide.set_axis(pd.RangeIndex(0, 360, 3, name="ds")) if counted else wide
    model = tiny(missing="mask", exogenous={"hist": ["load"]}).fit(
        to_long(wide).assign(load=np.arange(360.0)), val_size=40
    )
    long = to_long(wide.assign(new=wide["a"] ** 2)).assign(load=1.0)
    old, young = (long[long["unique_id"] == name] for name in ("c", "new"))
    for rows in (1, 5, 12):
        new = young.tail(rows)
        alone, beside = (model.predict(pd.concat(parts), level=[80]) for parts in ([new], [new, old]))
        beside = beside[beside["unique_id"] == "new"].reset_index(drop=True)
        pd.testing.assert_frame_equal(alone, beside, rtol=1e-5)
        assert alone["ds"].iloc[0] == (360 if counted else wide.index[-1] + pd.Timedelta(hours=1))


@pytest.mark.parametrize("missing", ["mask", "interpolate"])
def test_a_series_with_a_value_every_third_step_is_named(tiny, wide, to_long, missing):
    long = to_long(wide)
    sparse = long[(long["unique_id"] != "b") | (long["ds"].dt.hour % 3 == 1)]
    with pytest.warns(UserWarning, match=r"series \['b'\] have a value only once in 3 steps") as warned:
        tiny(missing=missing, max_epochs=1).fit(sparse)
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        some = long[(long["unique_id"] != "b") | ~long["ds"].dt.hour.isin([3, 4, 11])]
        tiny(missing=missing, max_epochs=1).fit(some)


@pytest.mark.parametrize("missing", ["mask", "interpolate"])
def test_without_short_series_a_frame_ends_with_the_others(tiny, wide, to_long, missing):
    """The result is the same as without them."""
    long = to_long(wide)
    ended, young = long["ds"] <= wide.index[100], long["ds"] >= wide.index[98]
    frame = long[(ended & (long["unique_id"] != "c")) | (young & (long["unique_id"] == "c"))]
    with pytest.warns(UserWarning, match=r"1 series begin too late .* skipped: \['c'\]"):
        model = tiny(missing=missing, max_epochs=1).fit(frame)
    alone = tiny(missing=missing, max_epochs=1).fit(frame[frame["unique_id"] != "c"])
    pd.testing.assert_frame_equal(model.predict(level=[50]), alone.predict(level=[50]))
    assert model.predict()["ds"].iloc[0] == wide.index[101]


def test_filled_rows_after_the_end_of_all_series_are_not_used_in_validation(tiny, wide):
    ended = wide.copy()
    ended.iloc[100:] = np.nan
    with pytest.raises(ValueError, match=r"the last val_size=20 rows, which are for validation, have no known value"):
        tiny(missing="interpolate").fit(ended, val_size=20)


def test_a_frame_shortened_by_leaving_out_short_series_may_make_more_series_too_short(tiny, wide, to_long):
    long, at = to_long(wide), wide.index
    begin, end = {"a": at[0], "b": at[60], "c": at[95]}, {"a": at[81], "b": at[81], "c": at[-1]}
    frame = long[(long["ds"] >= long["unique_id"].map(begin)) & (long["ds"] <= long["unique_id"].map(end))]
    with pytest.warns(UserWarning, match="begin too late"):
        model = tiny(missing="mask", max_epochs=1).fit(frame)
    assert model.left_out_ == ["b", "c"]


@pytest.mark.parametrize("missing", ["mask", "interpolate"])
def test_rows_before_the_first_value_of_any_series_do_not_count(tiny, wide, missing):
    stamps = pd.date_range(end=wide.index[-1], periods=len(wide) + 400, freq="h", name="ds")
    model = tiny(missing=missing, max_epochs=1)
    alone, beside = (clone(model).fit(frame) for frame in (wide, wide.reindex(stamps)))
    pd.testing.assert_frame_equal(beside.predict(), alone.predict())
    backtests = [model.cross_validation(frame) for frame in (wide, wide.reindex(stamps))]
    pd.testing.assert_frame_equal(*backtests)


def test_names_of_series_may_be_true_and_false_beside_static_columns(tiny):
    frame = long().replace({"unique_id": {"a": False, "b": True}})
    static = pd.DataFrame({"unique_id": [True, False], "size": [1.0, 2.0]})
    model = tiny(exogenous={"stat": ["size"]}).fit(frame, static_df=static)
    assert model.predict()["unique_id"].unique().tolist() == [False, True]
