"""The Triton engine: one kernel stores the pieces of a segment in order, another reads all of them at once."""

from typing import NamedTuple

import torch
from torch import Tensor

from titans_core.ops.memory.pieces import Backflow, Engine, Inputs, Layers, Start
from titans_core.ops.memory.triton.backward import read_backward, store_backward
from titans_core.ops.memory.triton.coefficients import coefficients_backward, coefficients_forward
from titans_core.ops.memory.triton.forward import read_forward, store_forward


class Tape(NamedTuple):
    """A segment that was run."""

    part: slice
    WS: Layers  # starting WS of each piece, and the final WS, [pieces + 1, P, n, d, d']
    anchor: Layers  # anchor of the first piece, [P, d, d']
    delta: Tensor  # errors at the output, [pieces, P, C, V]
    seen: Tensor | None  # queries times keys of the second layer, [pieces, P, C, C]


class Kernels(Engine):
    """Runs on CUDA, and on every device under Triton's interpreter."""

    tape_bytes = 2 * 2**30
    streams = False

    @staticmethod
    def coefficients(alpha: Tensor | None, eta: Tensor | None, theta: Tensor, size: int) -> tuple[Tensor, ...]:
        alpha, eta = (None if g is None else _of_tokens(g, size) for g in (alpha, eta))
        return coefficients_forward(alpha, eta, _of_tokens(theta, size))

    @staticmethod
    def coefficients_gradient(
        alpha: Tensor | None, eta: Tensor | None, theta: Tensor, size: int, *grads: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor]:
        alpha, eta = (None if g is None else _of_tokens(g, size) for g in (alpha, eta))
        dalpha, deta, dtheta = coefficients_backward(alpha, eta, _of_tokens(theta, size), *grads)
        dalpha, deta = (None if g is None else g.sum_to_size(theta.shape) for g in (dalpha, deta))
        return dalpha, deta, dtheta.sum_to_size(theta.shape)

    @staticmethod
    def tape_width(C: int, widths: list[int]) -> int:
        return widths[-1] + (C if len(widths) > 1 else 0)

    def forward(
        self, inputs: Inputs, start: Start, y: Tensor, keep: bool, room: list[Tape]
    ) -> tuple[Tape | None, Layers, Layers]:
        q, k, v, c = inputs.cut(start.part)
        begin = [ws.unflatten(1, (self.n, -1)) for ws in start.WS]
        anchor = [A.contiguous() for A in start.anchor]
        WS, delta = store_forward(k, v, c.write, c.carry, begin, anchor, self.base, self.activation)
        seen = read_forward(
            q, k, c.G, c.read, WS, anchor, self.base, delta, self.activation, y[start.part], keep_seen=keep
        )
        end = [ws[-1].flatten(1, 2).clone() for ws in WS]  # clone: a view would keep the whole tape alive
        last_anchor = [ws[-2, :, 0].clone() for ws in WS] if len(q) > 1 else anchor
        return Tape(start.part, WS, anchor, delta, seen) if keep else None, end, last_anchor

    def backward(self, inputs: Inputs, grads: Inputs, tape: Tape, dy: Tensor, flow: Backflow) -> None:
        q, k, _, c = inputs.cut(tape.part)
        grads = grads.cut(tape.part)
        _, WS, anchor, delta, seen = tape
        dy = dy[tape.part].contiguous()
        read = read_backward(dy, q, k, c.G, c.read, WS, anchor, self.base, delta, seen, self.activation, grads)
        if len(q) > 1:  # the last piece's anchor is its starting weights
            for dws, dA in zip(read.dWS, flow.danchor, strict=True):
                dws[-1, :, 0] += dA
                dA.zero_()
        dend = [dws.unflatten(1, (self.n, -1)) for dws in flow.dWS]
        if self.base:
            dend = [torch.cat((d, dw.unsqueeze(1)), dim=1) for d, dw in zip(dend, flow.dbase, strict=True)]
        stored = store_backward(k, c.write, c.carry, WS, anchor, self.base, delta, read, dend, self.activation, grads)
        for dws, found in zip(flow.dWS, stored.dstart, strict=True):
            dws.copy_(found[:, : self.n].flatten(1, 2))
        if self.base:
            for dw, found in zip(flow.dbase, stored.dstart, strict=True):
                dw.copy_(found[:, self.n])
        for dA, found in zip(flow.danchor, stored.danchor, strict=True):
            dA += found

    def release(self, tape: Tape, room: list[Tape]) -> None:
        """Do nothing: PyTorch's CUDA allocator keeps the memory for the next segment."""


def _of_tokens(gate: Tensor, size: int) -> Tensor:
    """Expand gates per piece ``[N, P, 1]`` to ``[N, P, C]``."""
    return gate.expand(*gate.shape[:-1], size).contiguous()
