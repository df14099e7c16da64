"""Sums that decay from token to token, exact for factors of 0 and 1."""

import torch
from torch import Tensor

# Subnormal numbers make CPU products about a hundred times slower. Sums scaled by this factor stay far above the
# subnormal range. The values that :func:`scaled_back` sets to 0 are negligible compared to 1.
SCALE = 2.0**100


def scaled_back(R: Tensor) -> Tensor:
    """Divide sums by ``SCALE`` in place; results below ``1 / SCALE`` become 0."""
    found: Tensor = torch.ops.aten.hardshrink.out(R, 1.0, out=R)
    return found.mul_(1 / SCALE)


def decayed_sum(f: Tensor | None, X: Tensor, out: Tensor | None = None) -> Tensor:
    """``R_0 = X_0`` and ``R_t = f_t R_{t-1} + X_t``: factors f ``[..., C]``, rows X ``[..., C + 1, M]``.

    None means a factor of 1. The sums are written to ``out`` if given, which may be X.
    """
    R = out
    if R is None:
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
    """Gradients of f and X. ``dR`` is modified in place and returned as the gradient of X; R is overwritten.

    There is no division, so the gradient is also correct for a factor of 0.
    """
    rows = dR.unbind(-2)
    for t, f_t in reversed(_steps(f, rows)):
        if f_t is None:
            rows[t - 1].add_(rows[t])
        else:
            rows[t - 1].addcmul_(rows[t], f_t)
    if f is None:
        return None, dR
    before = R[..., :-1, :]
    return torch.mul(dR[..., 1:, :], before, out=before).sum(-1), dR


def _steps(f: Tensor | None, rows: tuple[Tensor, ...]) -> list[tuple[int, Tensor | None]]:
    """Token indices from 1 on, with their factors ``[..., 1]``."""
    factors = [None] * (len(rows) - 1) if f is None else f.unsqueeze(-1).unbind(-2)
    return list(enumerate(factors, start=1))
