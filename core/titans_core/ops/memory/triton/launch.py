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
LARGE_TILE = 128 * 64  # numbers in a tile of tokens
FULL = 256  # number of programs that fills a device; larger launches reuse the same tuning result

# (slice width, warps) candidates. The first call on a shape times each that fits the device's shared memory, and Triton
# stores the choice on disk. On Hopper all fit. Each further candidate would cost seconds for every new shape. Compiled
# ahead of time (benchmarks/memory_kernels.py), eight warps mostly spill least.
CHOICES = ((32, 8), (16, 8), (16, 4))

# The same for kernels whose programs hold a slice of a memory from piece to piece: the first two that have at most
# HELD_NUMBERS of a weight tile per thread, which leaves registers for the rest. Narrower slices would take more room
# for their parts.
HELD = ((32, 4), (32, 8), (16, 4))
HELD_NUMBERS = 16

# Numbers of pieces and memories differ from call to call, so kernels specialised for 1 and for multiples of 16 would be
# compiled needlessly. The number of tokens in a piece is specialised, because it determines memory alignment.
COUNTS = ("N", "P", "CROWD", "HEADS", "LENGTH")

_SWITCHES = ("DISABLE_MMA_V3", "DISABLE_MMA_V5")  # of Hopper, and of data centre GPUs after it
_lock = threading.Lock()
_inside: list[dict[str, str | None]] = []  # one entry per thread inside; the first has the switches before


@contextmanager
def without_wgmma() -> Iterator[None]:
    """Let Triton compile products for ``mma.sync`` inside the block, also on GPUs that have other ones.

    Hopper's asynchronous products give wrong sums and illegal memory accesses in kernels like these. The assembler in
    Triton 3.6 and 3.7 may reuse registers that such a product still reads (triton-lang/triton#11781), and operands
    narrower than a swizzled row are read past their end (#11366). Triton has no option per kernel, only environment
    variables, which are part of the key of its disk cache.
    """
    with _lock:
        _inside.append({name: os.environ.get(name) for name in _SWITCHES} if not _inside else {})
        os.environ.update(dict.fromkeys(_SWITCHES, "1"))
    try:
        yield
    finally:
        with _lock:
            before = _inside[0]
            _inside.pop()
            if not _inside:
                for name, value in before.items():
                    if value is None:
                        del os.environ[name]
                    else:
                        os.environ[name] = value


def launch(kernel: Any, grid: Any, *arguments: Any, **constants: Any) -> None:
    """Run a kernel with products. A launch without :func:`without_wgmma` would compile them wrongly."""
    with without_wgmma():
        kernel[grid](*arguments, **constants)


def tuned(*changed: str, counters: Sequence[str] = (), held: bool = False) -> Callable[[Any], Any]:
    """Autotune a kernel's ``BLOCK`` and number of warps.

    Args:
        changed: names of arguments that it both reads and writes.
        counters: names of arguments that it expects to be zero.
        held: whether its programs hold their slice of a memory.
    """

    def decorate(kernel: Any) -> Any:
        # nothing to tune in the interpreter; the narrowest slices fit every layer
        choices = ((16, 4),) if INTERPRETED.value else HELD if held else CHOICES
        constants = ("CROWD", "K", "V", "H", "n", "BLOCK_C", "ACTIVATION", "BF16")
        return triton.autotune(
            as_configs(choices),
            key=[name for name in constants if name in kernel.arg_names],
            restore_value=list(changed),
            reset_to_zero=list(counters),
            prune_configs_by={"early_config_prune": worth_holding if held else worth_trying},
            cache_results=True,
        )(kernel)

    return decorate


def worth_trying(configs: list[Any], arguments: dict[str, Any], **constants: Any) -> list[Any]:
    """Without slices wider than the layer; and for wide float32 tiles without four warps, which spill most there and
    compile for more than a minute."""
    given = {**arguments, **constants}
    wide = not given["BF16"] and given["BLOCK_C"] * max(given["K"], given["V"]) >= LARGE_TILE
    found = [config for config in configs if config.kwargs["BLOCK"] <= given.get("H", given["V"])]
    return [config for config in found if config.num_warps > 4] or found if wide else found


def worth_holding(configs: list[Any], arguments: dict[str, Any], **constants: Any) -> list[Any]:
    """Those of :func:`holding`."""
    given = {**arguments, **constants}
    kept = holding(choices_of(configs), max(given["K"], given["V"]), given.get("H", given["V"]))
    return [config for config, choice in zip(configs, choices_of(configs), strict=True) if choice in kept]


def holding(choices: Sequence[tuple[int, int]], widest: int, sliced: int) -> list[tuple[int, int]]:
    """Without slices wider than the layer, or too wide to be held; of the widest layers, four warps cannot hold any."""
    found = [(block, warps) for block, warps in choices if block <= sliced]
    fitting = [
        (block, warps)
        for block, warps in found
        if block * widest <= HELD_NUMBERS * 32 * warps and (warps > 4 or widest < MAX_WIDTH)
    ]
    return (fitting or found)[:2]


def most_slices(choices: Sequence[tuple[int, int]], K: int, V: int, H: int | None = None) -> int:
    """The largest number of slices of a layer that is held in one of these choices."""
    sliced = V if H is None else H
    return sliced // min(block for block, _ in holding(choices, max(K, V), sliced))


def choices_of(configs: Sequence[Any]) -> list[tuple[int, int]]:
    """Pairs of slice width and warps of Triton's configurations."""
    return [(config.kwargs["BLOCK"], config.num_warps) for config in configs]


def as_configs(choices: Sequence[tuple[int, int]]) -> list[Any]:
    """Triton's configurations for pairs of slice width and warps."""
    return [triton.Config({"BLOCK": block}, num_warps=warps, num_stages=1) for block, warps in choices]


def settings(C: int, tokens: Tensor, activation: str, programs: int) -> dict[str, Any]:
    """Launch arguments common to all kernels: rows of a piece rounded up to a tile size, activation and precision.

    ``CROWD`` is the number of ``programs``, rounded up. No kernel reads it. It is part of the tuning key, because the
    fastest configuration for a few programs is not the fastest for a full device.
    """
    return {
        "CROWD": min(FULL, triton.next_power_of_2(programs)),
        "BLOCK_C": tile_size(C),
        "ACTIVATION": activation,
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
    if depth == 2 and (has := processors(q.device)) < (slices := most_slices(HELD, K, V, tile_size(h))):
        return f"a hidden width of {h} is stored by {slices} programs at once, and this device has {has} processors"
    return lacking(q.device, depth, q.dtype == torch.bfloat16, max(K, V), chunk_size)
