"""Dropout with a faster random mask on CPU."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titans_core.nn.eager import eager_on_cpu

__all__ = ["Dropout"]

_LEVELS = 1 << 16


class Dropout(nn.Dropout):
    """Zero each value with probability ``p`` during training and scale up the others.

    On CPU, PyTorch draws one random number per value, which is slow. This layer draws one 64-bit number for four
    values, so ``p`` is rounded to a multiple of 1/65,536.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        kept = round((1 - self.p) * _LEVELS)
        if not (0 < kept < _LEVELS and eager_on_cpu(x)):
            return F.dropout(x, self.p, inplace=self.inplace)
        y: Tensor = _Dropout.apply(x, kept)
        return y


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: int) -> Tensor:
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
        keep = (draws.view(torch.int16)[: x.numel()] < kept - _LEVELS // 2).view(x.shape)
        ctx.save_for_backward(keep)
        ctx.scale = _LEVELS / kept
        return (x * keep).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return (dy * keep).mul_(ctx.scale), None
