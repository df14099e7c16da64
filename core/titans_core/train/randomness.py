"""The random state of the process, borrowed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# the random state, and the default dtype, belong to the process: who borrows them in another thread waits
_TURN = threading.RLock()


@contextmanager
def borrowed_randomness(seed: int | None = None, *, devices: bool = False) -> Iterator[None]:
    """Random numbers from a seed, and tensors of float32 where no dtype is given; what the caller had comes back.

    Threads take turns, so that each draws what it would alone.

    Args:
        seed: of the CPU's generator; None goes on from where it is.
        devices: give back the random states of GPUs too.
    """
    with _TURN, torch.random.fork_rng(devices=None if devices else []):
        dtype = torch.get_default_dtype()
        try:
            torch.set_default_dtype(torch.float32)
            if seed is not None:
                torch.default_generator.manual_seed(seed)
            yield
        finally:
            torch.set_default_dtype(dtype)
