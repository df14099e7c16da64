"""Processes that train together."""

import os

import torch.distributed as dist


def processes() -> tuple[int, int]:
    """Rank of this process and number of processes."""
    together = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if together else (0, 1)


def started() -> int:
    """Number of processes that ``torchrun`` started, even before they are initialised; 1 without ``torchrun``."""
    return int(os.environ["WORLD_SIZE"]) if dist.is_torchelastic_launched() else 1
