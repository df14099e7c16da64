"""Pieces of one size, one after the other, as one autograd function whose memory is bounded.

A *group* of pieces is stored one by one and then read at once. What its gradient needs is its tape. Where the tapes of
a call would take more than ``TAPE_BYTES``, the sequence is cut into *segments* of groups, of which only the starting
weights are kept: the backward pass makes a segment's tapes again when it comes to it.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from titans_core.ops.memory.activations import Activation
from titans_core.ops.memory.coefficients import Coefficients
from titans_core.ops.memory.gradient import first_order
from titans_core.ops.memory.pair import weights
from titans_core.ops.memory.read import ReadTape, read, read_gradient
from titans_core.ops.memory.store import Backflow, Layers, StoreTape, replay, store, store_gradient

# Up to this size one call keeps all its tapes. Beyond it, the backward pass does about half as much again.
TAPE_BYTES = 512 * 2**20
# Rows (tokens times batch times heads) of a group: enough to be worth the calls, few enough to stay in a core's cache.
GROUP_ROWS = 512
# ... and bytes of the weights that its pieces start with.
GROUP_BYTES = 2**20


class Inputs(NamedTuple):
    """Some pieces: q, k, v ``[N, P, C, d]``, and their coefficients. Or the gradients of these."""

    q: Tensor
    k: Tensor
    v: Tensor
    c: Coefficients

    def cut(self, part: slice) -> "Inputs":
        """Some of them: views."""
        return Inputs(self.q[part], self.k[part], self.v[part], Coefficients(*(x[part] for x in self.c)))


class Group(NamedTuple):
    """Some pieces that were run: which they are, what each starts with, the first one's anchor, and the tapes."""

    part: slice
    WS: list[Layers]
    anchor: Layers
    stored: StoreTape
    seen: ReadTape


class Start(NamedTuple):
    """Where a segment begins: its pieces, and the first one's weights and anchor."""

    part: slice
    WS: Layers
    anchor: Layers


class Engine(NamedTuple):
    """How pieces are run: the activation, n of :class:`Coefficients`, and how many are read at once."""

    phi: Activation
    n: int
    group: int

    def forward(
        self, inputs: Inputs, start: Start, y: Tensor, keep: bool, room: list[Layers]
    ) -> tuple[list[Group], Layers, Layers]:
        """Runs a segment, puts its outputs into y, and returns the groups if they are to be kept.

        Also returns the last ``WS`` and the anchor of the last piece. ``room`` is memory for weights, and gets what is
        not kept.
        """
        pieces, WS, anchor = start
        groups = []
        used: list[Layers] = []
        for part in _parts(pieces, self.group):
            if part.start > pieces.start:
                anchor = weights(WS, self.n)
            q, k, v, c = inputs.cut(part)
            starts, inner, stored = store(k, v, c, WS, anchor, room, self.phi)
            y[part], seen = read(q, c, _joined(starts[:-1]), inner, self.phi)
            if keep:
                groups.append(Group(part, starts[:-1], anchor, stored, seen))
            else:  # the next group starts with the last of these, and the one before may be the last anchor
                room.extend(used)
                used = starts[1:]
            if len(starts) > 2:
                anchor = weights(starts[-2], self.n)
            WS = starts[-1]
        return groups, WS, anchor

    def backward(self, inputs: Inputs, grads: Inputs, group: Group, dy: Tensor, flow: Backflow) -> None:
        """Puts the gradients of a group into ``grads``, and moves ``flow`` on to before its first piece."""
        q, k, _, c = inputs.cut(group.part)
        dq, dk, dv, dc = grads.cut(group.part)
        inner, slopes, bends = replay(k, group.stored, self.phi)
        dq[:], to_store = read_gradient(dy[group.part], q, c, dc, _joined(group.WS), inner, group.seen, self.phi)
        dk[:], dv[:] = store_gradient(c, dc, group.WS, group.anchor, inner, slopes, bends, to_store, flow)


class Pieces(torch.autograd.Function):
    """Takes q, k, v, the coefficients, and for each layer the first ``WS`` and the first anchor, ``[P, ...]``.

    Returns the outputs ``[N, P, C, V]``, and for each layer the last ``WS`` and the anchor of the last piece.
    """

    @staticmethod
    def forward(ctx: Any, L: int, phi: Activation, grad_enabled: bool, *tensors: Tensor) -> tuple[Tensor, ...]:
        inputs, WS, anchor = _unpack(L, tensors)
        N, P, C, V = inputs.v.shape
        start_bytes = sum(ws.nbytes for ws in WS)
        group = max(1, min(GROUP_ROWS // (P * C), GROUP_BYTES // start_bytes))
        engine = Engine(phi, inputs.c.read.shape[-1], group)
        tape_bytes = inputs.v.element_size() * P * C * (V + sum(C + 3 * A.shape[-1] for A in anchor))
        needs_grad = grad_enabled and any(ctx.needs_input_grad)
        keep = needs_grad and N * (start_bytes + tape_bytes) <= TAPE_BYTES
        # the length at which starts of segments, and the weights and tapes of one segment, are fewest
        length = N if keep else math.ceil(math.sqrt(N * start_bytes / (start_bytes + tape_bytes)))

        y = torch.empty_like(inputs.v)
        segments: list[tuple[Start, list[Group]]] = []
        room: list[Layers] = []
        for part in _parts(slice(0, N), length):
            start = Start(part, WS, weights(WS, engine.n) if part.start > 0 else anchor)
            groups, WS, last_anchor = engine.forward(inputs, start, y, keep, room)
            if needs_grad:
                segments.append((start, groups))
        ctx.save_for_backward(*tensors)
        ctx.L, ctx.engine, ctx.segments = L, engine, segments
        return (y, *WS, *(A.clone() for A in last_anchor))

    @staticmethod
    @first_order
    def backward(ctx: Any, dy: Tensor, *dends: Tensor) -> tuple[Tensor | None, ...]:
        engine: Engine = ctx.engine
        inputs, _, _ = _unpack(ctx.L, ctx.saved_tensors)
        dq, dk, dv = map(torch.empty_like, inputs[:3])
        grads = Inputs(dq, dk, dv, Coefficients(*map(torch.empty_like, inputs.c)))
        dy = dy.contiguous()
        flow = Backflow.of(list(dends[: ctx.L]), list(dends[ctx.L :]))
        room: list[Layers] = []
        for start, kept in reversed(ctx.segments):
            groups = kept or engine.forward(inputs, start, torch.empty_like(dy), True, room)[0]
            for group in reversed(groups):
                engine.backward(inputs, grads, group, dy, flow)
                if group.part.start > 0:
                    flow.to_weights(engine.n)
                if not kept:
                    room.extend(ws for ws in group.WS if ws is not start.WS)
        return (None, None, None, *grads[:3], *grads.c, *flow.dWS, *flow.danchor)


def _parts(whole: slice, length: int) -> list[slice]:
    return [slice(i, min(whole.stop, i + length)) for i in range(whole.start, whole.stop, length)]


def _joined(WS: list[Layers]) -> Layers:
    """The ``WS`` ``[P, ...]`` of each piece as ``[pieces * P, ...]``, a tensor for each layer."""
    return [ws[0] if len(ws) == 1 else torch.cat(ws) for ws in zip(*WS, strict=True)]


def _unpack(L: int, tensors: tuple[Tensor, ...]) -> tuple[Inputs, Layers, Layers]:
    q, k, v, *rest = tensors
    m = len(Coefficients._fields)
    return Inputs(q, k, v, Coefficients(*rest[:m])), list(rest[m : m + L]), list(rest[m + L :])
