"""Programs that share a memory: each holds a slice of the hidden layer, and at every piece they sum what all found.

The programs of a memory have consecutive numbers. GPUs start programs in the order of their numbers (which NVIDIA does
not promise), so those of a memory wait at most for programs that are running or next in line, if the device can run as
many at once as a memory has slices (:func:`titans_core.ops.memory.triton.launch.unsupported`). Sums are taken in the
order of the slices, so two runs with the same slices give the same.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from titans_core.ops.memory.triton.tiles import INTERPRETED

# what a launch does of a turn; kernels can read constants of this type only
WHOLE, PUBLISH, FINISH = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


def in_turns(run: Callable[..., None], first: int, last: int) -> None:
    """Launch ``run(first, last, TURN=...)`` for turns first to last, in one launch.

    Triton's interpreter runs programs one after another, so there each turn has a launch in which all publish what
    they found, and one in which all finish it.
    """
    if INTERPRETED.value:
        for i in range(first, last):
            run(i, i + 1, TURN=PUBLISH.value)
            run(i, i + 1, TURN=FINISH.value)
    else:
        run(first, last, TURN=WHOLE.value)


def meeting(turns: int, P: int, slices: int, rows: int, columns: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Room for what each of P memories' slices publishes, and how many have; the latter starts at zero."""
    # turn by turn, one half is written while the other may still be read
    size = min(2, turns) * P * slices * rows * columns if slices > 1 else 0
    return like.new_empty(size), torch.zeros(P, dtype=torch.int32, device=like.device)


@triton.jit
def publish(tile, parts, arrived, turn, p, P, own, SLICES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Leave a tile for the other slices."""
    if SLICES > 1:
        to = parts + ((turn % 2 * P + p) * SLICES + own) * ROWS * COLUMNS
        at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        tl.store(to + at, tile, cache_modifier=".cg")
        tl.debug_barrier()  # all threads have stored
        tl.atomic_add(arrived + p, 1, sem="release", scope="gpu")


@triton.jit
def collected(tile, parts, arrived, turn, p, P, SLICES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Wait for all slices of this turn, and return the sum of their tiles."""
    if SLICES > 1:
        # An acquire empties the L1 cache, which another program on the processor may need: one is enough. It is a
        # compare-and-swap, as the compiler leaves out an addition of zero whose result is not used.
        while tl.atomic_add(arrived + p, 0, sem="relaxed", scope="gpu") < (turn + 1) * SLICES:
            pass
        tl.atomic_cas(arrived + p, 0, 0, sem="acquire", scope="gpu")
        tl.debug_barrier()
        of = parts + (turn % 2 * P + p) * SLICES * ROWS * COLUMNS
        at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        tile = tl.load(of + at, cache_modifier=".cg").to(tl.float32)
        for other in tl.static_range(1, SLICES):
            tile += tl.load(of + other * ROWS * COLUMNS + at, cache_modifier=".cg")
    return tile


@triton.jit
def rows_of_first(own, rows, C):
    """The mask of the first slice for what all slices hold, and one saves: the rows of a piece. It is empty elsewhere.

    Triton 3.9's interpreter takes no mask into which a comparison of numbers, such as ``own == 0``, was spread.
    """
    return rows < tl.where(own == 0, C, 0)
