"""The mean shape of a series' days, weeks or years, as far as it holds."""

import numpy as np
import pandas as pd

from titans_ts.exogenous import CYCLES, calendar_features, spanned_twice

# a profile has so many times the harmonics of the calendar that the network is told: an hour of a day has its own value
FINER = 4
PARTS = 8  # of a series, each of which is foretold by the others
LEAST = 0.5  # of a shape is found again, or it is none


def waves_of(index: pd.Index, cycles: tuple[str, ...]) -> np.ndarray:
    """What profiles are made of, at these time stamps: ``[T, F]``."""
    return calendar_features(index, cycles, FINER)


def profiles_of(values: np.ndarray, index: pd.Index, cycles: tuple[str, ...]) -> np.ndarray:
    """The profile of each series, as weights of ``waves_of``: ``[F, N]``.

    The shape of a cycle is the least-squares fit to all rows times the share of it that holds (:func:`_share`), and
    none where that is less than a half; nor has a series a shape of a cycle that it does not go through twice.

    Args:
        values: rows ``[T, N]``, NaN left out.
        index: their time stamps.
        cycles: of "day", "week", "year".
    """
    waves = waves_of(index, cycles)
    cycle_of = np.repeat(cycles, [2 * FINER * CYCLES[cycle] for cycle in cycles])
    times_a_cycle = np.concatenate([np.arange(2 * FINER * CYCLES[cycle]) // 2 + 1 for cycle in cycles])
    profiles = np.zeros((waves.shape[1], values.shape[1]))
    for known, columns in _alike(np.isfinite(values)):
        spanned = spanned_twice(index[known], cycles)
        kept = np.isin(cycle_of, list(spanned))
        if "day" in spanned:  # what happens seven times a week is of the day
            kept &= (cycle_of != "week") | (times_a_cycle % 7 > 0)
        rows, series = waves[known][:, kept], values[np.ix_(known, columns)]
        if not kept.any():
            continue
        fitted = _fitted(rows, series)
        for cycle, times in spanned.items():
            of = cycle_of[kept] == cycle
            fitted[of] *= _share(rows, series, of, min(PARTS, int(times)))
        profiles[np.ix_(kept, columns)] = fitted
    return profiles


def _alike(known: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Series of which the same rows are known: those rows, and which series."""
    groups: dict[bytes, list[int]] = {}
    for column, rows in enumerate(known.T):
        groups.setdefault(rows.tobytes(), []).append(column)
    return [(known[:, columns[0]], np.array(columns)) for columns in groups.values()]


def _fitted(waves: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Weights of the waves ``[T, F]`` that come nearest to the values ``[T, N]`` with a constant: ``[F, N]``."""
    table = np.concatenate((np.ones((len(waves), 1)), waves), axis=1)
    # waves that the steps are too coarse for are zero but for rounding, or another wave over again
    return np.linalg.lstsq(table, values, rcond=1e-6)[0][1:]


def _share(waves: np.ndarray, values: np.ndarray, of: np.ndarray, parts: int) -> np.ndarray:
    """How much of the shape that these waves have elsewhere is found in each part of a series: ``[N]``.

    That is, the factor that a shape fitted to the other parts is best multiplied by; from 0 to 1.
    """
    found = common = 0.0
    for part in np.array_split(np.arange(len(waves)), parts):
        others = np.delete(np.arange(len(waves)), part)
        shape = waves[part][:, of] @ _fitted(waves[others], values[others])[of]
        shape -= shape.mean(axis=0)
        found = found + (shape * values[part]).sum(axis=0)
        common = common + (shape * shape).sum(axis=0)
    share = np.clip(np.divide(found, common, out=np.zeros_like(found), where=common > 0), 0.0, 1.0)
    return np.where(share < LEAST, 0.0, share)
