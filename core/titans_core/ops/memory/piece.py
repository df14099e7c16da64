"""One piece of a sequence through the memory: store, read and carry, and their hand-written backward pass.

A piece is a chunk, or the part of one that a call got to see. Its inner gradients are all taken at ``anchor``, the
weights with which its chunk started. In mid-chunk ``anchor`` differs from the running weights; else they are the same.

Shapes: P = batch * heads, C tokens. Layer l maps ``d`` to ``d'``. The running weights and the past surprise of a layer
lie one above the other in one tensor ``WS = [W; S]`` of ``[P, 2 d, d']``, so that one product serves both: a token
that reads ``a W + b S`` is the row ``[a h | b h]`` against it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from titans_core.ops.memory.activations import Activation
from titans_core.ops.memory.coefficients import Coefficients

Layers = list[Tensor]


class Tape(NamedTuple):
    """What the backward pass of a piece needs besides its inputs. Lists over the hidden layers, L - 1 long, but one."""

    Z: Layers  # pre-activations of the keys, [P, C, d']
    E: Layers  # errors that arrive behind each activation, [P, C, d']
    Y: Layers  # pre-activations of the queries, [P, C, d']
    seen: Layers  # queries times keys of each layer, [P, C, C], L long
    delta: Tensor  # error at the output, [P, C, V]


def forward_piece(
    q: Tensor, k: Tensor, v: Tensor, c: Coefficients, WS: Layers, anchor: Layers, phi: Activation
) -> tuple[Tensor, Layers, Tape]:
    """Outputs ``[P, C, V]``, the ``WS`` to carry on, and the tape."""
    # store: both factors of every inner gradient u_t = x_t^T delta_t
    X: Layers = [k]
    Z: Layers = []
    E: Layers = []
    slopes = []
    for A in anchor[:-1]:
        Z.append(torch.bmm(X[-1], A))
        x, slope = phi.with_slope(Z[-1])
        X.append(x)
        slopes.append(slope)
    delta = [torch.baddbmm(v, X[-1], anchor[-1], beta=-1)]
    for A, slope in zip(reversed(anchor[1:]), reversed(slopes), strict=True):
        E.insert(0, torch.bmm(delta[0], A.mT))
        delta.insert(0, E[0] * slope)

    a, b, e = c.carry[..., None, None].unbind(1)
    h, Y, seen, carried = q, [], [], []
    for x, d, ws in zip(X, delta, WS, strict=True):
        # read: a (h W) + b (h S) - (G * (h x^T)) delta
        seen.append(torch.bmm(h, x.mT))
        Y.append(torch.bmm(_twice(h, c.read), ws).baddbmm_(c.G * seen[-1], d, alpha=-1))
        h = phi.value(Y[-1]) if len(Y) < len(WS) else Y[-1]

        # carry: W <- a W + b S - x^T g delta,  S <- e S - x^T s delta
        after = torch.empty_like(ws)
        w, s, w_after, s_after = *ws.chunk(2, dim=1), *after.chunk(2, dim=1)
        torch.mul(w, a, out=w_after).addcmul_(s, b)
        torch.mul(s, e, out=s_after)
        carried.append(after.baddbmm_(_twice(x, c.write).mT, d, alpha=-1))
    return Y.pop(), carried, Tape(Z, E, Y, seen, delta[-1])


def backward_piece(
    dy: Tensor,
    dWS: Layers,
    dc: Coefficients,
    q: Tensor,
    k: Tensor,
    c: Coefficients,
    WS: Layers,
    anchor: Layers,
    tape: Tape,
    phi: Activation,
) -> tuple[Tensor, Tensor, Tensor, Layers]:
    """Gradients of a piece, given those of its outputs (``dy``) and of the ``WS`` it carried on (``dWS``).

    ``dWS`` is changed in place into the gradient of the ``WS`` that the piece began with, and the gradients of the
    coefficients are added to ``dc``.

    Returns:
        Gradients of q, k, v and of ``anchor``.
    """
    X, H, delta, slopes, bends, read_slopes = [k], [q], [], [], [], []
    for z, error, y in zip(tape.Z, tape.E, tape.Y, strict=True):
        x, slope, bend = phi.with_bend(z)
        h, read_slope = phi.with_slope(y)
        X.append(x)
        H.append(h)
        delta.append(error * slope)
        slopes.append(slope)
        bends.append(bend)
        read_slopes.append(read_slope)
    delta.append(tape.delta)

    # carry; what is written to the memory enters with a minus, so these two lists hold minus the gradients
    minus_dX, minus_ddelta = [], []
    a, b, e = c.carry[..., None, None].unbind(1)
    for x, d, ws, dws in zip(X, delta, WS, dWS, strict=True):
        minus_ddelta.append(torch.bmm(_twice(x, c.write), dws))
        at_x = torch.bmm(d, dws.mT)
        dc.write.sub_(_dot(at_x, x))
        minus_dX.append(_both(at_x, c.write))
        (dw, ds), s = dws.chunk(2, dim=1), ws.chunk(2, dim=1)[1]
        dc.carry[:, ::2].add_((dws * ws).unflatten(1, (2, -1)).sum((-2, -1)))  # a from dW and W, e from dS and S
        dc.carry[:, 1].add_((dw * s).sum((-2, -1)))
        ds.mul_(e).addcmul_(dw, b)
        dw.mul_(a)

    # read, from the last layer to the first
    for layer in reversed(range(len(WS))):
        h, seen = H[layer], tape.seen[layer]
        to_read = torch.bmm(dy, delta[layer].mT)
        dc.G.addcmul_(to_read, seen, value=-1)
        to_read.mul_(c.G)
        minus_ddelta[layer].baddbmm_((c.G * seen).mT, dy)
        minus_dX[layer].baddbmm_(to_read.mT, h)
        dWS[layer].baddbmm_(_twice(h, c.read).mT, dy)
        at_h = torch.bmm(dy, WS[layer].mT)
        dc.read.add_(_dot(at_h, h))
        dy = _both(at_h, c.read).baddbmm_(to_read, X[layer], alpha=-1)
        if layer > 0:
            dy.mul_(read_slopes[layer - 1])

    # store: the errors, which ran from the last layer to the first, then the activations
    dZ: Layers = []
    danchor: Layers = []
    dz = minus_ddelta[0].neg_()
    for layer, (error, slope, bend) in enumerate(zip(tape.E, slopes, bends, strict=True)):
        dZ.append(bend.mul_(error).mul_(dz))
        derror = dz.mul_(slope)
        danchor.append(torch.bmm(derror.mT, delta[layer + 1]))
        dz = minus_ddelta[layer + 1].baddbmm_(derror, anchor[layer + 1], beta=-1)
    dv = -dz
    for layer in range(len(WS) - 1, 0, -1):
        danchor[layer - 1].baddbmm_(X[layer].mT, dz)
        dx = minus_dX[layer].baddbmm_(dz, anchor[layer].mT, beta=-1)
        dz = dZ[layer - 1].addcmul_(dx, slopes[layer - 1])
    danchor.insert(0, torch.bmm(k.mT, dz))
    dk = minus_dX[0].baddbmm_(dz, anchor[0].mT, beta=-1)
    return dy, dk, dv, danchor


# Nothing below broadcasts x over the two halves: on CPU that takes up to four times as long.


def _twice(x: Tensor, pair: Tensor) -> Tensor:
    """Rows ``[p x | r x]`` ``[P, C, 2 d]``, for rows x and a pair of numbers (p, r) each, ``[P, C, 2]``."""
    return torch.cat((x, x), dim=-1).unflatten(-1, (2, -1)).mul_(pair.unsqueeze(-1)).flatten(-2)


def _both(xx: Tensor, pair: Tensor) -> Tensor:
    """Rows ``p x + r x'`` for rows ``[x | x']``: the transpose of :func:`_twice`."""
    x, other = xx.chunk(2, dim=-1)
    p, r = pair.split(1, dim=-1)
    return (x * p).addcmul_(other, r)


def _dot(xx: Tensor, y: Tensor) -> Tensor:
    """Both halves of rows ``[x | x']`` with y: ``(x . y, x' . y)``, ``[P, C, 2]``."""
    return torch.stack([(x * y).sum(-1) for x in xx.chunk(2, dim=-1)], dim=-1)
