"""Profiles: the stable part of the mean daily, weekly or yearly shape of a series."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from titans_ts.frames.exogenous import CYCLES, calendar_features, spanned_twice

# factor of harmonics relative to the calendar features: a profile can differ for each hour of the day
FINER = 4
PARTS = 8  # parts of a series for cross-validation
LEAST = 0.5  # smaller stable shares of a shape count as none
LINE = 2  # columns other than waves: constant and linear trend, which would otherwise distort the shape of a cycle


def waves_of(index: pd.Index, cycles: tuple[str, ...]) -> np.ndarray:
    """The basis functions of profiles at these time stamps, ``[T, F]``."""
    return calendar_features(index, cycles, FINER)


def profiles_of(values: np.ndarray, index: pd.Index, cycles: tuple[str, ...]) -> np.ndarray:
    """The profile of each series, as weights of :func:`waves_of`, ``[F, N]``.

    The shape of a cycle is fitted to all rows by least squares, together with a linear trend. It is multiplied by its
    stable share (:func:`_shares`), and set to 0 if that is below a half or if the series does not span the cycle twice.
    Outliers are clipped (:func:`_near`).

    Args:
        values: rows ``[T, N]``; NaN is ignored.
        index: their time stamps.
        cycles: some of "day", "week", "year".
    """
    waves = waves_of(index, cycles)
    cycle_of = np.repeat(cycles, [2 * FINER * CYCLES[cycle] for cycle in cycles])
    times_a_cycle = np.concatenate([np.arange(2 * FINER * CYCLES[cycle]) // 2 + 1 for cycle in cycles])
    profiles = np.zeros((waves.shape[1], values.shape[1]))
    for known, columns in _groups_of_equal_rows(np.isfinite(values)):
        spanned = spanned_twice(index[known], cycles)
        if not spanned:
            continue
        kept = np.isin(cycle_of, list(spanned))
        if "day" in spanned:  # waves with seven periods a week belong to the day
            kept &= (cycle_of != "week") | (times_a_cycle % 7 > 0)
        rows = np.flatnonzero(known) - known.argmax()
        # steps are regular; centered, since a line is not told from waves that are constant, as seven a week at days
        time = np.linspace(-1, 1, rows[-1] + 1)[rows, None]
        table = np.concatenate((np.ones_like(time), time, waves[known][:, kept]), axis=1)
        count = min(PARTS, *(int(times) for times in spanned.values()))
        parts = [_Part.of(t, v) for t, v in _cut(table, _near(values[np.ix_(known, columns)]), count)]
        fitted = _fitted(parts)[LINE:]
        for cycle, share in _shares(parts, cycle_of[kept]).items():
            fitted[cycle_of[kept] == cycle] *= np.where(share < LEAST, 0.0, share)
        profiles[np.ix_(kept, columns)] = fitted
    return profiles


class _Part(NamedTuple):
    """Consecutive rows of the regression table ``[T, LINE + F]`` and of the values ``[T, N]``."""

    table: np.ndarray
    values: np.ndarray
    gram: np.ndarray  # table^T table
    sums: np.ndarray  # table^T values

    @classmethod
    def of(cls, table: np.ndarray, values: np.ndarray) -> "_Part":
        return cls(table, values, table.T @ table, table.T @ values)


def _cut(table: np.ndarray, values: np.ndarray, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(zip(np.array_split(table, count), np.array_split(values, count), strict=True))


def _groups_of_equal_rows(known: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Groups of series with the same known rows: these rows, and the series."""
    groups: dict[bytes, list[int]] = {}
    for column, rows in enumerate(known.T):
        groups.setdefault(rows.tobytes(), []).append(column)
    return [(known[:, columns[0]], np.array(columns)) for columns in groups.values()]


def _near(values: np.ndarray) -> np.ndarray:
    """Values ``[T, N]`` minus their mean, after clipping to the middle 98 %, extended by its width on each side.

    Otherwise a single wrong value would dominate the shape of its hour.
    """
    low, high = np.quantile(values, (0.01, 0.99), axis=0)
    near = np.clip(values, low - (high - low), high + (high - low))
    return near - near.mean(axis=0)


def _fitted(parts: list[_Part]) -> np.ndarray:
    """Least-squares weights of the table for the values of these parts, ``[LINE + F, N]``."""
    gram, sums = sum(part.gram for part in parts), sum(part.sums for part in parts)
    # rcond: with coarse steps, some waves vanish except for rounding, or equal another wave
    return np.linalg.lstsq(gram, sums, rcond=1e-12)[0]


def _shares(parts: list[_Part], cycle_of: np.ndarray) -> dict[str, np.ndarray]:
    """The stable share of the shape of each cycle, from 0 to 1, ``[N]``, by cross-validation over the parts.

    It is the best factor, in each part, for the shape fitted to the other parts, given a linear trend and the shapes of
    the other cycles.
    """
    found: dict[str, np.ndarray] = {}
    common: dict[str, np.ndarray] = {}
    for i, part in enumerate(parts):
        weights = _fitted(parts[:i] + parts[i + 1 :])[LINE:]
        waves, line = part.table[:, LINE:], np.linalg.qr(part.table[:, :LINE])[0]
        rest = part.values - waves @ weights
        for cycle in np.unique(cycle_of):
            shape = waves[:, cycle_of == cycle] @ weights[cycle_of == cycle]
            own = rest + shape
            shape, own = (x - line @ (line.T @ x) for x in (shape, own))
            found[cycle] = found.get(cycle, 0.0) + (shape * own).sum(axis=0)
            common[cycle] = common.get(cycle, 0.0) + (shape * shape).sum(axis=0)
    return {
        cycle: np.clip(np.divide(found[cycle], x, out=np.zeros_like(x), where=x > 0), 0.0, 1.0)
        for cycle, x in common.items()
    }
