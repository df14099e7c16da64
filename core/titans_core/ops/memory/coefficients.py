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
    a: Tensor  # [C, 1]
    b: Tensor  # [C, 1]
    s: Tensor  # [C, 1]: E[C, i] theta_i
    e: Tensor  # [1, 1]: e_C


def coefficients(alpha: Tensor | None, eta: Tensor | None, theta: Tensor) -> Coefficients:
    """The coefficients of pieces of C tokens, for gates ``[..., C]``. None is a gate of 0."""
    return Coefficients(*_Coefficients.apply(alpha, eta, theta))


class _Coefficients(torch.autograd.Function):
    """With the gradient written out: half the products that autograd would form, and no padded slices."""

    @staticmethod
    def forward(ctx: Any, alpha: Tensor | None, eta: Tensor | None, theta: Tensor) -> tuple[Tensor, ...]:
        keep = torch.ones_like(theta) if alpha is None else 1 - alpha
        (A, E), (a, e) = decay_products(torch.stack((keep, torch.zeros_like(theta) if eta is None else eta)))
        AE = A if eta is None else A @ E
        b = torch.zeros_like(theta) if eta is None else _apply(A, e)
        ctx.save_for_backward(A, a, E, e, AE, theta)
        ctx.forgets, ctx.has_momentum = alpha is not None, eta is not None
        columns = (x.unsqueeze(-1) for x in (a, b, E[..., -1, :] * theta))
        return (AE * theta.unsqueeze(-2), *columns, e[..., -1:, None].clone())

    @staticmethod
    @first_order
    def backward(ctx: Any, dG: Tensor, *columns: Tensor) -> tuple[Tensor | None, ...]:
        A, a, E, e, AE, theta = ctx.saved_tensors
        da, db, ds, de = (x.squeeze(-1) for x in columns)
        dtheta = (dG * AE).sum(-2) + ds * E[..., -1, :]
        dalpha = deta = None
        if ctx.forgets or ctx.has_momentum:
            dE = A.mT @ (dG * theta.unsqueeze(-2))
            at_e = _apply(A.mT, db)
        if ctx.forgets:
            at_A = dE
            if ctx.has_momentum:
                at_A = (dE @ E.mT).addcmul_(at_e.unsqueeze(-1), e.unsqueeze(-2))
            dalpha = -decay_gradient(A, a, at_A, _apply(A.mT, da))
        if ctx.has_momentum:
            dE[..., -1, :] += ds * theta
            at_e[..., -1:] += de
            deta = decay_gradient(E, e, E.mT @ dE, _apply(E.mT, at_e))
        return dalpha, deta, dtheta


def _apply(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)
