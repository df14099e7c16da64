"""Products of gates between every two tokens of a piece, exact at gates of 0 and 1."""

import torch
from torch import Tensor


def decay_products(f: Tensor) -> tuple[Tensor, Tensor]:
    """What is left at token t of something written at token i, and of what was there before the piece.

    Args:
        f: factors ``[..., C]``; zeros are legal.

    Returns:
        ``D[t, i] = prod_{j=i+1..t} f_j`` (1 on the diagonal, 0 above it), ``[..., C, C]``, and
        ``d[t] = prod_{j=1..t} f_j``, ``[..., C]``.
    """
    C = f.shape[-1]
    D = f.new_zeros(*f.shape, C)
    D.diagonal(dim1=-2, dim2=-1).fill_(1)
    for t in range(1, C):
        torch.mul(D[..., t - 1, :t], f[..., t, None], out=D[..., t, :t])
    return D, f.cumprod(-1)


def decay_gradient(D: Tensor, d: Tensor, at_D: Tensor, at_d: Tensor) -> Tensor:
    """The gradient of the factors, given ``D^T dD`` ``[..., C, C]`` and ``D^T dd`` ``[..., C]``.

    The derivative of ``prod_{i+1..t}`` by f_j is ``D[t, j] D[j - 1, i]``, and that of ``prod_{1..t}`` is
    ``D[t, j] d[j - 1]``. Nothing is divided by, so a factor of 0 has the right gradient.
    """
    df = at_d.clone()
    df[..., 1:] *= d[..., :-1]
    df[..., 1:] += (at_D[..., 1:, :] * D[..., :-1, :]).sum(-1)
    return df
