"""The weights W of a layer and its past surprise S in one tensor, so that one product serves both.

``WS = [W; S]``, one above the other. A token that reads ``a (x W) + b (x S)`` is the row ``[a x | b x]`` against it;
one that writes ``x^T (g d)`` into W and ``x^T (s d)`` into S writes ``[g x | s x]^T d``. Such a pair of numbers is a
row p of ``[..., C, n]``. n is 2, or 1 without momentum: then WS is W alone.
"""

import torch
from torch import Tensor


def spread(x: Tensor, p: Tensor) -> Tensor:
    """Rows ``[p_1 x | p_2 x]``."""
    n, d = p.shape[-1], x.shape[-1]
    out = x.new_empty(*x.shape[:-1], n * d)
    # slices, not a broadcast over the n parts: on CPU that takes up to four times as long
    for part, number in zip(out.split(d, dim=-1), p.split(1, dim=-1), strict=True):
        torch.mul(x, number, out=part)
    return out


def gather(xx: Tensor, p: Tensor) -> Tensor:
    """``p_1 x_1 + p_2 x_2`` for rows ``[x_1 | x_2]``: the transpose of :func:`spread`."""
    numbers = p.split(1, dim=-1)
    parts = xx.chunk(len(numbers), dim=-1)
    x = parts[0] * numbers[0]
    return x.addcmul_(parts[1], numbers[1]) if len(parts) > 1 else x


def dots(xx: Tensor, x: Tensor) -> Tensor:
    """``(x_1 . x, x_2 . x)`` for rows ``[x_1 | x_2]``: the gradient of p."""
    return torch.stack([(part * x).sum(-1) for part in xx.split(x.shape[-1], dim=-1)], dim=-1)


def join(*parts: Tensor) -> Tensor:
    """W and S, or W, as one tensor."""
    return torch.cat(parts, dim=-2)


def split(WS: Tensor, n: int) -> tuple[Tensor, ...]:
    """W and S, or W: views."""
    return WS.chunk(n, dim=-2)


def weights(WS: list[Tensor], n: int) -> list[Tensor]:
    """The W of each layer's WS: views."""
    return [split(ws, n)[0] for ws in WS]
