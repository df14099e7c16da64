"""From gates to coefficients: how strongly each token of a piece reads what was written before it."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from titans_core.ops.memory.decay import decay_gradient, decay_products
from titans_core.ops.memory.gradient import first_order


class Coefficients(NamedTuple):
    """What one piece of C tokens needs to know of its gates. Shapes without the leading dimensions.

    With ``A[t, i] = prod_{j=i+1..t} (1 - alpha_j)`` and ``E[t, i] = prod_{j=i+1..t} eta_j``, and a and e the same from
    the beginning of the piece:

        M_t = a_t M + b_t S - sum_i G[t, i] u_i,    G = A E diag(theta),  b = A e
        S_t = e_t S         - sum_i E[t, i] theta_i u_i

    where M and S are those before the piece. S is wanted after the last token only.
    """

    G: Tensor  # [C, C]
    read: Tensor  # [C, 2]: a and b, how much of M and of S each token reads
    write: Tensor  # [C, 2]: G[C, i] and E[C, i] theta_i, how much of each u_i goes into M and S
    carry: Tensor  # [3]: a_C, b_C and e_C, what becomes of M and S


def coefficients(alpha: Tensor | None, eta: Tensor | None, theta: Tensor) -> Coefficients:
    """The coefficients of pieces of C tokens, for gates ``[..., C]``. None is a gate of 0."""
    return Coefficients(*_Coefficients.apply(alpha, eta, theta))


class _Coefficients(torch.autograd.Function):
    """With the gradient written out: half the products that autograd would form, and no padded slices.

    Row and column 0 of A and E stand for before the piece: column 0 holds a and e.
    """

    @staticmethod
    def forward(ctx: Any, alpha: Tensor | None, eta: Tensor | None, theta: Tensor) -> tuple[Tensor, ...]:
        keep = torch.ones_like(theta) if alpha is None else 1 - alpha
        A, E = decay_products(torch.stack((keep, torch.zeros_like(theta) if eta is None else eta)))
        AE = A[..., 1:, 1:] @ E[..., 1:, :]  # [b | A E]
        read = torch.stack((A[..., 1:, 0], AE[..., 0]), dim=-1)
        last = torch.stack((AE[..., -1, :], E[..., -1, :]), dim=-1)
        write = last[..., 1:, :] * theta.unsqueeze(-1)
        carry = torch.cat((A[..., -1, :1], last[..., 0, :]), dim=-1)
        ctx.save_for_backward(A, E, AE, last, theta)
        ctx.forgets, ctx.has_momentum = alpha is not None, eta is not None
        return AE[..., 1:] * theta.unsqueeze(-2), read, write, carry

    @staticmethod
    @first_order
    def backward(ctx: Any, dG: Tensor, dread: Tensor, dwrite: Tensor, dcarry: Tensor) -> tuple[Tensor | None, ...]:
        A, E, AE, last, theta = ctx.saved_tensors
        dtheta = (dG * AE[..., 1:]).sum(-2) + (dwrite * last[..., 1:, :]).sum(-1)
        dlast = dwrite * theta.unsqueeze(-1)
        dalpha = deta = None
        if ctx.forgets or ctx.has_momentum:
            d = torch.cat((dread, dG * theta.unsqueeze(-2)), dim=-1)  # of [a | b | A E]
            d[..., -1, :2] += dcarry[..., :2]
            d[..., -1, 2:] += dlast[..., 0]
            at_a, dE = (A[..., 1:, 1:].mT @ d).split((1, d.shape[-1] - 1), dim=-1)
        if ctx.forgets:
            dalpha = -decay_gradient(A, torch.cat((at_a, dE @ E[..., 1:, :].mT), dim=-1))
        if ctx.has_momentum:
            dE[..., -1, :1] += dcarry[..., 2:]
            dE[..., -1, 1:] += dlast[..., 1]
            deta = decay_gradient(E, E[..., 1:, 1:].mT @ dE)
        return dalpha, deta, dtheta
