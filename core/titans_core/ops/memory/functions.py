"""The fast form for autograd and the compiler: one function computes the coefficients from gates, one runs the pieces.

In eager mode these are autograd functions. Under ``torch.compile`` and ``torch.export`` they are custom operators,
``titans::coefficients`` and ``titans::pieces``: graph nodes of known shape. Traced line by line, the loops over tokens
and chunks would unroll into graphs of many thousand nodes. An operator cannot keep a tape, so the backward pass of
``titans::pieces`` runs the forward pass again.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from titans_core.ops.memory.coefficients import Coefficients
from titans_core.ops.memory.engines import engine_of
from titans_core.ops.memory.gradient import first_order
from titans_core.ops.memory.pieces import Inputs, Layers, pieces_gradient, run_pieces


def coefficients(alpha: Tensor | None, eta: Tensor | None, theta: Tensor, size: int, backend: str) -> Coefficients:
    """Coefficients of pieces of C = ``size`` tokens, for gates ``[N, P, C]``, or ``[N, P, 1]`` for one gate per piece.

    None means a gate of 0.
    """
    if torch.compiler.is_compiling():
        return Coefficients(*_coefficients_op(alpha, eta, theta, size, backend))
    return Coefficients(*_Coefficients.apply(size, backend, alpha, eta, theta))


def pieces(
    inputs: Inputs, WS: Layers, anchor: Layers, base: Layers, activation: str, backend: str
) -> tuple[Tensor, Layers, Layers]:
    """Outputs in the order of the inputs, and for each layer the final ``WS`` and the anchor of the last piece.

    ``base``: a tensor ``[P, d, d']`` for each layer, or empty.
    """
    L = len(WS)
    tensors = [*inputs[:3], *inputs.c, *WS, *anchor, *base]
    if torch.compiler.is_compiling():
        y, *ends = _pieces_op(tensors, L, activation, backend)
    else:
        y, *ends = _Pieces.apply(L, activation, backend, torch.is_grad_enabled(), *tensors)
    return y, ends[:L], ends[L:]


_SAVED = object()  # placeholder for a tensor of a tape


class _Coefficients(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, size: int, backend: str, alpha: Tensor | None, eta: Tensor | None, theta: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.size, ctx.backend = size, backend
        ctx.save_for_backward(alpha, eta, theta)
        return engine_of(backend).coefficients(alpha, eta, theta, size)

    @staticmethod
    @first_order
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        alpha, eta, theta = ctx.saved_tensors
        return (None, None, *engine_of(ctx.backend).coefficients_gradient(alpha, eta, theta, ctx.size, *grads))


class _Pieces(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, L: int, activation: str, backend: str, grad_enabled: bool, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        inputs, WS, anchor, base = _unpack(L, tensors)
        ctx.L, ctx.engine = L, engine_of(backend)(activation, inputs.c.n, base)
        needs_grad = grad_enabled and any(ctx.needs_input_grad)
        y, end, last_anchor, segments = run_pieces(ctx.engine, inputs, WS, anchor, needs_grad)
        # save the tapes here too: layer checkpointing and offloading work through saved tensors
        leaves, ctx.spec = tree_flatten(segments)
        ctx.save_for_backward(*tensors, *(x for x in leaves if isinstance(x, Tensor)))
        ctx.others = [_SAVED if isinstance(x, Tensor) else x for x in leaves]
        return (y, *end, *last_anchor)

    @staticmethod
    @first_order
    def backward(ctx: Any, dy: Tensor, *dends: Tensor) -> tuple[Tensor | None, ...]:
        count = 3 + len(Coefficients._fields) + 2 * ctx.L + len(ctx.engine.base)
        saved = ctx.saved_tensors  # read once: unpack hooks may work only once
        tapes = iter(saved[count:])
        inputs, _, _, _ = _unpack(ctx.L, saved[:count])
        segments = tree_unflatten([next(tapes) if x is _SAVED else x for x in ctx.others], ctx.spec)
        grads, dWS, danchor, dbase = pieces_gradient(
            ctx.engine, inputs, segments, dy, list(dends[: ctx.L]), list(dends[ctx.L :])
        )
        return (None, None, None, None, *grads[:3], *grads.c, *dWS, *danchor, *dbase)


def _unpack(L: int, tensors: tuple[Tensor, ...] | list[Tensor]) -> tuple[Inputs, Layers, Layers, Layers]:
    """Split the tensors of a call with L layers into inputs, ``WS``, anchor and base."""
    q, k, v, *rest = tensors
    m = len(Coefficients._fields)
    WS, anchor, base = (list(rest[m + i * L : m + (i + 1) * L]) for i in range(3))
    return Inputs(q, k, v, Coefficients(*rest[:m])), WS, anchor, base


# The same as operators. Their results must not share memory with each other or with their inputs.


@torch.library.custom_op("titans::coefficients", mutates_args=())
def _coefficients_op(alpha: Tensor | None, eta: Tensor | None, theta: Tensor, size: int, backend: str) -> list[Tensor]:
    return list(engine_of(backend).coefficients(alpha, eta, theta, size))


@_coefficients_op.register_fake
def _(alpha: Tensor | None, eta: Tensor | None, theta: Tensor, size: int, backend: str) -> list[Tensor]:
    C, n = size, 1 if eta is None else 2
    return [theta.new_empty(*theta.shape[:-1], *shape) for shape in ((C, C), (C, n), (C, n), (2 * n - 1,))]


@torch.library.custom_op("titans::coefficients_backward", mutates_args=())
def _coefficients_backward_op(
    alpha: Tensor | None, eta: Tensor | None, theta: Tensor, grads: list[Tensor], size: int, backend: str
) -> list[Tensor]:
    found = engine_of(backend).coefficients_gradient(alpha, eta, theta, size, *grads)
    return [g.contiguous() for g in found if g is not None]


@_coefficients_backward_op.register_fake
def _(
    alpha: Tensor | None, eta: Tensor | None, theta: Tensor, grads: list[Tensor], size: int, backend: str
) -> list[Tensor]:
    return [theta.new_empty(theta.shape) for gate in (alpha, eta, theta) if gate is not None]


def _save_gates(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    *gates, ctx.size, ctx.backend = inputs
    ctx.save_for_backward(*gates)


def _coefficients_backward(ctx: Any, grads: list[Tensor]) -> tuple[Tensor | None, ...]:
    found = iter(_coefficients_backward_op(*ctx.saved_tensors, grads, ctx.size, ctx.backend))
    return (*(None if gate is None else next(found) for gate in ctx.saved_tensors), None, None)


torch.library.register_autograd("titans::coefficients", _coefficients_backward, setup_context=_save_gates)


@torch.library.custom_op("titans::pieces", mutates_args=())
def _pieces_op(tensors: list[Tensor], L: int, activation: str, backend: str) -> list[Tensor]:
    inputs, WS, anchor, base = _unpack(L, tensors)
    y, end, last_anchor, _ = run_pieces(engine_of(backend)(activation, inputs.c.n, base), inputs, WS, anchor, False)
    return [y, *end, *last_anchor]


@_pieces_op.register_fake
def _(tensors: list[Tensor], L: int, activation: str, backend: str) -> list[Tensor]:
    inputs, WS, anchor, _ = _unpack(L, tensors)
    return [inputs.v.new_empty(inputs.v.shape), *(x.new_empty(x.shape) for x in (*WS, *anchor))]


@torch.library.custom_op("titans::pieces_backward", mutates_args=())
def _pieces_backward_op(
    grads: list[Tensor], tensors: list[Tensor], L: int, activation: str, backend: str
) -> list[Tensor]:
    inputs, WS, anchor, base = _unpack(L, tensors)
    engine = engine_of(backend)(activation, inputs.c.n, base)
    *_, segments = run_pieces(engine, inputs, WS, anchor, True)
    dy, *dends = grads
    dinputs, dWS, danchor, dbase = pieces_gradient(engine, inputs, segments, dy, dends[:L], dends[L:])
    return [*dinputs[:3], *dinputs.c, *dWS, *danchor, *dbase]


@_pieces_backward_op.register_fake
def _(grads: list[Tensor], tensors: list[Tensor], L: int, activation: str, backend: str) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in tensors]


def _save_tensors(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    tensors, *ctx.settings = inputs
    ctx.save_for_backward(*tensors)


def _pieces_backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    return _pieces_backward_op(grads, list(ctx.saved_tensors), *ctx.settings), None, None, None


torch.library.register_autograd("titans::pieces", _pieces_backward, setup_context=_save_tensors)
