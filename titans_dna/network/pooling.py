"""Pooling of features along a sequence; positions after its end are ignored."""

import torch
from torch import Tensor

__all__ = ["mean_and_max"]


def mean_and_max(x: Tensor, mask: Tensor) -> Tensor:
    """Concatenate the mean and the maximum of features ``[B, T, dim]`` over the positions of ``mask`` ``[B, T]``.

    The result is ``[B, 2 * dim]``. Each row of the mask must have at least one position.
    """
    inside = mask[..., None]
    mean = x.where(inside, 0).sum(1) / inside.sum(1)
    return torch.cat((mean, x.where(inside, float("-inf")).amax(1)), dim=-1)
