"""A forecast as a frame or a plot, and the ``predict`` and ``plot`` methods that return it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from titans_core.checks import at_least
from titans_ts.frames.panel import Panel
from titans_ts.intervals import column_names


@dataclass(frozen=True, eq=False)
class Answer:
    """The forecast of the steps that follow a panel.

    Attributes:
        past: the panel.
        levels: levels of the intervals, in percent.
        values: ``[h, N, 1 + 2 * len(levels)]``: the forecast, the lower bounds from the widest level to the narrowest,
            the upper bounds from the narrowest to the widest.
    """

    past: Panel
    levels: list[float]
    values: np.ndarray

    def ordered_as(self, ids: list[Any]) -> "Answer":
        """The forecast with the same series in the order of ``ids``."""
        places = np.array(self.past.places(ids), dtype=int)
        return Answer(self.past.ordered_as(ids), self.levels, self.values[:, places])

    def frame(self) -> Any:
        """The forecast in the layout of the past."""
        return self.past.output(self.past.future(len(self.values)), self.values, column_names(self.levels))

    def picture(self, actual: Panel | None = None, series: list[Any] | None = None, history: int | None = None) -> Any:
        """A matplotlib Figure (:func:`~titans_ts.plots.plot_forecast`), by default with ``2 * h`` rows of the past."""
        from titans_ts.plots import plot_forecast

        h = len(self.values)
        return plot_forecast(self.past, self.past.future(h), self.values, self.levels, actual, series, history or 2 * h)


class Answering:
    """``predict`` and ``plot`` of a forecaster or an ensemble."""

    def predict(
        self,
        df: Any = None,
        futr_df: Any = None,
        level: list[float] | None = None,
        *,
        static_df: Any = None,
    ) -> Any:
        """Forecast the ``h`` steps that follow a frame.

        Args:
            df: history to forecast from, in any layout that ``fit`` takes, with at least ``input_size`` rows (fewer
                with ``missing="mask"``, down to one value per series). Unless ``multivariate``, it may hold series that
                were not in ``fit``. The online memory reads all of its rows. None: forecast from the end of the data of
                ``fit`` and :meth:`update`.
            futr_df: the declared future columns in the ``h`` steps: ``unique_id``, ``ds`` and these columns. Without
                ``unique_id``, the rows hold for all series.
            level: levels of prediction intervals in percent, such as ``[80, 95]``. With a point loss the intervals are
                conformal, computed from the errors on the validation rows. With a probabilistic loss they are those of
                the model, widened or narrowed by these errors.
            static_df: the declared static columns, for series that were not in ``fit``; needs ``df``.

        Returns:
            The forecast in the layout of ``df`` (of the training data, if None). Long: ``unique_id, ds, Titans``, and
            ``Titans-lo-80, Titans-hi-80`` for each level. Wide: one column per series, indexed by time, and
            ``<series>-lo-80`` and so on. Matrix: ``[h, N]``, or with levels ``[h, N, 1 + 2 * len(level)]``: the
            forecast, the lower bounds from the widest level to the narrowest, the upper bounds from the narrowest to
            the widest.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: a bad frame, or a level that the model cannot provide.
        """
        return self._answer(df, futr_df, level, static_df).frame()

    def plot(
        self,
        df: Any = None,
        *,
        actual: Any = None,
        series: list[Any] | None = None,
        history: int | None = None,
        level: list[float] | None = None,
        futr_df: Any = None,
        static_df: Any = None,
    ) -> Any:
        """Plot the forecast after the recent history: a matplotlib Figure with one panel per series.

        For backtests, residuals and surprise see :mod:`titans_ts.plots`.

        Args:
            df: as in ``predict``.
            actual: actual values to compare with the forecast, as a frame or one column of it; values may be missing,
                and rows outside of the plotted time range are ignored. A matrix holds the rows that directly follow
                the past.
            series: series to plot; default: the first six.
            history: rows of the past to plot; default ``2 * h``.
            level: as in ``predict``; drawn as bands.
            futr_df, static_df: as in ``predict``.
        """
        self._fitted()
        if history is not None:
            at_least("history", history)
        answer = self._answer(df, futr_df, level, static_df)
        truth = None if actual is None else self._actual(actual, answer.past)
        return answer.picture(truth, series, history)

    def _fitted(self) -> Any:
        """Raise NotFittedError before ``fit``."""
        raise NotImplementedError(f"{type(self).__name__} must implement _fitted")

    def _answer(self, df: Any, futr_df: Any, level: list[float] | None, static_df: Any) -> Answer:
        """The forecast of :meth:`predict` and :meth:`plot`."""
        raise NotImplementedError(f"{type(self).__name__} must implement _answer")

    def _actual(self, actual: Any, past: Panel) -> Panel:
        """Actual values after a past, read as the frames of ``fit`` are."""
        raise NotImplementedError(f"{type(self).__name__} must implement _actual")
