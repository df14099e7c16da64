"""Neural memory, one chunk at a time: the exact dual form in plain PyTorch. README.md has the algebra.

Within a chunk every inner gradient is rank one per layer, ``u_t = x_t^T delta_t``, and all are taken at the weights
with which the chunk starts. So the weights at token t are never formed: a query reads the starting weights, plus a
masked product with the chunk's own keys and errors. Only the carry from one chunk to the next is sequential.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from titans_core.ops.memory.activations import Activation
from titans_core.ops.memory.coefficients import Coefficients, coefficients
from titans_core.ops.memory.gradient import first_order
from titans_core.ops.memory.piece import backward_piece, forward_piece
from titans_core.ops.memory.state import MemoryState


def chunk_memory(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alpha: Tensor | None,
    eta: Tensor | None,
    theta: Tensor,
    state: MemoryState,
    chunk_size: int,
    activation: Activation,
) -> tuple[Tensor, MemoryState]:
    """The fast form. Arguments as checked and upcast by :func:`titans_core.neural_memory`."""
    B, T, H, _ = q.shape
    WS = [torch.cat(pair, dim=-2).flatten(0, 1) for pair in zip(state.weights, state.momentum, strict=True)]
    anchor = [w.flatten(0, 1) for w in state.anchor]

    # the rest of a chunk begun earlier, then whole chunks, then the beginning of one that a later call will finish
    rest = min(T, -state.offset % chunk_size)
    whole = (T - rest) // chunk_size * chunk_size
    outputs = []
    for start, stop, size in ((0, rest, rest), (rest, rest + whole, chunk_size), (rest + whole, T, T - rest - whole)):
        if start == stop:
            continue
        if start > 0 or state.offset == 0:
            anchor = _weights(WS)
        cut = partial(_cut, start=start, stop=stop, size=size)
        c = coefficients(None if alpha is None else cut(alpha), None if eta is None else cut(eta), cut(theta))
        y, *carried = _Pieces.apply(
            activation, torch.is_grad_enabled(), len(WS), cut(q), cut(k), cut(v), *c, *WS, *anchor
        )
        WS, anchor = carried[: len(WS)], carried[len(WS) :]
        outputs.append(y.unflatten(1, (B, H)).permute(1, 0, 3, 2, 4).flatten(1, 2))

    offset = (state.offset + T) % chunk_size
    W, S = zip(*(ws.unflatten(0, (B, H)).chunk(2, dim=-2) for ws in WS), strict=True)
    end = MemoryState(W, S, W if offset == 0 else tuple(w.unflatten(0, (B, H)) for w in anchor), offset)
    return torch.cat(outputs, dim=1), end


def _cut(x: Tensor, start: int, stop: int, size: int) -> Tensor:
    """Tokens start to stop of ``[B, T, H, ...]`` as pieces ``[pieces, B * H, size, ...]``, each contiguous."""
    return x[:, start:stop].unflatten(1, (-1, size)).movedim((1, 3), (0, 2)).flatten(1, 2).contiguous()


def _weights(WS: list[Tensor]) -> list[Tensor]:
    return [ws.chunk(2, dim=1)[0] for ws in WS]


class _Pieces(torch.autograd.Function):
    """Pieces of one size, one after the other, with the gradient written out.

    Takes q, k, v ``[pieces, P, C, d]``, the coefficients, the first ``WS`` and the first anchor. Returns the outputs,
    the last ``WS``, and the anchor of the last piece.
    """

    @staticmethod
    def forward(ctx: Any, activation: Activation, grad_enabled: bool, L: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        q, k, v, c, WS, anchor = _unpack(L, tensors)
        needs_tape = grad_enabled and any(ctx.needs_input_grad)
        outputs, starts, tapes = [], [], []
        for n in range(len(q)):
            if n > 0:
                anchor = _weights(WS)
            y, carried, tape = forward_piece(q[n], k[n], v[n], _at(c, n), WS, anchor, activation)
            outputs.append(y)
            if needs_tape:
                starts.append(WS)
                tapes.append(tape)
            WS = carried
        ctx.save_for_backward(*tensors)
        ctx.activation, ctx.L, ctx.starts, ctx.tapes = activation, L, starts, tapes
        return (torch.stack(outputs), *WS, *(w.clone() for w in anchor))

    @staticmethod
    @first_order
    def backward(ctx: Any, dy: Tensor, *dcarried: Tensor) -> tuple[Tensor | None, ...]:
        L = ctx.L
        q, k, v, c, _, first_anchor = _unpack(L, ctx.saved_tensors)
        dWS, danchor = [g.clone() for g in dcarried[:L]], dcarried[L:]
        dy = dy.contiguous()
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        dc = Coefficients(*map(torch.zeros_like, c))
        last = len(q) - 1
        for n in range(last, -1, -1):
            WS = ctx.starts[n]
            anchor = first_anchor if n == 0 else _weights(WS)
            piece = (q[n], k[n], _at(c, n), WS, anchor, ctx.tapes[n], ctx.activation)
            dq[n], dk[n], dv[n], dA = backward_piece(dy[n], dWS, _at(dc, n), *piece)
            if n == last:
                dA = [x + y for x, y in zip(dA, danchor, strict=True)]
            if n > 0:  # the anchor of every piece but the first is the weights it starts with
                for dw, da in zip(_weights(dWS), dA, strict=True):
                    dw.add_(da)
        return (None, None, None, dq, dk, dv, *dc, *dWS, *dA)


def _unpack(
    L: int, tensors: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor, Tensor, Coefficients, list[Tensor], list[Tensor]]:
    q, k, v, *rest = tensors
    n = len(Coefficients._fields)
    return q, k, v, Coefficients(*rest[:n]), list(rest[n : n + L]), list(rest[n + L :])


def _at(c: Coefficients, n: int) -> Coefficients:
    return Coefficients(*(x[n] for x in c))
