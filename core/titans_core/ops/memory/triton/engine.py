"""The Triton engine: one kernel stores the pieces of a segment in order, another reads all of them at once."""

from typing import NamedTuple

import torch
from torch import Tensor

from titans_core.ops.memory.pieces import Backflow, Engine, Inputs, Layers, Start
from titans_core.ops.memory.triton.coefficients import coefficients_backward, coefficients_forward
from titans_core.ops.memory.triton.forward import read_forward, store_forward
from titans_core.ops.memory.triton.read_backward import read_backward
from titans_core.ops.memory.triton.store_backward import store_backward


class Tape(NamedTuple):
    """A segment that was run."""

    part: slice
    WS: Layers  # starting WS of each piece, as precise as the tokens, [pieces, P, n, d, d']
    anchor: Layers  # anchor of the first piece, as precise as the tokens, [P, d, d']
    delta: Tensor  # errors at the output, as precise as the tokens, [pieces, P, C, V]
    seen: Tensor | None  # queries times keys of the second layer, [pieces, P, C, C]


class Kernels(Engine):
    """Runs on CUDA, and on every device under Triton's interpreter. Takes tokens as they are, ``[B, T, heads, d]``."""

    tape_bytes = 3 * 2**30
    segment_bytes = 768 * 2**20
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

    @staticmethod
    def to_pieces(tokens: Tensor, size: int) -> Tensor:
        return tokens.contiguous()

    @staticmethod
    def from_pieces(outputs: Tensor, heads: int) -> Tensor:
        return outputs

    @staticmethod
    def gradient_to_pieces(dy: Tensor) -> Tensor:
        return dy.contiguous()

    def forward(
        self, inputs: Inputs, start: Start, y: Tensor, keep: bool, room: list[Tape]
    ) -> tuple[Tape | None, Layers, Layers]:
        q, k, v, c = _cut(inputs, start.part)
        begin = [ws.unflatten(1, (self.n, -1)) for ws in start.WS]
        end = [ws.clone(memory_format=torch.contiguous_format) for ws in begin]
        anchor = [A.to(k.dtype).contiguous() for A in start.anchor]
        last = [A.clone(memory_format=torch.contiguous_format) for A in start.anchor]
        WS, delta = store_forward(k, v, c.write, c.carry, end, last, anchor, self.base, self.activation)
        y = y[_tokens(inputs, start.part)]
        seen = read_forward(q, k, c.G, c.read, WS, anchor, self.base, delta, self.activation, y, keep_seen=keep)
        tape = Tape(start.part, WS, anchor, delta, seen) if keep else None
        return tape, [ws.flatten(1, 2) for ws in end], last

    def backward(self, inputs: Inputs, grads: Inputs, tape: Tape, dy: Tensor, flow: Backflow) -> None:
        q, k, _, c = _cut(inputs, tape.part)
        grads = _cut(grads, tape.part)
        _, WS, anchor, delta, seen = tape
        dy = dy[_tokens(inputs, tape.part)]
        read = read_backward(dy, q, k, c.G, c.read, WS, anchor, self.base, delta, seen, self.activation, grads)
        if len(delta) > 1:  # the last piece's anchor is its starting weights
            for dws, dA in zip(read.dWS, flow.danchor, strict=True):
                dws[-1, :, 0] += dA
                dA.zero_()
        through = [dws.unflatten(1, (self.n, -1)) for dws in flow.dWS]  # views
        if self.base:
            through = [torch.cat((d, dw.unsqueeze(1)), dim=1) for d, dw in zip(through, flow.dbase, strict=True)]
        danchor = store_backward(
            k, c.write, c.carry, WS, anchor, self.base, delta, read, through, self.activation, grads
        )
        if self.base:
            for dws, dw, found in zip(flow.dWS, flow.dbase, through, strict=True):
                dws.copy_(found[:, : self.n].flatten(1, 2))
                dw.copy_(found[:, self.n])
        for dA, found in zip(flow.danchor, danchor, strict=True):
            dA += found

    def release(self, tape: Tape, room: list[Tape]) -> None:
        """Do nothing: PyTorch's CUDA allocator keeps the memory for the next segment."""


def _of_tokens(gate: Tensor, size: int) -> Tensor:
    """Expand gates per piece ``[N, P, 1]`` to ``[N, P, C]``."""
    return gate.expand(*gate.shape[:-1], size).contiguous()


def _tokens(inputs: Inputs, part: slice) -> tuple[slice, slice]:
    """Index of the tokens of these pieces."""
    size = inputs.c.G.shape[-1]
    return slice(None), slice(part.start * size, part.stop * size)


def _cut(inputs: Inputs, part: slice) -> Inputs:
    """Views of the pieces in ``part``."""
    N, P, C, _ = inputs.c.G.shape
    for x in inputs[:3]:  # the kernels would write elsewhere
        assert x.is_contiguous()
        assert x.shape[0] * x.shape[2] == P
        assert x.shape[1] == N * C
    return inputs.cut(part, _tokens(inputs, part))
