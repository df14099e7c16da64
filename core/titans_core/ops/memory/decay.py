"""Sums that decay from token to token, exact at factors of 0 and 1."""

import torch
import torch.nn.functional as F
from torch import Tensor

# A sum that has faded to a subnormal number takes a CPU a hundred times as long in each product that it meets. Sums
# that are made this much larger stay far from that. What :func:`scaled_back` then makes 0 is nothing beside a 1.
SCALE = 2.0**100


def scaled_back(R: Tensor) -> Tensor:
    """Sums that were made ``SCALE`` times as large, and 0 for those below ``1 / SCALE``."""
    return F.hardshrink(R, 1.0).mul_(1 / SCALE)


def decayed_sum(f: Tensor | None, X: Tensor) -> Tensor:
    """``R_0 = X_0`` and ``R_t = f_t R_{t-1} + X_t``: factors f ``[..., C]``, rows X ``[..., C + 1, M]``.

    None is a factor of 1.
    """
    R = torch.empty_like(X) if f is None else X.new_empty(*f.shape[:-1], *X.shape[-2:])
    rows, inputs = R.unbind(-2), X.unbind(-2)
    rows[0].copy_(inputs[0])
    for t, f_t in _steps(f, rows):
        if f_t is None:
            torch.add(inputs[t], rows[t - 1], out=rows[t])
        else:
            torch.addcmul(inputs[t], rows[t - 1], f_t, out=rows[t])
    return R


def decayed_sum_gradient(f: Tensor | None, R: Tensor, dR: Tensor) -> tuple[Tensor | None, Tensor]:
    """Gradients of f and X. ``dR`` is changed in place and returned as that of X.

    Nothing is divided by, so a factor of 0 has the right gradient.
    """
    rows = dR.unbind(-2)
    for t, f_t in reversed(_steps(f, rows)):
        if f_t is None:
            rows[t - 1].add_(rows[t])
        else:
            rows[t - 1].addcmul_(rows[t], f_t)
    return None if f is None else (dR[..., 1:, :] * R[..., :-1, :]).sum(-1), dR


def _steps(f: Tensor | None, rows: tuple[Tensor, ...]) -> list[tuple[int, Tensor | None]]:
    """Tokens from 1 on, and their factors ``[..., 1]``."""
    factors = [None] * (len(rows) - 1) if f is None else f.unsqueeze(-1).unbind(-2)
    return list(enumerate(factors, start=1))
