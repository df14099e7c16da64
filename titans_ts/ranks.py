"""The score at which a level is reached: of each series by its own scores, or by those of all."""

from dataclasses import dataclass
from typing import Any

import numpy as np

ROUNDING = 1e-9  # of a sum of weights


def needed(total: Any, level: float) -> Any:
    """The weight that must lie at or below a score for it to promise a level, of ``total`` in all: the next one, which
    is not yet known, weighs 1 and counts as larger. Equal weights give the rank ``ceil((n + 1) level)`` of n."""
    return (total + 1) * level / 100


def reached_by_own(scores: np.ndarray, weights: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """The score that ``level`` percent of the next ones of the same step and series will not exceed, ``[h, N]``, and
    whether they are enough to say so; else it is the largest, and NaN where none is known.

    Args:
        scores: ``[W, h, N]``, NaN where unknown.
        weights: of each origin, ``[W]``.
        level: in percent.
    """
    _, found, below = _in_order(scores.transpose(1, 2, 0), weights)
    need = needed(below[..., -1:], level)
    at = np.minimum((below < need).sum(axis=-1), _last(found))
    return np.take_along_axis(found, at[..., None], axis=-1)[..., 0], need[..., 0] <= below[..., -1]


@dataclass(frozen=True)
class SharedScores:
    """Scores of all series by step, and where among them each series stands, from 0 to 1.

    Attributes:
        scores: in order, ``[h, N * W]``, NaN last.
        below: weight at or below each.
        places: of the scores of each series, all steps together, in order, ``[N + 1, W * h + 1]``; the last series has
            none. Behind them is 1, where all scores have come to an end.
        passed: weight at or below each place, where an origin's is divided among its known steps.
    """

    scores: np.ndarray
    below: np.ndarray
    places: np.ndarray
    passed: np.ndarray

    @classmethod
    def of(cls, scores: np.ndarray, weights: np.ndarray) -> "SharedScores":
        """Arguments as of :func:`reached_by_own`."""
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
        """As :func:`reached_by_own`, of each series and last of one without scores, ``[h, N + 1]``."""
        total = self.below[:, -1:]
        need = self._place(level) * (total + 1)
        at = [np.searchsorted(*of) for of in zip(self.below, need - ROUNDING * (total + 1), strict=True)]
        found = np.take_along_axis(self.scores, np.minimum(at, _last(self.scores)[:, None]), axis=-1)
        return found, np.broadcast_to(needed(total, level) <= total, found.shape)

    def _place(self, level: float) -> np.ndarray:
        """Where each series reaches the level, if the next score is one of any of the series, ``[N + 1]``: it is below
        a place as often as the place says."""
        need = needed(self.passed[:, -1:], level)
        at = (self.passed + self.places < need).sum(axis=-1, keepdims=True)
        start, passed = (np.pad(x, ((0, 0), (1, 0))) for x in (self.places, self.passed))
        low, before, high = (np.take_along_axis(x, at, axis=-1) for x in (start, passed, self.places))
        return np.clip(need - before, low, high)[:, 0]


def _in_order(scores: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The order of scores along the last axis, NaN last, the scores in it, and the weight at or below each."""
    scores = np.ascontiguousarray(scores)  # sorted twice as fast
    order = np.argsort(scores, axis=-1)
    found = np.take_along_axis(scores, order, axis=-1)
    below = np.take(weights, order)
    below[np.isnan(found)] = 0.0
    return order, found, np.cumsum(below, axis=-1, out=below)


def _last(ordered: np.ndarray) -> np.ndarray:
    """Where the largest known score is along the last axis; 0 where none is."""
    return np.maximum(np.isfinite(ordered).sum(axis=-1) - 1, 0)
