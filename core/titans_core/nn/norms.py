"""RMSNorm, gated RMSNorm, and SiLU followed by l2 normalisation.

PyTorch composes these and their gradients from many small operations, which is several times slower than needed. On CPU
hand-written versions run. On CUDA, the last two have Triton kernels, which run where Triton can. On other devices and
under ``torch.compile``, PyTorch's own operators run.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titans_core.nn.eager import by_autograd, by_hand, eager_on_cpu, on_kernels, untouched

__all__ = ["RMSNorm", "gated", "silu_parts", "unit_silu"]


class RMSNorm(nn.RMSNorm):
    """``x / rms(x) * weight`` over the last dimension (Zhang & Sennrich 2019)."""

    eps: float

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__(dim, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != self.weight.dtype == torch.promote_types(x.dtype, self.weight.dtype):
            # half-precision x with wider weights, as under autocast: torch's kernel needs a single dtype
            return self.forward(x.to(self.weight.dtype)).to(x.dtype)
        if _precise(x) and (x.dtype, x.shape[-1:]) == (self.weight.dtype, self.weight.shape):
            y: Tensor = _RMSNorm.apply(x, self.weight, self.eps)
            return y
        return super().forward(x)


def gated(norm: RMSNorm, x: Tensor, gate: Tensor) -> Tensor:
    """``norm(x) * silu(gate)`` (section 4.4): x ``[..., heads, d]``, gate and result ``[..., heads * d]``."""
    fits = on_kernels(x) or (_precise(x) and x.dtype == norm.weight.dtype == gate.dtype)
    if fits and untouched(norm, RMSNorm):
        y: Tensor = _Gated.apply(x, norm.weight, gate, norm.eps)
        return y
    return norm(x).flatten(-2) * F.silu(gate)


def unit_silu(x: Tensor) -> Tensor:
    """SiLU, then l2 normalisation over the last dimension (section 4.4), in the dtype of the input."""
    if on_kernels(x):
        return silu_parts(x, 1, 1)[0]
    if _precise(x):
        y: Tensor = _UnitSiLU.apply(x, _least_norm(x))
        return y
    # autocast on CUDA computes the norm in float32 and returns float32
    return F.normalize(F.silu(x), dim=-1, eps=_least_norm(x)).to(x.dtype)


def silu_parts(x: Tensor, parts: int, unit: int) -> tuple[Tensor, ...]:
    """SiLU of ``x [..., parts * heads, d]``, as tensors ``[..., heads, d]``; the first ``unit`` have unit rows.

    There are at most three parts.
    """
    if on_kernels(x):
        found: tuple[Tensor, ...] = _SiLUParts.apply(x, parts, unit, _least_norm(x))
        return found
    heads = x.shape[-2] // parts
    with_unit, rest = x.split((unit * heads, (parts - unit) * heads), dim=-2)
    done = unit_silu(with_unit).chunk(unit, dim=-2) if unit else ()
    return (*done, *(F.silu(rest).chunk(parts - unit, dim=-2) if unit < parts else ()))


def _least_norm(x: Tensor) -> float:
    # torch's default is 0 in float16, where a row of zeros would then have a NaN gradient
    return max(1e-12, torch.finfo(x.dtype).tiny)


def _precise(x: Tensor) -> bool:
    # in half precision the norm would be rounded before it is used
    return x.dtype in (torch.float32, torch.float64) and eager_on_cpu(x)


class _RMSNorm(torch.autograd.Function):
    """``y = x r w`` with ``r = 1 / rms(x)``, so ``dx = r (dy w - x r^2 mean(dy w x))``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        r = _inverse_rms(x, eps)
        ctx.save_for_backward(x, weight, r)
        ctx.eps = eps
        return torch.mul(x, r).mul_(weight)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, r = ctx.saved_tensors
        if not by_hand():

            def y(x: Tensor, weight: Tensor) -> Tensor:
                return F.rms_norm(x, weight.shape, weight, ctx.eps)

            return *by_autograd(y, (x, weight), dy, ctx.needs_input_grad), None
        return *_rms_gradient(dy, x, weight, r), None


def _inverse_rms(x: Tensor, eps: float) -> Tensor:
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()


def _rms_gradient(dy: Tensor, x: Tensor, weight: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of x and weight for ``x r w``."""
    dim = x.shape[-1]
    product = dy * x
    with torch.autocast("cpu", enabled=False):
        along = (product.reshape(-1, dim) @ weight).view(r.shape)  # the sum over a vector of dy w x
    dweight = product.mul_(r).reshape(-1, dim).sum(0)
    dx = torch.mul(dy, weight, out=product)
    return dx.addcmul_(x, along.mul_(r).mul_(r).div_(dim), value=-1).mul_(r), dweight


class _Gated(torch.autograd.Function):
    """``y = n s`` with ``n = x r w`` and ``s = silu(gate)``. Neither n nor s is saved."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, gate: Tensor, eps: float) -> Tensor:
        if on_kernels(x):
            from titans_core.nn.triton.rows import gated_forward

            ctx.save_for_backward(x, weight, gate, None)
            ctx.eps = eps
            return gated_forward(x, weight, gate, eps)
        r = _inverse_rms(x, eps)
        ctx.save_for_backward(x, weight, gate, r)
        ctx.eps = eps
        return F.silu(gate).mul_(torch.mul(x, r).mul_(weight).flatten(-2))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, gate, r = ctx.saved_tensors
        if not by_hand():

            def y(x: Tensor, weight: Tensor, gate: Tensor) -> Tensor:
                return F.rms_norm(x, weight.shape, weight, ctx.eps).flatten(-2) * F.silu(gate)

            return *by_autograd(y, (x, weight, gate), dy, ctx.needs_input_grad), None
        if r is None:
            from titans_core.nn.triton.rows import gated_backward

            return *gated_backward(dy, x, weight, gate, ctx.eps), None
        s = F.silu(gate)
        n = torch.mul(x, r).mul_(weight).flatten(-2)
        dgate = torch.ops.aten.silu_backward(n.mul_(dy), gate)
        dx, dweight = _rms_gradient(s.mul_(dy).view_as(x), x, weight, r)
        return dx, dweight, dgate, None


class _UnitSiLU(torch.autograd.Function):
    """``y = s r`` with ``s = silu(x)`` and ``r = 1 / |s|``, so ``ds = r (dy - s r^2 (dy . s))``.

    Below the least norm, r is a constant. Only x, r and the mask of short vectors are saved.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, least: float) -> Tensor:
        y = F.silu(x)
        norm = torch.linalg.vector_norm(y, dim=-1, keepdim=True)
        short = norm < least
        r = norm.clamp_(min=least).reciprocal_()
        ctx.save_for_backward(x, r, short)
        ctx.least = least
        return y.mul_(r)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, r, short = ctx.saved_tensors
        if not by_hand():

            def y(x: Tensor) -> Tensor:
                return F.normalize(F.silu(x), dim=-1, eps=ctx.least)

            return *by_autograd(y, (x,), dy, ctx.needs_input_grad), None
        s = F.silu(x)
        along = (dy * s).sum(-1, keepdim=True).masked_fill_(short, 0).mul_(r).mul_(r)
        ds = torch.addcmul(dy, s, along, value=-1).mul_(r)
        return torch.ops.aten.silu_backward(ds, x), None


class _SiLUParts(torch.autograd.Function):
    """:func:`silu_parts` by one kernel, which reads x once and writes the parts where their readers want them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, parts: int, unit: int, least: float) -> tuple[Tensor, ...]:
        from titans_core.nn.triton.rows import silu_forward

        ctx.save_for_backward(x)
        ctx.parts, ctx.unit, ctx.least = parts, unit, least
        return silu_forward(x, parts, unit, least)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from titans_core.nn.triton.rows import silu_backward

        (x,) = ctx.saved_tensors
        if by_hand():
            return silu_backward(grads, x, ctx.unit, ctx.least), None, None, None

        def y(x: Tensor) -> Tensor:
            pieces = F.silu(x).chunk(ctx.parts, dim=-2)
            done = [F.normalize(s, dim=-1, eps=ctx.least) if i < ctx.unit else s for i, s in enumerate(pieces)]
            return torch.cat(done, dim=-2)

        return *by_autograd(y, (x,), torch.cat(grads, dim=-2), ctx.needs_input_grad), None, None, None
