"""Products of gates between every two tokens of a piece, exact at gates of 0 and 1."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _DecayProducts(torch.autograd.Function):
    """See :func:`decay_products`. The gradient divides by nothing, so a gate of 0 has the right one."""

    @staticmethod
    def forward(ctx: Any, f: Tensor) -> tuple[Tensor, Tensor]:
        C = f.shape[-1]
        D = f.new_zeros(*f.shape, C)
        D.diagonal(dim1=-2, dim2=-1).fill_(1)
        for t in range(1, C):
            torch.mul(D[..., t - 1, :t], f[..., t, None], out=D[..., t, :t])
        d = f.cumprod(-1)
        ctx.save_for_backward(D, d)
        return D, d

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dD: Tensor, dd: Tensor) -> Tensor:
        D, d = ctx.saved_tensors
        # the derivative of prod_{i+1..t} by f_j is D[t, j] D[j - 1, i]; that of prod_{1..t} is D[t, j] d[j - 1]
        df = (D.mT @ dd.unsqueeze(-1)).squeeze(-1)
        df[..., 1:] *= d[..., :-1]
        df[..., 1:] += ((D.mT @ dD)[..., 1:, :] * D[..., :-1, :]).sum(-1)
        return df


def decay_products(f: Tensor) -> tuple[Tensor, Tensor]:
    """What is left at token t of something written at token i, and of what was there before the piece.

    Args:
        f: factors ``[..., C]``; zeros are legal, and have exact and finite gradients.

    Returns:
        ``D[t, i] = prod_{j=i+1..t} f_j`` (1 on the diagonal, 0 above it), ``[..., C, C]``, and
        ``d[t] = prod_{j=1..t} f_j``, ``[..., C]``.
    """
    return _DecayProducts.apply(f)
