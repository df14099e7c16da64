"""The memory on Triton kernels: the chunk form with the Triton engine, and a separate kernel for a single token."""

from functools import partial

from torch import Tensor

from titans_core.ops.memory.chunk import chunk_memory
from titans_core.ops.memory.online import is_online
from titans_core.ops.memory.state import MemoryState
from titans_core.ops.memory.step import is_step
from titans_core.ops.memory.triton.decode import decode_step
from titans_core.ops.memory.triton.widths import filled_up


def triton_memory(
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
) -> tuple[Tensor, MemoryState]:
    """Arguments are already checked by :func:`titans_core.neural_memory`; q, k and v are float32 or bfloat16."""
    if not is_step(q):
        run = partial(chunk_memory, chunk_size=chunk_size, activation=activation, backend="triton")
        if is_online(len(state.weights), chunk_size):  # has no kernel
            return run(q, k, v, alpha, eta, theta, state, base=base)
        return filled_up(run, q, k, v, alpha, eta, theta, state=state, base=base)

    B, _, H, _ = q.shape
    anchor = state.weights if state.offset == 0 else state.anchor

    def each(gate: Tensor | None) -> Tensor | None:
        return None if gate is None else gate.flatten()

    layers = [[w.flatten(0, 1) for w in part] for part in (state.weights, state.momentum, anchor)]
    tokens = [x.flatten(0, 2) for x in (q, k, v)]
    y, *after = decode_step(
        tokens[0],
        tokens[1],
        tokens[2],
        each(alpha),
        each(eta),
        theta.flatten(),
        layers[0],
        layers[1],
        layers[2],
        activation,
        base or (),
    )
    W, S = (tuple(w.unflatten(0, (B, H)) for w in part) for part in after)
    offset = (state.offset + 1) % chunk_size
    return y.unflatten(0, (B, 1, H)), MemoryState(W, S, W if offset == 0 else anchor, offset)
