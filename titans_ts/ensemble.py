"""Several forecasters as one: the mean of what they say."""

import hashlib
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted
from typing_extensions import Self

from titans_core.archive import ArchiveError, check_kind, load_archive, save_archive
from titans_ts.answer import Answer, Answering
from titans_ts.exogenous import read_columns
from titans_ts.forecaster import TitansForecaster
from titans_ts.libraries import from_pandas, to_pandas
from titans_ts.panel import Panel
from titans_ts.reading import check_no_y, read_actual
from titans_ts.training_rows import trained_on

ROW = ["unique_id", "ds", "cutoff"]


class TitansEnsemble(Answering, BaseEstimator):
    """The mean of several forecasters (Bates & Granger 1969), with the methods of one.

    Forecasters that differ, in their settings, their lookbacks or their seeds, err in different ways, of which a part
    cancels in the mean; and none has to be chosen. Training and forecasting take as long as all of them one after the
    other. ``futr_df`` and ``static_df`` go to those that declare such columns. Bounds of intervals are means too: those
    of each forecaster are for its own errors, and so hold rather more around the mean than was asked for.

    Args:
        forecasters: of one ``h``. They stay as they are; copies of them are fitted.

    Attributes:
        forecasters_: fitted.

    Example:
        >>> from titans_ts import TitansEnsemble, TitansForecaster
        >>> settings = None, {"profile": ["day"]}
        >>> ensemble = TitansEnsemble([TitansForecaster(h=24, exogenous=exogenous) for exogenous in settings])
        >>> ensemble.fit(df).predict(level=[80])
    """

    def __init__(self, forecasters: Sequence[TitansForecaster]) -> None:
        self.forecasters = forecasters

    has_calendar_ = property(lambda self: any(each.has_calendar_ for each in self.forecasters_))

    def fit(
        self,
        df: Any,
        y: None = None,
        *,
        static_df: Any = None,
        val_size: int | None = None,
        checkpoint_dir: str | Path | None = None,
    ) -> Self:
        """Train all of them on a frame; arguments as of :meth:`TitansForecaster.fit`, each with a folder of its own in
        ``checkpoint_dir``. Until all are trained, what was fitted before stays.

        Raises:
            TypeError, ValueError: no forecasters, or of several horizons; forecasters that would leave out different
                series; or as of one.
        """
        check_no_y(y)
        copies = [clone(forecaster) for forecaster in self._checked()]
        facts = _facts(copies, static_df)
        pairs = zip(copies, facts, strict=True)  # what one of them lacks is told before another is trained
        _check_series([trained_on(each._given(df, static)[0], each, val_size).ids for each, static in pairs])
        for number, (each, static) in enumerate(zip(copies, facts, strict=True)):
            folder = None if checkpoint_dir is None else Path(checkpoint_dir) / str(number)
            each.fit(df, static_df=static, val_size=val_size, checkpoint_dir=folder)
        self.forecasters_ = copies
        return self

    def update(self, new_df: Any) -> Self:
        """As :meth:`TitansForecaster.update`; all of them take in the rows, or none does."""
        self.forecasters_ = [copy(each).update(new_df) for each in self._fitted()]
        return self

    def predict_windows(self, windows: np.ndarray, origins: pd.DatetimeIndex | None = None) -> np.ndarray:
        """As :meth:`TitansForecaster.predict_windows`; windows are of the longest lookback."""
        fitted, windows = self._fitted(), np.asarray(windows)
        longest = max(each.network_.config.input_size for each in fitted)
        if windows.ndim != 3 or windows.shape[1] != longest:
            raise ValueError(f"windows must be [W, {longest}, N], of the longest lookback, got {windows.shape}.")
        found = []
        for each in fitted:
            recent = windows[:, -each.network_.config.input_size :]
            found.append(each.predict_windows(recent, origins if each.has_calendar_ else None))
        return np.mean(found, axis=0)

    def predict_insample(self, df: Any, step_size: int | None = None, level: list[float] | None = None) -> Any:
        """As :meth:`TitansForecaster.predict_insample`, from the first row on that all have a lookback for."""
        return self._insample(df, step_size, level)

    def _insample(self, df: Any, step_size: int | None, level: list[float] | None = None, judged: bool = False) -> Any:
        fitted = self._fitted()
        longest = max(each.network_.config.input_size for each in fitted)
        return _mean([each._insample(df, longest, step_size, level, judged) for each in fitted])

    def cross_validation(
        self,
        df: Any,
        *,
        n_windows: int = 1,
        step_size: int | None = None,
        refit: bool | int = False,
        val_size: int | None = None,
        level: list[float] | None = None,
        static_df: Any = None,
    ) -> Any:
        """As :meth:`TitansForecaster.cross_validation`; of the series that all of them forecast."""
        options: dict[str, Any] = dict(n_windows=n_windows, step_size=step_size, refit=refit, val_size=val_size)
        members = self._checked()
        pairs = zip(members, _facts(members, static_df), strict=True)
        return _mean([each.cross_validation(df, **options, level=level, static_df=static) for each, static in pairs])

    def score(self, df: Any, y: None = None) -> float:
        """As :meth:`TitansForecaster.score`, of the windows that all have a lookback for. It holds all forecasts of the
        frame at once."""
        found = to_pandas(self._insample(df, 1, judged=True))
        first = self.forecasters_[0]
        unit = found["unique_id"].map(dict(zip(first.context_.ids, first.scaling_.units.deviation, strict=True)))
        error = ((found["Titans"] - found["y"]).abs() / unit)[found["y"].notna()]
        if error.empty:
            raise ValueError("there is nothing to score: no value is known behind any window.")
        if not np.isfinite(error).all():
            raise FloatingPointError("some forecasts are not finite, and have no error: fit the ensemble again.")
        return -float(error.mean())

    def save(self, path: str | Path) -> None:
        """Write the fitted forecasters to the folder ``path``, each to a folder in it.

        Raises:
            NotFittedError: before ``fit``.
        """
        folder, fitted = Path(path), self._fitted()
        check_kind(folder, type(self).__name__)
        for number, each in enumerate(fitted):
            each.save(folder / str(number))
        save_archive(folder, type(self).__name__, {"members": [_digest(folder, n) for n in range(len(fitted))]}, {})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """An ensemble from the folder that :meth:`save` wrote. Nothing is unpickled.

        Raises:
            FileNotFoundError, ArchiveError: as of one forecaster; or one of them is of another saving.
        """
        folder = Path(path)
        content, _ = load_archive(folder, cls.__name__)
        fitted = []
        for number, digest in enumerate(content["members"]):
            fitted.append(TitansForecaster.load(folder / str(number)))
            if _digest(folder, number) != digest:
                raise ArchiveError(f"{folder}/{number} is of another saving than {folder}. Save the ensemble again.")
        found = cls([clone(each) for each in fitted])
        found.forecasters_ = fitted
        return found

    def _answer(self, df: Any, futr_df: Any, level: list[float] | None, static_df: Any) -> Answer:
        fitted = self._fitted()
        columns = [each.scaling_.columns for each in fitted]
        ahead = _to_those(futr_df, [bool(each.futr) for each in columns])
        facts = _to_those(static_df, [bool(each.stat) for each in columns])
        members = zip(fitted, ahead, facts, strict=True)
        found = [each._answer(df, futr, level, static) for each, futr, static in members]
        past = max((answer.past for answer in found), key=lambda past: len(past.values))  # one may keep more of it
        return replace(found[0], past=past, values=np.mean([answer.values for answer in found], axis=0))

    def _actual(self, actual: Any, past: Panel) -> Panel:
        return read_actual(self._fitted()[0], actual, past)

    def _fitted(self) -> list[TitansForecaster]:
        check_is_fitted(self, "forecasters_")
        return self.forecasters_

    def _checked(self) -> list[TitansForecaster]:
        if not isinstance(self.forecasters, Iterable):
            raise TypeError(f"forecasters must be a list of TitansForecaster, got {type(self.forecasters).__name__}.")
        given = list(self.forecasters)
        if not given:
            raise ValueError("forecasters is empty: give at least one TitansForecaster.")
        for each in given:
            if not isinstance(each, TitansForecaster):
                raise TypeError(f"forecasters must be TitansForecaster, got {type(each).__name__}.")
            each._check_params()
        if len(horizons := {each.h for each in given}) > 1:
            raise ValueError(f"forecasters must be of one horizon, got h of {sorted(horizons)}.")
        return given


def _facts(forecasters: list[TitansForecaster], static_df: Any) -> list[Any]:
    """The ``static_df`` of each, before ``fit``."""
    return _to_those(static_df, [bool(read_columns(each.exogenous).stat) for each in forecasters])


def _to_those(frame: Any, take: list[bool]) -> list[Any]:
    """For each forecaster a frame of columns, or None where others declare such and it does not: where none does, each
    is given it, and refuses it."""
    return [frame if takes or not any(take) else None for takes in take]


def _check_series(ids: list[list[Any]]) -> None:
    shared = set(ids[0]).intersection(*ids[1:])
    if apart := [name for name in max(ids, key=len) if name not in shared]:
        raise ValueError(
            f"series {apart[:8]} begin early enough for some of the forecasters, and too late for others. Leave them "
            "out of df, or give all forecasters the shortest input_size."
        )


def _mean(frames: list[Any]) -> Any:
    """Of the rows that all frames of backtests have; what came is known where it is in all."""
    tables = [to_pandas(frame).set_index(ROW) for frame in frames]
    rows = reduce(lambda shared, table: shared[shared.isin(table.index)], tables[1:], tables[0].index)
    tables = [table if table.index.equals(rows) else table.loc[rows] for table in tables]
    said = tables[0].columns.drop("y")
    found = tables[0].copy()
    found[said] = np.mean([table[said].to_numpy() for table in tables], axis=0)
    found["y"] = found["y"].mask(np.any([table["y"].isna() for table in tables], axis=0))
    return from_pandas(found.reset_index(), "pandas" if isinstance(frames[0], pd.DataFrame) else "polars")


def _digest(folder: Path, number: int) -> str:
    """Of both files: cut off between the two, a saving leaves new numbers beside what they were before."""
    member = folder / str(number)
    return hashlib.sha256(
        b"".join((member / f"model.{end}").read_bytes() for end in ("json", "safetensors"))
    ).hexdigest()
