"""Splits by time for scikit-learn's searches, of frames in any layout."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import TimeSeriesSplit

from titans_core.checks import at_least
from titans_ts.frame import LONG_COLUMNS
from titans_ts.libraries import to_pandas


class TimeSplit:
    """Train on what came before, score what comes then: scikit-learn's ``TimeSeriesSplit`` over time stamps, not rows.

    So the series of a long frame are all cut at the same times. What is scored lies behind all that was trained on;
    the lookback before it goes with it, as the past of its first forecasts.

        GridSearchCV(TitansForecaster(h=24, input_size=96), grid, cv=TimeSplit(3, test_size=96, lookback=96))

    Args:
        n_splits: how many.
        test_size: steps that are scored in each, at least the forecaster's ``h``.
        lookback: the forecaster's ``input_size``.
        max_train_size: steps to train on at most, the last ones; None: all.

    Raises:
        ValueError: numbers out of range; when splitting, too few time stamps.
    """

    def __init__(self, n_splits: int, test_size: int, lookback: int, max_train_size: int | None = None) -> None:
        for name, number, least in (
            ("n_splits", n_splits, 2),
            ("test_size", test_size, 1),
            ("lookback", lookback, 1),
            ("max_train_size", 1 if max_train_size is None else max_train_size, 1),
        ):
            at_least(name, number, least)
        self.n_splits, self.test_size, self.lookback = n_splits, test_size, lookback
        self.max_train_size = max_train_size

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name}={number}" for name, number in vars(self).items())
        return f"TimeSplit({numbers})"

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """How many splits there are."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The numbers of the rows to train on and to score, of each split: a frame, long or wide, or a matrix."""
        step, steps = _steps(X)
        least = self.n_splits * self.test_size + self.lookback
        if steps <= least:
            raise ValueError(
                f"{self!r} needs more than n_splits * test_size + lookback = {least} time stamps, got {steps}: take "
                "fewer or shorter splits."
            )
        splits = TimeSeriesSplit(self.n_splits, test_size=self.test_size, max_train_size=self.max_train_size)
        for train, test in splits.split(np.empty((steps, 1))):
            scored = (step >= test[0] - self.lookback) & (step <= test[-1])
            yield np.flatnonzero((step >= train[0]) & (step <= train[-1])), np.flatnonzero(scored)


def _steps(X: Any) -> tuple[np.ndarray, int]:
    """Of each row which time stamp it has, in their order, and how many there are."""
    if set(LONG_COLUMNS) <= set(getattr(X, "columns", ())):
        codes, stamps = pd.factorize(to_pandas(X[["ds"]])["ds"], sort=True)
        return codes, len(stamps)
    return np.arange(len(X)), len(X)
