"""Reading the pieces of a sequence all at once, with a hand-written gradient.

Each piece reads its starting weights plus what its own tokens have written, so no piece waits for another.

Shapes: N pieces, P = batch * heads, C tokens in a piece. Layer l maps ``d`` to ``d'``.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from titans_core.ops.memory.activations import Activation
from titans_core.ops.memory.coefficients import Coefficients
from titans_core.ops.memory.pair import columns, dots, gather, spread
from titans_core.ops.memory.pieces import Layers
from titans_core.ops.memory.store import Inner, ReadGradient


class ReadTape(NamedTuple):
    """What the gradient of reading needs besides the stored values. Lists over the layers."""

    Y: Layers  # pre-activations of the hidden layers, [N, P, C, d']
    seen: Layers  # queries times keys, [N, P, C, C]


def read(q: Tensor, c: Coefficients, WS: Layers, inner: Inner, y: Tensor, tape: ReadTape, phi: Activation) -> None:
    """Write outputs for queries ``[N, P, C, K]`` to y ``[N, P, C, V]``, and fill ``tape``.

    ``WS`` ``[N * P, ...]``: the starting WS of each piece.
    """
    h, G, p = q.flatten(0, 1), c.G.flatten(0, 1), columns(c.read.flatten(0, 1))
    for l, (ws, x, d, out, seen) in enumerate(zip(WS, inner.X, inner.delta, [*tape.Y, y], tape.seen, strict=True)):
        out, seen = out.flatten(0, 1), seen.flatten(0, 1)
        torch.bmm(h, x.flatten(0, 1).mT, out=seen)
        torch.bmm(spread(h, p), ws, out=out).baddbmm_(G * seen, d.flatten(0, 1), alpha=-1)
        if l + 1 < len(WS):
            h = phi.value(out)


def read_gradient(
    dy: Tensor,
    q: Tensor,
    c: Coefficients,
    dc: Coefficients,
    WS: Layers,
    inner: Inner,
    tape: ReadTape,
    phi: Activation,
) -> tuple[Tensor, ReadGradient]:
    """The gradient of q, ``[N, P, C, K]``, and the gradients passed on to storing. ``WS`` is ``[N * P, ...]``.

    The gradients of ``c.G`` and ``c.read`` are written to ``dc``.
    """
    pieces = q.shape[:2]
    H, slopes = [q.flatten(0, 1)], []
    for y in tape.Y:
        h, slope = phi.with_slope(y.flatten(0, 1))
        H.append(h)
        slopes.append(slope)
    dy, G, p = dy.flatten(0, 1), c.G.flatten(0, 1), columns(c.read.flatten(0, 1))
    dG, dread = dc.G.flatten(0, 1).zero_(), dc.read.flatten(0, 1).zero_()
    grads = ReadGradient([], [], [])
    for l in reversed(range(len(WS))):
        x, d = (part[l].flatten(0, 1) for part in (inner.X, inner.delta))
        seen = tape.seen[l].flatten(0, 1)
        to_read = torch.bmm(dy, d.mT)
        dG.addcmul_(to_read, seen, value=-1)
        to_read.mul_(G)
        grads.minus_ddelta.insert(0, torch.bmm((G * seen).mT, dy).unflatten(0, pieces))
        grads.minus_dX.insert(0, torch.bmm(to_read.mT, H[l]).unflatten(0, pieces))
        grads.factors.insert(0, (spread(H[l], p).unflatten(0, pieces), dy.unflatten(0, pieces)))
        at = torch.bmm(dy, WS[l].mT)
        dread.add_(dots(at, H[l], len(p)))
        dy = gather(at, p).baddbmm_(to_read, x, alpha=-1)
        if l > 0:
            dy.mul_(slopes[l - 1])
    return dy.unflatten(0, pieces), grads
