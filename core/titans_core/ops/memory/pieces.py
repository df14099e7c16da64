"""Runs equal-sized pieces one after another in bounded memory, keeping or recomputing what the gradient needs.

An engine computes a run of pieces, a *segment*, and records a tape for its gradient. If the tapes of a call would
exceed the engine's ``tape_bytes``, only the starting weights of its segments are kept, and the backward pass recomputes
the tape of each segment when it reaches it.
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
    """A number of pieces: q, k, v as :meth:`Engine.to_pieces` orders them, and their coefficients.

    Also used for their gradients.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    c: Coefficients

    def cut(self, part: slice, tokens: Any) -> "Inputs":
        """Views of the pieces in ``part``. ``tokens`` indexes theirs, in the order of q, k and v."""
        q, k, v = (x[tokens] for x in self[:3])
        return Inputs(q, k, v, Coefficients(*(x[part] for x in self.c)))


class Start(NamedTuple):
    """Start of a segment: its pieces, and the ``WS`` and anchor of the first, one tensor ``[P, ...]`` per layer."""

    part: slice
    WS: Layers
    anchor: Layers


class Backflow(NamedTuple):
    """Gradients passed from piece to piece in the backward pass, modified in place. Lists over the layers."""

    dWS: Layers  # gradient of a piece's final WS, then of its starting WS, [P, ...]
    danchor: Layers  # gradient of a piece's anchor: first from its later uses, then complete, [P, d, d']
    dbase: Layers  # gradient of the base, from this piece on, [P, d, d']; empty without a base
    scratch: Layers  # buffer for a product, [P, d, d']

    @classmethod
    def of(cls, dWS: Layers, danchor: Layers, base: Layers) -> "Backflow":
        """Start from the gradients of the final ``WS`` and of the last piece's anchor, with any memory layout."""
        return cls(
            [x.clone(memory_format=torch.contiguous_format) for x in dWS],
            [x.clone(memory_format=torch.contiguous_format) for x in danchor],
            [torch.zeros_like(x) for x in base],
            [torch.empty_like(x) for x in danchor],
        )

    def to_weights(self, n: int) -> None:
        """Add the anchor's gradient to that of the weights: a piece's anchor is the final W of the previous piece."""
        for dw, dA in zip(weights(self.dWS, n), self.danchor, strict=True):
            dw.add_(dA)
            dA.zero_()


class Engine(ABC):
    """How a run of pieces is computed.

    ``n`` is that of :class:`Coefficients`. ``base``, one tensor ``[P, d, d']`` per layer, is what forgetting pulls
    towards. It is empty if that is zero.
    """

    tape_bytes: int  # a call keeps its tape up to this size
    segment_bytes: int  # segments of an engine that does not stream, or that are recomputed, may be as long as fits
    streams: bool  # whether a segment without a tape needs the same memory at any length

    def __init__(self, activation: str, n: int, base: Layers) -> None:
        self.activation = activation
        self.n = n
        self.base = base

    @staticmethod
    @abstractmethod
    def to_pieces(tokens: Tensor, size: int) -> Tensor:
        """Order tokens ``[B, N C, heads, d]`` for pieces of C = ``size`` tokens, as the engine takes and returns them.

        Either they stay as they are, or they become ``[N, P, C, d]``.
        """

    @staticmethod
    @abstractmethod
    def from_pieces(outputs: Tensor, heads: int) -> Tensor:
        """Undo :meth:`to_pieces`."""

    @staticmethod
    def gradient_to_pieces(dy: Tensor) -> Tensor:
        """Bring the gradient of all outputs, in any memory layout, into one that :meth:`backward` takes."""
        return dy

    @staticmethod
    @abstractmethod
    def coefficients(alpha: Tensor | None, eta: Tensor | None, theta: Tensor, size: int) -> tuple[Tensor, ...]:
        """Return the :class:`Coefficients` of pieces of C = ``size`` tokens, for gates ``[N, P, C]`` or ``[N, P, 1]``.

        None means a gate of 0.
        """

    @staticmethod
    @abstractmethod
    def coefficients_gradient(
        alpha: Tensor | None, eta: Tensor | None, theta: Tensor, size: int, *grads: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """Return gradients of the gates from those of the coefficients: G, read, write and carry."""

    @staticmethod
    @abstractmethod
    def tape_width(C: int, widths: list[int]) -> int:
        """Number of tape entries per token of a piece of C tokens, for layers with output sizes ``widths``.

        The starting weights in the tape are not counted.
        """

    @abstractmethod
    def forward(
        self, inputs: Inputs, start: Start, y: Tensor, keep: bool, room: list[Any]
    ) -> tuple[Any, Layers, Layers]:
        """Run a segment and write its outputs to y.

        Returns its tape (None unless ``keep``), the final ``WS``, and the anchor of the last piece. ``room`` holds
        buffers of other segments that may be reused. Buffers may also be left there for the next segment.
        """

    @abstractmethod
    def backward(self, inputs: Inputs, grads: Inputs, tape: Any, dy: Tensor, flow: Backflow) -> None:
        """Write the gradients of a tape's pieces to ``grads`` and move ``flow`` back to before the first of them."""

    @abstractmethod
    def release(self, tape: Any, room: list[Any]) -> None:
        """Return the buffers of a tape that is no longer needed to ``room``."""


def run_pieces(
    engine: Engine, inputs: Inputs, WS: Layers, anchor: Layers, needs_grad: bool
) -> tuple[Tensor, Layers, Layers, list[tuple[Start, Any]]]:
    """Run all pieces, starting from ``WS`` and ``anchor``, one tensor ``[P, ...]`` per layer.

    Returns the outputs in the order of the inputs, the final ``WS``, the anchor of the last piece, and, for the
    gradient, the segments, each with its tape or None.
    """
    N, P, C, _ = inputs.c.G.shape
    start_bytes = sum(ws.nbytes for ws in WS)
    tape_width = sum(ws[0].numel() for ws in WS) + C * engine.tape_width(C, [A.shape[-1] for A in anchor])
    tape_bytes = P * tape_width * inputs.k.element_size()  # of one piece
    keep = needs_grad and N * tape_bytes <= engine.tape_bytes
    if engine.streams and (keep or not needs_grad):
        length = N
    else:
        length = max(1, engine.segment_bytes // tape_bytes)
        if needs_grad and not keep:
            # minimises stored segment starts plus the weights and tape of one segment
            length = max(length, math.ceil(math.sqrt(N * start_bytes / tape_bytes)))

    y = torch.empty_like(inputs.v, memory_format=torch.contiguous_format)
    segments = []
    room: list[Any] = []
    last_anchor = anchor
    for part in cut_into(slice(0, N), length):
        start = Start(part, WS, weights(WS, engine.n) if part.start > 0 else anchor)
        tape, WS, last_anchor = engine.forward(inputs, start, y, keep, room)
        if needs_grad:
            segments.append((start, tape))
    # it may be the anchor that was given, which may have any memory layout
    return y, WS, [A.clone(memory_format=torch.contiguous_format) for A in last_anchor], segments


def pieces_gradient(
    engine: Engine,
    inputs: Inputs,
    segments: list[tuple[Start, Any]],
    dy: Tensor,
    dWS: Layers,
    danchor: Layers,
) -> tuple[Inputs, Layers, Layers, Layers]:
    """Gradients of inputs, initial ``WS``, initial anchor and base, from those of the results of :func:`run_pieces`."""
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in inputs[:3])
    grads = Inputs(dq, dk, dv, Coefficients(*map(torch.empty_like, inputs.c)))
    flow = Backflow.of(dWS, danchor, engine.base)
    room: list[Any] = []
    y = None
    dy = engine.gradient_to_pieces(dy)
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
        del tape  # frees it before the tape of the previous segment is recomputed
    return grads, flow.dWS, flow.danchor, flow.dbase


def in_pieces(tokens: Tensor, size: int) -> Tensor:
    """Tokens ``[B, N C, heads, ...]`` as contiguous pieces ``[N, B * heads, C, ...]`` of C = ``size``."""
    return tokens.unflatten(1, (-1, size)).movedim((1, 3), (0, 2)).flatten(1, 2).contiguous()


def cut_into(whole: slice, length: int) -> list[slice]:
    """Cut ``whole`` into consecutive slices of at most ``length``."""
    return [slice(i, min(whole.stop, i + length)) for i in range(whole.start, whole.stop, length)]
