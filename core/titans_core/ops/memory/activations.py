"""Activations between the layers of a deep memory, with their derivatives.

The dual form needs ``phi'``, and its backward pass needs ``phi''``. Both are written out instead of using autograd; a
test compares each derivative with autograd.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Activation(NamedTuple):
    """An element-wise function phi with its first and second derivatives, computed together to share work."""

    value: Callable[[Tensor], Tensor]
    # phi, phi'. Writes phi to ``out`` if given. phi' must not share memory with z, which callers reuse.
    with_slope: Callable[..., tuple[Tensor, Tensor]]
    with_bend: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]  # phi, phi', phi''


def _silu_with_slope(z: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    p = torch.sigmoid(z)
    x = torch.mul(z, p, out=out)
    return x, torch.addcmul(p, x, 1 - p)


def _silu_with_bend(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    p = torch.sigmoid(z)
    x, q = z * p, 1 - p
    slope = torch.addcmul(p, x, q)
    return x, slope, torch.addcmul(slope, p, 1 - x).mul_(q)


def _normal_density(z: Tensor) -> Tensor:
    return torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


def _gelu_with_slope(z: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    p = 0.5 * (1 + torch.erf(z / math.sqrt(2)))
    return torch.mul(z, p, out=out), p + z * _normal_density(z)


def _gelu_with_bend(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (*_gelu_with_slope(z), (2 - z * z) * _normal_density(z))


def _relu_with_slope(z: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    slope = (z > 0).to(z.dtype)
    return torch.mul(z, slope, out=out), slope


def _relu_with_bend(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (*_relu_with_slope(z), torch.zeros_like(z))


ACTIVATIONS = {
    "silu": Activation(F.silu, _silu_with_slope, _silu_with_bend),
    "gelu": Activation(F.gelu, _gelu_with_slope, _gelu_with_bend),
    "relu": Activation(F.relu, _relu_with_slope, _relu_with_bend),
}
