"""Plots show the right data."""

from io import BytesIO
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from titans_ts.frames.panel import Panel
from titans_ts.plots import plot_backtest, plot_forecast, plot_residuals, plot_surprise


def bands(axes):
    return {c.get_label(): c.get_paths()[0].vertices[:, 1] for c in axes.collections}


def test_bands_reach_from_the_lower_to_the_upper_bound_of_their_level(tiny, wide):
    model = tiny().fit(wide, val_size=60)
    found = bands(model.plot(series=["b"], level=[50, 95]).axes[0])
    expected = model.predict(level=[50, 95])
    for level in (50, 95):
        low, high = expected[f"b-lo-{level}"].min(), expected[f"b-hi-{level}"].max()
        assert (found[f"{level} %"].min(), found[f"{level} %"].max()) == pytest.approx((low, high))


@pytest.fixture
def frame():
    """Two series, one in units of a hundred; each forecast is off by its step, in these units."""
    rows = [
        (name, 3 * cutoff + step, 3 * cutoff, unit * y, unit * (y - step))
        for name, unit in (("a", 1.0), ("b", 100.0))
        for cutoff, values in enumerate([(1.0, 5.0, 2.0), (7.0, 3.0, 4.0)])
        for step, y in enumerate(values, start=1)
    ]
    return pd.DataFrame(rows, columns=["unique_id", "ds", "cutoff", "y", "Titans"])


@pytest.mark.parametrize("make", [lambda truth: truth, lambda truth: truth["b"], lambda truth: truth.to_numpy()])
def test_actual_values_are_plotted_from_a_frame_a_column_and_a_matrix(tiny, wide, make):
    drawn = tiny().fit(wide.iloc[:-4]).plot(actual=make(wide.iloc[-4:]), series="b").axes[0]
    line = next(line for line in drawn.lines if line.get_label() == "actual")
    np.testing.assert_array_equal(line.get_ydata(), wide["b"].iloc[-4:])
    np.testing.assert_array_equal(line.get_xdata(), wide.index[-4:])


def test_actual_values_are_plotted_in_the_visible_range_and_refused_elsewhere(tiny, wide):
    model = tiny().fit(wide.iloc[:-10])
    lines = model.plot(actual=wide, series="b", history=3).axes[0].lines
    line = next(line for line in lines if line.get_label() == "actual")
    np.testing.assert_array_equal(line.get_xdata(), wide.index[-13:-6])
    np.testing.assert_array_equal(line.get_ydata(), wide["b"].iloc[-13:-6])
    with pytest.raises(ValueError, match=r"no time stamp of the forecast, 2024.* it covers 2024.* to 2024"):
        model.plot(actual=wide.iloc[:-10])
    with pytest.raises(ValueError, match=r"none of the plotted series \['b'\]: it has \['c'\]"):
        model.plot(actual=wide[["c"]], series="b")


@pytest.mark.parametrize("missing", ["error", "interpolate"])
def test_unknown_actual_values_are_not_drawn(tiny_fitted, wide, missing):
    truth = wide.set_axis(tiny_fitted.predict().index.append(wide.index[4:] + pd.Timedelta("5D")))
    truth.iloc[1, 1] = np.nan
    drawn = tiny_fitted.set_params(missing=missing).plot(actual=truth.drop(truth.index[2]), series="b").axes[0]
    line = next(line for line in drawn.lines if line.get_label() == "actual")
    np.testing.assert_array_equal(line.get_ydata(), [truth["b"].iloc[0], np.nan, np.nan, truth["b"].iloc[3]])


def test_actual_values_of_a_single_series_need_no_name(tiny, wide):
    drawn = tiny().fit(wide[["b"]].iloc[:-4]).plot(actual=wide["b"].iloc[-4:].rename(None)).axes[0]
    assert "actual" in [line.get_label() for line in drawn.lines]


@pytest.mark.parametrize("quantile", [-0.1, 1, 2, "most"])
def test_the_quantile_of_marked_surprises_must_be_a_fraction(quantile):
    frame = pd.DataFrame({"unique_id": "a", "ds": range(4), "surprise": 1.0})
    with pytest.raises(ValueError, match=r"quantile must be in \[0, 1\)"):
        plot_surprise(frame, quantile=quantile)


@pytest.mark.parametrize("history", [0, -5, 2.5, "x"])
def test_the_number_of_plotted_past_rows_must_be_a_count(tiny, wide, history):
    with pytest.raises(ValueError, match=r"history must be an integer >= 1"):
        tiny().fit(wide, val_size=60).plot(history=history)


@pytest.mark.parametrize(("rows", "left_out"), [(3000, 512), (40, 10)])
def test_an_empty_memory_is_not_marked_for_its_surprise(rows, left_out):
    surprise = pd.DataFrame({"unique_id": "a", "ds": range(rows), "surprise": np.arange(float(rows))[::-1]})
    axes = plot_surprise(surprise, quantile=0.9).axes[0]
    assert axes.collections[0].get_offsets()[0, 0] == left_out
    assert len(axes.get_lines()[0].get_xdata()) == rows


def test_a_backtest_of_a_model_of_another_name_is_drawn(frame):
    other = frame.rename(columns={"Titans": "Mine"}).assign(**{"Mine-lo-80": -9.0, "Mine-hi-80": 9.0})
    axes = plot_backtest(other, ["a"], model="Mine").axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["actual", "80 %", "Mine"]
    same, drawn = (plot_residuals(f, **how).axes[0] for f, how in ((frame, {}), (other, {"model": "Mine"})))
    np.testing.assert_array_equal(drawn.get_lines()[0].get_ydata(), same.get_lines()[0].get_ydata())
    with pytest.raises(ValueError, match=r"lacks the columns \['Titans'\]"):
        plot_backtest(other)
    with pytest.raises(TypeError, match=r"^frame must be a pandas or polars DataFrame, got NoneType"):
        plot_backtest(None)


def test_a_backtest_is_drawn_with_its_widest_bounds(frame):
    for level in (95, 50):  # from wide to narrow, as cross_validation gives them
        frame[f"Titans-lo-{level}"] = frame["Titans"] - level
    for level in (50, 95):
        frame[f"Titans-hi-{level}"] = frame["Titans"] + level
    axes = plot_backtest(frame, ["a"]).axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["actual", "95 %", "Titans"]
    own = frame[frame["unique_id"] == "a"]
    found = bands(axes)["95 %"]
    first = own[own["cutoff"] == 0]
    assert (found.min(), found.max()) == (first["Titans-lo-95"].min(), first["Titans-hi-95"].max())
    actual, forecasts = (line.get_xydata() for line in axes.get_lines())
    assert actual.tolist() == own[["ds", "y"]].to_numpy().tolist()
    assert forecasts[:3].tolist() == first[["ds", "Titans"]].to_numpy().tolist()
    assert np.flatnonzero(np.isnan(forecasts[:, 1])).tolist() == [3, 7]  # each cutoff has a line of its own


def test_forecasts_of_a_single_step_can_be_seen(frame):
    def red_pixels(frame):
        axes, picture = plot_backtest(frame, ["a"]).axes[0], BytesIO()
        axes.get_legend().remove()
        axes.figure.savefig(picture, format="raw")
        red, _, blue, _ = np.frombuffer(picture.getvalue(), np.uint8).reshape(-1, 4).T
        return int((red > blue).sum())

    frame = frame[frame["ds"] == 3 * frame["cutoff"] + 1]
    points = red_pixels(frame)
    bounds = {"Titans-lo-95": frame["Titans"] - 1, "Titans-hi-95": frame["Titans"] + 1}
    assert not plot_backtest(frame).axes[0].collections  # cutoffs, one before each point, are not marked
    # neither a line of one point nor an area without width would be drawn
    assert 0 < points < red_pixels(frame.assign(**bounds))


def can_be_seen(line):
    """Whether a picture changes when a line of it is hidden."""
    pictures = []
    for visible in (True, False):
        line.set_visible(visible)
        pictures.append(BytesIO())
        line.figure.savefig(pictures[-1], format="raw")
    return pictures[0].getvalue() != pictures[1].getvalue()


def test_values_without_a_known_neighbour_can_be_seen():
    hours = pd.date_range("2024-01-01", periods=30, freq="h", name="ds")
    y = np.where(np.arange(30) % 3 == 0, np.arange(30.0), np.nan)  # a meter that is read every third hour
    past, actual = (Panel(y[part, None], ["a"], hours[part], hours.freq, "long") for part in (slice(27), slice(27, 28)))
    one_step = plot_forecast(past, actual.index, np.ones((1, 1, 1)), [], actual, None, 20)
    backtest = pd.DataFrame({"unique_id": "a", "ds": hours[1:], "cutoff": hours[:-1], "y": y[1:], "Titans": 1.0})
    surprise = pd.DataFrame({"unique_id": "a", "ds": hours, "surprise": y})
    others = plot_backtest(backtest), plot_residuals(backtest), plot_surprise(surprise, pd.DataFrame({"a": y}, hours))
    for figure in (one_step, *others):
        figure.set_layout_engine("none")
        for axes in figure.axes:
            if axes.get_legend() is not None:
                axes.get_legend().remove()
            assert [can_be_seen(line) for line in axes.get_lines()] == [True] * len(axes.get_lines())


def test_values_outside_of_the_widest_bounds_are_marked(frame):
    frame = frame.assign(
        **{"Titans-lo-95": frame["Titans"] - 1, "Titans-hi-95": frame["Titans"] + 1, "y": frame["Titans"]}
    )
    own = frame.index[frame["unique_id"] == "a"]
    frame.loc[own[1], "y"] += 1.5
    frame.loc[own[2], "y"] -= 1.5
    frame.loc[own[3], "y"] = np.nan
    axes = plot_backtest(frame, ["a"]).axes[0]
    assert axes.collections[-1].get_offsets().tolist() == frame.loc[own[1:3], ["ds", "y"]].to_numpy().tolist()
    assert "outside of 95 %" in [text.get_text() for text in axes.get_legend().get_texts()]


def test_the_highest_surprises_are_marked():
    surprise = pd.DataFrame({"unique_id": "a", "ds": range(100), "surprise": np.arange(100.0)[::-1]})
    axes = plot_surprise(surprise, quantile=0.9, warm_up=0).axes[0]
    assert axes.collections[0].get_offsets()[:, 1].tolist() == [float(x) for x in range(99, 89, -1)]
    assert "highest 10 %" in [text.get_text() for text in axes.get_legend().get_texts()]


def test_missing_rows_are_shaded_and_not_marked():
    values = np.arange(100.0)
    values[[0, 1, 40, 41, 42, 70, 99]] = np.nan
    surprise = pd.DataFrame({"unique_id": "a", "ds": range(100), "surprise": values})
    df = pd.DataFrame({"unique_id": "a", "ds": range(100), "y": 1.0})
    for axes in plot_surprise(surprise, df, quantile=0.9, warm_up=0).axes:
        shaded = [patch.get_extents().transformed(axes.transData.inverted()) for patch in axes.patches]
        assert [(round(x.x0), round(x.x1)) for x in shaded] == [(0, 2), (39, 43), (69, 71), (98, 99)]
        assert axes.collections[0].get_offsets()[:, 0].tolist() == list(range(89, 99))
    axes = plot_surprise(surprise.dropna()).axes[0]
    assert not axes.patches


def test_a_series_is_plotted_above_its_surprise_with_the_same_marks():
    days = pd.date_range("2024-01-01", periods=60, freq="D", name="ds")
    wide = pd.DataFrame({"a": np.arange(60.0), "b": -np.arange(60.0)}, index=days)
    surprise = pd.DataFrame({"unique_id": "b", "ds": days[9::10], "surprise": [1.0, 1, 9, 1, 1, 1]})
    long = wide.melt(ignore_index=False, var_name="unique_id", value_name="y").reset_index()
    for df in (wide, wide.reset_index(), long):
        above, below = plot_surprise(surprise, df, quantile=0.9).axes
        assert above.get_lines()[0].get_ydata().tolist() == wide["b"].tolist()
        assert [a.collections[0].get_offsets()[:, 1].tolist() for a in (above, below)] == [[-29.0], [9.0]]
    matrix = surprise.assign(unique_id=1, ds=range(9, 60, 10))
    above, _ = plot_surprise(matrix, wide.to_numpy()).axes
    assert above.get_lines()[0].get_ydata().tolist() == wide["b"].tolist()
    with pytest.raises(ValueError, match=r"unknown series \['b'\]: the frame has \['a'\]"):
        plot_surprise(surprise, wide[["a"]])


def test_the_step_of_a_series_above_its_surprise_can_be_given():
    mondays = pd.date_range("2024-01-01", periods=30, freq=pd.offsets.CustomBusinessDay(weekmask="Mon Tue Wed Thu"))
    wide = pd.DataFrame({"a": np.arange(30.0)}, index=mondays)
    surprise = pd.DataFrame({"unique_id": "a", "ds": mondays[9::10], "surprise": 1.0})
    above, _ = plot_surprise(surprise, wide, freq=mondays.freq).axes
    assert above.get_lines()[0].get_ydata().tolist() == wide["a"].tolist()


def test_date_labels_do_not_overlap():
    ds = pd.date_range("2017-09-26", "2017-10-24", freq="h")  # with ticks on the 29th and on the 1st
    figure = plot_backtest(pd.DataFrame({"unique_id": "a", "ds": ds, "cutoff": ds[0], "y": 1.0, "Titans": 2.0}))
    figure.savefig(BytesIO())
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert len(boxes) > 3
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_residuals_that_differ_by_rounding_alone_are_drawn(frame):
    frame["y"] = frame["Titans"] + 0.1 * frame.groupby("unique_id")["Titans"].transform("std")
    spread = plot_residuals(frame).axes[2]
    assert max(bar.get_height() for bar in spread.patches) == len(frame)


def test_a_name_with_dollar_signs_is_no_formula(frame):
    frame["unique_id"] = r"5 $ to \10_ $"
    plot_backtest(frame).savefig(BytesIO())
