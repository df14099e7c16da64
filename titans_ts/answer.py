"""One forecast of the steps behind a past, as a frame and as a picture."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from titans_ts.intervals import column_names
from titans_ts.panel import Panel


@dataclass(frozen=True, eq=False)
class Answer:
    """What a forecaster says of the steps that follow a panel.

    Attributes:
        past: the panel.
        levels: of the intervals, in percent.
        values: the forecast, lower bounds from wide to narrow, upper ones back, ``[h, N, 1 + 2 * len(levels)]``.
    """

    past: Panel
    levels: list[float]
    values: np.ndarray

    def frame(self) -> Any:
        """In the layout of the past."""
        return self.past.output(self.past.future(len(self.values)), self.values, column_names(self.levels))

    def picture(self, actual: Panel | None = None, series: list[Any] | None = None, history: int | None = None) -> Any:
        """A matplotlib Figure (:func:`~titans_ts.plots.plot_forecast`), by default with ``2 * h`` rows of the past."""
        from titans_ts.plots import plot_forecast

        h = len(self.values)
        return plot_forecast(self.past, self.past.future(h), self.values, self.levels, actual, series, history or 2 * h)
