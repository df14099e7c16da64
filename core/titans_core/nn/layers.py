"""Small layers that the memory and the architectures share."""

import torch
from torch import Tensor, nn


class CausalConv(nn.Module):
    """Depthwise causal convolution along time that can stream.

    Token t sees tokens ``t - size + 1 .. t``. Before the first token stand zeros, or the ``tail`` of an earlier call.
    """

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, size).uniform_(-(size**-0.5), size**-0.5))
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
        # one multiply-add for each tap: on a CPU several times faster than conv1d, and no transposes
        T = x.shape[1] - before
        y = bias.to(x.dtype)
        for lag, tap in enumerate(weight.to(x.dtype).unbind(-1)):
            y = torch.addcmul(y, x[:, lag : lag + T], tap)
        return y, x[:, T:]
