"""Conformal intervals: as wide as the errors on rows that training did not see (Vovk et al. 2005).

A score says how far a forecast was off beside what could be known before: of a point loss the absolute error in units
of the deviation of its lookback, so that intervals are wide where a series is restless; of a probabilistic loss the
error beside the spread that the network foretold (:class:`titans_ts.objective.Learned`). The interval of a level ends
at the score that this part of the scores stays below, for each step of the horizon.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from titans_core.checks import is_number
from titans_datasets.warn import warn_caller

VALUES = 1 << 25  # forecast at once to score them
WINDOWS = 512  # scores kept of each series and step
HALF_LIFE = WINDOWS / 2  # in origins
SERIES = 64  # more series than these share their scores

NO_SCORES = (
    "this model has no errors to make intervals of: it is fitted without validation rows, or nothing was measured in "
    "them. Fit with val_size, or with a probabilistic loss such as loss='quantile'."
)


@dataclass(frozen=True)
class Calibration:
    """Scores of past forecasts, oldest first.

    Attributes:
        scores: ``[W, h, N]``, or with many series ``[W, h, 1]``, theirs together. NaN where the truth is not known.
        step: rows between the origins of the scores.
        each: scores of one origin, which stand side by side.
    """

    scores: np.ndarray
    step: int = 1
    each: int = 1
    _by_level: dict[float, np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, scores: np.ndarray, step: int = 1) -> "Calibration":
        """From scores ``[W, h, N]`` in time order."""
        calibration = cls(scores.astype(np.float32), step)
        return calibration.shared() if scores.shape[2] > SERIES else calibration

    def shared(self) -> "Calibration":
        """One set of scores for all series."""
        scores = self.scores
        if scores.shape[2] > SERIES:
            scores = scores[:, :, scored_series(scores.shape[2])]
        each = scores.shape[2] if self.each == 1 else self.each
        return Calibration(scores.transpose(0, 2, 1).reshape(-1, scores.shape[1], 1), self.step, each)

    def joined(self, newer: "Calibration") -> "Calibration":
        """With newer scores, and without the oldest beyond as many as there were."""
        return replace(self, scores=np.concatenate((self.scores, newer.scores))[-self.most :])

    @property
    def most(self) -> int:
        """How many scores are kept of it and newer ones: of whole origins."""
        return max(len(self.scores), WINDOWS * self.each)

    def reached(self, level: float, series: Sequence[int | None] | None = None) -> np.ndarray:
        """The score that ``level`` percent of the next ones will not exceed, ``[h, N]``; arguments as of
        :meth:`ranked`. Where there are too few scores it is the largest of them, with a warning.

        Raises:
            ValueError: no score is known.
        """
        scores, enough = self.ranked(level, series)
        if not enough[np.isfinite(scores)].all() or not np.isfinite(scores).any():
            count = np.isfinite(self.scores).sum(axis=0)
            fewest = int(count[count > 0].min()) if count.any() else 0
            total = weights(np.arange(fewest) // self.each).sum()
            warn_caller(
                f"intervals of {level:g} % need errors on more validation windows than the {fewest} there are, which "
                f"give {100 * total / (total + 1):.4g} % at most; these are as wide as the largest error. Give fit a "
                "larger val_size, or take a probabilistic loss such as loss='student_t'."
            )
        if np.isnan(scores).all(axis=0).any():
            raise ValueError(NO_SCORES)
        # a step whose truth was never known is no surer than the others
        return np.where(np.isnan(scores), np.nanmax(scores, axis=0), scores)

    def ranked(self, level: float, series: Sequence[int | None] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The score that ``level`` percent of the next ones will not exceed, ``[h, N]``, and where there are enough to
        say so; else it is the largest known, and NaN where none is.

        ``series`` says which ones the N are, by number; None is a new one, which has the scores of all. By default they
        are all, in order.
        """
        found = self._ranked(level)
        if found.shape[2] > 1:
            silent = ~np.isfinite(self.scores).any(axis=(0, 1))  # ended before the validation rows: none of its own
            asked = range(found.shape[2]) if series is None else series
            places = [found.shape[2] if i is None or silent[i] else i for i in asked]
            pooled = self.shared()._ranked(level) if found.shape[2] in places else found[..., :0]
            found = np.concatenate((found, pooled), axis=2)[..., places]
        return found[0], found[1] > 0

    def _ranked(self, level: float) -> np.ndarray:
        """Of each step and series, or of all together, and whether they are enough, ``[2, h, N or 1]``."""
        if level not in self._by_level:
            self._by_level[level] = self._rank(level)
        return self._by_level[level]

    def _rank(self, level: float) -> np.ndarray:
        scores = np.ascontiguousarray(self.scores.transpose(1, 2, 0))  # sorted twice as fast
        order = np.argsort(scores, axis=-1)  # NaN last
        last = np.isfinite(scores).sum(axis=-1) - 1
        places = np.arange(scores.shape[-1])
        below = np.take(weights(places[::-1] // self.each), order)
        if last.min() < places[-1]:
            below[places > last[..., None]] = 0
        np.cumsum(below, axis=-1, out=below)
        total = below[..., -1]
        at = (below < needed(total, level)[..., None]).sum(axis=-1)
        at = np.take_along_axis(order, np.clip(at, 0, np.maximum(last, 0))[..., None], axis=-1)
        found = np.take_along_axis(scores, at, axis=-1)[..., 0].astype(np.float64)
        return np.stack((found, needed(total, level) <= total))


def weights(ages: np.ndarray) -> np.ndarray:
    """Of scores by how many origins ago they are: they halve in :data:`HALF_LIFE`, as the errors of lately tell more of
    the next one (Barber et al. 2023, arXiv:2202.13415)."""
    found: np.ndarray = 0.5 ** (ages / HALF_LIFE)
    return found


def needed(total: Any, level: float) -> Any:
    """The weight that must lie at or below a score for it to promise a level, of ``total`` in all: the next one, which
    is not yet known, weighs 1 and counts as larger. Equal weights give the rank ``ceil((n + 1) level)`` of n."""
    return (total + 1) * level / 100


def scored_series(N: int) -> np.ndarray:
    """Which of N series are scored for all; the same each time, so that later scores stand beside earlier ones."""
    if N <= SERIES:
        return np.arange(N)
    return np.sort(np.random.default_rng(0).choice(N, SERIES, replace=False))


def scored_origins(begin: int, end: int, step: int) -> np.ndarray:
    """The rows from ``begin`` to before ``end`` at which forecasts are scored: multiples of ``step``, so that which
    they are does not depend on how the rows came in."""
    return np.arange(-(-begin // step) * step, end, step)


def scoring_step(rows: int, each: int) -> int:
    """How far apart origins are scored where ``rows`` could be, each with so many values."""
    return max(1, rows // WINDOWS, -(-rows * each // VALUES))


def check_levels(level: Any) -> list[float]:
    """``level`` as a sorted list of percentages; of None, none.

    Raises:
        ValueError: no number from 1 to below 100.
    """
    if level is None:
        return []
    levels = list(level) if isinstance(level, Iterable) and not isinstance(level, str) else [level]
    for value in levels:
        if not is_number(value) or not 0 < value < 100:
            raise ValueError(f"level must be percentages between 0 and 100, such as [80, 95], got {level!r}.")
        if value < 1:
            raise ValueError(f"level={value} is {value} percent: levels are percentages, such as {100 * value:g}.")
    return sorted({float(value) for value in levels})


def column_names(levels: list[float]) -> list[str]:
    """Of a forecast and its bounds in the order of neuralforecast: lower ones from wide to narrow, then upper ones."""
    low, high = [f"Titans-lo-{v:g}" for v in reversed(levels)], [f"Titans-hi-{v:g}" for v in levels]
    return ["Titans", *low, *high]
