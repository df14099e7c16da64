"""Time stamps of all kinds (missing, with time zones, in other units, integers, months, days), and unsorted frames."""

import re
import warnings
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest

from titans_ts.frames.frame import read_frame


def long_frame(stamps, ids=("a", "b")):
    rows = [(name, stamp, 10.0 * i + t) for i, name in enumerate(ids) for t, stamp in enumerate(stamps)]
    return pd.DataFrame(rows, columns=["unique_id", "ds", "y"])


def wide_frame(stamps, ids=("a", "b")):
    return pd.DataFrame({name: 10.0 * i + np.arange(len(stamps)) for i, name in enumerate(ids)}, index=stamps)


@pytest.mark.parametrize("freq", [None, "h"])
@pytest.mark.parametrize("at", [0, 2, 5])
def test_a_missing_time_stamp_is_refused_with_a_plain_message(at, freq):
    stamps = pd.date_range("2024-01-01", periods=6, freq="h")
    stamps = stamps.where(np.arange(6) != at)
    with pytest.raises(ValueError, match=r"(?i)missing|NaT"):
        read_frame(wide_frame(stamps), freq)
    with pytest.raises(ValueError, match="column 'ds' has 2 missing values"):
        read_frame(long_frame(stamps), freq)


def test_one_missing_id_is_counted():
    frame = long_frame(range(5))
    frame.loc[3, "unique_id"] = None
    with pytest.raises(ValueError, match="column 'unique_id' has 1 missing values"):
        read_frame(frame)


@pytest.mark.parametrize("dtype", ["Int64", "Float64"])
def test_a_missing_value_of_a_nullable_column_is_located(dtype):
    stamps = pd.date_range("2024-01-01", periods=4, freq="h")
    values = pd.array([1, None, 3, 4], dtype=dtype)
    for frame in (
        pd.DataFrame({"a": values}, index=stamps),
        pd.DataFrame({"unique_id": "a", "ds": stamps, "y": values}),
    ):
        with pytest.raises(ValueError, match="first: NaN in series 'a' at 2024-01-01 01:00"):
            read_frame(frame)


def test_nullable_columns_without_missing_values_are_numbers():
    frame = pd.DataFrame({"a": pd.array([1, 2, 3], dtype="Int64")}, index=pd.date_range("2024", periods=3))
    assert read_frame(frame).values.tolist() == [[1.0], [2.0], [3.0]]


@pytest.mark.parametrize("freq", ["0h", "-1h", timedelta(0), np.timedelta64(0, "h"), pd.DateOffset(months=-1)])
@pytest.mark.parametrize("missing", ["error", "mask"])
def test_a_step_that_does_not_go_forward_is_refused(wide, freq, missing):
    """Such as the median difference of the time stamps of a long frame, many of which are the same."""
    with pytest.raises(ValueError, match=r"^freq must be a step forward in time, got "):
        read_frame(wide, freq, missing=missing)


@pytest.mark.parametrize("make", [wide_frame, long_frame])
def test_integer_stamps_have_the_same_errors_as_dates(make):
    name = "df" if make is wide_frame else "series 'a'"
    with pytest.raises(
        ValueError, match=rf"{name} has irregular time stamps for freq 10: expected 30 after 20, got 40"
    ):
        read_frame(make([0, 10, 20, 40, 50, 60]))
    with pytest.raises(ValueError, match=rf"{name} is not sorted by time: 10 comes after 20"):
        read_frame(make([0, 20, 10, 30]))
    with pytest.raises(ValueError, match=rf"{name} has 1 duplicate time stamps, first: 10"):
        read_frame(make([0, 10, 10, 20]))
    with pytest.raises(ValueError, match="irregular time stamps for freq 5: expected 5 after 0, got 10"):
        read_frame(make([0, 10, 20]), freq=5)
    with pytest.raises(ValueError, match="positive integer for integer time stamps, got 0"):
        read_frame(make([0, 10, 20]), freq=0)
    with pytest.raises(ValueError, match="cannot be inferred from 2 time stamps"):
        read_frame(make([0, 10]))
    assert read_frame(make([0, 10]), freq=10).future(2).tolist() == [20, 30]


@pytest.mark.parametrize("missing", ["error", "interpolate"])
@pytest.mark.parametrize("dtype", ["uint32", "UInt16", "uint64"])  # of uint32 are the row numbers of polars
def test_unsigned_integers_are_sorted_too(dtype, missing):
    for make, name in ((wide_frame, "df"), (long_frame, "series 'a'")):
        with pytest.raises(ValueError, match=f"{name} is not sorted by time: 1 comes after 2"):
            read_frame(make(pd.array([0, 2, 1, 3], dtype=dtype)), freq=1, missing=missing)
        assert read_frame(make(pd.array([7, 8, 9], dtype=dtype)), missing=missing).future(2).tolist() == [10, 11]


@pytest.mark.parametrize("missing", ["error", "interpolate"])
@pytest.mark.parametrize("make", [wide_frame, long_frame])
def test_integers_that_look_like_months_are_refused(make, missing):
    months = pd.date_range("2023-03-01", periods=24, freq="MS").strftime("%Y%m").astype(int)
    with pytest.raises(ValueError, match=r"like months: 202303 to 202502\. Convert .*to_datetime\(..., format='%Y"):
        read_frame(make(months), missing=missing)
    assert read_frame(make(range(202303, 202327)), missing=missing).future(1).tolist() == [202327]


@pytest.mark.parametrize("missing", ["error", "interpolate"])
@pytest.mark.parametrize("make", [wide_frame, long_frame])
def test_integers_that_look_like_days_are_refused(make, missing):
    days = pd.date_range("2023-12-20", periods=30).strftime("%Y%m%d").astype(int)
    with pytest.raises(ValueError, match=r"like days: 20231220 to 20240118\. Convert .*to_datetime\(.*%Y%m%d"):
        read_frame(make(days), missing=missing)


@pytest.mark.parametrize("stamps", [range(20_000_101, 20_000_201), range(19_500_101, 20_100_101, 10_000)])
def test_large_counting_integers_are_not_taken_for_dates(stamps):
    panel = read_frame(wide_frame(pd.Index(stamps).delete(5)), missing="mask")
    assert list(panel.index) == list(stamps)


@pytest.mark.parametrize("make", [wide_frame, long_frame])
def test_a_step_is_kept_across_daylight_saving_changes(make):
    daily = read_frame(make(pd.date_range("2025-03-25", periods=5, freq="D", tz="Europe/Berlin")))
    assert [str(s) for s in daily.future(2)] == ["2025-03-30 00:00:00+01:00", "2025-03-31 00:00:00+02:00"]


@pytest.mark.parametrize(
    ("start", "freq", "following"),
    [
        ("2023-11-01", "MS", ["2024-02-01", "2024-03-01"]),
        ("2023-11-30", "ME", ["2024-02-29", "2024-03-31"]),
        ("2024-01-03", "B", ["2024-01-08", "2024-01-09"]),
        ("2024-01-03", "W-WED", ["2024-01-24", "2024-01-31"]),
        ("2024-01-01 00:00", "15min", ["2024-01-01 00:45", "2024-01-01 01:00"]),
    ],
)
def test_the_future_follows_the_calendar(start, freq, following):
    panel = read_frame(wide_frame(pd.date_range(start, periods=3, freq=freq)), freq)
    assert panel.future(2).tolist() == [pd.Timestamp(s) for s in following]


def test_monthly_steps_are_inferred():
    panel = read_frame(long_frame(pd.date_range("2023-11-01", periods=4, freq="MS")))
    assert panel.freq == pd.offsets.MonthBegin()
    out = panel.output(panel.future(2), np.array([[[1.0], [2.0]], [[3.0], [4.0]]]), ["Titans"])
    assert out.to_dict("list") == {
        "unique_id": ["a", "a", "b", "b"],
        "ds": [pd.Timestamp("2024-03-01"), pd.Timestamp("2024-04-01")] * 2,
        "Titans": [1.0, 3.0, 2.0, 4.0],
    }


def test_rows_of_a_long_frame_may_be_grouped_by_time_and_have_any_index():
    by_series = long_frame(pd.date_range("2024", periods=5))
    by_time = by_series.sort_values("ds", kind="stable").set_axis([7] * 10, axis=0)
    a, b = read_frame(by_series), read_frame(by_time)
    np.testing.assert_array_equal(a.values, b.values)
    assert a.ids == b.ids == ["a", "b"]


def test_series_keep_the_order_of_the_frame():
    frame = long_frame(range(4), ids=("z", "m", "a"))
    panel = read_frame(frame)
    assert panel.ids == ["z", "m", "a"]
    assert panel.values[0].tolist() == [0.0, 10.0, 20.0]


def test_a_gap_in_a_series_that_starts_later_is_attributed_to_it():
    frame = long_frame(pd.date_range("2024-01-01", periods=9))
    late = frame[(frame["unique_id"] == "a") | (frame["ds"] >= "2024-01-04")]
    assert np.isnan(read_frame(late).values[:, 1]).tolist() == [True] * 3 + [False] * 6
    with pytest.raises(ValueError, match=r"series 'b' has irregular time stamps.*expected 2024-01-06.*got 2024-01-07"):
        read_frame(late[(late["unique_id"] == "a") | (late["ds"] != "2024-01-06")])


@pytest.mark.parametrize("week", ["Mon Tue Wed Thu Fri Sat", "Mon Tue Wed Thu Fri"])
def test_the_error_about_closed_days_names_the_step_that_skips_them(week):
    """The error names the closed day (a Sunday, or a holiday among business days) and no clock change."""
    step = pd.offsets.CustomBusinessDay(weekmask=week, holidays=["2024-01-16"])
    frame = long_frame(pd.date_range("2024-01-01", periods=30, freq=step))
    with pytest.raises(ValueError, match=r"CustomBusinessDay\(weekmask='Mon Tue Wed Thu Fri Sat', holidays=") as error:
        read_frame(frame)
    assert "daylight saving time" not in str(error.value)
    assert read_frame(frame, step).values.shape == (30, 2)
    sunday = frame["ds"].replace(pd.Timestamp("2024-01-08"), pd.Timestamp("2024-01-07"))
    with pytest.raises(ValueError, match=r"expected 2024-01-08 .*, got 2024-01-07") as error:
        read_frame(frame.assign(ds=sunday), step)
    assert "daylight saving time" not in str(error.value)


@pytest.mark.parametrize(
    "index",
    [pd.period_range("2024", periods=3, freq="D"), pd.to_timedelta([0, 1, 2], "h"), pd.Index([0.5, 1.5, 2.5])],
    ids=["period", "timedelta", "float"],
)
def test_an_index_of_another_kind_is_refused_with_its_dtype(index):
    with pytest.raises(ValueError, match=rf"neither long nor wide.*index of {index.dtype}".replace("[", r"\[")):
        read_frame(pd.DataFrame({"a": [1.0, 2.0, 3.0]}, index=index))


@pytest.mark.parametrize("layout", ["wide", "long", "matrix"])
def test_reading_makes_a_copy(layout):
    stamps = pd.date_range("2024", periods=4)
    matrix = np.ascontiguousarray(wide_frame(stamps).to_numpy())  # as float64 and C-contiguous it needs no conversion
    frame = {"wide": wide_frame(stamps), "long": long_frame(stamps), "matrix": matrix}[layout]
    before = frame.copy()
    read_frame(frame).values[:] = -1.0
    assert before.equals(frame) if layout != "matrix" else np.array_equal(before, frame)


def test_a_frame_without_series_is_refused_with_a_plain_message(tiny, wide):
    with pytest.raises(ValueError, match=r"(?i)no (series|columns)|at least one"):
        tiny().fit(wide[[]])


@pytest.mark.parametrize(
    "stamps",
    [
        pd.bdate_range("2024-01-01", periods=90),
        pd.date_range("2020-01-01", periods=60, freq="MS"),
        pd.date_range("2020-01-31", periods=60, freq="ME"),
        pd.date_range("2020-02-01", periods=60, freq="3MS"),
        pd.date_range("2020-01-15", periods=60, freq=pd.DateOffset(months=1)),
        pd.date_range("2000-01-01", periods=30, freq="YS"),
        pd.date_range("2024-01-03", periods=60, freq="W-WED"),
        pd.date_range("2024-01-03", periods=60, freq="2W-WED"),
        pd.date_range("2024-01-01 06:00", periods=60, freq="D"),
        pd.date_range("2024-01-01", periods=100, freq="D", tz="Europe/Berlin"),
        pd.date_range("2024-03-01", periods=800, freq="h", tz="Europe/Berlin"),
    ],
    ids=lambda stamps: str(stamps.freqstr),
)
def test_the_step_is_inferred_despite_missing_stamps(stamps):
    left_out = [7, 8, 21]
    assert read_frame(wide_frame(stamps)).index.equals(stamps.rename("ds"))
    panel = read_frame(wide_frame(stamps.delete(left_out)), missing="mask")
    assert panel.index.equals(stamps.rename("ds"))
    assert np.flatnonzero(np.isnan(panel.values[:, 0])).tolist() == left_out
    with pytest.raises(ValueError, match=re.escape(f"expected {stamps[7]}")):
        read_frame(wide_frame(stamps.delete(left_out)))


def test_irregular_steps_are_not_taken_for_calendar_steps():
    stamps = pd.DatetimeIndex(["2024-01-01", "2024-01-05", "2024-01-12", "2024-01-20", "2024-01-23"])
    with pytest.raises(ValueError, match="freq cannot be inferred"):
        read_frame(wide_frame(stamps), missing="mask")


def test_fewer_than_seven_days_are_not_taken_for_business_days():
    """That they contain no weekend means nothing."""
    stamps = pd.date_range("2024-01-01", periods=5, freq="D").delete(3)
    panel = read_frame(wide_frame(stamps), missing="mask")
    assert panel.future(1)[0] == pd.Timestamp("2024-01-06")


@pytest.mark.parametrize("missing", ["error", "interpolate"])
def test_half_months_need_an_explicit_freq(missing):
    stamps = pd.date_range("2023-01-01", periods=48, freq="SMS")
    says = r"cannot be inferred.* 14 days .*first other one is from 2023-01-15 .* to 2023-02-01 .*'SMS' for 1st"
    with pytest.raises(ValueError, match=says):
        read_frame(wide_frame(stamps), missing=missing)
    assert read_frame(wide_frame(stamps), freq="SMS").future(1).tolist() == [pd.Timestamp("2025-01-01")]
    off = pd.date_range("2023-01-01", periods=9, freq="h").to_series()
    off.iloc[4] += pd.Timedelta("20min")
    with pytest.raises(ValueError, match="first other one is from 2023-01-01 03:00:00 to 2023-01-01 04:20:00"):
        read_frame(wide_frame(pd.DatetimeIndex(off)), missing=missing)


@pytest.mark.parametrize(
    ("zone", "last"),
    [("America/Santiago", "2026-09-04"), ("Africa/Cairo", "2026-04-22"), ("Atlantic/Azores", "2026-10-23")],
)
def test_daily_stamps_continue_across_a_clock_change_at_midnight(tiny, zone, last):
    index = pd.date_range(end=last, periods=60, freq="D", tz=zone)
    frame = pd.DataFrame({"a": np.random.default_rng(0).normal(size=60)}, index=index)
    model = tiny().fit(frame)
    ahead = model.predict()
    assert list(ahead.index.date) == [(pd.Timestamp(last) + pd.Timedelta(days=d)).date() for d in range(1, model.h + 1)]
    # and on from each of those days, the one that begins late among them
    for row in range(model.h):
        model.update(pd.DataFrame({"a": [0.0]}, index=ahead.index[row : row + 1]))
        assert model.predict().index[0].date() == (ahead.index[row].tz_localize(None) + pd.Timedelta(days=1)).date()
    longer = pd.concat((frame, pd.DataFrame({"a": 0.0}, index=ahead.index)))
    assert tiny().fit(longer).context_.freq == pd.offsets.Day()


@pytest.mark.parametrize("missing", ["error", "mask"])
@pytest.mark.parametrize(
    ("form", "freq", "what"),
    [("%Y%m%d%H", "h", "hours"), ("%Y%m%d%H%M", "15min", "minutes"), ("%Y%m%d%H%M%S", "min", "seconds")],
)
def test_integers_that_look_like_times_are_refused(form, freq, what, missing):
    stamps = pd.date_range("2024-01-30", periods=200, freq=freq).strftime(form).astype("int64")
    with pytest.raises(ValueError, match=f"look like {what}: 2024.*format='{form}'"):
        read_frame(wide_frame(stamps), missing=missing)


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_wrong_year_in_any_series_is_warned_of(name):
    days = pd.date_range("2024-01-01", periods=200)
    long = pd.DataFrame({"unique_id": np.repeat(["a", "b", "c"], 200), "ds": np.tile(days, 3), "y": 0.0})
    long = long.drop(index=[200, 400])  # the longest is a
    wrong = long.index[long["unique_id"] == name][-1]
    later = long.assign(ds=long["ds"].where(long.index != wrong, long["ds"] + pd.DateOffset(years=1)))
    says = "series 'a' has 200 rows"
    if name != "a":
        says = (
            rf"between 2024-07-18 .* and 2025-07-18 .*: 364 rows .* Only 1 series have .* 2025-07-18 .*: \['{name}'\]"
        )
    with pytest.warns(UserWarning, match=says) as seen:
        read_frame(later, missing="mask")
    assert len(seen) == 1
    earlier = later.assign(ds=later["ds"] + pd.Timedelta("730D") * (later.index != wrong).astype(int))
    earlier = earlier.sort_values(["unique_id", "ds"])
    with pytest.warns(
        UserWarning, match="rows are missing" if name == "a" else rf"Only 1 series have rows until 2025.*: \['{name}'\]"
    ):
        read_frame(earlier, missing="interpolate")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_frame(long, missing="mask")
        read_frame(long.iloc[[0, 201]].assign(ds=days[[0, 4]]), "D", missing="mask")


def test_a_mostly_missing_time_axis_is_warned_of():
    quarters = [10 * year + quarter for year in range(2000, 2015) for quarter in (1, 2, 3, 4)]
    with pytest.warns(
        UserWarning, match=r"df has 60 rows .* with a step of 1, 84 rows are missing.* convert its numbers to time"
    ):
        read_frame(wide_frame(quarters), missing="mask")
    as_months = [100 * year + quarter for year in range(2000, 2015) for quarter in (1, 2, 3, 4)]  # and are none
    with pytest.warns(UserWarning, match="rows are missing"):
        read_frame(wide_frame(as_months), missing="mask")
    days = pd.date_range("2024-01-01", periods=60)
    with pytest.warns(UserWarning, match="with a step of 'D', .* If this is wrong, pass its freq"):
        read_frame(wide_frame(days[::7]), "D", missing="mask")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_frame(wide_frame(days[days.day_of_week < 5]), "D", missing="mask")


SECONDS = pd.date_range("2024-01-01", periods=60, freq="s", name="ds")
NUMBERS = pd.Index(np.arange(1_704_067_200, 1_704_067_260), name="ds")


@pytest.mark.parametrize("stamps", [SECONDS, NUMBERS], ids=["stamps", "numbers"])
@pytest.mark.parametrize("layout", ["wide", "long", "in another series"])
@pytest.mark.parametrize("missing", ["mask", "interpolate"])
def test_a_time_stamp_of_1970_among_seconds_is_named(stamps, layout, missing):
    """Its time axis would not fit into memory."""
    first = pd.Timestamp(0) if stamps is SECONDS else 0
    wrong = pd.Index([first, *stamps[1:]], name="ds")
    frame = wide_frame(wrong) if layout == "wide" else long_frame(wrong)
    if layout == "in another series":
        longer = pd.DataFrame({"unique_id": "longer", "ds": stamps, "y": 0.0})
        frame = pd.concat((frame[frame["ds"] < stamps[-1]], longer))
    then = stamps[0] if layout == "in another series" else stamps[1]
    says = rf"would have \d{{10}} rows .* missing: none is known between {first} and {then}\. If"
    with pytest.raises(ValueError, match=says):
        read_frame(frame, missing=missing)
    with pytest.raises(ValueError, match="irregular time stamps"):  # as without gaps
        read_frame(wide_frame(wrong))
