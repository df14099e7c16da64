"""Processes that train together."""

import torch.distributed as dist


def processes() -> tuple[int, int]:
    """This process's rank, and how many there are."""
    together = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if together else (0, 1)
