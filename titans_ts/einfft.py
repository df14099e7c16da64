"""EinFFT: mixing channels in the frequency domain (Simba, Patro & Agneeswaran 2024, arXiv:2403.15360)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class EinFFT(nn.Module):
    """Two complex layers with block-diagonal weights between a Fourier transform and its inverse.

        z = fft2(x as [B, P, blocks, C / blocks], over P and blocks)
        z = ReLU(z W_1 + b_1) W_2 + b_2, each a complex product per block, then soft-shrink
        y = real(ifft2(z))

    The transform runs over tokens too, so every output sees every token: for use inside one window, not in a stream.

    Args:
        channels: C, a multiple of ``num_blocks``.
        num_blocks: blocks that share no weights.
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
            z = torch.fft.fft2(x.to(dtype).unflatten(-1, (self.num_blocks, -1)), dim=(1, 2), norm="ortho")
            re, im = _complex_layer(z.real, z.imag, w1, b1)
            re, im = _complex_layer(F.relu(re), F.relu(im), w2, b2)
            z = torch.complex(F.softshrink(re, self.shrink), F.softshrink(im, self.shrink))
            y = torch.fft.ifft2(z, dim=(1, 2), norm="ortho").real
        return y.flatten(-2).to(x.dtype)


def _complex_layer(re: Tensor, im: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """One complex product per block, written in real parts. re, im ``[B, P, blocks, size]``."""

    def product(x: Tensor, part: int) -> Tensor:
        return torch.einsum("bpnd,nde->bpne", x, weight[part])

    return product(re, 0) - product(im, 1) + bias[0], product(re, 1) + product(im, 0) + bias[1]
