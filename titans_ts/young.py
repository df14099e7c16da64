"""The unit of a series of which little is known yet, borrowed from others."""

import numpy as np

_AT_MOST = 256  # stretches of the known series


def unit_of(values: np.ndarray, known: np.ndarray, deviation: np.ndarray) -> float | None:
    """The deviation that a young series will have, from two guesses by what is known of others.

    One is its own so far, by how much less series differ in so few rows than on the whole; the other its size, by how
    the deviations of series go with theirs. Each counts by how sure it is among the known series.

    Args:
        values: all that is known of the young one, ``[n]``, in order.
        known: rows of others, ``[R, N]`` with R of at least n, NaN where unknown.
        deviation: of these series, ``[N]``.

    Returns:
        None where neither says anything: of zeros.
    """
    n = len(values)
    stretches = np.lib.stride_tricks.sliding_window_view(known / deviation, n, axis=0)
    stretches = stretches[:: -(-len(stretches) // _AT_MOST)]
    size = np.nanmean(np.where(np.isfinite(known).any(axis=0), np.abs(known), 1.0), axis=0)
    guesses = (
        (np.std(values), stretches[np.isfinite(stretches).all(axis=2)].std(axis=1)),
        (np.mean(np.abs(values)), size / deviation),
    )
    total = weight = 0.0
    for own, others in guesses:
        others = np.log(others[others > 0])
        if own > 0 and len(others):
            # as sure as one series more would be that is off by a factor of e
            sure = len(others) / (np.square(others - others.mean()).sum() + 1)
            total, weight = total + sure * (np.log(own) - others.mean()), weight + sure
    return float(np.exp(total / weight)) if weight else None
