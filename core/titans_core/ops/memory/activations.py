"""Activations between the layers of a deep memory, each with its derivative.

The dual form needs ``phi'`` by itself, and its backward pass ``phi''``: both gradients are written out, not taken by
autograd. A test holds each derivative against autograd.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Activation(NamedTuple):
    """An element-wise function with its first and second derivative."""

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    bend: Callable[[Tensor], Tensor]


def _silu_slope(z: Tensor) -> Tensor:
    p = torch.sigmoid(z)
    return torch.addcmul(p, z, p * (1 - p))


def _silu_bend(z: Tensor) -> Tensor:
    p = torch.sigmoid(z)
    return p * (1 - p) * (2 + z * (1 - 2 * p))


def _normal_density(z: Tensor) -> Tensor:
    return torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


def _gelu_slope(z: Tensor) -> Tensor:
    return 0.5 * (1 + torch.erf(z / math.sqrt(2))) + z * _normal_density(z)


def _gelu_bend(z: Tensor) -> Tensor:
    return (2 - z * z) * _normal_density(z)


def _relu_slope(z: Tensor) -> Tensor:
    return (z > 0).to(z.dtype)


ACTIVATIONS = {
    "silu": Activation(F.silu, _silu_slope, _silu_bend),
    "gelu": Activation(F.gelu, _gelu_slope, _gelu_bend),
    "relu": Activation(F.relu, _relu_slope, torch.zeros_like),
}
