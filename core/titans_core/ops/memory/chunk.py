"""Neural memory, one chunk at a time: the exact dual form in plain PyTorch. See README.md for the algebra.

Within a chunk, every inner gradient has rank one per layer, ``u_t = x_t^T delta_t``, and all are taken at the weights
at the start of the chunk. So the weights at token t are never formed: a query reads the starting weights, plus a
masked product with the chunk's own keys and errors. Only the carry from chunk to chunk is sequential.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from titans_core.ops.memory.activations import ACTIVATIONS, Activation
from titans_core.ops.memory.engines import engine_of
from titans_core.ops.memory.functions import coefficients, pieces
from titans_core.ops.memory.inner import rank_one
from titans_core.ops.memory.lengths import at_most
from titans_core.ops.memory.online import is_online, online_memory
from titans_core.ops.memory.pair import join, split, weights
from titans_core.ops.memory.pieces import Inputs, Layers, in_pieces
from titans_core.ops.memory.state import MemoryState
from titans_core.ops.memory.step import is_step, memory_step


def chunk_memory(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alpha: Tensor | None,
    eta: Tensor | None,
    theta: Tensor,
    state: MemoryState,
    chunk_size: int,
    activation: str,
    base: tuple[Tensor, ...] | None,
    backend: str = "chunk",
) -> tuple[Tensor, MemoryState]:
    """The fast form. Arguments are already checked and cast by :func:`titans_core.neural_memory`."""
    if backend == "chunk" and is_step(q):
        return memory_step(q, k, v, alpha, eta, theta, state, chunk_size, activation, base)
    if base is not None and len(base) == 1:
        run = partial(chunk_memory, chunk_size=chunk_size, activation=activation, base=None, backend=backend)
        return _as_difference(run, q, k, v, alpha, eta, theta, state=state, base=base[0])
    if is_online(len(state.weights), chunk_size):
        q, k, v = (x.to(theta.dtype) for x in (q, k, v))  # may be bf16 with backend "triton"
        return online_memory(q, k, v, alpha, eta, theta, state)
    B, T, H, _ = q.shape
    kinds = (state.weights,) if eta is None else (state.weights, state.momentum)  # without momentum S is not carried
    WS = [join(*(x.flatten(0, 1) for x in parts)) for parts in zip(*kinds, strict=True)]
    anchor = [w.flatten(0, 1) for w in state.anchor]
    to = [] if base is None else [w.repeat(B, 1, 1) for w in base]

    # the rest of a chunk begun in an earlier call, then whole chunks, then an unfinished last chunk
    rest = at_most(-state.offset % chunk_size, T)
    whole = (T - rest) // chunk_size * chunk_size
    engine = engine_of(backend)
    outputs = []
    chunk = 0
    for start, stop, size in ((0, rest, rest), (rest, rest + whole, chunk_size), (rest + whole, T, T - rest - whole)):
        if start == stop:
            continue
        if start > 0 or state.offset == 0:
            anchor = weights(WS, len(kinds))
        cut, width = slice(start, stop), size
        if theta.shape[1] < T:  # one gate per chunk
            first, chunk = chunk, chunk + (stop - start) // size
            cut, width = slice(first, chunk), 1
        a, e, t = (None if gate is None else in_pieces(gate[:, cut], width) for gate in (alpha, eta, theta))
        assert t is not None
        c = coefficients(a, e, t, size, backend)
        c = c.with_base() if to else c
        q_, k_, v_ = (engine.to_pieces(x[:, start:stop], size) for x in (q, k, v))
        y, WS, anchor = pieces(Inputs(q_, k_, v_, c), WS, anchor, to, activation, backend)
        outputs.append(engine.from_pieces(y, H))

    offset = (state.offset + T) % chunk_size
    anchor = [w.unflatten(0, (B, H)) for w in anchor]
    parts = [split(ws.unflatten(0, (B, H)), len(kinds)) for ws in WS]
    if eta is None:
        last_k, last_v = (x[:, -1].to(theta.dtype) for x in (k, v))
        S = _last_surprise(last_k, last_v, theta[:, -1], anchor, ACTIVATIONS[activation])
    else:
        S = tuple(s for _, s in parts)
    W = tuple(w for w, *_ in parts)
    out = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)
    return out, MemoryState(W, S, W if offset == 0 else tuple(anchor), offset)


def _as_difference(
    run: Callable[..., tuple[Tensor, MemoryState]],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *rest: Any,
    state: MemoryState,
    base: Tensor,
) -> tuple[Tensor, MemoryState]:
    """Run a linear memory that forgets towards ``base`` ``[H, K, V]`` as one that forgets towards zero.

    The memory becomes ``M - base``, which learns the part of the values that ``base`` does not predict.
    """

    def predicted(x: Tensor) -> Tensor:
        return (x.transpose(1, 2).to(base.dtype) @ base).transpose(1, 2)

    def shifted(state: MemoryState, by: Tensor) -> MemoryState:
        (now,), (start,) = state.weights, state.anchor
        weights = (now + by,)
        return replace(state, weights=weights, anchor=weights if start is now else (start + by,))

    out, state = run(q, k, (v - predicted(k)).to(v.dtype), *rest, state=shifted(state, -base))
    # clone: the momentum may be a view of a tensor that also holds the unshifted weights
    state = replace(shifted(state, base), momentum=tuple(S.clone() for S in state.momentum))
    return out + predicted(q), state


def _last_surprise(k: Tensor, v: Tensor, theta: Tensor, anchor: Layers, phi: Activation) -> tuple[Tensor, ...]:
    """``S = -theta u`` of the last token ``[B, H, .]``: the past surprise when there is no momentum."""
    pairs = rank_one(k.unsqueeze(-2), v.unsqueeze(-2), anchor, phi)
    return tuple(x.mT * (-theta[..., None, None] * delta) for x, delta in pairs)
