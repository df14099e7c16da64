"""The engine in plain PyTorch: stores pieces one by one and reads them in groups."""

from typing import NamedTuple

import torch
from torch import Tensor

from titans_core.ops.memory.activations import ACTIVATIONS
from titans_core.ops.memory.coefficients import coefficients_backward, coefficients_forward
from titans_core.ops.memory.distances import distances_backward, distances_forward
from titans_core.ops.memory.pair import join, weights
from titans_core.ops.memory.pieces import Backflow, Engine, Inputs, Layers, Start, cut_into, in_pieces
from titans_core.ops.memory.read import ReadTape, read, read_gradient
from titans_core.ops.memory.store import replay, store, store_gradient

# A group has enough rows (tokens times batch times heads) to amortise its calls, yet fits in a core's cache. Its
# weights, which reading concatenates, take at most GROUP_BYTES.
GROUP_ROWS = 512
GROUP_BYTES = 4 * 2**20


class Tape(NamedTuple):
    """Pieces that were run, in groups."""

    part: slice
    anchor: Layers  # anchor of the first piece, [P, d, d']
    WS: list[Layers]  # starting WS of the pieces of each group, [g, P, n d, d']
    errors: Tensor  # of all N pieces in one tensor: many small tensors would waste memory; likewise ``seen``
    seen: ReadTape

    def cut(self, start: int, stop: int) -> tuple[Tensor, ReadTape]:
        """Views of the errors and the read tape of pieces start to stop."""
        return self.errors[start:stop], ReadTape(*([x[start:stop] for x in layers] for layers in self.seen))


class Groups(Engine):
    """Runs on every device."""

    tape_bytes = 512 * 2**20
    segment_bytes = 0
    streams = True

    @staticmethod
    def to_pieces(tokens: Tensor, size: int) -> Tensor:
        return in_pieces(tokens, size)

    @staticmethod
    def from_pieces(outputs: Tensor, heads: int) -> Tensor:
        return outputs.unflatten(1, (-1, heads)).permute(1, 0, 3, 2, 4).contiguous().flatten(1, 2)

    @staticmethod
    def coefficients(alpha: Tensor | None, eta: Tensor | None, theta: Tensor, size: int) -> tuple[Tensor, ...]:
        if theta.shape[-1] < size:
            return distances_forward(alpha, eta, theta, size)
        return coefficients_forward(alpha, eta, theta)

    @staticmethod
    def coefficients_gradient(
        alpha: Tensor | None, eta: Tensor | None, theta: Tensor, size: int, *grads: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor]:
        if theta.shape[-1] < size:
            return distances_backward(alpha, eta, theta, size, *grads)
        return coefficients_backward(alpha, eta, theta, *grads)

    @staticmethod
    def tape_width(C: int, widths: list[int]) -> int:
        *hidden, last = widths
        return last + sum(hidden) + C * len(widths)

    def forward(
        self, inputs: Inputs, start: Start, y: Tensor, keep: bool, room: list[Layers]
    ) -> tuple[Tape | None, Layers, Layers]:
        phi = ACTIVATIONS[self.activation]
        begin, groups = start.part.start, self._groups(inputs, start.part, start.WS)
        first, *_ = sizes = [part.stop - part.start for part in groups]
        rows = start.part.stop - begin if keep else first
        tape = Tape(start.part, start.anchor, [], *_empty_tape(inputs, start, rows))
        WS = [ws[None] for ws in start.WS] if first == 1 else _places(start.WS, first, room)
        if first > 1:
            for place, ws in zip(WS, start.WS, strict=True):
                place[0].copy_(ws)
        anchor = start.anchor
        for part, then in zip(groups, [*sizes[1:], 1], strict=True):
            q, k, v, c = inputs.cut(part, part)
            after = _places(start.WS, then, room)
            starts = [*_each(WS), [ws[0] for ws in after]]
            at = part.start - begin if keep else 0
            errors, seen = tape.cut(at, at + len(q))
            inner = store(k, v, c, starts, anchor, self.base, errors, phi)
            read(q, c, self._joined(WS), inner, y[part], seen, phi)
            last_anchor = weights(starts[-2], self.n) if len(q) > 1 else anchor
            if keep:
                tape.WS.append(WS)
            elif begin < part.start and part.stop < start.part.stop:  # the first WS may be the segment's own start
                room.append(WS)
            WS, anchor = after, weights(starts[-1], self.n)
        return tape if keep else None, [ws[0] for ws in WS], last_anchor

    def backward(self, inputs: Inputs, grads: Inputs, tape: Tape, dy: Tensor, flow: Backflow) -> None:
        phi = ACTIVATIONS[self.activation]
        begin, groups = tape.part.start, self._groups(inputs, tape.part, [ws[0] for ws in tape.WS[0]])
        for part, WS in zip(reversed(groups), reversed(tape.WS), strict=True):
            q, k, _, c = inputs.cut(part, part)
            dq, dk, dv, dc = grads.cut(part, part)
            starts, (errors, seen) = _each(WS), tape.cut(part.start - begin, part.stop - begin)
            first = tape.anchor if part.start == begin else None
            inner, slopes, bends = replay(k, errors, self._anchors(WS, first), phi)
            dq[:], to_store = read_gradient(dy[part].contiguous(), q, c, dc, self._joined(WS), inner, seen, phi)
            dk[:], dv[:] = store_gradient(
                c, dc, starts, first or weights(starts[0], self.n), self.base, inner, slopes, bends, to_store, flow
            )
            if part.start > begin:
                flow.to_weights(self.n)

    def release(self, tape: Tape, room: list[Layers]) -> None:
        room.extend(tape.WS[1:])  # the first WS may be the segment's own start

    def _joined(self, WS: Layers) -> Layers:
        """Weights that pieces read, ``[pieces * P, ...]`` for each layer: their ``WS`` on top of the base."""
        joined = [ws.flatten(0, 1) for ws in WS]
        if not self.base:
            return joined
        return [join(ws, w.repeat(len(WS[0]), 1, 1)) for ws, w in zip(joined, self.base, strict=True)]

    def _anchors(self, WS: Layers, first: Layers | None) -> Layers:
        """Weights at which pieces take their gradients, ``[pieces * P, d, d']`` for each layer.

        These are each piece's W, except that the first piece uses ``first`` if given.
        """
        own = weights(WS, self.n)
        if first is None:
            return [w.flatten(0, 1) for w in own]
        return [torch.cat((A, w[1:].flatten(0, 1))) for A, w in zip(first, own, strict=True)]

    @staticmethod
    def _groups(inputs: Inputs, part: slice, WS: Layers) -> list[slice]:
        _, P, C, _ = inputs.q.shape
        length = max(1, min(GROUP_ROWS // (P * C), GROUP_BYTES // sum(ws.nbytes for ws in WS)))
        return cut_into(part, length)


def _empty_tape(inputs: Inputs, start: Start, rows: int) -> tuple[Tensor, ReadTape]:
    P, C, V = inputs.v.shape[1:]
    new = inputs.k.new_empty
    Y = [new(rows, P, C, A.shape[-1]) for A in start.anchor[:-1]]
    return new(rows, P, C, V), ReadTape(Y, [new(rows, P, C, C) for _ in start.anchor])


def _places(WS: Layers, count: int, room: list[Layers]) -> Layers:
    """Buffers for the starting WS of ``count`` pieces, ``[count, P, ...]`` per layer.

    Buffers in ``room`` are reused, because touching new memory costs more than filling it.
    """
    for i, places in enumerate(room):
        if len(places[0]) == count:
            return room.pop(i)
    return [ws.new_empty(count, *ws.shape) for ws in WS]


def _each(WS: Layers) -> list[Layers]:
    """Views of the layers, piece by piece."""
    return [list(piece) for piece in zip(*(ws.unbind(0) for ws in WS), strict=True)]
