"""Seasons of a time axis: how many rows they have, and which of them a series keeps to."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from titans_ts.stamps import Step

_DAY = pd.Timedelta(days=1)
# days in a step from and to, and steps of it in a week or a year
_LONGER = ((1, 1, 7), (7, 7, 52), (14, 14, 26), (28, 31, 12), (89, 92, 4))


class Season(NamedTuple):
    """What a series is compared with.

    Attributes:
        rows: how many make it.
        of_a_day: of the season of a week, how large its error was beside that of a day; else 1.
    """

    rows: int
    of_a_day: float = 1.0


def season_of(index: pd.Index, freq: Step) -> int:
    """Rows in the next longer habit of a time axis: a day, or a week of days, or a year of what is longer; else 1."""
    if not isinstance(index, pd.DatetimeIndex) or len(index) < 2:
        return 1
    if isinstance(freq, pd.offsets.BusinessDay) and freq.n == 1:
        return int(freq.calendar.weekmask.sum()) if isinstance(freq, pd.offsets.CustomBusinessDay) else 5
    step = (index[-1] - index[0]) / (len(index) - 1) / _DAY
    if step <= 0.5:
        return round(1 / step)
    return next((m for low, high, m in _LONGER if low * 0.99 <= step <= high * 1.01), 1)


def has_days(freq: Step) -> bool:
    """Whether a day is some steps, two or more."""
    return isinstance(freq, pd.offsets.Tick) and (span := pd.Timedelta(freq)) < _DAY and not _DAY % span


class Clock(NamedTuple):
    """Rows of a time axis by the clock on the wall, whose hours come twice in autumn and are left out in spring.

    Attributes:
        hour: which step of the clock each row is, ``[T]``: a day is as many of them as any other.
        row: the row of each step of the clock, ``[S]``: the first, where there are two; and where there is none, that
            of a day by rows before the row of the next day.
    """

    hour: np.ndarray
    row: np.ndarray

    @classmethod
    def of(cls, index: pd.Index, freq: Step, m: int) -> "Clock":
        """The clock of an axis; its rows themselves, where a season of ``m`` rows is no whole number of days, or none
        of the steps changes with the clock of a zone."""
        rows = np.arange(len(index))
        by_rows = cls(rows, rows)
        if not (isinstance(index, pd.DatetimeIndex) and index.tz is not None and has_days(freq)):
            return by_rows
        span, wall = pd.Timedelta(freq), index.tz_localize(None)  # type: ignore[arg-type]
        ago = wall - wall.min()
        if m * span % _DAY or (ago % span != pd.Timedelta(0)).any():
            return by_rows
        hour = (ago // span).to_numpy()
        there, first = np.unique(hour, return_index=True)
        every = np.arange(hour.max() + 1)
        following = np.searchsorted(there, every)
        return cls(hour, first[following] - (there[following] - every))


def nearer_season(known: np.ndarray, leads: np.ndarray, day: int) -> Season:
    """The season of a day or of a week, whichever was nearer to what came; the day's where there is too little to tell.

    Args:
        known: ``[T, N]``, what may be looked at: each row is foretold by those before it.
        leads: how many rows ahead forecasts are made, as often as they are.
        day: rows of a day.
    """
    ahead, often = np.unique(leads, return_counts=True)
    week = 7 * day
    first = int(max(seasons_back(ahead, m).max(initial=0) for m in (day, week)))
    if len(known) - first < week:  # each day of a week is to be among those that are compared
        return Season(day)
    of_day, of_week = (_error(known, first, seasons_back(ahead, m), often, m) for m in (day, week))
    told = of_day + of_week > 0
    if not told.any():
        return Season(day)
    share = float(np.mean(of_week[told] / (of_day + of_week)[told]))  # so that each series counts alike
    return Season(week, share / (1 - share)) if share < 0.5 else Season(day)


def seasons_back(leads: np.ndarray, m: int) -> np.ndarray:
    """How far the newest known row lies behind each, which is whole seasons before it."""
    return -(-leads // m) * m


def newest(values: np.ndarray, m: int) -> np.ndarray:
    """``[T, N]``: each value, or where it is NaN that of one, two ... times m rows before."""
    T, N = values.shape
    whole = np.concatenate((values, np.full((-T % m, N), np.nan))).reshape(-1, m * N)
    return pd.DataFrame(whole).ffill().to_numpy().reshape(-1, N)[:T]


def _error(known: np.ndarray, first: int, lags: np.ndarray, often: np.ndarray, m: int) -> np.ndarray:
    """The mean absolute error of each series from row ``first`` on, ``[N]``; NaN where nothing can be compared."""
    total, count, before = np.zeros(known.shape[1]), np.zeros(known.shape[1]), newest(known, m)
    for lag in np.unique(lags):
        error = np.abs(known[first:] - before[first - lag : len(known) - lag])
        weight = often[lags == lag].sum()
        total += weight * np.nansum(error, axis=0)
        count += weight * np.isfinite(error).sum(axis=0)
    return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
