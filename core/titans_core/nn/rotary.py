"""Rotary positions (Su et al. 2021) on the first half of each head."""

import torch
from torch import Tensor


def turns(positions: Tensor, d: int, base: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines ``[T, d / 4]`` by which heads of width ``d``, a multiple of 4, are rotated at ``positions``."""
    pairs, device = d // 4, positions.device
    # float64: at position 2,000,000 a float32 angle is off by a tenth of a radian
    wide = torch.float32 if device.type == "mps" else torch.float64
    rates = base ** (-torch.arange(pairs, device=device, dtype=wide) / pairs)
    angles = positions.to(wide)[:, None] * rates
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the first half of the channels of ``x [B, H, T, d]`` by :func:`turns`.

    The second half is not rotated. A key without a position, such as a persistent token's, uses only that half, so it
    is equally close to every position.
    """
    pairs = cos.shape[-1]
    a, b, rest = x.split((pairs, pairs, x.shape[-1] - 2 * pairs), dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos, rest), dim=-1)
