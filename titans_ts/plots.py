"""Pictures of forecasts, by matplotlib. Figures are made without pyplot, so nothing global is touched."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from titans_ts.frame import Panel

MOST_SERIES = 6


def plot_forecast(
    past: Panel, future: pd.Index, values: np.ndarray, actual: Panel | None, series: list[Any] | None, history: int
) -> Figure:
    """One panel a series: the last ``history`` rows of the past, then the forecast ``[h, N]``, and the truth if given.

    Raises:
        ValueError: a series that is not in the frame.
    """
    chosen = past.ids[:MOST_SERIES] if series is None else series
    unknown = [s for s in chosen if s not in past.ids]
    if unknown:
        raise ValueError(f"no series {unknown} in the frame, which has {past.ids[:8]}.")
    figure = Figure(figsize=(10, 1.2 + 2.0 * len(chosen)), layout="constrained")
    panels = figure.subplots(len(chosen), 1, sharex=True, squeeze=False)[:, 0]
    recent = past.rows(-history)
    for axes, name in zip(panels, chosen, strict=True):
        column = past.ids.index(name)
        axes.plot(recent.index, recent.values[:, column], color="0.35", linewidth=1.2, label="past")
        if actual is not None and name in actual.ids:
            axes.plot(
                actual.index, actual.values[:, actual.ids.index(name)], color="0.65", linewidth=1.2, label="actual"
            )
        # joined to the last known value, so that the line does not begin in mid-air
        axes.plot(
            recent.index[-1:].append(future),
            np.append(recent.values[-1, column], values[:, column]),
            color="#c4432b",
            linewidth=1.6,
            label="Titans",
        )
        axes.axvline(recent.index[-1], color="0.8", linewidth=0.8, zorder=0)
        axes.set_title(str(name), loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.01)
    # above the first panel, where no line can run through it
    panels[0].legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, ncols=3, fontsize=9)
    figure.autofmt_xdate(rotation=0, ha="center")
    return figure
