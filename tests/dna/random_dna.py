"""Sequences drawn at random, for the tests."""

import numpy as np


def bases(n, seed=0):
    return "".join(np.random.default_rng(seed).choice(list("ACGT"), n))


def chain(n, seed=0, step=1):
    """Each base is ``step`` letters behind its neighbour in ACGTACGT... with probability 0.85, and one of the other
    three else: 0.848 bits a base. With a step of 1 or 3 on either strand."""
    rng = np.random.default_rng(seed)
    steps = np.where(rng.random(n) < 0.85, step, rng.choice([other for other in range(4) if other != step], n))
    return "".join("ACGT"[i] for i in np.cumsum(steps) % 4)
