"""Rotary positions (Su et al. 2021) on the first half of each head."""

import torch
from torch import Tensor


def rotate(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """Rotate the first half of the channels of ``x [B, H, T, d]`` by the token ``positions [T]``.

    The second half is not rotated. A key without a position, such as a persistent token's, uses only that half, so it
    is equally close to every position. ``d`` must be a multiple of 4.
    """
    pairs = x.shape[-1] // 4
    # float64: at position 2,000,000 a float32 angle is off by a tenth of a radian
    wide = torch.float32 if x.device.type == "mps" else torch.float64
    rates = base ** (-torch.arange(pairs, device=x.device, dtype=wide) / pairs)
    angles = positions.to(wide)[:, None] * rates
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b, rest = x.split((pairs, pairs, x.shape[-1] - 2 * pairs), dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos, rest), dim=-1)
