"""One piece of a sequence through the memory: store, read and carry, and their hand-written backward pass.

A piece is a chunk, or the part of one that a call got to see. Its inner gradients are all taken at ``anchor``, the
weights with which its chunk started. In mid-chunk ``anchor`` differs from the running weights; else they are the same.

Shapes: P = batch * heads, C tokens. Layer l maps ``d`` to ``d'``. The running weights and the past surprise of a layer
lie side by side in one tensor ``WS = [W | S]`` of ``[P, d, 2 d']``, so that one product serves both.
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
    for A in anchor[:-1]:
        Z.append(torch.bmm(X[-1], A))
        X.append(phi.value(Z[-1]))
    delta: Layers = [torch.baddbmm(v, X[-1], anchor[-1], beta=-1)]
    E: Layers = []
    for A, z in zip(reversed(anchor[1:]), reversed(Z), strict=True):
        E.insert(0, torch.bmm(delta[0], A.mT))
        delta.insert(0, E[0] * phi.slope(z))

    h, Y, seen, carried = q, [], [], []
    for x, d, ws in zip(X, delta, WS, strict=True):
        # read: a (h W) + b (h S) - (G * (h x^T)) delta
        from_w, from_s = torch.bmm(h, ws).chunk(2, dim=-1)
        y = torch.addcmul(c.a * from_w, c.b, from_s)
        seen.append(torch.bmm(h, x.mT))
        y.baddbmm_(c.G * seen[-1], d, alpha=-1)
        Y.append(y)
        h = phi.value(y) if len(Y) < len(WS) else y

        # carry: W <- a W + b S - x^T g delta,  S <- e S - x^T s delta, with g the last row of G
        w, s = ws.chunk(2, dim=-1)
        after = torch.empty_like(ws)
        w_after, s_after = after.chunk(2, dim=-1)
        torch.mul(w, c.a[:, -1:], out=w_after).addcmul_(s, c.b[:, -1:])
        torch.mul(s, c.e, out=s_after)
        carried.append(after.baddbmm_(x.mT, _weighed(d, c), alpha=-1))
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
    slopes = [phi.slope(z) for z in tape.Z]
    X = [k, *(phi.value(z) for z in tape.Z)]
    H = [q, *(phi.value(y) for y in tape.Y)]
    delta = [*(e * slope for e, slope in zip(tape.E, slopes, strict=True)), tape.delta]

    # carry; what is written to the memory enters with a minus, so these two lists hold minus the gradients
    minus_dX: Layers = []
    minus_ddelta: Layers = []
    g = c.G[:, -1, :, None]
    for x, d, ws, dws in zip(X, delta, WS, dWS, strict=True):
        s = ws.chunk(2, dim=-1)[1]
        dw, ds = dws.chunk(2, dim=-1)
        to_g, to_s = torch.bmm(x, dws).chunk(2, dim=-1)
        minus_ddelta.append(torch.addcmul(g * to_g, c.s, to_s))
        dc.G[:, -1].sub_((to_g * d).sum(-1))
        dc.s.sub_((to_s * d).sum(-1, keepdim=True))
        minus_dX.append(torch.bmm(_weighed(d, c), dws.mT))
        to_a, to_e = (dws * ws).sum(-2, keepdim=True).chunk(2, dim=-1)
        dc.a[:, -1:].add_(to_a.sum(-1, keepdim=True))
        dc.b[:, -1:].add_((dw * s).sum((-2, -1), keepdim=True))
        dc.e.add_(to_e.sum(-1, keepdim=True))
        ds.mul_(c.e).addcmul_(dw, c.b[:, -1:])
        dw.mul_(c.a[:, -1:])

    # read, from the last layer to the first
    for layer in reversed(range(len(WS))):
        h, seen = H[layer], tape.seen[layer]
        w, s = WS[layer].chunk(2, dim=-1)
        to_read = torch.bmm(dy, delta[layer].mT)
        dc.G.addcmul_(to_read, seen, value=-1)
        to_read.mul_(c.G)
        minus_ddelta[layer].baddbmm_((c.G * seen).mT, dy)
        minus_dX[layer].baddbmm_(to_read.mT, h)
        dWS[layer].baddbmm_(h.mT, torch.cat((c.a * dy, c.b * dy), dim=-1))
        at_w, at_s = torch.bmm(dy, w.mT), torch.bmm(dy, s.mT)
        dc.a.add_((at_w * h).sum(-1, keepdim=True))
        dc.b.add_((at_s * h).sum(-1, keepdim=True))
        dy = at_w.mul_(c.a).addcmul_(c.b, at_s).baddbmm_(to_read, X[layer], alpha=-1)
        if layer > 0:
            dy.mul_(phi.slope(tape.Y[layer - 1]))

    # store: the errors, which ran from the last layer to the first, then the activations
    dZ: Layers = []
    danchor: Layers = []
    dz = minus_ddelta[0].neg_()
    for layer, (z, e, slope) in enumerate(zip(tape.Z, tape.E, slopes, strict=True)):
        dZ.append((dz * e).mul_(phi.bend(z)))
        de = dz.mul_(slope)
        danchor.append(torch.bmm(de.mT, delta[layer + 1]))
        dz = minus_ddelta[layer + 1].baddbmm_(de, anchor[layer + 1], beta=-1)
    dv = -dz
    for layer in range(len(WS) - 1, 0, -1):
        danchor[layer - 1].baddbmm_(X[layer].mT, dz)
        dx = minus_dX[layer].baddbmm_(dz, anchor[layer].mT, beta=-1)
        dz = dZ[layer - 1].addcmul_(dx, slopes[layer - 1])
    danchor.insert(0, torch.bmm(k.mT, dz))
    dk = minus_dX[0].baddbmm_(dz, anchor[0].mT, beta=-1)
    return dy, dk, dv, danchor


def _weighed(delta: Tensor, c: Coefficients) -> Tensor:
    """Errors as they enter the carried weights and the carried surprise, side by side."""
    return torch.cat((c.G[:, -1, :, None] * delta, c.s * delta), dim=-1)
