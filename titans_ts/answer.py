"""One forecast of the steps behind a past, as a frame and as a picture, and what is asked for both."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from titans_core.checks import at_least
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


class Answering:
    """``predict`` and ``plot``, which are one answer, of a forecaster and of several as one."""

    def predict(
        self,
        df: Any = None,
        futr_df: Any = None,
        level: list[float] | None = None,
        *,
        static_df: Any = None,
    ) -> Any:
        """The ``h`` steps that follow a frame.

        Args:
            df: where to forecast from, in any layout that ``fit`` takes, at least ``input_size`` rows (fewer with
                ``missing="mask"``, down to one value a series); other series than those of ``fit`` are welcome unless
                ``multivariate``. All its rows are read by the online memory,
                from its first. None: from the end of what ``fit`` and :meth:`update` were given.
            futr_df: the declared future columns in the h steps: ``unique_id, ds`` and them; or ``ds`` alone, of all.
            level: percentages such as ``[80, 95]``, for intervals. With a point loss they are conformal, from the
                errors on the validation rows; with a probabilistic loss they are the model's own, drawn wider or
                narrower by these errors.
            static_df: the declared static columns of other series than those of ``fit``; with ``df``.

        Returns:
            In the layout of ``df`` (of the training frame, if None). Long: ``unique_id, ds, Titans``, and
            ``Titans-lo-80, Titans-hi-80`` for each level. Wide: one column a series, indexed by time, and
            ``<series>-lo-80`` and so on. Matrix: ``[h, N]``, or with levels ``[h, N, 1 + 2 * len(level)]``: the
            forecast, lower bounds from the widest level to the narrowest, upper ones from the narrowest to the widest.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: a bad frame, or levels that the model cannot give.
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
        """A picture of the forecast behind the end of the past: a matplotlib Figure, one panel a series.

        Backtests, residuals and surprise are drawn by :mod:`titans_ts.plots`.

        Args:
            df: as in ``predict``.
            actual: a frame of what really came, or a column of one, drawn beside the forecast; rows of another time
                are left out. A matrix is of the rows that follow the past.
            series: which to draw; default: the first six.
            history: rows of the past to draw; default: ``2 * h``, where the frame has them.
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
        """Raises NotFittedError before ``fit``."""
        raise NotImplementedError(f"{type(self).__name__} must say whether it is fitted")

    def _answer(self, df: Any, futr_df: Any, level: list[float] | None, static_df: Any) -> Answer:
        """What :meth:`predict` says and :meth:`plot` draws."""
        raise NotImplementedError(f"{type(self).__name__} must forecast")

    def _actual(self, actual: Any, past: Panel) -> Panel:
        """What came behind a past, read as the frames of ``fit`` are."""
        raise NotImplementedError(f"{type(self).__name__} must read what came")
