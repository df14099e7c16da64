"""Rotary positions (Su et al. 2021) on the first half of each head."""

import torch
from torch import Tensor


def rotate(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """Turns the first half of the channels of ``x [B, H, T, d]`` by its tokens' ``positions [T]``.

    The other half stays: a key without a position, as of a persistent token, has its say there, and is as near to the
    millionth token as to the first. ``d`` is a multiple of 4.
    """
    pairs = x.shape[-1] // 4
    # float64: a float32 angle at position 2,000,000 is wrong by a tenth of a radian
    wide = torch.float32 if x.device.type == "mps" else torch.float64
    rates = base ** (-torch.arange(pairs, device=x.device, dtype=wide) / pairs)
    angles = positions.to(wide)[:, None] * rates
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b, rest = x.split((pairs, pairs, x.shape[-1] - 2 * pairs), dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos, rest), dim=-1)
