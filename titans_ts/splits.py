"""Time-based splits for scikit-learn searches, for data in any layout."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import TimeSeriesSplit

from titans_core.checks import at_least
from titans_core.warn import warn_caller
from titans_ts.estimator.cut import Cut, warn_of_skipped
from titans_ts.frames.frame import Freq, read_frame
from titans_ts.frames.kinds import of_values
from titans_ts.frames.libraries import to_pandas
from titans_ts.frames.stamps import name_of, stamps_of


class TimeSplit:
    """Splits training and test data by time, like scikit-learn's ``TimeSeriesSplit`` on time steps instead of rows.

    All series of a long frame are cut at the same times, and test steps come after all training steps. Each test set
    also includes the ``lookback`` steps before it, as the past of its first forecasts.

        GridSearchCV(TitansForecaster(h=24, input_size=96), grid, cv=TimeSplit(3, test_size=96, lookback=96))

    Args:
        n_splits: number of splits.
        test_size: scored steps in each split, at least the forecaster's ``h``.
        lookback: the forecaster's ``input_size``. A forecaster with a smaller one would also be scored on training
            rows, so do not use this splitter to search over ``input_size``.
        max_train_size: maximum number of training steps, the last ones; None: all.
        freq: step of the time axis, as in the forecaster; None infers it, with a warning if time stamps are missing.

    Raises:
        ValueError: arguments out of range; when splitting, a bad frame or too few steps.
    """

    def __init__(
        self, n_splits: int, test_size: int, lookback: int, max_train_size: int | None = None, freq: Freq | None = None
    ) -> None:
        for name, number, least in (
            ("n_splits", n_splits, 2),
            ("test_size", test_size, 1),
            ("lookback", lookback, 1),
            ("max_train_size", 1 if max_train_size is None else max_train_size, 1),
        ):
            at_least(name, number, least)
        self.n_splits, self.test_size, self.lookback = n_splits, test_size, lookback
        self.max_train_size, self.freq = max_train_size, freq

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name}={number}" for name, number in vars(self).items())
        return f"TimeSplit({numbers})"

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of splits."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the row numbers of training and test set for each split of a long frame, wide frame or matrix.

        Missing rows count as steps. Series too short to train with a horizon of ``test_size`` and the default
        validation rows of ``fit`` are skipped with a warning.
        """
        cut = Cut(self.lookback, self.test_size)
        needed = self.n_splits * self.test_size + cut.least
        if self.max_train_size is not None and self.max_train_size < cut.least:
            raise ValueError(f"{self!r}: max_train_size must be at least lookback + test_size = {cut.least}.")
        step, steps, name = _rows_of(X, self.freq)
        if steps < needed:
            raise ValueError(
                f"{self!r} needs (n_splits + 1) * test_size + lookback = {needed} steps, got {steps}: use fewer or "
                "shorter splits."
            )
        splits = TimeSeriesSplit(self.n_splits, test_size=self.test_size, max_train_size=self.max_train_size)
        begin = pd.Series(step).groupby(name).transform("min").to_numpy()
        for train, test in splits.split(np.empty((steps, 1))):
            old = begin <= train[0] + cut.border(len(train)) - cut.least
            old |= not old.any()  # no series is long enough: let fit raise its error
            young = pd.unique(name[~old & (step <= test[-1])]).tolist()
            if young:
                warn_of_skipped(young, f"step {test[0]}")
            trained = (step >= train[0]) & (step <= train[-1])
            scored = (step >= test[0] - self.lookback) & (step <= test[-1])
            yield np.flatnonzero(trained & old), np.flatnonzero(scored & old)


def _rows_of(X: Any, freq: Freq | None) -> tuple[np.ndarray, int, np.ndarray]:
    """The time step of each row, the number of steps, and the series of each row (constant for wide or matrix)."""
    X = of_values(X)
    panel = read_frame(X, freq, missing="mask", fill=False)
    if panel.layout == "matrix":
        return np.arange(len(X)), len(X), np.zeros(len(X))
    frame = to_pandas(X)
    stamps = stamps_of(pd.Index(frame["ds"] if "ds" in frame.columns else frame.index))
    rows = stamps.nunique()
    if freq is None and rows < len(panel.index):
        step = name_of(panel.freq)
        warn_caller(
            f"TimeSplit counts the {rows} time stamps of the data as {len(panel.index)} steps of {step!r}, some of "
            f"them missing. If none is, give TimeSplit the freq of the forecaster; else pass freq={step!r} to silence "
            "this warning."
        )
    name = frame["unique_id"].to_numpy() if panel.layout == "long" else np.zeros(len(frame))
    return panel.index.get_indexer(stamps), len(panel.index), name
