"""EinFFT: mixing channels in the frequency domain (Simba, Patro & Agneeswaran 2024, arXiv:2403.15360)."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class EinFFT(nn.Module):
    """Two complex layers with block-diagonal weights between a Fourier transform and its inverse.

        z = fft2(x as [B, P, blocks, C / blocks], over P and blocks)
        z = ReLU(z W_1 + b_1) W_2 + b_2, each a complex product per block, then soft-shrink
        y = real(ifft2(z))

    The transform also runs over tokens, so every output depends on every token: use it within a window, not on a
    stream.

    Args:
        channels: C, a multiple of ``num_blocks``.
        num_blocks: number of blocks, with separate weights.
        shrink: threshold of the soft-shrink on real and imaginary parts.
    """

    def __init__(self, channels: int, num_blocks: int = 4, shrink: float = 0.01) -> None:
        super().__init__()
        if channels % num_blocks:
            raise ValueError(f"channels must be a multiple of num_blocks, got {channels} and {num_blocks}.")
        self.num_blocks, self.shrink = num_blocks, shrink
        size = channels // num_blocks
        # index 0: the real part, 1: the imaginary part
        self.weight_1 = nn.Parameter(0.02 * torch.randn(2, num_blocks, size, size))
        self.weight_2 = nn.Parameter(0.02 * torch.randn(2, num_blocks, size, size))
        self.bias_1 = nn.Parameter(0.02 * torch.randn(2, num_blocks, size))
        self.bias_2 = nn.Parameter(0.02 * torch.randn(2, num_blocks, size))

    def forward(self, x: Tensor) -> Tensor:
        """x ``[B, P, C]`` -> ``[B, P, C]``."""
        with torch.autocast(x.device.type, enabled=False):  # there is no bf16 Fourier transform
            dtype = torch.promote_types(x.dtype, torch.float32)
            w1, b1, w2, b2 = (p.to(dtype) for p in (self.weight_1, self.bias_1, self.weight_2, self.bias_2))
            z = _along_both(torch.fft.fft, x.to(dtype).unflatten(-1, (self.num_blocks, -1)))
            # real and imaginary parts interleaved in each block: a complex product is a real one of twice the width
            parts = torch.view_as_real(z).movedim(2, 0)  # [blocks, B, P, size, 2]
            h = F.relu(_complex_layer(parts.flatten(3).flatten(1, 2), w1, b1))
            h = F.softshrink(_complex_layer(h, w2, b2), self.shrink)
            z = torch.view_as_complex(h.view(parts.shape).movedim(0, 2).contiguous())
            y = _along_both(torch.fft.ifft, z).real
        return y.flatten(-2).to(x.dtype)


def _along_both(transform: Callable[..., Tensor], x: Tensor) -> Tensor:
    """Transform over tokens, then blocks. A single fft2 is not faster, and for one sequence of about 350 blocks or more
    MKL writes out of bounds (torch 2.13 on a CPU)."""
    return transform(transform(x, dim=1, norm="ortho"), dim=2, norm="ortho")


def _complex_layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """One complex product per block; x ``[blocks, tokens, 2 * size]``, real and imaginary parts interleaved."""
    re, im = weight
    rows = (torch.stack((re, im), dim=-1), torch.stack((-im, re), dim=-1))  # rows for real and for imaginary inputs
    product = torch.stack(rows, dim=2).flatten(3).flatten(1, 2)  # [blocks, 2 * size, 2 * size]
    return torch.baddbmm(bias.movedim(0, -1).flatten(1).unsqueeze(1), x, product)
