"""Pads widths that the kernels do not support with zeros, and cuts the results back.

Padding does not change the result. A zero column in the keys is never written to, nor read by the queries. Where values
and weights are zero, the error is zero. A hidden unit without weights outputs ``phi(0) = 0`` and has zero error.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor

from titans_core.ops.memory.state import MemoryState

LEAST = 16  # smallest number of rows or columns of a tile


def tile_size(size: int) -> int:
    """The smallest supported tile size (a power of two) of at least ``size``."""
    return max(LEAST, 1 << (size - 1).bit_length())


def filled_up(
    run: Callable[..., tuple[Tensor, MemoryState]],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *gates: Tensor | None,
    state: MemoryState,
    base: tuple[Tensor, ...] | None,
) -> tuple[Tensor, MemoryState]:
    """Call ``run`` with widths padded to supported sizes, and cut its results to the original widths."""
    given = [q.shape[-1], *(w.shape[-1] for w in state.weights)]
    taken = [tile_size(width) for width in given]
    if taken == given:
        return run(q, k, v, *gates, state=state, base=base)
    q, k, v = (F.pad(x, (0, tile_size(x.shape[-1]) - x.shape[-1])) for x in (q, k, v))
    more = [
        (0, after - b, 0, before - a) for (a, b), (before, after) in zip(pairwise(given), pairwise(taken), strict=True)
    ]

    def widened(layers: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(F.pad(w, by) for w, by in zip(layers, more, strict=True))

    def cut(layers: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(w[..., :a, :b].contiguous() for w, (a, b) in zip(layers, pairwise(given), strict=True))

    start = MemoryState(widened(state.weights), widened(state.momentum), widened(state.anchor), state.offset)
    out, end = run(q, k, v, *gates, state=start, base=None if base is None else widened(base))
    weights = cut(end.weights)
    anchor = weights if end.offset == 0 else cut(end.anchor)
    return out[..., : given[-1]], MemoryState(weights, cut(end.momentum), anchor, end.offset)
