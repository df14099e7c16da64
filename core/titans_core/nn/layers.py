"""Small layers that the memory and the architectures share."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titans_core.nn.eager import eager_on_cpu
from titans_core.nn.norms import RMSNorm


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
        # on a CPU several times faster than conv1d, and no transposes
        y = _Taps.apply(x, weight.to(x.dtype), bias.to(x.dtype))
        return y, x[:, x.shape[1] - before :].clone()  # a view would keep all of x in memory


class SwiGLU(nn.Module):
    """``(SiLU(x W1) * x W2) W3`` (Shazeer 2020), without biases."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.into = nn.Linear(dim, 2 * hidden, bias=False)
        self.out = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.into(x).chunk(2, dim=-1)
        return self.out(F.silu(gate) * value)


class Gate(nn.Module):
    """``y (x) m``: the gated product of two branches, each normalised with learned weights (section 4.2).

    ``norm(y) * sigmoid(norm(m)) + norm(m) * sigmoid(norm(y))``: each branch is the other's gate, so that what either
    says is heard as it is. With one product, the content of one branch passes through a gate only, which recall does
    not survive.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm, self.memory_norm = RMSNorm(dim), RMSNorm(dim)

    def forward(self, y: Tensor, memory: Tensor) -> Tensor:
        y, memory = self.norm(y), self.memory_norm(memory)
        return y * torch.sigmoid(memory) + memory * torch.sigmoid(y)


class _Taps(torch.autograd.Function):
    """``y_t = bias + sum_lag weight[lag] x[t + lag]``, with its gradient: one pass over the data for each tap, and of
    several sequences over a few at a time, so that the next pass finds them in a CPU's caches."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        T = x.shape[1] - weight.shape[1] + 1
        taps = _taps(weight)
        y = x.new_empty(len(x), T, x.shape[2])
        for rows in _few(x):
            y[rows] = bias
            for lag, tap in enumerate(taps):
                y[rows].addcmul_(x[rows, lag : lag + T], tap)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        T, taps = dy.shape[1], _taps(weight)
        # sums over all tokens: of half precision in float32
        wide = torch.promote_types(x.dtype, torch.float32)
        dx, dtaps = torch.zeros_like(x), [torch.zeros_like(tap, dtype=wide) for tap in taps]
        again = torch.is_grad_enabled()  # the gradient is to be differentiated itself
        for rows in [slice(None)] if again else _few(x):
            # one buffer for all products
            product = None if again else torch.empty_like(dy[rows])
            for lag, tap in enumerate(taps):
                dx[rows, lag : lag + T].addcmul_(dy[rows], tap)
                of_rows = torch.mul(x[rows, lag : lag + T], dy[rows], out=product)
                dtaps[lag] = dtaps[lag] + of_rows.sum((0, 1), dtype=wide)
        return dx, torch.stack(dtaps, dim=-1).to(weight.dtype), dy.sum((0, 1))


def _few(x: Tensor) -> list[slice]:
    """Which sequences of ``[B, T, channels]`` are passed over at a time: on a CPU some 130,000 values."""
    if not eager_on_cpu(x):
        return [slice(None)]
    count = max(1, (1 << 17) // max(1, x.shape[1] * x.shape[2]))
    return [slice(i, i + count) for i in range(0, len(x), count)]


def _taps(weight: Tensor) -> tuple[Tensor, ...]:
    """The filters of all channels by lag, each contiguous: with a stride, products take six times as long on CPU."""
    return weight.mT.contiguous().unbind(0)
