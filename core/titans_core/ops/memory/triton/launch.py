"""How the kernels are launched: block sizes, precision, and what cannot run."""

from typing import Any

import torch
import triton
from torch import Tensor

MAX_CHUNK = 128
WIDTHS = (16, 32, 64, 128)
MAX_HIDDEN = 512


def blocks(C: int, width: int) -> dict[str, int]:
    """Rows of a piece as a power of two that the matrix units take, and the slice of the sliced width."""
    return {"BLOCK_C": max(16, triton.next_power_of_2(C)), "BLOCK": min(width, 32 if C > 64 else 64)}


def options(tokens: Tensor, activation: str, precision: str = "tf32") -> dict[str, Any]:
    return {
        "ACTIVATION": activation,
        "BF16": tokens.dtype == torch.bfloat16,
        "PRECISION": precision,
        "num_warps": 8,
        "num_stages": 1,
    }


def unsupported(q: Tensor, v: Tensor, weights: Any, chunk_size: int) -> str | None:
    """Why the kernels cannot run on these (as :func:`titans_core.neural_memory` is given them), or None if they can."""
    if q.dtype == torch.float64:
        return "they have no float64"
    if len(weights) > 2:
        return f"they have memories of 1 or 2 layers, not {len(weights)}"
    if chunk_size > MAX_CHUNK:
        return f"they have chunks of at most {MAX_CHUNK} tokens, not {chunk_size}"
    K, V = weights[0].shape[-2], weights[-1].shape[-1]
    if K not in WIDTHS or V not in WIDTHS:
        return f"they have keys and values of width {WIDTHS}, not {K} and {V}"
    h = weights[0].shape[-1]
    if len(weights) == 2 and (h < 16 or h > MAX_HIDDEN or h & (h - 1)):
        return f"they have hidden widths that are powers of two from 16 to {MAX_HIDDEN}, not {h}"
    return None
