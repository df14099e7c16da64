"""Coefficients of pieces with one set of gates each, where they depend only on the distance between two tokens.

With ``keep = 1 - alpha`` and a distance of m tokens, ``A = keep^m``, ``E = eta^m`` and

    (A E)_m = g_m = keep g_{m-1} + eta^m,        a_t = keep^t,    e_t = eta^t,    b_t = eta g_{t-1}

So the C x C sums of ``coefficients.py`` reduce to C numbers, and G is their Toeplitz matrix. The backward pass
recomputes them.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from titans_core.ops.memory.decay import SCALE, decayed_sum, decayed_sum_gradient, scaled_back


def distances_forward(
    alpha: Tensor | None, eta: Tensor | None, theta: Tensor, size: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The :class:`Coefficients` of pieces of ``size`` tokens, for gates ``[..., 1]``. None means a gate of 0."""
    a, e, g = _powers(alpha, eta, theta, size)
    read, write, carry = [a[..., 1:]], [g.flip(-1) * theta], [a[..., -1:]]
    if eta is not None and e is not None:
        b = eta * g
        read, write = [*read, b], [*write, e[..., :-1].flip(-1) * theta]
        carry = [*carry, b[..., -1:], e[..., -1:]]
    return _toeplitz(theta * g), torch.stack(read, dim=-1), torch.stack(write, dim=-1), torch.cat(carry, dim=-1)


def distances_backward(
    alpha: Tensor | None,
    eta: Tensor | None,
    theta: Tensor,
    size: int,
    dG: Tensor,
    dread: Tensor,
    dwrite: Tensor,
    dcarry: Tensor,
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Gradients of the gates ``[..., 1]``."""
    a, e, g = _powers(alpha, eta, theta, size)
    dscaled = _diagonals(dG) + dwrite[..., 0].flip(-1)  # gradient of theta g
    dtheta, dg = _dot(dscaled, g), dscaled * theta
    da = F.pad(dread[..., 0], (1, 0))
    da[..., -1] += dcarry[..., 0]
    if eta is None or e is None:
        da[..., :-1] += dg
        return None if alpha is None else -_power_gradient(a, da), None, dtheta

    db = dread[..., 1].clone()
    db[..., -1] += dcarry[..., 1]
    deta, dg = _dot(db, g), dg + db * eta
    dshares = dwrite[..., 1].flip(-1)  # gradient of theta e
    dtheta = dtheta + _dot(dshares, e[..., :-1])
    keep = None if alpha is None else (1 - alpha).expand_as(g)[..., 1:]
    steps, dsum = decayed_sum_gradient(keep, g.unsqueeze(-1), dg.unsqueeze(-1))
    de = F.pad(dsum.squeeze(-1) + dshares * theta, (0, 1))
    de[..., -1] += dcarry[..., 2]
    deta = deta + _power_gradient(e, de)
    return None if steps is None else -_power_gradient(a, da) - steps.sum(-1, keepdim=True), deta, dtheta


def _powers(alpha: Tensor | None, eta: Tensor | None, theta: Tensor, size: int) -> tuple[Tensor, Tensor | None, Tensor]:
    """``keep^0 .. keep^C``, the same for eta (None without momentum), and ``g_0 .. g_{C-1}``."""
    steps = torch.arange(size + 1, device=theta.device)

    def powers(x: Tensor) -> Tensor:
        return F.hardshrink(x**steps, 1 / SCALE)

    a = torch.ones_like(theta).expand(*theta.shape[:-1], size + 1) if alpha is None else powers(1 - alpha)
    if eta is None:
        return a, None, a[..., :-1]
    e = powers(eta)
    keep = None if alpha is None else (1 - alpha).expand_as(e)[..., 2:]
    return a, e, scaled_back(decayed_sum(keep, SCALE * e[..., :-1].unsqueeze(-1))).squeeze(-1)


def _power_gradient(powers: Tensor, dpowers: Tensor) -> Tensor:
    """Gradient of ``x`` ``[..., 1]`` from that of ``x^0 .. x^C``."""
    steps = torch.arange(1, powers.shape[-1], device=powers.device)
    return _dot(powers[..., :-1] * steps, dpowers[..., 1:])


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-1, keepdim=True)


def _toeplitz(g: Tensor) -> Tensor:
    """``[..., C]`` to ``[..., C, C]``: ``g[t - i]``, and 0 above the diagonal."""
    C = g.shape[-1]
    return F.pad(g, (C - 1, 0)).unfold(-1, C, 1).flip(-1)


def _diagonals(X: Tensor) -> Tensor:
    """``[..., C, C]`` to ``[..., C]``: the sum of the entries with ``t - i = m``, for m from 0."""
    C = X.shape[-1]
    # shift each row one place further right than the row above, so that diagonals become columns
    skewed = F.pad(X.flip(-1), (0, C)).flatten(-2)[..., :-C].unflatten(-1, (C, 2 * C - 1))
    return skewed.sum(-2)[..., C - 1 :]
