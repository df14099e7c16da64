"""From gates to coefficients: how strongly each token of a piece reads what was written before it."""

from typing import NamedTuple

import torch
from torch import Tensor

from titans_core.ops.memory.decay import decay_products


class Coefficients(NamedTuple):
    """What one piece of C tokens needs to know of its gates. Shapes without the leading dimensions.

    With ``A[t, i] = prod_{j=i+1..t} (1 - alpha_j)`` and ``E[t, i] = prod_{j=i+1..t} eta_j``:

        M_t = a_t M + b_t S - sum_i G[t, i] u_i,    G = A E diag(theta)
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
    A, a = decay_products(1 - alpha if alpha is not None else torch.ones_like(theta))
    E, e = decay_products(eta if eta is not None else torch.zeros_like(theta))
    return Coefficients(
        G=A @ E * theta.unsqueeze(-2),
        a=a.unsqueeze(-1),
        b=A @ e.unsqueeze(-1),
        s=(E[..., -1, :] * theta).unsqueeze(-1),
        e=e[..., -1:, None],
    )
