"""The engine in plain PyTorch: pieces are stored one by one, and read in groups."""

from typing import NamedTuple

import torch
from torch import Tensor

from titans_core.ops.memory.activations import ACTIVATIONS
from titans_core.ops.memory.coefficients import coefficients_backward, coefficients_forward
from titans_core.ops.memory.distances import distances_backward, distances_forward
from titans_core.ops.memory.pair import join, weights
from titans_core.ops.memory.pieces import Backflow, Engine, Inputs, Layers, Start, cut_into
from titans_core.ops.memory.read import ReadTape, read, read_gradient
from titans_core.ops.memory.store import StoreTape, replay, store, store_gradient

# A group has enough rows (tokens times batch times heads) to be worth its calls, few enough to stay in a core's cache,
# and weights of at most so many bytes, which reading has to bring together.
GROUP_ROWS = 512
GROUP_BYTES = 4 * 2**20


class Group(NamedTuple):
    """Some pieces that were run: which they are, what each starts with, the first one's anchor, and the tapes."""

    part: slice
    WS: list[Layers]
    anchor: Layers
    stored: StoreTape
    seen: ReadTape


class Groups(Engine):
    """Runs on every device."""

    tape_bytes = 512 * 2**20

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
        return last + 3 * sum(hidden) + C * len(widths)

    def forward(
        self, inputs: Inputs, start: Start, y: Tensor, keep: bool, room: list[Layers]
    ) -> tuple[list[Group], Layers, Layers]:
        phi = ACTIVATIONS[self.activation]
        pieces, WS, anchor = start
        _, P, C, _ = inputs.q.shape
        length = max(1, min(GROUP_ROWS // (P * C), GROUP_BYTES // sum(ws.nbytes for ws in WS)))
        groups = []
        used: list[Layers] = []
        for part in cut_into(pieces, length):
            if part.start > pieces.start:
                anchor = weights(WS, self.n)
            q, k, v, c = inputs.cut(part)
            starts, inner, stored = store(k, v, c, WS, anchor, self.base, room, phi)
            y[part], seen = read(q, c, self._joined(starts[:-1]), inner, phi)
            if keep:
                groups.append(Group(part, starts[:-1], anchor, stored, seen))
            else:  # the next group starts with the last of these, and the one before may be the last anchor
                room.extend(used)
                used = starts[1:]
            if len(starts) > 2:
                anchor = weights(starts[-2], self.n)
            WS = starts[-1]
        return groups, WS, anchor

    def backward(self, inputs: Inputs, grads: Inputs, tape: Group, dy: Tensor, flow: Backflow) -> None:
        phi = ACTIVATIONS[self.activation]
        q, k, _, c = inputs.cut(tape.part)
        dq, dk, dv, dc = grads.cut(tape.part)
        inner, slopes, bends = replay(k, tape.stored, phi)
        dq[:], to_store = read_gradient(dy[tape.part], q, c, dc, self._joined(tape.WS), inner, tape.seen, phi)
        dk[:], dv[:] = store_gradient(c, dc, tape.WS, tape.anchor, self.base, inner, slopes, bends, to_store, flow)

    def release(self, tape: Group, room: list[Layers]) -> None:
        room.extend(tape.WS[1:])  # the first is the group's before, or the segment's start

    def _joined(self, WS: list[Layers]) -> Layers:
        """What each piece reads, ``[pieces * P, ...]`` for each layer: its ``WS`` ``[P, ...]``, below that the base."""
        joined = [ws[0] if len(ws) == 1 else torch.cat(ws) for ws in zip(*WS, strict=True)]
        if not self.base:
            return joined
        return [join(ws, w.repeat(len(WS), 1, 1)) for ws, w in zip(joined, self.base, strict=True)]
