"""Reading and writing frames: bad ones are refused with place and advice, good ones keep their layout."""

from datetime import timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest

from titans_ts.frames.exogenous import read_static
from titans_ts.frames.frame import read_frame
from titans_ts.plots import plot_surprise


@pytest.fixture
def long(wide, to_long):
    return to_long(wide)


def spoil(frame, row, column, value):
    frame = frame.copy()
    frame.loc[frame.index[row], column] = value
    return frame


@pytest.mark.parametrize("column", ["unique_id", "ds", "y"])
def test_a_missing_column_is_named(long, column):
    with pytest.raises(ValueError, match=rf"df lacks the columns \['{column}'\]"):
        read_frame(long.drop(columns=column))


@pytest.mark.parametrize(("value", "kind"), [(np.nan, "NaN"), (np.inf, "infinite"), (-np.inf, "infinite")])
def test_values_that_are_not_finite_are_located(wide, long, value, kind):
    with pytest.raises(ValueError, match=rf"1 values .* first: {kind} in series 'b' at 2024-01-01 07:00"):
        read_frame(spoil(wide, 7, "b", value))
    with pytest.raises(ValueError, match=rf"1 values .* first: {kind} in series 'b' at 2024-01-01 07:00"):
        read_frame(spoil(long, 127, "y", value))
    matrix = wide.to_numpy().copy()
    matrix[7, 1] = value
    with pytest.raises(ValueError, match=f"first: {kind} in series 1 at 7"):
        read_frame(matrix)


def test_numeric_series_names_are_shown_unchanged(wide, to_long):
    long = to_long(wide.set_axis([7, 8, 9], axis=1))
    for bad, says in (
        (spoil(long, 3, "y", np.nan), "NaN in series 7 at"),
        (long.drop(index=7), r"series 7 has irregular"),
        (long.iloc[:-3], "same time: 9 ends at .*, 7 at"),
        (long.iloc[::-1], r"series 9 is not sorted"),
    ):
        with pytest.raises(ValueError, match=says):
            read_frame(bad, freq="h")
    facts = pd.DataFrame({"unique_id": [7, 7, 8], "size": 1.0})
    with pytest.raises(ValueError, match="several rows for series 7;"):
        read_static(facts, [7, 8], ("size",))
    with pytest.raises(ValueError, match=r"the frame has \[7\]"):
        plot_surprise(pd.DataFrame({"unique_id": [7], "ds": [1], "surprise": [0.5]}), series=[8])


def test_unsorted_stamps_are_located(wide, long):
    with pytest.raises(ValueError, match=r"df is not sorted by time: 2024-01-01 03:00:00 comes after 2024-01-01 04:00"):
        read_frame(wide.iloc[[0, 1, 2, 4, 3, *range(5, 120)]])
    with pytest.raises(ValueError, match="series 'a' is not sorted by time"):
        read_frame(long.iloc[::-1].sort_values("unique_id", kind="stable"))


def test_duplicate_stamps_are_counted_and_located(wide, long):
    with pytest.raises(ValueError, match=r"df has 2 duplicate time stamps, first: 2024-01-01 05:00"):
        read_frame(wide.iloc[sorted([*range(120), 5, 9])])
    with pytest.raises(ValueError, match=r"series 'a' has 1 duplicate time stamps, first: 2024-01-01 05:00"):
        read_frame(long.iloc[sorted([*range(360), 5])])


def test_a_repeated_or_skipped_hour_asks_for_the_time_zone():
    berlin = pd.date_range("2024-03-30", "2024-10-31", freq="h", tz="Europe/Berlin")
    autumn, spring = (
        pd.DataFrame({"a": np.arange(60.0)}, index=berlin[berlin >= day][:60].tz_localize(None))
        for day in ("2024-10-26", "2024-03-30")
    )
    with pytest.raises(ValueError, match=r"1 duplicate time stamps.*tz_localize\('Europe/Berlin', ambiguous='infer'\)"):
        read_frame(autumn)
    with pytest.raises(ValueError, match=r"irregular .* got 2024-03-31 03:00.*tz_localize"):
        read_frame(spring)
    read_frame(autumn.set_axis(autumn.index.tz_localize("Europe/Berlin", ambiguous="infer")))
    with pytest.raises(ValueError, match=r"Aggregate or drop them\.$"):
        read_frame(autumn.set_axis(autumn.index + pd.Timedelta(hours=9)))


def test_text_with_utc_offsets_is_refused_with_the_conversion(long):
    with pytest.raises(ValueError, match=r"pd\.to_datetime \(utc=True, then \.dt\.tz_convert"):
        read_frame(long.assign(ds=long["ds"].dt.tz_localize("Europe/Berlin").astype(str)))
    with pytest.raises(ValueError, match=r"pd\.to_datetime\.$"):
        read_frame(long.assign(ds=long["ds"].astype(str)))


def test_a_gap_is_located(wide, long):
    gap = r"irregular time stamps for freq 'h': expected 2024-01-01 10:00:00 after 2024-01-01 09:00:00, got .* 11:00"
    with pytest.raises(ValueError, match="df has " + gap):
        read_frame(wide.drop(wide.index[10]))
    with pytest.raises(ValueError, match="series 'b' has " + gap):
        read_frame(long.drop(long.index[130]))


def test_series_must_end_together(long):
    with pytest.raises(ValueError, match=r"must end at the same time: 'c' ends at 2024-01-05 21:00:00, 'a' at .*23:00"):
        read_frame(long.iloc[:-2])


def test_an_unknown_wrong_or_undetectable_freq_is_named(wide):
    with pytest.raises(ValueError, match="unknown freq 'fortnightly'"):
        read_frame(wide, freq="fortnightly")
    with pytest.raises(ValueError, match=r"irregular time stamps for freq 'D': expected 2024-01-02"):
        read_frame(wide, freq="D")
    with pytest.raises(ValueError, match=r"cannot be inferred from 2 time stamps.*Pass freq"):
        read_frame(wide.iloc[:2])
    scattered = wide.iloc[[0, 1, 3, 7, 12, 20, 33]]
    with pytest.raises(ValueError, match=r"freq cannot be inferred.*different steps"):
        read_frame(scattered)
    with pytest.raises(ValueError, match="positive integer for integer time stamps"):
        read_frame(wide.reset_index(drop=True), freq="h")
    for hour in ("h", timedelta(hours=1), pd.Timedelta(hours=1), np.timedelta64(1, "h")):
        assert read_frame(wide.iloc[:2], freq=hour).freq == pd.offsets.Hour()


@pytest.mark.skipif(int(pd.__version__.split(".")[0]) < 3, reason="pandas 2 takes these names, and warns")
@pytest.mark.parametrize(("short", "meant"), [("M", "ME"), ("H", "h"), ("15T", "min")])
def test_former_names_of_steps_are_answered_with_their_present_ones(wide, short, meant):
    with pytest.raises(ValueError, match=f"unknown freq {short!r}.* Did you mean {meant!r}"):
        read_frame(wide, freq=short)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda w: pl.DataFrame({"y": [1.0]}), ValueError, r"neither long nor wide.*Got columns \['y'\]"),
        (lambda w: pl.Series([1.0]), TypeError, "must be a pandas or polars DataFrame or a numpy matrix, got Series"),
        (lambda w: [1, 2, 3], TypeError, "must be a pandas or polars DataFrame or a numpy matrix, got list"),
        (lambda w: type("Series", (), {"to_dataframe": None})(), TypeError, r"Series.* with \.to_dataframe\(\)\."),
        (lambda w: w.iloc[:0], ValueError, "df has no rows"),
        (lambda w: w.set_axis(list("abcd" * 30), axis=0), ValueError, "neither long nor wide"),
        (lambda w: w.set_axis(["a", "a", "b"], axis=1), ValueError, r"duplicate columns: \['a'\]"),
        (lambda w: w.assign(d="x"), ValueError, "column 'd' of a wide frame must be numeric"),
        (lambda w: w.reset_index(names="date"), ValueError, r"'date' of a wide frame holds times.*df\.set_index"),
        (lambda w: w.assign(date="2024-05-01 10:00"), ValueError, "'date' of a wide frame holds times"),
        (lambda w: w.assign(date="1.5.2024"), ValueError, "'date' of a wide frame holds times"),
        (lambda w: w.assign(d="1,5"), ValueError, "column 'd' of a wide frame must be numeric"),
        (lambda w: w.assign(d=w["a"].astype(object)), ValueError, "column 'd' of a wide frame must be numeric"),
        (lambda w: np.zeros(5), ValueError, r"must be \[T, N\]"),
    ],
)
def test_inputs_that_are_not_frames_are_refused(wide, make, error, says):
    with pytest.raises(error, match=says):
        read_frame(make(wide))


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("y", "high", "column 'y' must be numeric"),
        ("ds", "yesterday", "column 'ds' must hold time stamps or integers"),
        ("unique_id", None, "column 'unique_id' has 360 missing values"),
    ],
)
def test_columns_of_the_wrong_kind_are_named(long, column, value, says):
    with pytest.raises(ValueError, match=says):
        read_frame(long.assign(**{column: value}))


def test_the_three_layouts_hold_the_same_values_and_nothing_is_changed(wide, long):
    before_wide, before_long = wide.copy(), long.copy()
    panels = [read_frame(x) for x in (wide, long, wide.to_numpy())]
    for panel in panels:
        np.testing.assert_array_equal(panel.values, wide.to_numpy())
    assert [p.ids for p in panels] == [["a", "b", "c"], ["a", "b", "c"], [0, 1, 2]]
    pd.testing.assert_frame_equal(wide, before_wide)
    pd.testing.assert_frame_equal(long, before_long)


def test_future_stamps_continue_after_the_past(wide):
    assert list(read_frame(wide).future(2)) == [pd.Timestamp("2024-01-06 00:00"), pd.Timestamp("2024-01-06 01:00")]
    monthly = wide.iloc[:24].set_axis(pd.date_range("2020-01-01", periods=24, freq="MS"), axis=0)
    assert list(read_frame(monthly).future(2)) == [pd.Timestamp("2022-01-01"), pd.Timestamp("2022-02-01")]
    even = wide.set_axis(pd.RangeIndex(0, 240, 2), axis=0)
    assert list(read_frame(even).future(2)) == [240, 242]


def test_forecasts_come_back_in_the_layout_of_the_frame(wide, long):
    values = np.arange(6.0).reshape(2, 3)
    for frame in (wide, long, wide.to_numpy()):
        panel = read_frame(frame)
        out = panel.output(panel.future(2), values[..., None], ["Titans"])
        if panel.layout == "long":
            assert list(out.columns) == ["unique_id", "ds", "Titans"]
            assert out["unique_id"].tolist() == ["a", "a", "b", "b", "c", "c"]
            assert out["Titans"].tolist() == [0, 3, 1, 4, 2, 5]
            assert out["ds"].iloc[1] == pd.Timestamp("2024-01-06 01:00")
        elif panel.layout == "wide":
            pd.testing.assert_frame_equal(out, pd.DataFrame(values, panel.future(2), pd.Index(["a", "b", "c"])))
        else:
            np.testing.assert_array_equal(out, values)


def test_a_series_may_begin_later_and_ids_may_be_numbers(long):
    late = long[(long["unique_id"] != "b") | (long["ds"] >= "2024-01-02")].replace(
        {"unique_id": {"a": 3, "b": 7, "c": 1}}
    )
    panel = read_frame(late)
    assert panel.ids == [3, 7, 1]
    assert np.isnan(panel.values[:24, 1]).all()
    assert np.isfinite(panel.values[24:]).all()
    assert np.isfinite(panel.values[:, [0, 2]]).all()


def test_ignored_columns_are_named(wide, to_long):
    long = to_long(wide)
    with pytest.warns(UserWarning, match=r"columns \['temperature'\] of the long frame are ignored") as warned:
        panel = read_frame(long.assign(temperature=20.0))
    assert warned[0].filename == __file__
    assert np.array_equal(panel.values, read_frame(long).values)


def test_a_column_that_repeats_the_time_stamps_is_reported(wide):
    with pytest.warns(UserWarning, match=r"columns \['year', 'h'\] of the wide frame only repeat") as warned:
        read_frame(wide.assign(year=wide.index.year, c=np.arange(len(wide)), h=wide.index.hour, none=0))
    assert len(warned) == 1


def test_multi_level_columns_are_refused_with_advice(wide):
    wide.columns = pd.MultiIndex.from_product([["x"], wide.columns])
    with pytest.raises(ValueError, match="columns of 2 levels, but each series needs one name"):
        read_frame(wide)


def test_two_columns_with_one_name_are_refused(long):
    frame = pd.concat([long, long[["y"]]], axis=1)
    with pytest.raises(ValueError, match=r"more than one column named \['y'\]"):
        read_frame(frame)


def test_a_series_named_like_an_interval_bound_is_refused(wide):
    panel = read_frame(wide.set_axis(["a", "b", "a-lo-80"], axis=1))
    with pytest.raises(ValueError, match=r"interval columns \['a-lo-80'\] have the names of other series"):
        panel.output(panel.index[:1], np.zeros((1, 3, 2)), ["Titans", "Titans-lo-80"])
    panel.output(panel.index[:1], np.zeros((1, 3, 2)), ["Titans", "Titans-hi-80"])


def test_a_wide_frame_may_have_its_time_in_a_column(wide):
    panel = read_frame(wide.rename_axis("ds").reset_index())
    np.testing.assert_array_equal(panel.values, wide.to_numpy())
    assert (panel.layout, panel.library, panel.index.equals(wide.index)) == ("wide", "pandas", True)


def test_the_hour_that_an_autumn_night_repeats_is_named_in_a_wide_frame_too():
    stamps = pd.date_range("2024-10-20", periods=400, freq="h", tz="Europe/Berlin").tz_localize(None)
    wide = pd.DataFrame({"ds": stamps, "a": 0.0, "b": 1.0})
    with pytest.raises(ValueError, match=r"^df has 1 duplicate time stamps, first: 2024-10-27 02:00.*daylight saving"):
        read_frame(wide)


def test_a_long_frame_with_other_column_names_is_refused_with_the_renaming(long):
    with pytest.raises(ValueError, match=r"lacks the columns \['unique_id'\]"):
        read_frame(long.drop(columns="unique_id"))
    with pytest.raises(ValueError, match=r"in the index: df\.reset_index"):
        read_frame(long.set_index("unique_id"))
    named = long.rename(columns={"unique_id": "shop"}).set_index("ds")
    with pytest.raises(ValueError, match=r"rename its columns: df\.rename"):
        read_frame(named)


def test_periods_and_text_as_time_are_refused_with_the_conversion(wide, long):
    with pytest.raises(ValueError, match=r"Convert periods with df\.to_timestamp"):
        read_frame(wide.to_period("h"))
    with pytest.raises(ValueError, match=r"df\.set_index\(pd\.to_datetime"):
        read_frame(wide.set_axis(wide.index.astype(str)))
    with pytest.raises(ValueError, match=r"dt\.to_timestamp"):
        read_frame(long.assign(ds=long["ds"].dt.to_period("h")))


@pytest.mark.parametrize("missing", ["interpolate", "mask"])
def test_with_a_policy_a_series_may_end_early(long, missing):
    last = long["ds"].max()
    cut = long[(long["unique_id"] != long["unique_id"].iloc[0]) | (long["ds"] < last)]
    panel = read_frame(cut, missing=missing)
    whole = read_frame(long)
    at = panel.ids.index(long["unique_id"].iloc[0])
    expected = whole.values.copy()
    expected[-1, at] = expected[-2, at] if missing == "interpolate" else np.nan
    np.testing.assert_array_equal(panel.values, expected)


def test_the_time_column_of_wide_frames_is_checked_too(wide):
    timed = wide.rename_axis("ds").reset_index()
    for made, says in (
        (timed.assign(ds=timed["ds"].astype(str)), "must hold time stamps or integers"),
        (timed.assign(ds=timed["ds"].dt.to_period("h")), r"dt\.to_timestamp"),
    ):
        with pytest.raises(ValueError, match=says):
            read_frame(made)
    twice = pl.from_pandas(pd.concat([timed, timed.iloc[-1:]]))
    with pytest.raises(ValueError, match="1 duplicate time stamps"):
        read_frame(twice)
    one = timed[["ds", "a"]].rename(columns={"a": "y"})
    assert read_frame(one).ids == ["y"]
    for made in (one.assign(temperature=1.0), one.assign(unique_id="a").set_index("unique_id")):
        with pytest.raises(ValueError, match="lacks the columns"):
            read_frame(made)
