"""Conformal intervals, calibrated by the errors on rows that training did not see (Vovk et al. 2005).

A score is a normalised error. With a point loss it is the absolute error divided by the standard deviation of the
lookback, so that intervals are wider where a series varies more. With a probabilistic loss it is the error relative to
the predicted spread (:class:`titans_ts.network.objective.Learned`). The interval of a level ends at the corresponding
quantile of the scores of its series, for each step of the horizon.

If a series has too few scores, the scores of all series give the distribution at each step, and its own scores, over
all steps, the position of the series in this distribution. A series without scores gets the quantiles of all series.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np

from titans_core.checks import is_number
from titans_core.warn import warn_caller
from titans_ts.ranks import SharedScores, reached_by_own

VALUES = 1 << 25  # forecast values held at once for scoring
WINDOWS = 512  # maximum number of origins whose scores are kept
SCORES = 1 << 15  # maximum number of scores for a step: with many series, fewer origins are kept
HALF_LIFE = WINDOWS / 2  # in origins; if fewer are kept, half of these
SMALL = 5  # distances up to this one are not adjusted: they still cover a fifth of the hours and days
_NEW = ((0, 0), (0, 1))  # padding for one more series

NO_SCORES = (
    "this model cannot provide intervals: it was fitted without validation rows, or no forecast of them could be "
    "scored, because they have no known value, or each lookback ends in a gap that was filled with later values. "
    "Fit with val_size (or a larger one), or with a probabilistic loss such as loss='quantile'."
)


@dataclass(frozen=True)
class Calibration:
    """Scores of past forecasts, oldest first.

    Attributes:
        scores: ``[W, h, N]``; NaN where the actual value is unknown.
        step: rows between the origins of the scores.
        phase: the smallest possible origin; all are ``phase`` plus a multiple of ``step``.
    """

    scores: np.ndarray
    step: int = 1
    phase: int = 0
    _found: dict[tuple[str, float], tuple[np.ndarray, np.ndarray]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def origins(self, begin: int, end: int) -> np.ndarray:
        """The origins in ``[begin, end)`` that are scored, however the rows were split over updates."""
        return scored_origins(begin, end, self.step, self.phase)

    def joined(self, newer: np.ndarray) -> "Calibration":
        """Add newer scores, and drop the oldest beyond :attr:`most`. Origins without any score are not added: after a
        long outage they would have replaced all others."""
        return replace(self, scores=np.concatenate((self.scores, newer[with_score(newer)]))[-self.most :])

    @property
    def most(self) -> int:
        """Maximum number of origins whose scores are kept."""
        return max(len(self.scores), kept_origins(self.scores.shape[2]))

    def reached(self, level: float, series: Sequence[int | None] | None = None) -> np.ndarray:
        """The score that ``level`` percent of future scores will not exceed, ``[h, N]``; arguments as in
        :meth:`ranked`. If there are too few scores, at least the largest own score, with a warning.

        Raises:
            ValueError: no score is known.
        """
        scores, enough = self.ranked(level, series)
        if not enough[np.isfinite(scores)].all() or not np.isfinite(scores).any():
            known = np.isfinite(self.scores)
            count, total = known.sum(axis=(0, 2)), known.sum(axis=2).T @ self._weights
            fewest, total = (x.min(where=count > 0, initial=x.max(initial=0)) for x in (count, total))
            warn_caller(
                f"intervals of {level:g} % may be too narrow: the {fewest} validation windows of all series together "
                f"support at most {100 * total / (total + 1):.4g} %. "
                "Give fit a larger val_size, or use a probabilistic loss such as loss='student_t'."
            )
        if np.isnan(scores).all(axis=0).any():
            raise ValueError(NO_SCORES)
        # a step without any known score gets the largest score of the other steps
        return np.where(np.isnan(scores), np.nanmax(scores, axis=0), scores)

    def ranked(self, level: float, series: Sequence[int | None] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The score that ``level`` percent of future scores will not exceed, ``[h, N]``, and where there are enough
        scores to support it. Elsewhere it is at least the largest own score, and NaN if none is known.

        ``series`` gives the numbers of the N series; None stands for a new series without scores. Default: all series,
        in order.
        """
        found, enough = self._cached("own", level)
        places = list(range(found.shape[1]))
        if series is not None:
            places = [found.shape[1] if i is None else i for i in series]
            found, enough = np.pad(found, _NEW, constant_values=np.nan), np.pad(enough, _NEW)
        found, enough = found[:, places], enough[:, places]
        if not enough.all():
            others, sure = (x[:, places] for x in self._cached("others", level))
            # not less than the largest own score, so that higher levels have wider intervals
            found, enough = np.where(enough, found, np.fmax(others, found)), enough | sure
        return found.astype(np.float64), enough

    def _cached(self, whose: str, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Cached quantiles of each series' own scores, ``[h, N]``, or of all, ``[h, N + 1]`` (last: a new series)."""
        if (whose, level) not in self._found:
            own = whose == "own"
            found = reached_by_own(self.scores, self._weights, level) if own else self._shared.reached(level)
            self._found[whose, level] = found
        return self._found[whose, level]

    @cached_property
    def _shared(self) -> SharedScores:
        return SharedScores.of(self.scores, self._weights)

    @property
    def _weights(self) -> np.ndarray:
        """The weight of each origin, ``[W]``."""
        return weights(np.arange(len(self.scores))[::-1], self.scores.shape[2])


def with_score(scores: np.ndarray) -> np.ndarray:
    """Which origins have any score, ``[W]``. The others do not count, so that an outage makes no known error older."""
    found: np.ndarray = np.isfinite(scores).any(axis=(1, 2))
    return found


def weights(ages: np.ndarray, N: int) -> np.ndarray:
    """Weights of scores of N series by age in origins. They decay with :data:`HALF_LIFE`, since recent errors are more
    informative (Barber et al. 2023, arXiv:2202.13415)."""
    found: np.ndarray = 0.5 ** (ages / (HALF_LIFE * kept_origins(N) / WINDOWS))
    return found


def kept_origins(N: int) -> int:
    """The number of origins whose scores are kept, for N series."""
    return max(1, min(WINDOWS, SCORES // N))


def scored_origins(begin: int, end: int, step: int, phase: int = 0) -> np.ndarray:
    """The rows in ``[begin, end)`` that are ``phase`` plus a multiple of ``step``."""
    return np.arange(begin + (phase - begin) % step, end, step)


def scoring_step(rows: int, h: int, N: int) -> int:
    """The distance of scored origins among ``rows`` possible ones, with N series each.

    It also bounds the memory for corrections whose horizon is not yet known. Larger distances have no common factor
    with days and weeks, so that forecasts are scored at all hours.
    """
    step = max(1, rows // kept_origins(N), -(-max(rows, h) * h * N // VALUES))
    while step > SMALL and gcd(step, 2 * 3 * 5 * 7) > 1:
        step += 1
    return step


def check_levels(level: Any) -> list[float]:
    """``level`` as a sorted list of percentages; empty for None.

    Raises:
        ValueError: a value that is not a number from 1 to below 100.
    """
    if level is None:
        return []
    levels = list(level) if isinstance(level, Iterable) and not isinstance(level, str) else [level]
    for value in levels:
        if not is_number(value) or not 0 < value < 100:
            raise ValueError(f"level must be percentages between 0 and 100, such as [80, 95], got {level!r}.")
        if value < 1:
            raise ValueError(f"level={value} means {value} percent: give levels in percent, such as {100 * value:g}.")
    # a float32 by its decimal digits: 99.9, not 99.90000153
    return sorted({float(str(value)) if isinstance(value, np.floating) else float(value) for value in levels})


def column_names(levels: list[float]) -> list[str]:
    """Column names in the order of neuralforecast: forecast, lower bounds (widest first), upper bounds."""
    low = [f"Titans-lo-{level_text(v)}" for v in reversed(levels)]
    return ["Titans", *low, *(f"Titans-hi-{level_text(v)}" for v in levels)]


def level_text(level: float) -> str:
    """A level as in column names: 80, 99.5; without rounding errors."""
    return f"{level:.10g}"
