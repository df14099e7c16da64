"""Seasonal naive forecasts for a backtest."""

import numpy as np
import pandas as pd
import pytest
from pandas.tseries.offsets import CustomBusinessDay, CustomBusinessHour

from titans_datasets import load
from titans_ts.cli.error_table import error_table
from titans_ts.frames.seasons import season_of
from titans_ts.naive import naive_beside, season_of_frame, with_naive


def backtest_rows(frame, cutoff, h):
    """A backtest of one origin, without its forecasts."""
    rows = frame.index[cutoff + 1 : cutoff + 1 + h]
    return pd.concat([pd.DataFrame({"unique_id": name, "ds": rows, "cutoff": frame.index[cutoff]}) for name in frame])


@pytest.mark.parametrize(
    ("freq", "rows"),
    [
        *[("h", 24), ("15min", 96), ("10min", 144), ("6h", 4), ("D", 7), ("2D", 1), ("B", 5), ("W", 52), ("2W", 26)],
        *[("4W", 13), ("MS", 12), ("QS", 4), ("YS", 1), (CustomBusinessDay(holidays=["2020-01-08"]), 5)],
        (CustomBusinessDay(weekmask="Mon Tue Wed Thu Fri Sat"), 6),
        *[("bh", 8), (CustomBusinessHour(start="08:00", end="20:00"), 12)],
    ],
    ids=str,
)
def test_the_season_follows_from_the_step(freq, rows):
    index = pd.date_range("2020-01-02", periods=40, freq=freq)
    assert season_of(index, index.freq) == rows
    assert season_of(pd.RangeIndex(40), 1) == 1
    frame = pd.DataFrame({"a": np.arange(40.0)}, index=index.rename("ds"))
    assert season_of_frame(frame, None if isinstance(freq, str) else freq) == rows


def test_the_errors_of_both_are_also_of_the_rows_that_both_have():
    months = pd.date_range("2022-01-01", periods=24, freq="MS", name="ds")
    frame = pd.DataFrame({"a": np.arange(24.0), "(all)": 2.0 * np.arange(24)}, index=months)
    found = pd.concat([backtest_rows(frame, cutoff, 3) for cutoff in (9, 15)], ignore_index=True)
    long = frame.reset_index().melt("ds", var_name="unique_id", value_name="y")
    found = found.merge(long).assign(Titans=0.0)  # December 2022 is the last without a month of the year before
    table, season = error_table(found, frame, None, [])
    assert season.rows == 12
    assert table.index.tolist() == ["a", "(all)", "(all)"]
    assert table["MAE"].tolist() == [14.0, 28.0, 21.0]
    assert table["MAE where naive"].tolist() == [(12 + 16 + 17 + 18) / 4, (12 + 16 + 17 + 18) / 2, 3 * 63 / 8]
    assert table["naive MAE"].tolist() == [12.0, 24.0, 18.0]
    later = found[found["cutoff"] == months[15]]
    assert "MAE where naive" not in error_table(later, frame, None, [])[0]


def test_each_forecast_is_the_value_whole_seasons_before_the_cutoff(wide):
    found = with_naive(backtest_rows(wide, 79, 30), wide)
    for name in wide:
        values, mine = wide[name].to_numpy(), found[found["unique_id"] == name]["SeasonalNaive"]
        expected = [values[80 + t - 24] if t < 24 else values[80 + t - 48] for t in range(30)]
        np.testing.assert_array_equal(mine, expected)
    last = with_naive(backtest_rows(wide, 79, 30), wide, season_length=1)
    np.testing.assert_array_equal(last["SeasonalNaive"], np.repeat(wide.iloc[79].to_numpy(), 30))


def test_closed_days_are_not_rows_of_a_season_if_the_step_skips_them():
    step = CustomBusinessDay(holidays=["2020-01-08"])
    index = pd.date_range("2020-01-02", periods=40, freq=step, name="ds")
    frame = pd.DataFrame({"a": np.arange(40.0)}, index=index)
    found = backtest_rows(frame, 5, 3)
    assert with_naive(found, frame, freq=step)["SeasonalNaive"].tolist() == [1, 2, 3]  # five rows before
    np.testing.assert_array_equal(with_naive(found, frame)["SeasonalNaive"], [2, 3, np.nan])  # a week, closed days too


def meters(freq="h", noise=0.1, weekend=0.0):
    """Six weeks of two offices: a load by day, and how much of it there is on Saturdays and Sundays."""
    steps = pd.date_range("2024-01-01", "2024-02-12", freq=freq, inclusive="left", name="ds")
    hours = steps.hour + steps.minute / 60
    load = np.sin(np.pi * hours / 24) ** 2 * np.where(steps.day_of_week < 5, 1.0, weekend)
    rng, sizes = np.random.default_rng(0), (("a", 1), ("b", 500))
    return pd.DataFrame({name: size * (load + noise * rng.normal(size=len(steps))) for name, size in sizes}, steps)


@pytest.mark.parametrize(("freq", "day"), [("h", 24), ("30min", 48), ("6h", 4)])
@pytest.mark.parametrize(("weekend", "days"), [(0.0, 7), (1.0, 1)])
def test_the_season_is_the_day_or_week_that_was_more_accurate_before(freq, day, weekend, days):
    df = meters(freq=freq, weekend=weekend)
    last = len(df) - 2 * day
    found = backtest_rows(df, last - 1, 2 * day)
    beside, season = naive_beside(found, df)
    assert season.rows == days * day == season_of_frame(df, found=found)
    assert season.of_a_day < 0.6 if days == 7 else season.of_a_day == 1
    pd.testing.assert_frame_equal(beside, with_naive(found, df, season_length=days * day))
    pd.testing.assert_frame_equal(with_naive(found, df), beside)


def test_values_after_the_first_cutoff_do_not_choose_the_season():
    df = meters(weekend=1.0)
    found = pd.concat([backtest_rows(df, cutoff, 24) for cutoff in (700, 800)])
    later = df.copy()
    later.iloc[701:] = meters(weekend=0.0, noise=0.0).iloc[701:]  # weekdays are all that matters from there on
    assert season_of_frame(later, found=found) == season_of_frame(df, found=found) == 24
    assert season_of_frame(later, found=backtest_rows(df, 980, 24)) == 24 * 7


def test_with_too_few_rows_before_the_first_cutoff_the_season_is_a_day():
    df = meters(weekend=0.0)
    assert season_of_frame(df, found=backtest_rows(df, 2 * 168 - 1, 24)) == 168
    assert season_of_frame(df, found=backtest_rows(df, 2 * 168 - 2, 24)) == 24
    assert season_of_frame(df, found=backtest_rows(df, 2 * 168 - 1, 24 * 8)) == 24  # which goes back two weeks
    assert season_of_frame(df.mask(df < np.inf), found=backtest_rows(df, 600, 24)) == 24


def test_all_series_have_equal_weight_in_the_choice_of_the_season():
    df = meters(weekend=0.0)
    df["c"] = 1e6 * meters(weekend=1.0)["a"]
    assert season_of_frame(df, found=backtest_rows(df, 980, 24)) == 168


def a_season_ago(frame, cutoff, stamp, days):
    """By definition: this many days ago in local time, or the fewest more that were known at the cutoff."""
    for seasons in range(1, 9):
        back = days * seasons
        wall = stamp.tz_localize(None) - pd.Timedelta(days=back)
        then = wall.tz_localize(stamp.tz, ambiguous=True, nonexistent="NaT")
        row = frame.index.get_loc(stamp - pd.Timedelta(hours=24 * back) if then is pd.NaT else then)
        if row <= cutoff:
            return frame["a"].iloc[row]
    raise AssertionError(stamp)


@pytest.mark.parametrize("freq", ["h", "30min"])
@pytest.mark.parametrize("days", [1, 7])
@pytest.mark.parametrize(
    ("zone", "change"),
    [
        *[("Europe/Berlin", "2024-03-31"), ("Europe/Berlin", "2024-10-27")],
        *[("Australia/Sydney", "2024-04-07"), ("Asia/Kolkata", "2024-03-31")],
    ],
)
def test_a_day_ago_is_in_local_time(freq, zone, days, change):
    middle = pd.Timestamp(change, tz=zone)
    steps = pd.date_range(middle - pd.Timedelta(days=20), middle + pd.Timedelta(days=6), freq=freq, name="ds")
    frame = pd.DataFrame({"a": np.arange(len(steps), dtype=float)}, steps)
    day = int(pd.Timedelta("1D") / pd.Timedelta(steps.freq))
    for cutoff in range(len(frame) - 7 * day - 5, len(frame) - 2 * day, 5 * day // 24):
        if frame.index[cutoff].hour in (1, 2) and freq != "h":
            continue  # of an hour that comes twice, the first alone is taken for known
        found = with_naive(backtest_rows(frame, cutoff, 2 * day), frame, season_length=days * day)
        expected = [a_season_ago(frame, cutoff, stamp, days) for stamp in found["ds"]]
        np.testing.assert_array_equal(found["SeasonalNaive"], expected)
    within = with_naive(backtest_rows(frame, cutoff, day), frame, season_length=day // 2)[
        "SeasonalNaive"
    ]  # no whole day
    np.testing.assert_array_equal(within, np.tile(np.arange(cutoff + 1 - day // 2, cutoff + 1), 2))


@pytest.mark.parametrize("freq", ["3h", "D"])
def test_steps_shifted_by_a_clock_change_go_back_by_rows(freq):
    steps = pd.date_range("2024-03-10", periods=240, freq=freq, tz="Europe/Berlin", name="ds")
    frame = pd.DataFrame({"a": np.arange(240.0)}, steps)
    found = with_naive(backtest_rows(frame, 199, 8), frame, season_length=8)["SeasonalNaive"]
    np.testing.assert_array_equal(found, np.arange(192, 200))


def test_a_skipped_hour_just_after_the_first_row_is_not_read_from_the_end():
    steps = pd.date_range("2024-03-31 01:45", periods=400, freq="15min", tz="Europe/Berlin", name="ds")
    frame = pd.DataFrame({"a": np.arange(400.0)}, steps)  # 02:00 to 02:45 are skipped: rows before the first
    found = with_naive(backtest_rows(frame, 84, 16), frame, season_length=96)["SeasonalNaive"]
    np.testing.assert_array_equal(found, [*[np.nan] * 7, *[0.0] * 5, 1, 2, 3, 4])


def test_patterns_in_local_time_continue_across_a_clock_change_and_weekdays_are_seen():
    steps = pd.date_range("2024-03-01", "2024-04-14", freq="h", tz="Europe/Berlin", inclusive="left", name="ds")
    habit = np.where(steps.day_of_week < 5, np.sin(np.pi * steps.hour / 24), 0.0)
    frame = pd.DataFrame({"a": habit}, steps)
    cutoff = frame.index.get_loc(pd.Timestamp("2024-03-30 23:00", tz="Europe/Berlin"))
    found, season = naive_beside(backtest_rows(frame, cutoff, 5 * 24).assign(y=habit[cutoff + 1 :][: 5 * 24]), frame)
    assert season.rows == 168
    np.testing.assert_array_equal(found["SeasonalNaive"], found["y"])


def test_a_missing_value_is_replaced_by_one_a_season_earlier(wide):
    wide.iloc[60, 0] = np.nan
    found = with_naive(backtest_rows(wide, 79, 24), wide)
    assert found["SeasonalNaive"].iloc[60 - 56] == wide.iloc[36, 0]
    early = with_naive(backtest_rows(wide, 20, 24), wide)["SeasonalNaive"].to_numpy()[:24]
    assert np.isnan(early[:3]).all()
    np.testing.assert_array_equal(early[3:], wide["a"].iloc[:21])


def test_naive_forecasts_are_added_to_a_real_backtest(tiny):
    df = load("ETTh1").iloc[:400]
    found = with_naive(tiny().cross_validation(df, n_windows=3), df)
    assert list(found) == ["unique_id", "ds", "cutoff", "y", "Titans", "SeasonalNaive"]
    yesterday = df.shift(24).melt(ignore_index=False, var_name="unique_id").reset_index()
    both = found.merge(yesterday, on=["unique_id", "ds"])
    np.testing.assert_array_equal(both["SeasonalNaive"], both["value"])


def test_frames_of_polars_come_back_as_such(tiny, wide, to_long):
    polars = pytest.importorskip("polars")
    df = polars.from_pandas(to_long(wide)).cast({"unique_id": polars.Categorical})
    found = with_naive(tiny().cross_validation(df), df)
    assert isinstance(found, polars.DataFrame)
    assert len(found.join(df, on=["unique_id", "ds"])) == len(found)  # refused if the types differ
    plain = with_naive(tiny().cross_validation(wide), wide)
    np.testing.assert_array_equal(found["SeasonalNaive"].to_numpy(), plain["SeasonalNaive"])
    unknown = with_naive(found, df, season_length=999)["SeasonalNaive"]
    assert unknown.null_count() == len(found)  # NaN would make each mean NaN


@pytest.mark.parametrize("change", [{"unique_id": "z"}, {"cutoff": pd.Timestamp("2030-01-01")}])
def test_a_backtest_of_another_frame_is_refused(wide, change):
    with pytest.raises(ValueError, match="series or times that are not in df"):
        with_naive(backtest_rows(wide, 79, 4).assign(**change), wide)


def test_a_forecast_that_is_no_backtest_is_refused(tiny, wide):
    forecast = tiny(max_epochs=1).fit(wide).predict()
    with pytest.raises(ValueError, match=r"^found lacks the columns \['unique_id', 'ds', 'cutoff'\]\. Got \['a', 'b'"):
        with_naive(forecast, wide)


def test_a_season_longer_than_the_past_gives_no_naive_forecast():
    wide = pd.DataFrame({"a": np.arange(20.0)}, index=pd.date_range("2020-01-05", periods=20, freq="W", name="ds"))
    found = pd.DataFrame({"unique_id": "a", "ds": wide.index[10:14], "cutoff": wide.index[9]})
    assert with_naive(found, wide)["SeasonalNaive"].isna().all()
    assert with_naive(found, wide, season_length=12)["SeasonalNaive"].isna().tolist() == [True, True, False, False]
