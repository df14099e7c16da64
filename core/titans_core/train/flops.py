"""Arithmetic operations per token, to compare tokens per second with a device's peak (MFU)."""

from collections.abc import Sequence
from itertools import pairwise

import torch

from titans_core.models import TitansConfig, TitansLM

# dense bf16 TFLOP/s by part of the device's name, from the manufacturers' data sheets; the first that fits counts
PEAKS = {
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H200 NVL": 835.0,
    "H200": 989.0,
    "H100": 989.0,
    "A100": 312.0,
    "L40S": 362.0,
    "4090": 165.0,
}


def flops_per_token(model: TitansLM, length: int) -> float:
    """Floating-point operations per token, forward and backward, in sequences of ``length`` tokens.

    Counts 2 per weight of every matrix product forward and twice that backward, attention over the visible tokens, and
    the memory's products of each chunk (``22 d h + 4 C (d + h)`` for two layers with C tokens per chunk).
    """
    config = model.config
    matrices = sum(p.numel() for name, p in model.named_parameters() if p.ndim == 2 and "persistent" not in name)
    if not config.tie_embeddings:
        matrices -= model.embedding.weight.numel()  # an embedding is a lookup, not a product
    layers = config.num_layers * (_attention(config, length) + _memory(config))
    return 3 * (2 * matrices + layers)


def peak_flops(device: torch.device) -> float | None:
    """The device's dense bf16 FLOP/s; None if unknown, as for any CPU."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak * 1e12 for part, peak in PEAKS.items() if part in name), None)


def _attention(config: TitansConfig, length: int) -> float:
    """Scores and weighted sums: 4 dim for each key that is computed for a token, masked or not."""
    if config.architecture == "lmm":
        return 0.0
    if config.architecture == "transformer":
        return 4 * config.dim * length / 2
    if config.architecture == "mac":
        return 4 * config.dim * (config.num_persistent + 2 * min(config.segment, length))
    # "mal" reads the persistent tokens first; in "mag" every token attends to them
    tokens, always_seen = (
        (length + config.num_persistent, 0) if config.architecture == "mal" else (length, config.num_persistent)
    )
    # blocks of half a window; the first blocks see all tokens from the start
    block = min(-(-config.window // 2), tokens)
    seen = [min(stop, config.window - 1 + block) for stop in range(block, tokens + block, block)]
    return 4 * config.dim * (always_seen + sum(seen) / len(seen)) * tokens / length


def memory_flops(widths: Sequence[int], chunk_size: int, momentum: bool = True) -> float:
    """Forward FLOPs per token of one head's memory. ``widths`` lists layer widths from input to output."""
    products = sum(a * b for a, b in pairwise(widths))
    # keys forward, errors backward except through the first layer, M and S read and written
    carried = 2 * products * (5 + momentum) - 2 * widths[0] * widths[1]
    return carried + 2 * chunk_size * sum(a + b for a, b in pairwise(widths))


def _memory(config: TitansConfig) -> float:
    if config.architecture == "transformer":
        return 0.0
    d = config.dim // config.num_heads
    widths = [d, *[round(d * config.memory_expansion)] * (config.memory_depth - 1), d]
    queries = 2 * sum(a * b for a, b in pairwise(widths)) if config.architecture == "mac" else 0
    return config.num_heads * (memory_flops(widths, max(config.chunk_size, 16), config.momentum) + queries)
