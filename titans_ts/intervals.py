"""Conformal intervals: as wide as the errors on rows that training did not see (Vovk et al. 2005).

A score says how far a forecast was off beside what could be known before: of a point loss the absolute error in units
of the deviation of its lookback, so that intervals are wide where a series is restless; of a probabilistic loss the
error beside the spread that the network foretold (:class:`titans_ts.objective.Learned`). The interval of a level ends
at the score that this part of the scores of its series stays below, for each step of the horizon.

Where a series has too few scores for that, those of all series say how scores of a step are spread, and its own, of all
steps together, where among them it stands: a calm one low, a restless one high. The next score counts as one of any
series there, so that a series without scores has what all have.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np

from titans_core.checks import is_number
from titans_datasets.warn import warn_caller
from titans_ts.ranks import SharedScores, reached_by_own

VALUES = 1 << 25  # forecast at once to score them
WINDOWS = 512  # origins whose scores are kept, at most
SCORES = 1 << 15  # scores kept of a step: of many series those of fewer origins
HALF_LIFE = WINDOWS / 2  # in origins; where fewer are kept, half of these
SMALL = 5  # steps up to which scored origins are at a fifth of the hours and days or more
_NEW = ((0, 0), (0, 1))  # one series more

NO_SCORES = (
    "this model has no errors to make intervals of: it is fitted without validation rows, or nothing was measured in "
    "them. Fit with val_size, or with a probabilistic loss such as loss='quantile'."
)


@dataclass(frozen=True)
class Calibration:
    """Scores of past forecasts, oldest first.

    Attributes:
        scores: ``[W, h, N]``; NaN where the truth is not known.
        step: rows between the origins of the scores.
        phase: rows before the first origin that can be.
    """

    scores: np.ndarray
    step: int = 1
    phase: int = 0
    _found: dict[tuple[str, float], tuple[np.ndarray, np.ndarray]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def origins(self, begin: int, end: int) -> np.ndarray:
        """The rows from ``begin`` to before ``end`` at which forecasts are scored. Which they are does not depend on
        how the rows came in."""
        return scored_origins(begin, end, self.step, self.phase)

    def joined(self, newer: np.ndarray) -> "Calibration":
        """With newer scores, and without the oldest beyond :attr:`most`."""
        return replace(self, scores=np.concatenate((self.scores, newer))[-self.most :])

    @property
    def most(self) -> int:
        """Of how many origins scores are kept, of it and newer ones."""
        return max(len(self.scores), kept_origins(self.scores.shape[2]))

    def reached(self, level: float, series: Sequence[int | None] | None = None) -> np.ndarray:
        """The score that ``level`` percent of the next ones will not exceed, ``[h, N]``; arguments as of
        :meth:`ranked`. Where there are too few scores it is the largest of its own, or more, with a warning.

        Raises:
            ValueError: no score is known.
        """
        scores, enough = self.ranked(level, series)
        if not enough[np.isfinite(scores)].all() or not np.isfinite(scores).any():
            known = np.isfinite(self.scores)
            count, total = known.sum(axis=(0, 2)), known.sum(axis=2).T @ self._weights
            fewest, total = (x.min(where=count > 0, initial=x.max(initial=0)) for x in (count, total))
            warn_caller(
                f"intervals of {level:g} % need errors on more validation windows than the {fewest} there are, of all "
                f"series together, which give {100 * total / (total + 1):.4g} % at most; these may be too narrow. "
                "Give fit a larger val_size, or take a probabilistic loss such as loss='student_t'."
            )
        if np.isnan(scores).all(axis=0).any():
            raise ValueError(NO_SCORES)
        # a step whose truth was never known is no surer than the others
        return np.where(np.isnan(scores), np.nanmax(scores, axis=0), scores)

    def ranked(self, level: float, series: Sequence[int | None] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The score that ``level`` percent of the next ones will not exceed, ``[h, N]``, and where there are enough to
        say so; else it is the largest of its own, or more, and NaN where none is known.

        ``series`` says which ones the N are, by number; None is a new one, without scores of its own. By default they
        are all, in order.
        """
        found, enough = self._once("own", level)
        places = list(range(found.shape[1]))
        if series is not None:
            places = [found.shape[1] if i is None else i for i in series]
            found, enough = np.pad(found, _NEW, constant_values=np.nan), np.pad(enough, _NEW)
        found, enough = found[:, places], enough[:, places]
        if not enough.all():
            others, sure = (x[:, places] for x in self._once("others", level))
            # where its own promise less, it is at least the largest of them, so that wider levels have wider intervals
            found, enough = np.where(enough, found, np.fmax(others, found)), enough | sure
        return found.astype(np.float64), enough

    def _once(self, whose: str, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Ranked by the scores of each series, ``[h, N]``, or by those of all, ``[h, N + 1]``, whose last is new."""
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
        """Of each origin, ``[W]``."""
        return weights(np.arange(len(self.scores))[::-1], self.scores.shape[2])


def weights(ages: np.ndarray, N: int) -> np.ndarray:
    """Of scores of N series by how many origins ago they are: they halve in :data:`HALF_LIFE`, as the errors of lately
    tell more of the next one (Barber et al. 2023, arXiv:2202.13415)."""
    found: np.ndarray = 0.5 ** (ages / (HALF_LIFE * kept_origins(N) / WINDOWS))
    return found


def kept_origins(N: int) -> int:
    """Of how many origins the scores of N series are kept."""
    return max(1, min(WINDOWS, SCORES // N))


def scored_origins(begin: int, end: int, step: int, phase: int = 0) -> np.ndarray:
    """The rows from ``begin`` to before ``end`` that are ``phase`` more than a multiple of ``step``."""
    return np.arange(begin + (phase - begin) % step, end, step)


def scoring_step(rows: int, h: int, N: int) -> int:
    """How far apart origins are scored where ``rows`` could be, with N series each; so far, too, that what is said at
    origins whose horizon is not yet known is no more than fits in memory. Larger ones share no factor with days and
    weeks: forecasts are scored at all hours, not at one."""
    step = max(1, rows // kept_origins(N), -(-max(rows, h) * h * N // VALUES))
    while step > SMALL and gcd(step, 2 * 3 * 5 * 7) > 1:
        step += 1
    return step


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
