"""Products of gates between every two tokens of a piece, exact at gates of 0 and 1."""

import torch
from torch import Tensor


def decay_products(f: Tensor) -> Tensor:
    """What is left at token t of something written at token i. Row and column 0 stand for before the piece.

    Args:
        f: factors ``[..., C]`` of tokens 1 to C; zeros are legal.

    Returns:
        ``D[t, i] = prod_{j=i+1..t} f_j`` (1 on the diagonal, 0 above it), ``[..., C + 1, C + 1]``.
    """
    C = f.shape[-1]
    D = f.new_zeros(*f.shape[:-1], C + 1, C + 1)
    D.diagonal(dim1=-2, dim2=-1).fill_(1)
    for t in range(1, C + 1):
        torch.mul(D[..., t - 1, :t], f[..., t - 1, None], out=D[..., t, :t])
    return D


def decay_gradient(D: Tensor, at_D: Tensor) -> Tensor:
    """The gradient of the factors ``[..., C]``, given ``D^T dD`` without row 0, ``[..., C, C + 1]``.

    The derivative of ``D[t, i]`` by f_j is ``D[t, j] D[j - 1, i]``. Nothing is divided by, so a factor of 0 has the
    right gradient.
    """
    return (at_D * D[..., :-1, :]).sum(-1)
