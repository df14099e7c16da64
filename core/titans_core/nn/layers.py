"""Small layers that the memory and the architectures share."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CausalConv(nn.Module):
    """Depthwise causal convolution along time that can stream.

    Token t sees tokens ``t - size + 1 .. t``. Before the first token stand zeros, or the ``tail`` of an earlier call.
    """

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, size).uniform_(-(size**-0.5), size**-0.5))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, tail: Tensor | None = None, channels: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """x ``[B, T, channels]`` -> the same shape, and the tail ``[B, size - 1, channels]`` for the next call.

        ``channels`` picks the filters of a part of the channels, when x and tail hold just these.
        """
        weight, bias = self.weight[channels], self.bias[channels]
        before = weight.shape[-1] - 1
        if tail is None:
            tail = x.new_zeros(x.shape[0], before, x.shape[2])
        x = torch.cat((tail.to(x.dtype), x), dim=1)
        y = F.conv1d(x.mT, weight.to(x.dtype), bias.to(x.dtype), groups=weight.shape[0])
        return y.mT, x[:, x.shape[1] - before :]
