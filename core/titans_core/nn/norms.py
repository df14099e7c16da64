"""Vectors of one length: by their root mean square with learned weights, or to length 1.

On a CPU torch makes both of many small operations, and so their gradients, several times what they need. Here these are
written out; everywhere else, and where torch compiles, torch's own run.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titans_core.nn.eager import eager_on_cpu

__all__ = ["RMSNorm", "normalised"]


class RMSNorm(nn.RMSNorm):
    """``x / rms(x) * weight`` over the last dimension (Zhang & Sennrich 2019)."""

    eps: float

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__(dim, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        if _precise(x) and (x.dtype, x.shape[-1:]) == (self.weight.dtype, self.weight.shape):
            y: Tensor = _RMSNorm.apply(x, self.weight, self.eps)
            return y
        return super().forward(x)


def normalised(x: Tensor) -> Tensor:
    """Vectors of length 1 along the last dimension, in the dtype that they have."""
    # torch's own bound of the norm is 0 in float16, and a row of zeros then has a gradient of NaN
    least = max(1e-12, torch.finfo(x.dtype).tiny)
    if _precise(x):
        y: Tensor = _Normalised.apply(x, least)
        return y
    # autocast on CUDA takes the norm in float32, and gives that back
    return F.normalize(x, dim=-1, eps=least).to(x.dtype)


def _precise(x: Tensor) -> bool:
    # a norm in half precision would be rounded before it is used
    return x.dtype in (torch.float32, torch.float64) and eager_on_cpu(x)


class _RMSNorm(torch.autograd.Function):
    """``y = x r w`` with ``r = 1 / rms(x)``, so ``dx = r (dy w - x r^2 mean(dy w x))``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        r = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, r)
        ctx.eps = eps
        return torch.mul(x, r).mul_(weight)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, r = ctx.saved_tensors
        if torch.is_grad_enabled():
            # views, as one of the two may be made of the other
            x, weight = x.view_as(x), weight.view_as(weight)
            y = F.rms_norm(x, weight.shape, weight, ctx.eps)
            return _differentiable(y, (x, weight), dy, ctx.needs_input_grad)
        dim = x.shape[-1]
        product = dy * x
        with torch.autocast("cpu", enabled=False):
            along = (product.reshape(-1, dim) @ weight).view(r.shape)  # the sum over a vector of dy w x
        dweight = product.mul_(r).reshape(-1, dim).sum(0)
        dx = torch.mul(dy, weight, out=product)
        return dx.addcmul_(x, along.mul_(r).mul_(r).div_(dim), value=-1).mul_(r), dweight, None


class _Normalised(torch.autograd.Function):
    """``y = x r`` with ``r = 1 / |x|``, so ``dx = r (dy - y (dy . y))``. Below the least norm r is a constant."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, least: float) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        short = norm < least
        r = norm.clamp_(min=least).reciprocal_()
        y = x * r
        ctx.save_for_backward(x, y, r, short)
        ctx.least = least
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, y, r, short = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _differentiable(F.normalize(x, dim=-1, eps=ctx.least), (x,), dy, ctx.needs_input_grad)
        along = (dy * y).sum(-1, keepdim=True).masked_fill_(short, 0)
        return torch.addcmul(dy, y, along, value=-1).mul_(r), None


def _differentiable(
    y: Tensor, inputs: Sequence[Tensor], dy: Tensor, wanted: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The gradient of the inputs, and None for an argument that is no tensor; with a graph of its own."""
    asked = [x for x, needed in zip(inputs, wanted, strict=False) if needed]
    found = iter(torch.autograd.grad(y, asked, dy, create_graph=True))
    return (*(next(found) if needed else None for _, needed in zip(inputs, wanted, strict=False)), None)
