"""Splits by time for scikit-learn's searches, of frames in any layout."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import TimeSeriesSplit

from titans_core.checks import at_least
from titans_ts.frame import Freq, read_frame
from titans_ts.libraries import to_pandas
from titans_ts.reading import of_values
from titans_ts.stamps import stamps_of
from titans_ts.training_rows import border_row, warn_of_young


class TimeSplit:
    """Train on what came before, score what comes then: scikit-learn's ``TimeSeriesSplit`` over time, not rows.

    So the series of a long frame are all cut at the same times. What is scored lies behind all that was trained on; the
    lookback before it goes with it, as the past of its first forecasts.

        GridSearchCV(TitansForecaster(h=24, input_size=96), grid, cv=TimeSplit(3, test_size=96, lookback=96))

    Args:
        n_splits: how many.
        test_size: steps that are scored in each, at least the forecaster's ``h``.
        lookback: the forecaster's ``input_size``. With a smaller one ``score`` begins earlier, in rows that were
            trained on, so that this is no splitter for a search over ``input_size``.
        max_train_size: steps to train on at most, the last ones; None: all.
        freq: step of the time axis, as in the forecaster; None infers it.

    Raises:
        ValueError: numbers out of range; when splitting, a bad frame, or one of too few steps.
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
        """How many splits there are."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The numbers of the rows to train on and to score, of each split: a frame, long or wide, or a matrix.

        Steps are those of the time axis, rows that were left out among them. Series that begin too late to be trained
        on for a horizon of ``test_size``, with the validation rows that ``fit`` keeps, are left out with a warning.
        """
        least = self.lookback + self.test_size  # to train on
        needed = self.n_splits * self.test_size + least
        if self.max_train_size is not None and self.max_train_size < least:
            raise ValueError(f"{self!r} must train on lookback + test_size = {least} steps or more.")
        step, steps, name = _rows_of(X, self.freq)
        if steps < needed:
            raise ValueError(
                f"{self!r} needs (n_splits + 1) * test_size + lookback = {needed} steps, got {steps}: take fewer or "
                "shorter splits."
            )
        splits = TimeSeriesSplit(self.n_splits, test_size=self.test_size, max_train_size=self.max_train_size)
        begin = pd.Series(step).groupby(name).transform("min").to_numpy()
        for train, test in splits.split(np.empty((steps, 1))):
            old = begin <= train[0] + border_row(len(train), least, self.test_size, None) - least
            old |= not old.any()  # then training says which is too short
            young = pd.unique(name[~old & (step <= test[-1])]).tolist()
            if young:
                warn_of_young(young, f"step {test[0]}")
            trained = (step >= train[0]) & (step <= train[-1])
            scored = (step >= test[0] - self.lookback) & (step <= test[-1])
            yield np.flatnonzero(trained & old), np.flatnonzero(scored & old)


def _rows_of(X: Any, freq: Freq | None) -> tuple[np.ndarray, int, np.ndarray]:
    """Of each row which step of the time axis it is, how many steps that has, and of each row which series it is of; of
    a wide frame or a matrix a row is of all."""
    X = of_values(X)
    panel = read_frame(X, freq, missing="mask", fill=False)
    if panel.layout == "matrix":
        return np.arange(len(X)), len(X), np.zeros(len(X))
    frame = to_pandas(X)
    stamps = stamps_of(pd.Index(frame["ds"] if "ds" in frame.columns else frame.index))
    name = frame["unique_id"].to_numpy() if panel.layout == "long" else np.zeros(len(frame))
    return panel.index.get_indexer(stamps), len(panel.index), name
