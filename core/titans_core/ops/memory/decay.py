"""Sums that decay from token to token, exact at factors of 0 and 1."""

import torch
from torch import Tensor


def decayed_sum(f: Tensor, X: Tensor) -> Tensor:
    """``R_0 = X_0`` and ``R_t = f_t R_{t-1} + X_t``: factors f ``[..., C]``, rows X ``[..., C + 1, M]``."""
    R = X.new_empty(*f.shape[:-1], *X.shape[-2:])
    rows, inputs = R.unbind(-2), X.unbind(-2)
    rows[0].copy_(inputs[0])
    for t, f_t in enumerate(f.unsqueeze(-1).unbind(-2), start=1):
        torch.addcmul(inputs[t], rows[t - 1], f_t, out=rows[t])
    return R


def decayed_sum_gradient(f: Tensor, R: Tensor, dR: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of f and X. ``dR`` is changed in place and returned as that of X.

    Nothing is divided by, so a factor of 0 has the right gradient.
    """
    rows = dR.unbind(-2)
    for t, f_t in reversed(list(enumerate(f.unsqueeze(-1).unbind(-2), start=1))):
        rows[t - 1].addcmul_(rows[t], f_t)
    return (dR[..., 1:, :] * R[..., :-1, :]).sum(-1), dR
