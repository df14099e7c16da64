"""Single values that lie so far from all others of a series that they are hardly measurements."""

from dataclasses import replace

import numpy as np

from titans_datasets.warn import warn_caller
from titans_ts.panel import Panel

FAR = 10.0  # times the deviation of a series without them
GAP = 20.0  # times as far as any other value: the tail of a distribution has none that wide
FEW = 200  # one in so many rows
ROUNDING = 1e-12  # of a value in double precision, relative to it


def few_of(rows: np.ndarray) -> np.ndarray:
    """How many values of a series are single ones, of so many."""
    return np.maximum(np.minimum(3, rows // 20), rows // FEW)


def spikes_of(values: np.ndarray) -> np.ndarray:
    """Which values of each series ``[T, N]`` are spikes: single ones, farther from the median than all others by
    :data:`GAP`, without which the deviation of the series is less than a tenth.

    A series has none of which half of the values are the same: what it does seldom may be all it does.
    """
    known = np.isfinite(values)
    count = known.sum(axis=0)
    few = few_of(count)
    most = int(few.max(initial=0))
    found = np.zeros_like(known)
    if not most:
        return found
    away, least = _away(values)
    outer = np.sort(np.partition(away, len(away) - most - 1, axis=0)[-most - 1 :], axis=0)[::-1]  # the largest first
    gaps = (outer[:-1] >= GAP * outer[1:]) & (outer[1:] > least)
    gaps &= np.arange(most)[:, None] < few
    last = most - 1 - gaps[::-1].argmax(axis=0)  # of those beyond the widest gap
    for series in np.flatnonzero(gaps.any(axis=0) & ~_seldom(away, least, count)):
        far = away[:, series] >= outer[last[series], series]
        rest = away[known[:, series] & ~far, series]
        own = np.sqrt(np.square(away[:, series]).sum() / count[series])
        found[:, series] = far & (own > FAR * np.sqrt(np.square(rest).mean()))
    return found


def _away(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far values ``[T, N]`` are from the median of their series, 0 for NaN, and what is rounding, ``[N]``."""
    known = np.isfinite(values)
    middle, some = np.zeros(values.shape[1]), known.any(axis=0)
    middle[some] = np.nanmedian(values[:, some], axis=0)
    return np.where(known, np.abs(values - middle), 0.0), ROUNDING * np.abs(middle)


def _seldom(away: np.ndarray, least: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Of which series more than half of the values are the same, ``[N]``, of so many values each."""
    return 2 * (away > least).sum(axis=0) < count


def without_spikes(values: np.ndarray) -> np.ndarray:
    """``[T, N]`` with NaN for spikes."""
    return np.where(spikes_of(values), np.nan, values)


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


def odd_ones(values: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Which values of ``[T, N]`` are single ones beyond the limits; of series of which half of the values are the same,
    such as sales of what sells seldom, those as much as ten ranges beyond: what it does seldom varies most."""
    found, far = (single_beyond(values, within) for within in (limits, _wider(limits)))
    differ = np.flatnonzero((found != far).any(axis=0))  # of few, and medians of all rows take long
    if len(differ):
        some = values[:, differ]
        slow = differ[_seldom(*_away(some), np.isfinite(some).sum(axis=0))]
        found[:, slow] = far[:, slow]
    return found


def _wider(limits: np.ndarray) -> np.ndarray:
    """Ten ranges beyond limits."""
    low, high = limits
    reach = FAR * (high - low) / 3
    return np.stack((low - reach, high + reach))


def wrong_values(values: np.ndarray, border: int) -> tuple[np.ndarray, np.ndarray]:
    """Which values of ``[T, N]`` are taken for wrong in a training on the rows before a border, and the limits of the
    others, ``[2, N]``: spikes among these rows, and single values as much as ten ranges beyond them that came later.
    None where no value that is within the limits came behind it: there a series may have moved."""
    trained = values[:border]
    spikes = spikes_of(trained)
    low, high = limits = limits_of(np.where(spikes, np.nan, trained))
    found = np.concatenate((spikes, single_beyond(values[border:], _wider(limits))))
    within = (values >= low) & (values <= high)
    return found & np.flip(np.maximum.accumulate(np.flip(within, axis=0), axis=0), axis=0), limits


def warn_of_far(panel: Panel, found: np.ndarray, limits: np.ndarray, counted: np.ndarray | None = None) -> None:
    """Name the first of these values ``[T, N]``, the range of the others, and what it counts as, if it does."""
    row, series = np.argwhere(found)[0]
    low, high = limits[:, series]
    reach = (high - low) / 3
    others = f"; so it is with {found.sum() - 1} other values" if found.sum() > 1 else ""
    counts = "" if counted is None else f"It counts as {counted[row, series]:.6g}. "
    warn_caller(
        f"series {panel.ids[series]!r} is {panel.values[row, series]:.6g} at {panel.index[row]}, and from "
        f"{low + reach:.6g} to {high - reach:.6g} in training{others}. {counts}If that was not measured, make it NaN "
        "with missing='mask' or 'interpolate': forecasts from a lookback with it mean little."
    )


def without_wrong(panel: Panel, border: int) -> Panel:
    """The panel of a training on the rows before a border with its wrong values, which a warning names, at the limits
    of the others (:func:`wrong_values`), and lines to them no further."""
    found, limits = wrong_values(panel.measured, border)
    if not found.any():
        return panel
    cut = np.clip(panel.values, *np.where(found.any(axis=0), limits, [[-np.inf], [np.inf]]))
    values = np.where(found | panel.drawn[..., 0], cut, panel.values)
    warn_of_far(panel, found, limits, values)
    return replace(panel, values=values)
