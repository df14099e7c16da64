"""The depthwise causal convolution. PyTorch's ``conv1d`` is several times slower on CPU, and needs transposes."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titans_core.nn.eager import by_autograd, by_hand, eager_on_cpu, on_kernels
from titans_core.ops.memory.gradient import transformed
from titans_core.ops.memory.lengths import at_most


class CausalConv(nn.Module):
    """Depthwise causal convolution over time that can stream.

    Token t sees tokens ``t - size + 1 .. t``. The input is padded on the left with zeros, or with the ``tail`` of an
    earlier call.
    """

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, size).uniform_(-(size**-0.5), size**-0.5))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, tail: Tensor | None = None, channels: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Convolve ``x [B, T, channels]``.

        Args:
            x: input ``[B, T, channels]``.
            tail: tail returned by the previous call, ``[B, size - 1, channels]``; None: zeros.
            channels: the slice of channels that x and tail hold, if they do not hold all.

        Returns:
            An output of the shape of ``x``, and the tail for the next call.
        """
        weight, bias = self.weight[channels], self.bias[channels]
        before = weight.shape[-1] - 1
        tail = x.new_zeros(x.shape[0], before, x.shape[2]) if tail is None else tail.to(x.dtype)
        weight, bias = weight.to(x.dtype), bias.to(x.dtype)
        if x.shape[1] == 1 and eager_on_cpu(x):  # generation, where a pass for each tap would take several times longer
            seen = torch.cat((tail, x), dim=1)
            return (seen * weight.mT).sum(1, keepdim=True) + bias, seen[:, 1:].clone()
        y = _convolved(x, tail, weight, bias)
        new = at_most(before, x.shape[1])
        return y, torch.cat((tail[:, new:], x[:, x.shape[1] - new :]), dim=1)


def _convolved(x: Tensor, tail: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if transformed():
        return _by_torch(x, tail, weight) + bias
    y: Tensor = _Taps.apply(x, tail, weight, bias)
    return y


def _by_torch(x: Tensor, tail: Tensor, weight: Tensor) -> Tensor:
    """The convolution without its bias, by PyTorch's own operator."""
    return F.conv1d(torch.cat((tail, x), dim=1).mT, weight[:, None], groups=len(weight)).mT


class _Taps(torch.autograd.Function):
    """``y_t = bias + sum_s weight[-1 - s] x[t - s]``, where ``tail`` precedes x, with its gradient.

    Makes one pass over the data for each s. On CPU it processes a few sequences at a time, so that the next pass finds
    them in cache. On CUDA a kernel makes a single pass, where Triton can run.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, tail: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, tail, weight)
        if on_kernels(x):
            from titans_core.nn.triton.convolution import convolve

            return convolve(x, tail, weight, bias)
        newest, *older = _taps(weight)
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        for rows in _few(x):
            if eager_on_cpu(x):
                torch.addcmul(bias, x[rows], newest, out=y[rows])
            else:  # out= has no gradient in a traced graph
                y[rows] = torch.addcmul(bias, x[rows], newest)
            for s, tap in enumerate(older, 1):
                for there, here in _shifted(x[rows], tail[rows], y[rows], s):
                    here.addcmul_(there, tap)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, tail, weight = ctx.saved_tensors
        if not torch.compiler.is_compiling() and not by_hand():
            return *by_autograd(_by_torch, (x, tail, weight), dy, ctx.needs_input_grad), dy.sum((0, 1))
        if on_kernels(x):
            from titans_core.nn.triton.convolution import convolve_backward

            return convolve_backward(dy, x, tail, weight)
        newest, *older = _taps(weight)
        # sum over all tokens in float32, also for half-precision inputs
        wide = torch.promote_types(x.dtype, torch.float32)
        dtaps = [torch.zeros_like(newest, dtype=wide) for _ in range(1 + len(older))]
        in_place = eager_on_cpu(x)
        dx, dtail = torch.empty_like(dy) if in_place else dy * newest, torch.zeros_like(tail)
        for rows in _few(x) if in_place else [slice(None)]:
            room = None
            if in_place:
                torch.mul(dy[rows], newest, out=dx[rows])
                room = torch.empty_like(dy[rows])  # one buffer for all products
            for s, tap in enumerate((newest, *older)):
                if s > 0:
                    for there, here in _shifted(dx[rows], dtail[rows], dy[rows], s):
                        there.addcmul_(here, tap)
                for there, here in _shifted(x[rows], tail[rows], dy[rows], s):
                    product = torch.mul(there, here, out=None if room is None else room[:, : here.shape[1]])
                    dtaps[s] = dtaps[s] + product.sum((0, 1), dtype=wide)
        return dx, dtail, torch.stack(dtaps[::-1], dim=-1).to(weight.dtype), dy.sum((0, 1))


def _shifted(x: Tensor, tail: Tensor, y: Tensor, s: int) -> tuple[tuple[Tensor, Tensor], ...]:
    """Pairs of views: the part of x, or of its tail, s tokens earlier, with the matching part of y."""
    early, at = at_most(s, y.shape[1]), tail.shape[1] - s
    of_tail = tail[:, at : at + early], y[:, :early]
    if eager_on_cpu(y) and early == y.shape[1]:
        return (of_tail,)
    return (x[:, : y.shape[1] - early], y[:, early:]), of_tail


def _few(x: Tensor) -> list[slice]:
    """Slices of sequences of ``[B, T, channels]`` to process together: about 130,000 values on CPU, all elsewhere."""
    if not eager_on_cpu(x):
        return [slice(None)]
    count = max(1, (1 << 17) // max(1, x.shape[1] * x.shape[2]))
    return [slice(i, i + count) for i in range(0, len(x), count)]


def _taps(weight: Tensor) -> tuple[Tensor, ...]:
    """The filter taps of all channels, newest token first.

    Each is contiguous: with a stride, products take six times as long on CPU.
    """
    return weight.mT.contiguous().unbind(0)[::-1]
