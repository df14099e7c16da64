"""Detection of single values so far from all others of a series that they are probably errors."""

from dataclasses import replace

import numpy as np

from titans_core.warn import warn_caller
from titans_ts.frames.panel import Panel

FAR = 10.0  # a series with spikes has more than FAR times the deviation without them
GAP = 20.0  # spikes are GAP times as far from the median as other values, more than in the tail of a distribution
FEW = 200  # at most about one value in FEW is a spike
ROUNDING = 1e-12  # relative rounding error in double precision


def few_of(rows: np.ndarray) -> np.ndarray:
    """The maximum number of values that count as single ones, for a number of rows."""
    return np.maximum(np.minimum(3, rows // 20), rows // FEW)


def spikes_of(values: np.ndarray) -> np.ndarray:
    """Which values of each series ``[T, N]`` are spikes: single values, :data:`GAP` times as far from the median as all
    others, that increase the standard deviation more than :data:`FAR` times.

    A series in which more than half of the values are equal has no spikes, since its few other values may be genuine.
    """
    known = np.isfinite(values)
    count = known.sum(axis=0)
    few = few_of(count)
    most = int(few.max(initial=0))
    found = np.zeros_like(known)
    if not most:
        return found
    away, least = _distances(values)
    outer = np.sort(np.partition(away, len(away) - most - 1, axis=0)[-most - 1 :], axis=0)[::-1]  # the largest first
    gaps = (outer[:-1] >= GAP * outer[1:]) & (outer[1:] > least)
    gaps &= np.arange(most)[:, None] < few
    last = most - 1 - gaps[::-1].argmax(axis=0)  # the innermost value beyond a gap
    for series in np.flatnonzero(gaps.any(axis=0) & ~_mostly_constant(away, least, count)):
        far = away[:, series] >= outer[last[series], series]
        rest = away[known[:, series] & ~far, series]
        own = np.sqrt(np.square(away[:, series]).sum() / count[series])
        found[:, series] = far & (own > FAR * np.sqrt(np.square(rest).mean()))
    return found


def _distances(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distances of values ``[T, N]`` from the median of their series, 0 for NaN, and the rounding error, ``[N]``."""
    known = np.isfinite(values)
    middle, some = np.zeros(values.shape[1]), known.any(axis=0)
    middle[some] = np.nanmedian(values[:, some], axis=0)
    return np.where(known, np.abs(values - middle), 0.0), ROUNDING * np.abs(middle)


def _mostly_constant(away: np.ndarray, least: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Series in which more than half of the ``count`` values are equal, ``[N]``."""
    return 2 * (away > least).sum(axis=0) < count


def without_spikes(values: np.ndarray) -> np.ndarray:
    """Replace spikes in ``[T, N]`` by NaN."""
    return np.where(spikes_of(values), np.nan, values)


def limits_of(values: np.ndarray) -> np.ndarray:
    """The range of each series of ``[T, N]``, extended by its width on each side, ``[2, N]``; infinite for a constant
    or empty series."""
    known = np.isfinite(values)
    low = np.where(known, values, np.inf).min(axis=0, initial=np.inf)
    high = np.where(known, values, -np.inf).max(axis=0, initial=-np.inf)
    changes = high > low
    reach = np.where(changes, high, 0.0) - np.where(changes, low, 0.0)
    return np.where(changes, np.stack((low - reach, high + reach)), np.array([[-np.inf], [np.inf]]))


def single_beyond(values: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Which values of ``[T, N]`` are beyond the limits, if they are few; if many are, the series has changed level."""
    found = (values < limits[0]) | (values > limits[1])
    return found & (found.sum(axis=0) <= np.maximum(1, few_of(np.isfinite(values).sum(axis=0))))


def odd_ones(values: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Which values of ``[T, N]`` are single values beyond the limits.

    Series in which more than half of the values are equal, such as intermittent sales, vary most in their rare values:
    for them only values more than ten training ranges beyond the limits count.
    """
    found, far = (single_beyond(values, within) for within in (limits, _wider(limits)))
    differ = np.flatnonzero((found != far).any(axis=0))  # medians are slow: compute them only for these series
    if len(differ):
        some = values[:, differ]
        slow = differ[_mostly_constant(*_distances(some), np.isfinite(some).sum(axis=0))]
        found[:, slow] = far[:, slow]
    return found


def _wider(limits: np.ndarray) -> np.ndarray:
    """Limits extended by ten training ranges on each side."""
    low, high = limits
    reach = FAR * (high - low) / 3
    return np.stack((low - reach, high + reach))


def wrong_values(values: np.ndarray, border: int) -> tuple[np.ndarray, np.ndarray]:
    """Which values of ``[T, N]`` count as wrong in a training on the rows before ``border``, and the limits of the
    other values, ``[2, N]``.

    These are spikes in the training rows, and later single values more than ten ranges beyond the limits. Values that
    no value within the limits follows are kept, since the series may have changed its level.
    """
    trained = values[:border]
    spikes = spikes_of(trained)
    low, high = limits = limits_of(np.where(spikes, np.nan, trained))
    found = np.concatenate((spikes, single_beyond(values[border:], _wider(limits))))
    within = (values >= low) & (values <= high)
    return found & np.flip(np.maximum.accumulate(np.flip(within, axis=0), axis=0), axis=0), limits


def warn_of_far(panel: Panel, found: np.ndarray, limits: np.ndarray, counted: np.ndarray | None = None) -> None:
    """Warn about the first of these values ``[T, N]``, with the range of the others and, if it is replaced, its new
    value."""
    row, series = np.argwhere(found)[0]
    low, high = limits[:, series]
    reach = (high - low) / 3
    others = f" (and {found.sum() - 1} more)" if found.sum() > 1 else ""
    counts = "" if counted is None else f"It is clipped to {counted[row, series]:.6g}. "
    warn_caller(
        f"series {panel.ids[series]!r} is {panel.values[row, series]:.6g} at {panel.index[row]}, far from its training "
        f"range {low + reach:.6g} to {high - reach:.6g}{others}. {counts}Forecasts from a lookback with such a value "
        "are unreliable. If it is an error, replace it by NaN and set missing='mask' or 'interpolate'."
    )


def without_wrong(panel: Panel, border: int) -> Panel:
    """The training panel with wrong values (:func:`wrong_values`) clipped to the limits of the others, with a warning.

    Values interpolated from them are clipped too.
    """
    found, limits = wrong_values(panel.measured, border)
    if not found.any():
        return panel
    cut = np.clip(panel.values, *np.where(found.any(axis=0), limits, [[-np.inf], [np.inf]]))
    values = np.where(found | panel.imputed[..., 0], cut, panel.values)
    warn_of_far(panel, found, limits, values)
    return replace(panel, values=values)
