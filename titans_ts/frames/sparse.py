"""Detection of series that have values only at every second, third, ... step."""

import numpy as np

from titans_core.warn import warn_caller
from titans_ts.frames.panel import Panel

SEVERAL = 10  # rows from which on a regular spacing in a series is no coincidence


def warn_of_sparse(panel: Panel) -> None:
    """Warn about series with values only at every second, third, ... step, since errors between them stay unknown."""
    found = {}
    for name, there in zip(panel.ids, np.isfinite(panel.measured).T, strict=True):
        rows = np.flatnonzero(there)
        apart = 1 if there.all() or len(rows) < SEVERAL else int(np.gcd.reduce(np.diff(rows)))
        if apart > 1:
            found[name] = apart
    if found:
        first = next(iter(found.values()))
        names = [name for name, apart in found.items() if apart == first]
        warn_caller(
            f"series {names[:8]} have a value only once in {first} steps: forecasts and intervals for the other steps "
            "are unreliable. Fit such series in a separate model, with only the rows that have values."
        )
