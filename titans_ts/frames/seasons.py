"""Season lengths of a time axis, and the choice between a day and a week."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from titans_ts.frames.stamps import Step

_DAY = pd.Timedelta(days=1)
# days in a step (from, to), and steps in a week or a year
_LONGER = ((1, 1, 7), (7, 7, 52), (14, 14, 26), (28, 28, 13), (28, 31, 12), (89, 92, 4))


class Season(NamedTuple):
    """The season of a seasonal naive forecast.

    Attributes:
        rows: its length in rows.
        of_a_day: for a season of a week, the ratio of its error to that of a season of a day; else 1.
    """

    rows: int
    of_a_day: float = 1.0


def season_of(index: pd.Index, freq: Step) -> int:
    """Rows in a day for steps below a day, in a week for daily steps, in a year for longer steps; else 1."""
    if not isinstance(index, pd.DatetimeIndex) or len(index) < 2:
        return 1
    if isinstance(freq, pd.offsets.BusinessDay) and freq.n == 1:
        return int(freq.calendar.weekmask.sum()) if isinstance(freq, pd.offsets.CustomBusinessDay) else 5
    if isinstance(freq, pd.offsets.BusinessHour):  # a day has only its open hours
        return int(index.normalize().value_counts().median())
    step = (index[-1] - index[0]) / (len(index) - 1) / _DAY
    if step <= 0.5:
        return round(1 / step)
    return next((m for low, high, m in _LONGER if low * 0.99 <= step <= high * 1.01), 1)


def has_days(freq: Step) -> bool:
    """Whether a day is a whole number of steps, at least two."""
    return isinstance(freq, pd.offsets.Tick) and (span := pd.Timedelta(freq)) < _DAY and not _DAY % span


class Clock(NamedTuple):
    """Rows of a time axis in local time, in which daylight saving time repeats and skips hours.

    Attributes:
        hour: the step of local time of each row, ``[T]``; all days have the same number of steps.
        row: the row of each step of local time, ``[S]``. A repeated step has its first row; a skipped one the row that
            lies before the next existing step by the same number of rows, or the first row.
    """

    hour: np.ndarray
    row: np.ndarray

    @classmethod
    def of(cls, index: pd.Index, freq: Step, m: int) -> "Clock":
        """The clock of an axis. It equals the rows without a time zone, if steps do not divide a day, or if a season of
        ``m`` rows is not a whole number of days."""
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
        return cls(hour, np.maximum(0, first[following] - (there[following] - every)))


def nearer_season(known: np.ndarray, leads: np.ndarray, day: int) -> Season:
    """The season of a day or a week, whichever has the smaller naive error; a day if there are too few rows to tell.

    Args:
        known: ``[T, N]``, the values to compare; each row is forecast from earlier ones.
        leads: number of rows that each forecast looks ahead.
        day: rows of a day.
    """
    ahead, often = np.unique(leads, return_counts=True)
    week = 7 * day
    first = int(max(seasons_back(ahead, m).max(initial=0) for m in (day, week)))
    if len(known) - first < week:  # the comparison must cover each day of the week
        return Season(day)
    of_day, of_week = (_error(known, first, seasons_back(ahead, m), often, m) for m in (day, week))
    compared = of_day + of_week > 0
    if not compared.any():
        return Season(day)
    share = float(np.mean(of_week[compared] / (of_day + of_week)[compared]))  # all series have the same weight
    return Season(week, share / (1 - share)) if share < 0.5 else Season(day)


def seasons_back(leads: np.ndarray, m: int) -> np.ndarray:
    """The distance to the newest known row that is a whole number of seasons earlier."""
    return -(-leads // m) * m


def newest(values: np.ndarray, m: int) -> np.ndarray:
    """``[T, N]``: each value, or if it is NaN the latest known one a multiple of m rows earlier."""
    T, N = values.shape
    whole = np.concatenate((values, np.full((-T % m, N), np.nan))).reshape(-1, m * N)
    return pd.DataFrame(whole).ffill().to_numpy().reshape(-1, N)[:T]


def _error(known: np.ndarray, first: int, lags: np.ndarray, often: np.ndarray, m: int) -> np.ndarray:
    """The mean absolute error of each series from row ``first`` on, ``[N]``; NaN if nothing can be compared."""
    total, count, before = np.zeros(known.shape[1]), np.zeros(known.shape[1]), newest(known, m)
    for lag in np.unique(lags):
        error = np.abs(known[first:] - before[first - lag : len(known) - lag])
        weight = often[lags == lag].sum()
        total += weight * np.nansum(error, axis=0)
        count += weight * np.isfinite(error).sum(axis=0)
    return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
