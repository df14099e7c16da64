"""Single values that lie so far from all others of a series that they are hardly measurements."""

import numpy as np

FAR = 10.0  # times the deviation of a series without them
FEW = 200  # one in so many rows
ROUNDING = 1e-12  # of a value in double precision, relative to it


def few_of(rows: np.ndarray) -> np.ndarray:
    """How many values of a series are single ones, of so many."""
    return np.maximum(np.minimum(3, rows // 20), rows // FEW)


def spikes_of(values: np.ndarray) -> np.ndarray:
    """Which values of each series ``[T, N]`` are spikes: single ones without which its deviation is less than a tenth.

    A series that is still without them has none: what it does once may be all it does.
    """
    known = np.isfinite(values)
    count = known.sum(axis=0)
    few = few_of(count)
    most = int(few.max(initial=0))
    if not most:
        return np.zeros_like(known)
    middle = np.zeros(values.shape[1])
    middle[count > 0] = np.nanmedian(values[:, count > 0], axis=0)
    away = np.where(known, np.abs(values - middle), 0.0)
    inner, outer = np.split(np.square(np.partition(away, len(away) - most, axis=0)), [len(away) - most])
    outer.sort(axis=0)
    outer[np.arange(most)[:, None] >= most - few] = 0.0  # less the largest few of each
    rest = np.sqrt((inner.sum(axis=0) + outer.sum(axis=0)) / np.maximum(count - few, 1))
    whole = np.sqrt(np.square(away).sum(axis=0) / np.maximum(count, 1))
    spoilt = (rest > ROUNDING * np.abs(middle)) & (whole > FAR * rest)
    return (away > FAR * rest) & spoilt


def limits_of(values: np.ndarray) -> np.ndarray:
    """The range of each series of ``[T, N]`` and as much again to each side, ``[2, N]``; infinite for one that does not
    change or has no value."""
    known = np.isfinite(values)
    low = np.where(known, values, np.inf).min(axis=0, initial=np.inf)
    high = np.where(known, values, -np.inf).max(axis=0, initial=-np.inf)
    changes = high > low
    reach = np.where(changes, high, 0.0) - np.where(changes, low, 0.0)
    return np.where(changes, np.stack((low - reach, high + reach)), np.array([[-np.inf], [np.inf]]))


def single_beyond(values: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Which values of ``[T, N]`` are beyond the limits, where these are single ones: of more, a series has moved."""
    found = (values < limits[0]) | (values > limits[1])
    return found & (found.sum(axis=0) <= np.maximum(1, few_of(np.isfinite(values).sum(axis=0))))
