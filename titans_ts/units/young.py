"""Estimated deviation of a series with little data, with the help of other series."""

from dataclasses import dataclass, field

import numpy as np

SERIES, STRETCHES = 64, 256  # maximum number of series and windows to learn from
NUMBERS = 1 << 22  # maximum number of values in all windows


@dataclass(frozen=True)
class Others:
    """Other series, as a reference for a series with little data.

    Attributes:
        rows: the known values of some series, in order and in units of their deviations, ``[R, N]``; NaN after them.
    """

    rows: np.ndarray
    _cache: dict[int, tuple[float, int, float]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, values: np.ndarray, deviation: np.ndarray) -> "Others":
        """From series ``[R, N]`` and their deviations ``[N]``."""
        some = slice(None, None, -(-values.shape[1] // SERIES))
        rows = values[:, some] / deviation[some]
        # without gaps, as the values to compare with: with gaps here and there, no long window would be complete
        return cls(np.take_along_axis(rows, np.argsort(~np.isfinite(rows), axis=0, kind="stable"), axis=0))

    def unit_of(self, values: np.ndarray) -> float | None:
        """The estimated long-term deviation of a series with few values.

        It combines two estimates: the deviation so far, corrected for its bias in so few rows, and the size of the
        values, by the usual ratio of deviation to size. Each is weighted by its precision among the other series.

        Args:
            values: all known values in order, ``[n]``, with n at most R.

        Returns:
            The deviation, or None if neither estimate is possible, as for a series of zeros.
        """
        total = weight = 0.0
        # prior: one more observation, with squared log error 1 for sizes and 1 / rows for deviations
        for own, rows, off in ((np.std(values), len(values), 1 / len(values)), (np.mean(np.abs(values)), 0, 1.0)):
            usual, count, spread = self._statistics(rows)
            sure = (count + 1) / (spread + off) if count else 0.0
            if own > 0 and sure > 0:
                total, weight = total + sure * (np.log(own) - usual), weight + sure
        return float(np.exp(total / weight)) if weight else None

    def _statistics(self, rows: int) -> tuple[float, int, float]:
        """Statistics of the log deviations of windows of this length, or for 0 rows of log sizes: mean, count, and sum
        of squared differences from the mean."""
        if rows not in self._cache:
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
            self._cache[rows] = usual, len(logs), float(np.square(logs - usual).sum())
        return self._cache[rows]
