"""Pictures by matplotlib: forecasts, backtests, residuals, surprise. Figures are made without pyplot, so nothing global
is touched."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from titans_core.checks import at_least, below_one
from titans_core.train.picture import Picture
from titans_ts.frame import read_frame
from titans_ts.libraries import to_pandas
from titans_ts.panel import Panel
from titans_ts.reading import of_values

MOST_SERIES = 6
WARM_UP = 512  # rows: 16 writes of a memory with the longest stride
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
    """One panel a series: the last ``history`` rows of the past, then the forecast, its intervals, and the truth if
    given, as far as it is of the time that is drawn.

    ``values`` is ``[h, N, 1 + 2 * len(levels)]``: the forecast, lower bounds from wide to narrow, upper ones back.

    Raises:
        ValueError: a series that is not in the frame, or a truth of other series or of another time.
    """
    chosen = _chosen(past.ids, series)
    recent = past.rows(-history)
    if actual is not None:
        if not set(chosen) & set(actual.ids):
            raise ValueError(f"actual has none of the series that are drawn, {chosen}: it has {actual.ids[:8]}.")
        if not actual.index.isin(future).any():
            raise ValueError(
                f"actual has none of the forecast's times, {future[0]} to {future[-1]}: it goes from {actual.index[0]} "
                f"to {actual.index[-1]}."
            )
        shown = (actual.index >= recent.index[0]) & (actual.index <= future[-1])
    figure, panels = _panels(len(chosen))
    for axes, name in zip(panels, chosen, strict=True):
        column = past.ids.index(name)
        axes.plot(recent.index, recent.values[:, column], color=PAST, linewidth=1.2, label="past")
        if actual is not None and name in actual.ids:
            truth = actual.values[shown, actual.ids.index(name)]
            axes.plot(actual.index[shown], truth, color=TRUTH, linewidth=1.2, label="actual")
        for i, level in enumerate(reversed(levels)):
            low, high = values[:, column, 1 + i], values[:, column, 2 * len(levels) - i]
            axes.fill_between(future, low, high, color=FORECAST, alpha=0.15, linewidth=0, label=f"{level:g} %")
        # joined to the last known value, so that the line does not begin in mid-air
        axes.plot(
            recent.index[-1:].append(future),
            np.append(recent.values[-1, column], values[:, column, 0]),
            color=FORECAST,
            linewidth=1.6,
            label="Titans",
        )
        axes.axvline(recent.index[-1], color="0.8", linewidth=0.8, zorder=0)
        _dress(axes, str(name))
    return _finished(figure, panels)


def plot_backtest(frame: Any, series: list[Any] | None = None, model: str = "Titans") -> Figure:
    """Forecasts of :meth:`~titans_ts.TitansForecaster.cross_validation` over what came; one panel a series.

    Args:
        frame: ``unique_id, ds, cutoff, y, Titans``, and bounds where they were asked for; the widest are drawn.
        series: which to draw; default: the first six.
        model: column of the forecasts, of frames that have several, or other ones.
    """
    frame = _need(frame, ("unique_id", "ds", "cutoff", "y", model))
    chosen = _chosen(frame["unique_id"].unique().tolist(), series)
    low = next((c for c in frame.columns if str(c).startswith(f"{model}-lo-")), None)
    figure, panels = _panels(len(chosen))
    for axes, name in zip(panels, chosen, strict=True):
        own = frame[frame["unique_id"] == name]
        truth = own.drop_duplicates("ds").sort_values("ds")
        axes.plot(truth["ds"], truth["y"], color=PAST, linewidth=1.2, label="actual")
        for i, (cutoff, part) in enumerate(own.groupby("cutoff")):
            if low is not None:
                high = low.replace("-lo-", "-hi-")
                label = f"{low.rpartition('-')[2]} %" if i == 0 else None
                axes.fill_between(
                    part["ds"], part[low], part[high], color=FORECAST, alpha=0.15, linewidth=0, label=label
                )
            label = model if i == 0 else None
            axes.plot(part["ds"], part[model], color=FORECAST, linewidth=1.4, label=label)
            axes.axvline(cutoff, color="0.85", linewidth=0.8, zorder=0)
        _dress(axes, str(name))
    return _finished(figure, panels)


def plot_residuals(frame: Any, model: str = "Titans") -> Figure:
    """Where a backtest erred: mean absolute error by step of the horizon, residuals over time, and how they spread.

    Each series counts in units of its own standard deviation in the frame.

    Args:
        frame, model: as for :func:`plot_backtest`.
    """
    frame = _need(frame, ("unique_id", "ds", "cutoff", "y", model))
    scale = frame.groupby("unique_id")["y"].transform("std").replace(0.0, 1.0).fillna(1.0)
    residual = (frame["y"] - frame[model]) / scale
    step = frame.groupby(["unique_id", "cutoff"])["ds"].rank(method="first")
    figure = Picture(figsize=(10, 3.2), layout="constrained")
    by_step, by_time, spread = figure.subplots(1, 3)
    error = residual.abs().groupby(step).mean()
    by_step.plot(error.index, error, color=FORECAST)
    by_step.set_ylim(bottom=0)
    _dress(by_step, "mean absolute error by step")
    mean = residual.groupby(frame["ds"]).mean()
    by_time.plot(mean.index, mean, color=PAST, linewidth=1)
    by_time.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    _dress(by_time, "mean residual over time")
    spread.hist(residual.dropna(), bins=60, color=TRUTH)
    spread.axvline(0, color=FORECAST, linewidth=0.8)
    _dress(spread, "residuals (standard deviations)")
    return figure


def plot_surprise(
    surprise: Any, df: Any = None, series: list[Any] | None = None, quantile: float = 0.99, warm_up: int = WARM_UP
) -> Figure:
    """The surprise of the online memory over time, its highest moments marked: a view of anomalies. Where it is NaN, as
    behind a hole, is shaded.

    Args:
        surprise: of :meth:`~titans_ts.TitansForecaster.surprise`.
        df: what it is of, in any layout; each series is then drawn above its surprise, with the same moments marked.
        series: which to draw; default: the first six.
        quantile: moments above this part of a series' surprise are marked.
        warm_up: the first values of each series, which surprise a memory that is still empty: they are drawn, and
            neither count nor are marked. At most a quarter of them. The default is for a value each row; 16 writes are
            enough, ``16 * memory_.stride // step_size`` values.
    """
    below_one("quantile", quantile)
    at_least("warm_up", warm_up, 0)
    surprise = _need(surprise, ("unique_id", "ds", "surprise"))
    chosen = _chosen(surprise["unique_id"].unique().tolist(), series)
    truth = None
    if df is not None:
        truth = read_frame(of_values(df), missing="mask", fill=False, known=pd.Index(surprise["ds"]))
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
            panel.plot(line["ds"], line[what], color=color, linewidth=0.9, label=label)
            there = marked[["ds"]].merge(line, on="ds")
            label = f"highest {100 * (1 - quantile):g} %"
            panel.scatter(there["ds"], there[what], color=ALARM, s=14, label=label, zorder=3)
            for i, gap in enumerate(_gaps(own)):
                label = None if i else "not all measured"
                panel.axvspan(*gap, color=TRUTH, alpha=0.25, linewidth=0, label=label)
            _dress(panel, str(name) if panel is axes[0] else "")
        axes[-1].set_ylim(bottom=0)
        if truth is not None:
            axes[-1].set_ylabel("surprise")
    return _finished(figure, panels[:, 0])


def _gaps(surprise: pd.DataFrame) -> list[tuple[Any, Any]]:
    """Between what known values of a series each run of NaN lies; the first or last row where there is none."""
    nan, ds = surprise["surprise"].isna().to_numpy(), surprise["ds"].to_list()
    # the first of each run, and what follows its last
    edges = np.flatnonzero(np.diff(nan, prepend=False, append=False))
    return [(ds[max(begin - 1, 0)], ds[min(end, len(ds) - 1)]) for begin, end in edges.reshape(-1, 2)]


def _chosen(ids: list[Any], series: list[Any] | None) -> list[Any]:
    if not ids:
        raise ValueError("the frame is empty: there is nothing to draw.")
    chosen = ids[:MOST_SERIES] if series is None else [series] if pd.api.types.is_scalar(series) else list(series)
    if not chosen:
        raise ValueError(f"series is empty: name some of {ids[:8]}, or leave it out.")
    unknown = [s for s in chosen if s not in ids]
    if unknown:
        raise ValueError(f"no series {unknown} in the frame, which has {ids[:8]}.")
    return chosen


def _need(frame: Any, names: tuple[str, ...]) -> pd.DataFrame:
    frame = to_pandas(frame)
    missing = [n for n in names if n not in frame.columns]
    if missing:
        raise ValueError(f"the frame lacks the columns {missing}. Got {list(frame.columns)[:8]}.")
    return frame


def _panels(count: int, *below: float) -> tuple[Figure, Any]:
    """One panel a series, one below the other; and ``below`` each of them others of such heights."""
    heights = [2.0, *below] * count
    figure = Picture(figsize=(10, 1.2 + sum(heights)), layout="constrained")
    ratios = {"height_ratios": heights}
    return figure, figure.subplots(len(heights), 1, sharex=True, squeeze=False, gridspec_kw=ratios)[:, 0]


def _dress(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.01)
    locator = axes.xaxis.get_major_locator()
    if isinstance(locator, AutoDateLocator):  # short labels, which leave each other room
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=locator.tz))


def _finished(figure: Figure, panels: Any) -> Figure:
    # above the first panel, where no line can run through it
    panels[0].legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, ncols=6, fontsize=9)
    return figure
