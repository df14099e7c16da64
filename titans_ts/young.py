"""The unit of a series of which little is known yet, borrowed from others."""

from dataclasses import dataclass, field

import numpy as np

SERIES, STRETCHES = 64, 256  # that are asked, at most
NUMBERS = 1 << 22  # in them together


@dataclass(frozen=True)
class Others:
    """What other series tell of a young one.

    Attributes:
        rows: of some of them ``[R, N]`` in their deviations, NaN where unknown.
    """

    rows: np.ndarray
    _told: dict[int, tuple[float, int, float]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, values: np.ndarray, deviation: np.ndarray) -> "Others":
        """Of series ``[R, N]`` and their deviations ``[N]``."""
        some = slice(None, None, -(-values.shape[1] // SERIES))
        return cls(values[:, some] / deviation[some])

    def unit_of(self, values: np.ndarray) -> float | None:
        """The deviation that a young series will have, from two guesses.

        One is its own so far, by how much less series differ in so few rows than on the whole; the other its size, by
        how the deviations of series go with theirs. Each counts by how sure it is among the others.

        Args:
            values: all that is known of the young one, ``[n]`` with n of at most R, in order.

        Returns:
            None where neither says anything: of zeros.
        """
        total = weight = 0.0
        # as sure as if there were one more: a size by a factor of e off, a deviation less, the more rows it is of
        for own, rows, off in ((np.std(values), len(values), 1 / len(values)), (np.mean(np.abs(values)), 0, 1.0)):
            usual, count, spread = self._tell(rows)
            sure = (count + 1) / (spread + off) if count else 0.0
            if own > 0 and sure > 0:
                total, weight = total + sure * (np.log(own) - usual), weight + sure
        return float(np.exp(total / weight)) if weight else None

    def _tell(self, rows: int) -> tuple[float, int, float]:
        """The mean logarithm of deviations in so many rows, or for 0 of sizes; of how many, and the sum of squares
        around it."""
        if rows not in self._told:
            if rows:
                stretches = np.lib.stride_tricks.sliding_window_view(self.rows, rows, axis=0)
                most = min(STRETCHES, max(1, NUMBERS // self.rows[:rows].size))
                stretches = stretches[:: -(-len(stretches) // most)]
                found = stretches[np.isfinite(stretches).all(axis=2)].std(axis=1)
            else:
                known = np.isfinite(self.rows)
                found = np.abs(np.where(known, self.rows, 0.0)).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
            logs = np.log(found[found > 0])
            usual = float(logs.mean()) if len(logs) else 0.0
            self._told[rows] = usual, len(logs), float(np.square(logs - usual).sum())
        return self._told[rows]
