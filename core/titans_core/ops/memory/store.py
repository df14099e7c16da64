"""Storing the pieces of a sequence one after another, with a hand-written gradient.

A piece is a chunk, or the part of a chunk within one call. Its inner gradients are all taken at ``anchor``, the weights
at the start of its chunk. In mid-chunk, ``anchor`` differs from the current weights; otherwise they are the same.

Shapes: N pieces, P = batch * heads, C tokens in a piece. Layer l maps ``d`` to ``d'``.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from titans_core.ops.memory.activations import Activation
from titans_core.ops.memory.coefficients import Coefficients
from titans_core.ops.memory.pair import add_gathered, columns, dots, split, spread, weights
from titans_core.ops.memory.pieces import Backflow, Layers


class Inner(NamedTuple):
    """Both factors of every inner gradient ``u_t = x_t^T delta_t``. Lists over the layers."""

    X: Layers  # each layer's input for the keys, [N, P, C, d]
    delta: Layers  # the error at each layer's output, [N, P, C, d']


class ReadGradient(NamedTuple):
    """What reading contributes to the gradients of storing. Lists over the layers."""

    minus_dX: Layers  # negated, because writes enter the memory with a minus sign, [N, P, C, d]
    minus_ddelta: Layers  # [N, P, C, d']
    factors: list[tuple[Tensor, Tensor]]  # left and right, [N, P, C, .]: left^T right is the gradient of WS


def store(
    k: Tensor,
    v: Tensor,
    c: Coefficients,
    WS: list[Layers],
    anchor: Layers,
    base: Layers,
    errors: Tensor,
    phi: Activation,
) -> Inner:
    """Store keys and values ``[N, P, C, .]``. The first piece takes its gradients at ``anchor``, ``[P, ...]`` a layer.

    ``WS`` holds N + 1 sets of buffers ``[P, ...]`` per layer. The first contains the starting WS of the first piece;
    the starting WS of the others and the final WS are written to the rest. Forgetting pulls towards ``base``, ``[P,
    ...]``, or towards zero if that is empty. ``errors`` ``[N, P, C, V]`` is filled with the errors of the last layer,
    the only values that the backward pass does not recompute.
    """
    n, hidden = c.n, range(len(anchor) - 1)
    H, D = ([k.new_empty(*k.shape[:-1], A.shape[-1]) for A in anchor[:-1]] for _ in range(2))
    inner = Inner([k, *H], [*D, errors])
    for i in range(len(k)):
        A = weights(WS[i], n) if i > 0 else anchor
        x, delta = ([layer[i] for layer in part] for part in inner)
        slopes = []
        for l in hidden:
            z = torch.bmm(x[l], A[l], out=delta[l])  # uses the buffer of the error, which is computed later
            slopes.append(phi.with_slope(z, out=x[l + 1])[1])
        torch.baddbmm(v[i], x[-1], A[-1], beta=-1, out=delta[-1])
        for l in reversed(hidden):
            torch.bmm(delta[l + 1], A[l + 1].mT, out=delta[l]).mul_(slopes[l])

        write, numbers = columns(c.write[i]), c.carry[i, :, :, None, None].unbind(1)
        for l, (ws, ws_after, x_l, delta_l) in enumerate(zip(WS[i], WS[i + 1], x, delta, strict=True)):
            _carry(split(ws, n), split(ws_after, n), base[l : l + 1], numbers)
            ws_after.baddbmm_(spread(x_l, write).mT, delta_l, alpha=-1)
    return inner


def _carry(before: tuple[Tensor, ...], after: tuple[Tensor, ...], base: Layers, numbers: tuple[Tensor, ...]) -> None:
    """``W <- a W + b S,  S <- e S``, or ``W <- a W``; and ``W <- W + (1 - a) base``. The numbers are ``[P, 1, 1]``."""
    torch.mul(before[0], numbers[0], out=after[0])
    if len(before) > 1:
        after[0].addcmul_(before[1], numbers[1])
        torch.mul(before[1], numbers[2], out=after[1])
    for w in base:
        after[0].addcmul_(w, numbers[-1])


def replay(k: Tensor, errors: Tensor, anchors: Layers, phi: Activation) -> tuple[Inner, Layers, Layers]:
    """Recompute the results of :func:`store` from the errors of the last layer.

    ``anchors`` are the weights at which each piece took its gradients, ``[N * P, d, d']`` for each layer. For the
    hidden layers, also returns ``phi'``, and ``phi''`` times the error at the output of the activation.
    """
    found: tuple[Layers, ...] = ([k], [], [])
    X, slopes, bends = found
    for A in anchors[:-1]:
        z = torch.bmm(X[-1].flatten(0, 1), A).unflatten(0, k.shape[:2])
        for layers, part in zip(found, phi.with_bend(z), strict=True):
            layers.append(part)
    delta = [errors]
    for A, slope, bend in zip(reversed(anchors[1:]), reversed(slopes), reversed(bends), strict=True):
        error = torch.bmm(delta[0].flatten(0, 1), A.mT).view_as(slope)
        bend.mul_(error)
        delta.insert(0, error.mul_(slope))
    return Inner(X, delta), slopes, bends


def store_gradient(
    c: Coefficients,
    dc: Coefficients,
    WS: list[Layers],
    anchor: Layers,
    base: Layers,
    inner: Inner,
    slopes: Layers,
    bends: Layers,
    read: ReadGradient,
    flow: Backflow,
) -> tuple[Tensor, Tensor]:
    """Gradients of k and v ``[N, P, C, .]``. Those of ``c.write`` and ``c.carry`` are written to ``dc``.

    ``WS`` are the starting WS of each piece, ``anchor`` is where the first took its gradients, and ``base`` is that of
    :func:`store`. ``flow`` enters with the gradients after the last piece and leaves with those before the first.
    ``bends`` and ``read`` are overwritten.
    """
    n = c.n
    X, delta = inner
    dWS, danchor, dbase, scratch = flow
    write = columns(c.write)
    written = [spread(x, write) for x in X]
    hidden = range(len(slopes))
    dwrite, dcarry = dc.write.zero_(), dc.carry.zero_()

    for i in reversed(range(len(WS))):
        A = weights(WS[i], n) if i > 0 else anchor
        minus_dX, minus_ddelta = ([x[i] for x in part] for part in (read.minus_dX, read.minus_ddelta))

        # writing and carrying; then what the piece read from its starting weights
        numbers, write = c.carry[i, :, :, None, None].unbind(1), columns(c.write[i])
        for l, (xx, d) in enumerate(zip(written, delta, strict=True)):
            minus_ddelta[l].baddbmm_(xx[i], dWS[l])
            at = torch.bmm(d[i], dWS[l].mT, out=xx[i])  # reuses the buffer of ``written``, which is no longer needed
            add_gathered(minus_dX[l], at.chunk(n, dim=-1), write)
            after = split(dWS[l], n)
            dcarry[i].add_(_carried(split(WS[i][l], n), after, base[l : l + 1], scratch[l]))
            _carry_gradient(after, dbase[l : l + 1], numbers)
            left, right = read.factors[l]
            of_WS = left[i].mT[:, : dWS[l].shape[-2]]
            dWS[l].baddbmm_(of_WS, right[i])
            for dw in dbase[l : l + 1]:
                dw.baddbmm_(left[i].mT[:, of_WS.shape[1] :], right[i])

        # back through the errors, which were computed from the last layer to the first
        dZ = []
        dz = minus_ddelta[0].neg_()
        for l in hidden:
            dZ.append(bends[l][i].mul_(dz))
            derror = dz.mul_(slopes[l][i])
            danchor[l + 1].baddbmm_(derror.mT, delta[l + 1][i])
            dz = minus_ddelta[l + 1].baddbmm_(derror, A[l + 1], beta=-1)
        # back through the activations
        for l in reversed(hidden):
            danchor[l + 1].baddbmm_(X[l + 1][i].mT, dz)
            dx = minus_dX[l + 1].baddbmm_(dz, A[l + 1].mT, beta=-1)
            dz = dZ[l].addcmul_(dx, slopes[l][i])
        danchor[0].baddbmm_(X[0][i].mT, dz)
        minus_dX[0].baddbmm_(dz, A[0].mT, beta=-1)
        if i > 0:
            flow.to_weights(n)

    for at, x in zip(written, X, strict=True):
        dwrite.sub_(dots(at, x, n))
    return read.minus_dX[0], -read.minus_ddelta[-1]


def _carry_gradient(dWS: tuple[Tensor, ...], dbase: Layers, numbers: tuple[Tensor, ...]) -> None:
    """The transpose of :func:`_carry`, in place: ``dbase <- dbase + (1 - a) dW,  dS <- b dW + e dS,  dW <- a dW``."""
    for dw in dbase:
        dw.addcmul_(dWS[0], numbers[-1])
    if len(dWS) > 1:
        dWS[1].mul_(numbers[2]).addcmul_(dWS[0], numbers[1])
    dWS[0].mul_(numbers[0])


def _carried(before: tuple[Tensor, ...], dafter: tuple[Tensor, ...], base: Layers, scratch: Tensor) -> Tensor:
    """The gradient of the numbers of :func:`_carry`, in their order, ``[P, numbers]``."""
    terms = [(before[0], dafter[0])]
    if len(before) > 1:
        terms += [(before[1], dafter[0]), (before[1], dafter[1])]
    terms += [(w, dafter[0]) for w in base]
    return torch.stack([torch.mul(x, dx, out=scratch).sum((-2, -1)) for x, dx in terms], dim=-1)
