"""Pieces of one size, one after the other, in bounded memory: what is kept for the gradient, and what is made again.

An engine does the arithmetic of a run of pieces and leaves a tape for its gradient. Where the tape of a call would take
more than the engine's ``tape_bytes``, the sequence is cut into *segments*, of which only the starting weights are kept:
the backward pass makes a segment's tape again when it comes to it.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from titans_core.ops.memory.coefficients import Coefficients
from titans_core.ops.memory.pair import weights

Layers = list[Tensor]


class Inputs(NamedTuple):
    """Some pieces: q, k, v ``[N, P, C, d]``, and their coefficients. Or the gradients of these."""

    q: Tensor
    k: Tensor
    v: Tensor
    c: Coefficients

    def cut(self, part: slice) -> "Inputs":
        """Some of them: views."""
        return Inputs(self.q[part], self.k[part], self.v[part], Coefficients(*(x[part] for x in self.c)))


class Start(NamedTuple):
    """Where a segment begins: its pieces, and the first one's ``WS`` and anchor, a tensor ``[P, ...]`` a layer."""

    part: slice
    WS: Layers
    anchor: Layers


class Backflow(NamedTuple):
    """What runs from piece to piece in the backward pass, changed in place. Lists over the layers."""

    dWS: Layers  # gradient of what a piece carries on, then of what it starts with, [P, ...]
    danchor: Layers  # gradient of a piece's anchor, as far as it was used elsewhere, then whole, [P, d, d']
    dbase: Layers  # gradient of the base, from this piece on, [P, d, d']; empty where there is none
    scratch: Layers  # room for a product, [P, d, d']

    @classmethod
    def of(cls, dWS: Layers, danchor: Layers, base: Layers) -> "Backflow":
        """From the gradients of the last ``WS`` and of the last piece's anchor, which may lie in memory in any way."""
        return cls(
            [x.clone(memory_format=torch.contiguous_format) for x in dWS],
            [x.clone(memory_format=torch.contiguous_format) for x in danchor],
            [torch.zeros_like(x) for x in base],
            [torch.empty_like(x) for x in danchor],
        )

    def to_weights(self, n: int) -> None:
        """Adds the anchor's gradient to that of the weights: a piece's anchor is what the one before ended with."""
        for dw, dA in zip(weights(self.dWS, n), self.danchor, strict=True):
            dw.add_(dA)
            dA.zero_()


class Engine(ABC):
    """How a run of pieces is computed.

    ``n`` is that of :class:`Coefficients`. ``base``, a tensor ``[P, d, d']`` for each layer, is what forgetting draws
    to; empty where that is zero.
    """

    tape_bytes: int  # a call keeps tapes up to this size
    streams: bool  # whether a segment of which nothing is kept takes the same memory, however long it is

    def __init__(self, activation: str, n: int, base: Layers) -> None:
        self.activation = activation
        self.n = n
        self.base = base

    @staticmethod
    @abstractmethod
    def coefficients(alpha: Tensor | None, eta: Tensor | None, theta: Tensor, size: int) -> tuple[Tensor, ...]:
        """The :class:`Coefficients` of pieces of C tokens, ``size``, for gates ``[N, P, C]`` or ``[N, P, 1]``.

        None is a gate of 0.
        """

    @staticmethod
    @abstractmethod
    def coefficients_gradient(
        alpha: Tensor | None, eta: Tensor | None, theta: Tensor, size: int, *grads: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """The gradients of the gates, for those of the coefficients: of G, read, write and carry."""

    @staticmethod
    @abstractmethod
    def tape_width(C: int, widths: list[int]) -> int:
        """How many numbers a tape has for each token of a piece of C, for layers that end in ``widths``.

        Its starting weights, which it has too, are not counted.
        """

    @abstractmethod
    def forward(
        self, inputs: Inputs, start: Start, y: Tensor, keep: bool, room: list[Any]
    ) -> tuple[Any, Layers, Layers]:
        """Runs a segment and puts its outputs into y.

        Returns its tape, None if it is not to be kept, the last ``WS``, and the anchor of the last piece. ``room`` has
        memory of other segments that may be used, and is where memory may be left for the next.
        """

    @abstractmethod
    def backward(self, inputs: Inputs, grads: Inputs, tape: Any, dy: Tensor, flow: Backflow) -> None:
        """Puts the gradients of a tape's pieces into ``grads``, and moves ``flow`` on to before the first of them.

        ``dy`` may lie in memory in any way.
        """

    @abstractmethod
    def release(self, tape: Any, room: list[Any]) -> None:
        """Gives the memory of a tape that is no longer wanted to ``room``."""


def run_pieces(
    engine: Engine, inputs: Inputs, WS: Layers, anchor: Layers, needs_grad: bool
) -> tuple[Tensor, Layers, Layers, list[tuple[Start, Any]]]:
    """Outputs ``[N, P, C, V]``, the last ``WS``, the anchor of the last piece, and for the gradient the segments,
    each with its tape or None.

    ``WS`` and ``anchor``, a tensor ``[P, ...]`` for each layer, are what the first piece starts with.
    """
    N, P, C, _ = inputs.v.shape
    start_bytes = sum(ws.nbytes for ws in WS)
    tape_bytes = WS[0].element_size() * P * C * engine.tape_width(C, [A.shape[-1] for A in anchor])
    keep = needs_grad and N * (start_bytes + tape_bytes) <= engine.tape_bytes
    # the length at which starts of segments, and the weights and the tape of one segment, are fewest
    whole = keep or (engine.streams and not needs_grad)
    length = N if whole else math.ceil(math.sqrt(N * start_bytes / (start_bytes + tape_bytes)))

    y = torch.empty(inputs.v.shape, dtype=WS[0].dtype, device=WS[0].device)
    segments = []
    room: list[Any] = []
    last_anchor = anchor
    for part in cut_into(slice(0, N), length):
        start = Start(part, WS, weights(WS, engine.n) if part.start > 0 else anchor)
        tape, WS, last_anchor = engine.forward(inputs, start, y, keep, room)
        if needs_grad:
            segments.append((start, tape))
    return y, WS, [A.clone() for A in last_anchor], segments


def pieces_gradient(
    engine: Engine,
    inputs: Inputs,
    segments: list[tuple[Start, Any]],
    dy: Tensor,
    dWS: Layers,
    danchor: Layers,
) -> tuple[Inputs, Layers, Layers, Layers]:
    """Gradients of inputs, first ``WS``, first anchor and base, for those of what :func:`run_pieces` returned."""
    dq, dk, dv = map(torch.empty_like, inputs[:3])
    grads = Inputs(dq, dk, dv, Coefficients(*map(torch.empty_like, inputs.c)))
    flow = Backflow.of(dWS, danchor, engine.base)
    room: list[Any] = []
    y = None
    for start, kept in reversed(segments):
        tape = kept
        if tape is None:
            y = dy.new_empty(dy.shape) if y is None else y
            tape, _, _ = engine.forward(inputs, start, y, True, room)
        engine.backward(inputs, grads, tape, dy, flow)
        if start.part.start > 0:
            flow.to_weights(engine.n)
        if kept is None:
            engine.release(tape, room)
        del tape  # or it would live while that of the segment before is made
    return grads, flow.dWS, flow.danchor, flow.dbase


def cut_into(whole: slice, length: int) -> list[slice]:
    """Slices of at most ``length``, one after the other."""
    return [slice(i, min(whole.stop, i + length)) for i in range(whole.start, whole.stop, length)]
