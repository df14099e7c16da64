"""Weighted quantiles of scores, for each series by its own scores or by those of all series."""

from dataclasses import dataclass
from typing import Any

import numpy as np

ROUNDING = 1e-9  # relative rounding error of a sum of weights


def needed(total: Any, level: float) -> Any:
    """The weight, out of ``total``, that must lie at or below a score to guarantee a level.

    The next, unknown score has weight 1 and counts as larger. With n equal weights this is the rank
    ``ceil((n + 1) level)``.
    """
    return (total + 1) * level / 100


def reached_by_own(scores: np.ndarray, weights: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """The score that ``level`` percent of future scores of the same step and series will not exceed, ``[h, N]``, and
    whether there are enough scores for it. If not, it is the largest score; NaN if none is known.

    Args:
        scores: ``[W, h, N]``, NaN if unknown.
        weights: weight of each origin, ``[W]``.
        level: in percent.
    """
    _, found, below = _in_order(scores.transpose(1, 2, 0), weights)
    need = needed(below[..., -1:], level)
    at = np.minimum((below < need).sum(axis=-1), _last(found))
    return np.take_along_axis(found, at[..., None], axis=-1)[..., 0], need[..., 0] <= below[..., -1]


@dataclass(frozen=True)
class SharedScores:
    """Scores of all series by step, and the places of each series among them, from 0 to 1.

    Attributes:
        scores: sorted scores, ``[h, N * W]``, NaN last.
        below: weight at or below each score.
        places: sorted places of the scores of each series, over all steps, ``[N + 1, W * h + 1]``, with a final 1. The
            last series has no scores.
        passed: weight at or below each place; the weight of an origin is divided among its known steps.
    """

    scores: np.ndarray
    below: np.ndarray
    places: np.ndarray
    passed: np.ndarray

    @classmethod
    def of(cls, scores: np.ndarray, weights: np.ndarray) -> "SharedScores":
        """Arguments as in :func:`reached_by_own`."""
        W, h, N = scores.shape
        by_step = scores.transpose(1, 2, 0).reshape(h, N * W)
        known = np.isfinite(scores)
        order, found, below = _in_order(by_step, np.tile(weights, N))
        place = np.empty_like(below)
        np.put_along_axis(place, order, below / (below[:, -1:] + 1), axis=-1)
        share = np.where(known, (weights[:, None] / np.maximum(known.sum(axis=1), 1))[:, None], 0.0)
        places, mass = np.ones((N + 1, h * W + 1)), np.zeros((N + 1, h * W + 1))
        places[:N, :-1] = np.where(known, place.reshape(h, N, W).transpose(2, 0, 1), 1.0).reshape(-1, N).T
        mass[:N, :-1] = share.reshape(-1, N).T
        order = np.argsort(places, axis=-1)
        passed = np.cumsum(np.take_along_axis(mass, order, axis=-1), axis=-1)
        return cls(found, below, np.take_along_axis(places, order, axis=-1), passed)

    def reached(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """As :func:`reached_by_own`, for each series and finally for one without scores, ``[h, N + 1]``."""
        total = self.below[:, -1:]
        need = self._place(level) * (total + 1)
        at = [np.searchsorted(*of) for of in zip(self.below, need - ROUNDING * (total + 1), strict=True)]
        found = np.take_along_axis(self.scores, np.minimum(at, _last(self.scores)[:, None]), axis=-1)
        return found, np.broadcast_to(needed(total, level) <= total, found.shape)

    def _place(self, level: float) -> np.ndarray:
        """The place at which each series reaches the level, ``[N + 1]``.

        The next score counts as one of a random series, whose place is uniformly distributed.
        """
        need = needed(self.passed[:, -1:], level)
        at = (self.passed + self.places < need).sum(axis=-1, keepdims=True)
        start, passed = (np.pad(x, ((0, 0), (1, 0))) for x in (self.places, self.passed))
        low, before, high = (np.take_along_axis(x, at, axis=-1) for x in (start, passed, self.places))
        return np.clip(need - before, low, high)[:, 0]


def _in_order(scores: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort scores along the last axis, NaN last: the order, the sorted scores, and the weight at or below each."""
    scores = np.ascontiguousarray(scores)  # sorting is twice as fast
    order = np.argsort(scores, axis=-1)
    found = np.take_along_axis(scores, order, axis=-1)
    below = np.take(weights, order)
    below[np.isnan(found)] = 0.0
    return order, found, np.cumsum(below, axis=-1, out=below)


def _last(ordered: np.ndarray) -> np.ndarray:
    """The index of the largest known score along the last axis; 0 if there is none."""
    return np.maximum(np.isfinite(ordered).sum(axis=-1) - 1, 0)
