"""Sequences drawn at random, for the tests."""

import numpy as np


def bases(n, seed=0):
    return "".join(np.random.default_rng(seed).choice(list("ACGT"), n))


def chain(n, seed=0, step=1):
    """A Markov chain: each base is ``step`` letters after its predecessor in ACGTACGT... with probability 0.85,
    else one of the other three. That is 0.848 bits per base, for a step of 1 or 3 on both strands."""
    rng = np.random.default_rng(seed)
    steps = np.where(rng.random(n) < 0.85, step, rng.choice([other for other in range(4) if other != step], n))
    return "".join("ACGT"[i] for i in np.cumsum(steps) % 4)
