"""Ensembles: the mean of several forecasters."""

import hashlib
import shutil
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted
from typing_extensions import Self

from titans_core.archive import ArchiveError, load_archive, saving_to, write_archive
from titans_core.checks import is_integer
from titans_core.warn import warn_caller
from titans_ts.estimator.answer import Answer, Answering
from titans_ts.estimator.cut import Cut, trained_on
from titans_ts.estimator.reading import check_no_y, read_actual
from titans_ts.estimator.scoring import rolling_error
from titans_ts.forecaster import TitansForecaster
from titans_ts.frames.exogenous import Columns, read_columns
from titans_ts.frames.libraries import from_pandas, library_of, to_pandas
from titans_ts.frames.panel import Panel
from titans_ts.parallel import Result, all_of, processes

ROW = ["unique_id", "ds", "cutoff"]
_PLACES = ("members", "members-2")  # subfolders, used in turn


class TitansEnsemble(Answering, BaseEstimator):
    """Averages the forecasts of several forecasters (Bates & Granger 1969).

    It has the methods of :class:`TitansForecaster`, except ``surprise``. Members that differ in settings, lookback or
    seed make different errors, which partly cancel in the mean, and none of them has to be selected. ``futr_df`` and
    ``static_df`` are passed to the members that declare such columns. Interval bounds are averaged too; since each
    member's intervals fit its own, larger errors, the averaged ones tend to cover more than the requested level.

    Args:
        forecasters: the members, all with the same ``h`` and ``freq``. Copies of them are fitted; they stay unchanged.
        n_jobs: number of processes that train members side by side in ``fit`` and ``cross_validation``, each with its
            part of the cores; -1 is one per core. None trains one member after the other, each on all cores.
            Forecasts differ slightly with the number of cores.

    Attributes:
        forecasters_: the fitted members.

    Example:
        >>> from titans_ts import TitansEnsemble, TitansForecaster
        >>> settings = None, {"profile": ["day"]}
        >>> ensemble = TitansEnsemble([TitansForecaster(h=24, exogenous=exogenous) for exogenous in settings])
        >>> ensemble.fit(df).predict(level=[80])
    """

    def __init__(self, forecasters: Sequence[TitansForecaster], *, n_jobs: int | None = None) -> None:
        self.forecasters = forecasters
        self.n_jobs = n_jobs

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
        """Train all members on a frame.

        Arguments as in :meth:`TitansForecaster.fit`; each member uses its own subfolder of ``checkpoint_dir``. If the
        training of a member fails, an earlier fit stays in place.

        Raises:
            TypeError, ValueError: as in :meth:`TitansForecaster.fit`; no members, members with different ``h`` or
                ``freq``, members that would skip different series, or a bad ``n_jobs``.
        """
        check_no_y(y)
        given = self._checked()
        copies = self._copies(given)
        facts = _facts(copies, static_df)
        frames = _frames(df, [read_columns(each.exogenous) for each in copies])
        with warnings.catch_warnings():  # all inputs are checked before the first training, which then warns
            warnings.simplefilter("ignore")
            panels = [each._given(*inputs)[0] for each, *inputs in zip(copies, frames, facts, strict=True)]
            _check_skipped(panels, copies, val_size)
        calls = []
        for number, (each, frame, static) in enumerate(zip(copies, frames, facts, strict=True)):
            folder = None if checkpoint_dir is None else Path(checkpoint_dir) / str(number)
            calls.append(partial(each.fit, frame, static_df=static, val_size=val_size, checkpoint_dir=folder))
        found = self._all_of(calls)
        self.forecasters_ = [each.set_params(verbose=one.verbose) for each, one in zip(found, given, strict=True)]
        return self

    def update(self, new_df: Any) -> Self:
        """As :meth:`TitansForecaster.update`. If one member rejects the rows, no member is updated."""
        self.forecasters_ = [copy(each).update(rows) for each, rows in self._with_frames(new_df)]
        return self

    def predict_windows(self, windows: np.ndarray, origins: pd.DatetimeIndex | None = None) -> np.ndarray:
        """As :meth:`TitansForecaster.predict_windows`; ``windows`` must have the longest lookback of all members."""
        fitted, windows = self._fitted(), np.asarray(windows)
        longest = max(each.network_.config.input_size for each in fitted)
        if windows.ndim != 3 or windows.shape[1] != longest:
            raise ValueError(f"windows must be [W, {longest}, N] (the longest lookback), got shape {windows.shape}.")
        found = []
        for each in fitted:
            recent = windows[:, -each.network_.config.input_size :]
            found.append(each.predict_windows(recent, origins))
        return np.mean(found, axis=0)

    def predict_insample(self, df: Any, step_size: int | None = None, level: list[float] | None = None) -> Any:
        """As :meth:`TitansForecaster.predict_insample`, from the first row at which all members have a lookback."""
        longest = max(each.network_.config.input_size for each in self._fitted())
        return _mean([each._insample(frame, longest, step_size, level) for each, frame in self._with_frames(df)])

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
        """As :meth:`TitansForecaster.cross_validation`, for the rows that all members forecast."""
        options: dict[str, Any] = dict(n_windows=n_windows, step_size=step_size, refit=refit, val_size=val_size)
        members = self._copies(self._checked())
        frames = _frames(df, [read_columns(each.exogenous) for each in members])
        inputs = zip(members, frames, _facts(members, static_df), strict=True)
        options["level"] = level
        calls = [partial(each.cross_validation, frame, **options, static_df=static) for each, frame, static in inputs]
        return _mean(self._all_of(calls))

    def _copies(self, members: list[TitansForecaster]) -> list[TitansForecaster]:
        """Copies to train. In several processes they have no progress bars, which would overwrite each other."""
        copies = [clone(each) for each in members]
        return copies if processes(self.n_jobs, len(copies)) == 1 else [each.set_params(verbose=0) for each in copies]

    def _all_of(self, calls: Sequence[Callable[[], Result]]) -> list[Result]:
        shown = any(each.verbose > 0 for each in self.forecasters)
        return all_of(calls, self.n_jobs, "members" if shown else None)

    def score(self, df: Any, y: None = None) -> float:
        """As :meth:`TitansForecaster.score`, for the windows in which all members have a lookback."""
        return -rolling_error([each._to_score(frame) for each, frame in self._with_frames(df)])

    def save(self, path: str | Path) -> None:
        """Save the fitted members to subfolders of the folder ``path``.

        An older ensemble there is deleted once the new one is completely written.

        Raises:
            NotFittedError: before ``fit``.
        """
        fitted = self._fitted()
        with saving_to(path, type(self).__name__) as folder:
            older = _members_in(folder)
            place = next(name for name in _PLACES if folder / name / "0" not in older)
            shutil.rmtree(folder / place, ignore_errors=True)  # left by an interrupted save
            members = [folder / place / str(number) for number in range(len(fitted))]
            for each, member in zip(fitted, members, strict=True):
                each.save(member)
            content = {"place": place, "members": [_digest(member) for member in members], "n_jobs": self.n_jobs}
            write_archive(folder, type(self).__name__, content, {})
            for stale in {member if member.parent == folder else member.parent for member in older}:
                shutil.rmtree(stale, ignore_errors=True)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load an ensemble from a folder that :meth:`save` wrote. Nothing is unpickled.

        Raises:
            FileNotFoundError, ArchiveError: as in :meth:`TitansForecaster.load`; or a member does not belong to this
                save.
        """
        folder = Path(path).expanduser()
        content, _ = load_archive(folder, cls.__name__)
        fitted = []
        for member, digest in zip(_members_of(folder, content), content["members"], strict=True):
            if not member.is_dir():
                raise ArchiveError(f"{member} is missing. If {folder} was saved again at this moment, load it again.")
            fitted.append(TitansForecaster.load(member))
            if _digest(member) != digest:
                raise ArchiveError(f"{member} belongs to another save than {folder}. Save the ensemble again.")
        found = cls([clone(each) for each in fitted], n_jobs=content["n_jobs"])
        found.forecasters_ = fitted
        return found

    def _answer(self, df: Any, futr_df: Any, level: list[float] | None, static_df: Any) -> Answer:
        fitted = self._fitted()
        columns = [each.scaling_.columns for each in fitted]
        ahead = _for_members(futr_df, [bool(each.futr) for each in columns])
        facts = _for_members(static_df, [bool(each.stat) for each in columns])
        members = zip(self._with_frames(df), ahead, facts, strict=True)
        found = [each._answer(frame, futr, level, static) for (each, frame), futr, static in members]
        # members that mix series have them in the order of fit, the others in that of df
        found = [answer.ordered_as(found[0].past.ids) for answer in found]
        past = max((answer.past for answer in found), key=lambda past: len(past.values))  # one may keep more of it
        return replace(found[0], past=past, values=np.mean([answer.values for answer in found], axis=0))

    def _actual(self, actual: Any, past: Panel) -> Panel:
        return read_actual(self._fitted()[0], actual, past)

    def _with_frames(self, df: Any) -> list[tuple[TitansForecaster, Any]]:
        """The fitted members, each with its :func:`_frames`."""
        fitted = self._fitted()
        return list(zip(fitted, _frames(df, [each.scaling_.columns for each in fitted]), strict=True))

    def _fitted(self) -> list[TitansForecaster]:
        check_is_fitted(self, "forecasters_")
        return self.forecasters_

    def _checked(self) -> list[TitansForecaster]:
        if not isinstance(self.forecasters, Sequence):
            raise TypeError(f"forecasters must be a list of TitansForecaster, got {type(self.forecasters).__name__}.")
        given = list(self.forecasters)
        if not given:
            raise ValueError("forecasters is empty: give at least one TitansForecaster.")
        for each in given:
            if not isinstance(each, TitansForecaster):
                raise TypeError(f"each of forecasters must be a TitansForecaster, got {type(each).__name__}.")
            each._check_params()
        for name in ("h", "freq"):  # otherwise forecasts of different times would be averaged
            values = [getattr(each, name) for each in given]
            if any(value != values[0] for value in values):
                raise ValueError(f"all forecasters must have the same {name}, got {values}.")
        known = [str(each.get_params()) for each in given if each.random_state is not None]
        if len(set(known)) < len(known):
            warn_caller(
                "some of the forecasters have the same settings and the same random_state: they become the same model, "
                "and their mean is no better than one of them. Give each another random_state."
            )
        if self.n_jobs is not None and (not is_integer(self.n_jobs) or self.n_jobs == 0):
            raise ValueError(f"n_jobs must be a number of processes, or -1 for one per core, got {self.n_jobs!r}.")
        return given


def _facts(forecasters: list[TitansForecaster], static_df: Any) -> list[Any]:
    """The ``static_df`` for each member, before ``fit``."""
    return _for_members(static_df, [bool(read_columns(each.exogenous).stat) for each in forecasters])


def _for_members(frame: Any, take: list[bool]) -> list[Any]:
    """The frame for each member that declares its columns, else None. If no member does, all get it, and reject it."""
    return [frame if takes or not any(take) else None for takes in take]


def _frames(df: Any, columns: list[Columns]) -> list[Any]:
    """The frame for each member, without columns that only other members declare, of which it would warn."""
    declared = [{*each.hist, *each.futr} for each in columns]
    others = [set().union(*declared) - own for own in declared]
    there = getattr(df, "columns", ())
    return [df[[x for x in there if x not in drop]] if drop.intersection(there) else df for drop in others]


def _check_skipped(panels: list[Panel], members: list[TitansForecaster], val_size: int | None) -> None:
    """Reject series that only some of the members would skip."""
    pairs = list(zip(panels, members, strict=True))
    ids = [trained_on(panel, each, val_size).ids for panel, each in pairs]
    shared = set(ids[0]).intersection(*ids[1:])
    if apart := [name for name in max(ids, key=len) if name not in shared]:
        panel, longest = max(pairs, key=lambda pair: pair[1].input_size)
        advice = Cut.of(longest, val_size).advice(panel.named(apart))
        raise ValueError(
            f"series {apart[:8]} are long enough for some of the forecasters and too short for others. {advice}"
            "Otherwise drop them from df, or give all forecasters the shortest input_size."
        )


def _mean(frames: list[Any]) -> Any:
    """The mean backtest over the rows that all frames have; ``y`` is NaN where it is NaN in any of them."""
    tables = [to_pandas(frame).set_index(ROW) for frame in frames]
    rows = reduce(lambda shared, table: shared[shared.isin(table.index)], tables[1:], tables[0].index)
    tables = [table if table.index.equals(rows) else table.loc[rows] for table in tables]
    forecasts = tables[0].columns.drop("y")
    found = tables[0].copy()
    found[forecasts] = np.mean([table[forecasts].to_numpy() for table in tables], axis=0)
    found["y"] = found["y"].mask(np.any([table["y"].isna() for table in tables], axis=0))
    return from_pandas(found.reset_index(), library_of(frames[0]))


def _members_in(folder: Path) -> list[Path]:
    """The folders of the members of a saved ensemble; none if there is no ensemble, or a damaged one."""
    try:
        return _members_of(folder, load_archive(folder, TitansEnsemble.__name__)[0])
    except (FileNotFoundError, ArchiveError):
        return []


def _members_of(folder: Path, content: dict[str, Any]) -> list[Path]:
    place, digests = content.get("place"), content.get("members")
    if place not in _PLACES or not isinstance(digests, list):
        raise ArchiveError(f"{folder} was modified: it does not say where its members are. Save the ensemble again.")
    return [folder / place / str(number) for number in range(len(digests))]


def _digest(member: Path) -> str:
    """Digest of both files of a member."""
    return hashlib.sha256(
        b"".join((member / f"model.{end}").read_bytes() for end in ("json", "safetensors"))
    ).hexdigest()
