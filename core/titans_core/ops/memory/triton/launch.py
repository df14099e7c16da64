"""How the kernels are launched: block sizes, precision, tuning, and what cannot run."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from titans_core.ops.memory.triton.tiles import INTERPRETED
from titans_core.ops.memory.triton.widths import tile_size

MAX_CHUNK = 128
MAX_WIDTH = 128  # of keys and values
MAX_HIDDEN = 512
FULL = 256  # programs that fill a device: more are served in turns, by the same choice
HOPPER = 232_448  # bytes of shared memory of a block there, for which it was seen what fits

# Slices of the sliced width, and warps, among which the first call on a shape chooses by trying; Triton keeps the
# choice on disk. Each fits Hopper with every shape; one more costs every new shape seconds. Compiled ahead of time
# (benchmarks/memory_kernels.py), eight warps mostly spill least.
CHOICES = ((32, 8), (16, 8), (16, 4))

# Pieces and memories, which differ from call to call: kernels of their own for counts of 1 and for multiples of 16
# would be compiled for nothing. Tokens in a piece are not among them, as they tell how squares of them are aligned.
COUNTS = ("N", "P", "CROWD")


def tuned(*changed: str) -> Callable[[Any], Any]:
    """Makes a kernel choose its ``BLOCK`` and warps by trying. ``changed`` names arguments that it reads and writes."""

    def decorate(kernel: Any) -> Any:
        # the interpreter has nothing to try; the narrowest slices fit every layer
        choices = ((16, 4),) if INTERPRETED.value else CHOICES
        constants = ("CROWD", "K", "V", "H", "n", "BLOCK_C", "ACTIVATION", "BF16")
        return triton.autotune(
            [triton.Config({"BLOCK": block}, num_warps=warps, num_stages=1) for block, warps in choices],
            key=[name for name in constants if name in kernel.arg_names],
            restore_value=list(changed),
            prune_configs_by={"early_config_prune": _no_wider_than_the_layer},
            cache_results=True,
        )(kernel)

    return decorate


def _no_wider_than_the_layer(configs: list[Any], arguments: dict[str, Any], **constants: Any) -> list[Any]:
    given = {**arguments, **constants}
    return [config for config in configs if config.kwargs["BLOCK"] <= given.get("H", given["V"])]


def settings(C: int, tokens: Tensor, activation: str, programs: int) -> dict[str, Any]:
    """Of every launch: rows of a piece as a power of two that the matrix units take, and the arithmetic.

    And about how many ``programs`` it has, which no kernel reads: what is fastest for a few is not for a full device.
    """
    return {
        "CROWD": min(FULL, triton.next_power_of_2(programs)),
        "BLOCK_C": tile_size(C),
        "ACTIVATION": activation,
        "BF16": tokens.dtype == torch.bfloat16,
    }


def unsupported(q: Tensor, v: Tensor, weights: Sequence[Tensor], chunk_size: int) -> str | None:
    """Why the kernels cannot run on these (as :func:`titans_core.neural_memory` is given them), or None if they can."""
    if q.dtype == torch.float64:
        return "they have no float64"
    if q.is_cuda:
        room = _shared_memory(q.device)
        if room < HOPPER:
            return f"they were fitted to the {HOPPER} bytes of shared memory of Hopper, and this device has {room}"
    depth, K, V, h = len(weights), weights[0].shape[-2], weights[-1].shape[-1], weights[0].shape[-1]
    if depth > 2:
        return f"they have memories of 1 or 2 layers, not {depth}"
    if chunk_size > MAX_CHUNK:
        return f"they have chunks of at most {MAX_CHUNK} tokens, not {chunk_size}"
    if max(K, V) > MAX_WIDTH:
        return f"they have keys and values of width {MAX_WIDTH} at most, not {K} and {V}"
    if depth == 2 and h > MAX_HIDDEN:
        return f"they have hidden widths of {MAX_HIDDEN} at most, not {h}"
    return None


@torch.compiler.assume_constant_result  # nothing to be traced
def _shared_memory(device: torch.device) -> int:
    """Bytes that a block may ask for; ROCm does not tell."""
    found = torch.cuda.get_device_properties(device)
    return int(getattr(found, "shared_memory_per_block_optin", found.shared_memory_per_block))
