"""Kernel launches: block sizes, precision, tuning, and which inputs are unsupported."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import triton
from torch import Tensor

from titans_core.ops.memory.triton.room import lacking, processors
from titans_core.ops.memory.triton.tiles import INTERPRETED
from titans_core.ops.memory.triton.widths import tile_size

MAX_CHUNK = 128
MAX_WIDTH = 128  # maximum width of keys and values
MAX_HIDDEN = 512
FULL = 256  # number of programs that fills a device; larger launches reuse the same tuning result

# Candidates of (slice width, warps, stages). A warp takes 16 rows of a product: more warps than there are rows for
# would compute the same, and with fewer a thread would hold more. The first call on a shape times the others that fit
# the device's shared memory, and Triton stores the choice on disk. Each further candidate would cost seconds for every
# new shape. With two stages, the loop over slices loads the next one meanwhile, which takes more shared memory.
CHOICES = ((32, 4, 2), (16, 4, 2), (16, 4, 1), (32, 8, 2), (16, 8, 2), (16, 8, 1))

# The same for kernels that go through the pieces in order, whose programs hold a slice from piece to piece.
IN_ORDER = ((32, 4, 1), (16, 4, 1), (32, 8, 1), (16, 8, 1))
ROWS_OF_FOUR = 64  # rows of a product for four warps

# Numbers of pieces and memories differ from call to call, so kernels specialised for 1 and for multiples of 16 would be
# compiled needlessly. The number of tokens in a piece is specialised, because it determines memory alignment.
COUNTS = ("N", "P", "CROWD", "HEADS", "LENGTH")

_SWITCHES = ("DISABLE_MMA_V3", "DISABLE_MMA_V5")  # of Hopper, and of data centre GPUs after it
_lock = threading.Lock()


@contextmanager
def without_wgmma() -> Iterator[None]:
    """Let Triton compile products for ``mma.sync`` inside the block, also on GPUs that have other ones.

    Hopper's asynchronous products give wrong sums and illegal memory accesses in kernels like these. The assembler in
    Triton 3.6 and 3.7 may reuse registers that such a product still reads (triton-lang/triton#11781), and operands
    narrower than a swizzled row are read past their end (#11366). Triton has no option per kernel, only environment
    variables, which are part of the key of its disk cache. Threads enter one after the other.
    """
    with _lock:
        before = {name: os.environ.get(name) for name in _SWITCHES}
        os.environ.update(dict.fromkeys(_SWITCHES, "1"))
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def launch(kernel: Any, grid: Any, *arguments: Any, **constants: Any) -> None:
    """Run a kernel with products. A launch without :func:`without_wgmma` would compile them wrongly.

    Of several threads, as autograd has one for each device, one launches at a time: Triton's autotuner keeps the
    arguments of a launch in itself.
    """
    with without_wgmma():
        kernel[grid](*arguments, **constants)


def tuned(*changed: str, counters: Sequence[str] = (), in_order: bool = False) -> Callable[[Any], Any]:
    """Autotune a kernel's ``BLOCK``, number of warps, and stages.

    Args:
        changed: names of arguments that it both reads and writes.
        counters: names of arguments that it expects to be zero, with which its programs meet.
        in_order: whether it goes through the pieces in order.
    """

    def decorate(kernel: Any) -> Any:
        # nothing to tune in the interpreter; the narrowest slices fit every layer
        choices = ((16, 4, 1),) if INTERPRETED.value else IN_ORDER if in_order else CHOICES
        constants = ("CROWD", "K", "V", "H", "n", "BLOCK_C", "ACTIVATION", "BF16")
        return triton.autotune(
            as_configs(choices),
            key=[name for name in constants if name in kernel.arg_names],
            restore_value=list(changed),
            reset_to_zero=list(counters),
            prune_configs_by={"early_config_prune": worth_meeting if counters else worth_trying},
            cache_results=True,
        )(kernel)

    return decorate


def worth_trying(configs: list[Any], arguments: dict[str, Any], **constants: Any) -> list[Any]:
    """Those with as many warps as there are rows for, and without slices wider than the layer."""
    given = {**arguments, **constants}
    rows = max(given[name] for name in ("BLOCK_C", "K", "V"))
    fitting = [config for config in configs if config.kwargs["BLOCK"] <= given.get("H", given["V"])]
    return [config for config in fitting if (config.num_warps > 4) == (rows > ROWS_OF_FOUR)] or fitting


def worth_meeting(configs: list[Any], arguments: dict[str, Any], **constants: Any) -> list[Any]:
    """That with the widest slices, as programs with narrower ones would exchange more."""
    return [max(worth_trying(configs, arguments, **constants), key=lambda config: config.kwargs["BLOCK"])]


def meeting_slices(choices: Sequence[tuple[int, int, int]], H: int) -> int:
    """The number of slices of a hidden layer whose programs meet."""
    return H // max(block for block, *_ in choices if block <= H)


def choices_of(configs: Sequence[Any]) -> list[tuple[int, int, int]]:
    """Slice width, warps and stages of Triton's configurations."""
    return [(config.kwargs["BLOCK"], config.num_warps, config.num_stages) for config in configs]


def as_configs(choices: Sequence[tuple[int, int, int]]) -> list[Any]:
    """Triton's configurations for slice widths, warps and stages."""
    return [triton.Config({"BLOCK": block}, num_warps=warps, num_stages=stages) for block, warps, stages in choices]


def settings(C: int, tokens: Tensor, programs: int) -> dict[str, Any]:
    """Launch arguments common to all kernels: rows of a piece rounded up to a tile size, and precision.

    ``CROWD`` is the number of ``programs``, rounded up. No kernel reads it. It is part of the tuning key, because the
    fastest configuration for a few programs is not the fastest for a full device.
    """
    return {
        "CROWD": min(FULL, triton.next_power_of_2(programs)),
        "BLOCK_C": tile_size(C),
        "BF16": tokens.dtype == torch.bfloat16,
    }


def order(tokens: Tensor) -> dict[str, int]:
    """Launch arguments that tell where the tokens ``[B, T, HEADS, d]`` of a kernel lie.

    ``LENGTH`` is the number of tokens from one sequence to the next, which is more than T in a part of the sequences.
    """
    HEADS, d = tokens.shape[2:]
    return {"HEADS": HEADS, "LENGTH": tokens.stride(0) // (HEADS * d)}


def unsupported(q: Tensor, weights: Sequence[Tensor], chunk_size: int) -> str | None:
    """Why the kernels cannot run on these arguments of :func:`titans_core.neural_memory`, or None if they can."""
    if q.dtype == torch.float64:
        return "the kernels do not support float64"
    depth, K, V, h = len(weights), weights[0].shape[-2], weights[-1].shape[-1], weights[0].shape[-1]
    if depth > 2:
        return f"the kernels support memories of 1 or 2 layers, got {depth}"
    if chunk_size > MAX_CHUNK:
        return f"the kernels support a chunk_size of at most {MAX_CHUNK}, got {chunk_size}"
    if max(K, V) > MAX_WIDTH:
        return f"the kernels support keys and values of at most width {MAX_WIDTH}, got {K} and {V}"
    if depth == 2 and h > MAX_HIDDEN:
        return f"the kernels support a hidden width of at most {MAX_HIDDEN}, got {h}"
    if not q.is_cuda:
        return None
    if depth == 2 and (has := processors(q.device)) < (slices := meeting_slices(IN_ORDER, tile_size(h))):
        return f"a hidden width of {h} is stored by {slices} programs at once, and this device has {has} processors"
    return lacking(q.device, depth, q.dtype == torch.bfloat16, max(K, V), chunk_size)
