"""The weights W of a layer and its past surprise S stacked in one tensor, so that one product serves both.

``WS = [W; S]``, W above S. A token that reads ``a (x W) + b (x S)`` multiplies the row ``[a x | b x]`` by WS. A token
that writes ``x^T (g d)`` into W and ``x^T (s d)`` into S adds ``[g x | s x]^T d``. Each such pair of numbers is a row p
of ``[..., C, n]``. n is 2, or 1 without momentum, where WS is W alone.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def columns(p: Tensor) -> tuple[Tensor, ...]:
    """Split numbers p ``[..., C, n]`` into n columns ``[..., C, 1]``: views."""
    return p.chunk(p.shape[-1], dim=-1)


def spread(x: Tensor, p: tuple[Tensor, ...]) -> Tensor:
    """Rows ``[p_1 x | p_2 x]``, for columns p."""
    if len(p) == 1:
        return x * p[0]
    out = x.new_empty(*x.shape[:-1], len(p) * x.shape[-1])
    # one part at a time: a broadcast over the parts takes up to four times as long on CPU
    for part, number in zip(out.chunk(len(p), dim=-1), p, strict=True):
        torch.mul(x, number, out=part)
    return out


def gather(xx: Tensor, p: tuple[Tensor, ...]) -> Tensor:
    """``p_1 x_1 + p_2 x_2`` for rows ``[x_1 | x_2]`` and columns p: the transpose of :func:`spread`."""
    first, *rest = xx.chunk(len(p), dim=-1)
    return add_gathered(first * p[0], rest, p[1:])


def add_gathered(x: Tensor, parts: Sequence[Tensor], p: tuple[Tensor, ...]) -> Tensor:
    """Add ``p_1 x_1 + ..`` to x, in place."""
    for part, number in zip(parts, p, strict=True):
        x.addcmul_(part, number)
    return x


def dots(xx: Tensor, x: Tensor, n: int) -> Tensor:
    """``(x_1 . x, x_2 . x)`` for rows ``[x_1 | x_2]``: the gradient of p."""
    return torch.stack([(part * x).sum(-1) for part in xx.chunk(n, dim=-1)], dim=-1)


def join(*parts: Tensor) -> Tensor:
    """Stack W and S (or W alone) in one tensor."""
    return torch.cat(parts, dim=-2)


def split(WS: Tensor, n: int) -> tuple[Tensor, ...]:
    """Split WS into W and S (or W alone): views."""
    return WS.chunk(n, dim=-2)


def weights(WS: list[Tensor], n: int) -> list[Tensor]:
    """The W of each layer's WS: views."""
    return [split(ws, n)[0] for ws in WS]
