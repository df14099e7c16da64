"""Temporary use of the process's random state."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# random state and default dtype are per process, so other threads wait for their turn
_TURN = threading.RLock()


@contextmanager
def borrowed_randomness(seed: int | None = None, *, devices: bool = False) -> Iterator[None]:
    """Use a seeded random state and a default dtype of float32, and restore the caller's values afterwards.

    Threads take turns, so each draws the same numbers as it would alone.

    Args:
        seed: seed of the CPU's generator. None: continue from its current state.
        devices: also restore the random states of GPUs.
    """
    # named, because torch warns where it is to find several GPUs itself
    with _TURN, torch.random.fork_rng(devices=range(torch.cuda.device_count()) if devices else []):
        dtype = torch.get_default_dtype()
        try:
            torch.set_default_dtype(torch.float32)
            if seed is not None:
                torch.default_generator.manual_seed(seed)
            yield
        finally:
            torch.set_default_dtype(dtype)
