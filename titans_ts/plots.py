"""Matplotlib plots of forecasts, backtests, residuals and surprise. They do not use pyplot or change its state."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from titans_core.checks import at_least, below_one
from titans_core.train.picture import Picture
from titans_ts.frames.frame import Freq, read_frame
from titans_ts.frames.kinds import of_values
from titans_ts.frames.libraries import need_columns
from titans_ts.frames.panel import Panel
from titans_ts.intervals import level_text

MOST_SERIES = 6
WARM_UP = 512  # rows: 16 writes of a memory with the largest stride
FORECAST, PAST, TRUTH, ALARM = "#c4432b", "0.35", "0.65", "#7a1f8a"


def plot_forecast(
    past: Panel,
    future: pd.Index,
    values: np.ndarray,
    levels: list[float],
    actual: Panel | None,
    series: list[Any] | None,
    history: int,
) -> Figure:
    """Plot the last ``history`` rows of the past, the forecast and its intervals, with one panel per series.

    ``actual`` values, if given, are plotted within the same time range. ``values`` is ``[h, N, 1 + 2 * len(levels)]``:
    the forecast, lower bounds from the widest level to the narrowest, upper bounds from the narrowest to the widest.

    Raises:
        ValueError: a series that is not in the frame, or ``actual`` without these series or times.
    """
    chosen = _chosen(past.ids, series)
    recent = past.rows(-history)
    if actual is not None:
        if not set(chosen) & set(actual.ids):
            raise ValueError(f"actual has none of the plotted series {chosen}: it has {actual.ids[:8]}.")
        if not actual.index.isin(future).any():
            raise ValueError(
                f"actual has no time stamp of the forecast, {future[0]} to {future[-1]}: it covers {actual.index[0]} "
                f"to {actual.index[-1]}."
            )
        shown = (actual.index >= recent.index[0]) & (actual.index <= future[-1])
    figure, panels = _panels(len(chosen))
    for axes, name in zip(panels, chosen, strict=True):
        column = past.ids.index(name)
        _draw_line(axes, recent.index, recent.values[:, column], color=PAST, linewidth=1.2, label="past")
        if actual is not None and name in actual.ids:
            truth = actual.values[shown, actual.ids.index(name)]
            _draw_line(axes, actual.index[shown], truth, color=TRUTH, linewidth=1.2, label="actual")
        for i, level in enumerate(reversed(levels)):
            low, high = values[:, column, 1 + i], values[:, column, 2 * len(levels) - i]
            _draw_band(axes, future, low, high, f"{level_text(level)} %", single=len(future) == 1)
        # starts at the last known value, so that there is no gap in the line
        _draw_line(
            axes,
            recent.index[-1:].append(future),
            np.append(recent.values[-1, column], values[:, column, 0]),
            color=FORECAST,
            linewidth=1.6,
            label="Titans",
        )
        axes.axvline(recent.index[-1], color="0.8", linewidth=0.8, zorder=0)
        _style(axes, str(name))
    return _finished(figure, panels)


def plot_backtest(frame: Any, series: list[Any] | None = None, model: str = "Titans") -> Figure:
    """Plot a backtest (:meth:`~titans_ts.TitansForecaster.cross_validation`): forecasts and actual values.

    One panel per series. Forecasts of a single step are points, their intervals bars.

    Args:
        frame: ``unique_id, ds, cutoff, y, Titans`` and optional interval bounds, of which the widest are plotted.
            Actual values outside of these are marked.
        series: series to plot; default: the first six.
        model: column of the forecasts.
    """
    frame = need_columns(frame, ("unique_id", "ds", "cutoff", "y", model), "frame")
    chosen = _chosen(frame["unique_id"].unique().tolist(), series)
    low = next((c for c in frame.columns if str(c).startswith(f"{model}-lo-")), None)
    high, level = (None, None) if low is None else (low.replace("-lo-", "-hi-"), f"{low.rpartition('-')[2]} %")
    figure, panels = _panels(len(chosen))
    for axes, name in zip(panels, chosen, strict=True):
        own = frame[frame["unique_id"] == name]
        truth = own.drop_duplicates("ds").sort_values("ds")
        _draw_line(axes, truth["ds"], truth["y"], color=PAST, linewidth=1.2, label="actual")
        single = not own["cutoff"].duplicated().any()
        drawn = _with_breaks(own, [name for name in (model, low, high) if name is not None])
        if low is not None:
            _draw_band(axes, drawn["ds"], drawn[low], drawn[high], level, single)
        _draw_line(axes, drawn["ds"], drawn[model], color=FORECAST, linewidth=1.4, label=model)
        if not single:  # otherwise one before each point
            cutoffs = own["cutoff"].unique()
            axes.vlines(cutoffs, 0, 1, color="0.85", linewidth=0.8, zorder=0, transform=axes.get_xaxis_transform())
        if low is not None:
            outside = own[(own["y"] < own[low]) | (own["y"] > own[high])]
            label = f"outside of {level}" if len(outside) else None
            axes.scatter(outside["ds"], outside["y"], color=ALARM, s=5, linewidth=0, label=label, zorder=3)
        _style(axes, str(name))
    return _finished(figure, panels)


def plot_residuals(frame: Any, model: str = "Titans") -> Figure:
    """Plot the errors of a backtest: mean absolute error by step, mean residual over time, histogram of residuals.

    Residuals of each series are divided by its standard deviation in the frame.

    Args:
        frame, model: as in :func:`plot_backtest`.
    """
    frame = need_columns(frame, ("unique_id", "ds", "cutoff", "y", model), "frame")
    scale = frame.groupby("unique_id")["y"].transform("std").replace(0.0, 1.0).fillna(1.0)
    residual = (frame["y"] - frame[model]) / scale
    step = frame.groupby(["unique_id", "cutoff"])["ds"].rank(method="first")
    figure = Picture(figsize=(10, 3.2), layout="constrained")
    by_step, by_time, spread = figure.subplots(1, 3)
    error = residual.abs().groupby(step).mean()
    _draw_line(by_step, error.index, error, color=FORECAST)
    by_step.set_ylim(bottom=0)
    _style(by_step, "mean absolute error by step")
    mean = residual.groupby(frame["ds"]).mean()
    _draw_line(by_time, mean.index, mean, color=PAST, linewidth=1)
    by_time.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    _style(by_time, "mean residual over time")
    known = residual.dropna().round(9)  # there are no bins between residuals that differ by rounding alone
    spread.hist(known, bins=60, color=TRUTH)
    spread.axvline(0, color=FORECAST, linewidth=0.8)
    _style(spread, "residuals (standard deviations)")
    return figure


def plot_surprise(
    surprise: Any,
    df: Any = None,
    series: list[Any] | None = None,
    quantile: float = 0.99,
    warm_up: int = WARM_UP,
    freq: Freq | None = None,
) -> Figure:
    """Plot the surprise of the online memory over time and mark its highest values as possible anomalies.

    Times at which it is NaN, such as after a gap, are shaded.

    Args:
        surprise: result of :meth:`~titans_ts.TitansForecaster.surprise`.
        df: the data of the surprise, in any layout; each series is then plotted above its surprise, with the same
            times marked.
        series: series to plot; default: the first six.
        quantile: values above this quantile of the surprise of a series are marked.
        warm_up: the first values of each series, at most a quarter of them. The memory is still nearly empty there, so
            they are plotted but neither marked nor counted in the quantile. The default suits ``step_size=1``;
            ``16 * memory_.stride // step_size`` values (16 writes) are enough.
        freq: step of the time axis of ``df``, as in the forecaster; None infers it.
    """
    below_one("quantile", quantile)
    at_least("warm_up", warm_up, 0)
    surprise = need_columns(surprise, ("unique_id", "ds", "surprise"), "surprise")
    chosen = _chosen(surprise["unique_id"].unique().tolist(), series)
    truth = None
    if df is not None:
        truth = read_frame(of_values(df), freq, missing="mask", fill=False, known=pd.Index(surprise["ds"]))
        _chosen(truth.ids, chosen)
    figure, panels = _panels(len(chosen), *([] if truth is None else [1.2]))
    panels = panels.reshape(len(chosen), -1)
    for axes, name in zip(panels, chosen, strict=True):
        own = surprise[surprise["unique_id"] == name]
        counted = own.iloc[min(warm_up, len(own) // 4) :]
        marked = counted[counted["surprise"] > counted["surprise"].quantile(quantile)]
        lines = [own[["ds", "surprise"]]]
        if truth is not None:
            lines.insert(0, pd.DataFrame({"ds": truth.index, "y": truth.values[:, truth.ids.index(name)]}))
        for panel, line in zip(axes, lines, strict=True):
            what = line.columns[1]
            color, label = (PAST, "actual") if what == "y" else (ALARM, what)
            _draw_line(panel, line["ds"], line[what], color=color, linewidth=0.9, label=label)
            there = marked[["ds"]].merge(line, on="ds")
            label = f"highest {100 * (1 - quantile):g} %"
            panel.scatter(there["ds"], there[what], color=ALARM, s=14, label=label, zorder=3)
            for i, gap in enumerate(_gaps(own)):
                label = None if i else "unknown values"
                panel.axvspan(*gap, color=TRUTH, alpha=0.25, linewidth=0, label=label)
            _style(panel, str(name) if panel is axes[0] else "")
        axes[-1].set_ylim(bottom=0)
        if truth is not None:
            axes[-1].set_ylabel("surprise")
    return _finished(figure, panels[:, 0])


def _with_breaks(backtest: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """A backtest of one series by cutoff, with NaN in these columns after each: one line with breaks is drawn much
    faster than a line for each cutoff."""
    ends = backtest.drop_duplicates("cutoff", keep="last").assign(**dict.fromkeys(columns, np.nan))
    return pd.concat((backtest, ends)).sort_values("cutoff", kind="stable")


def _draw_line(axes: Axes, x: Any, y: Any, **style: Any) -> None:
    """Draw a line; a value without a known neighbour, at which a line has no length, is drawn as a point."""
    known = np.pad(np.isfinite(np.asarray(y, dtype=float)), 1)
    alone = known[1:-1] & ~known[:-2] & ~known[2:]
    axes.plot(x, y, marker="." if alone.any() else None, markersize=4, markevery=alone, **style)


def _draw_band(axes: Axes, x: Any, low: Any, high: Any, label: str | None, single: bool) -> None:
    """Draw the intervals of forecasts; those of a ``single`` step have no area, and are drawn as bars."""
    axes.fill_between(x, low, high, color=FORECAST, alpha=0.15, linewidth=3 if single else 0, label=label)


def _gaps(surprise: pd.DataFrame) -> list[tuple[Any, Any]]:
    """The known times around each run of NaN, or the first or last time."""
    nan, ds = surprise["surprise"].isna().to_numpy(), surprise["ds"].to_list()
    # first index of each run, and the index after its last
    edges = np.flatnonzero(np.diff(nan, prepend=False, append=False))
    return [(ds[max(begin - 1, 0)], ds[min(end, len(ds) - 1)]) for begin, end in edges.reshape(-1, 2)]


def _chosen(ids: list[Any], series: list[Any] | None) -> list[Any]:
    if not ids:
        raise ValueError("the frame is empty: there is nothing to plot.")
    chosen = ids[:MOST_SERIES] if series is None else [series] if pd.api.types.is_scalar(series) else list(series)
    if not chosen:
        raise ValueError(f"series is empty: choose from {ids[:8]}, or omit it.")
    unknown = [s for s in chosen if s not in ids]
    if unknown:
        raise ValueError(f"unknown series {unknown}: the frame has {ids[:8]}.")
    return chosen


def _panels(count: int, *below: float) -> tuple[Figure, Any]:
    """Panels for ``count`` series in one column, each followed by panels with the heights ``below``."""
    heights = [2.0, *below] * count
    figure = Picture(figsize=(10, 1.2 + sum(heights)), layout="constrained")
    ratios = {"height_ratios": heights}
    return figure, figure.subplots(len(heights), 1, sharex=True, squeeze=False, gridspec_kw=ratios)[:, 0]


def _style(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, parse_math=False)  # a name may have dollar signs
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.01)
    locator = axes.xaxis.get_major_locator()
    if isinstance(locator, AutoDateLocator):  # short labels that do not overlap
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=locator.tz))


def _finished(figure: Figure, panels: Any) -> Figure:
    # above the first panel, so that it covers no line
    panels[0].legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, ncols=6, fontsize=9)
    return figure
