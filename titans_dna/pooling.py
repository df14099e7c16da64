"""From features along a sequence to one vector for it; what lies beyond its end never counts."""

import torch
from torch import Tensor

__all__ = ["mean_and_max"]


def mean_and_max(x: Tensor, mask: Tensor) -> Tensor:
    """Features ``[B, T, dim]`` -> their mean, then their maximum, over the positions of ``mask`` ``[B, T]``:
    ``[B, 2 * dim]``.

    The mean says how much of something a sequence has, the maximum whether it is there at all. Each row of the mask has
    a position or more.
    """
    inside = mask[..., None]
    mean = x.where(inside, 0).sum(1) / inside.sum(1)
    return torch.cat((mean, x.where(inside, float("-inf")).amax(1)), dim=-1)
