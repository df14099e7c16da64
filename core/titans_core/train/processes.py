"""Processes that train together."""

import os

import torch.distributed as dist


def processes() -> tuple[int, int]:
    """This process's rank, and how many there are."""
    together = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if together else (0, 1)


def started() -> int:
    """How many processes ``torchrun`` started to train one model, which they may not have begun; 1 without it."""
    return int(os.environ["WORLD_SIZE"]) if dist.is_torchelastic_launched() else 1
