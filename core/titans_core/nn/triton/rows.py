"""What is computed for each row, the vector of one token and head: SiLU with l2 normalisation, and gated RMSNorm.

A program has a block of rows of d numbers and computes in float32.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from titans_core.ops.memory.triton.tiles import activate

TILE, WARPS = 2048, 4  # numbers of a program, unless a row has more, and its warps


def silu_forward(x: Tensor, parts: int, unit: int, least: float) -> tuple[Tensor, ...]:
    """SiLU of ``x [..., parts * heads, d]`` (at most three parts), in one tensor ``[..., heads, d]`` for each part.

    The first ``unit`` parts are divided by their l2 norm, or by ``least`` where it is less.
    """
    x = x.contiguous()
    *batch, heads, d = x.shape
    heads //= parts
    found = tuple(x.new_empty((*batch, heads, d)) for _ in range(parts))
    count = found[0].numel() // d
    grid = (*_blocks(count, d), parts)
    with torch.cuda.device_of(x):
        # pointers that are not used must still be valid
        _silu_forward_kernel[grid](
            x, *found, *found[:1] * (3 - parts), count, heads, d, least, PARTS=parts, UNIT=unit, **_sizes(d)
        )
    return found


def silu_backward(grads: Sequence[Tensor], x: Tensor, unit: int, least: float) -> Tensor:
    """Gradient of ``x`` from those of the results of :func:`silu_forward`."""
    x, parts = x.contiguous(), len(grads)
    dx = torch.empty_like(x)
    *_, heads, d = grads[0].shape
    grads = [g.contiguous() for g in grads]
    count = grads[0].numel() // d
    grid = (*_blocks(count, d), parts)
    with torch.cuda.device_of(x):
        _silu_backward_kernel[grid](
            x, *grads, *grads[:1] * (3 - parts), dx, count, heads, d, least, PARTS=parts, UNIT=unit, **_sizes(d)
        )
    return dx


def gated_forward(x: Tensor, weight: Tensor, gate: Tensor, eps: float) -> Tensor:
    """``rms_norm(x) * weight * silu(gate)``: x ``[..., heads, d]``, weight ``[d]``, gate ``[..., heads * d]``."""
    x, weight, gate = x.contiguous(), weight.contiguous(), gate.contiguous()
    d = x.shape[-1]
    count = x.numel() // d
    y = torch.empty(gate.shape, dtype=torch.promote_types(x.dtype, gate.dtype), device=x.device)
    with torch.cuda.device_of(x):
        _gated_forward_kernel[_blocks(count, d)](x, weight, gate, y, count, d, eps, **_sizes(d))
    return y


def gated_backward(dy: Tensor, x: Tensor, weight: Tensor, gate: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, weight and gate."""
    x, weight, gate = x.contiguous(), weight.contiguous(), gate.contiguous()
    d = x.shape[-1]
    count = x.numel() // d
    dx, dgate = torch.empty_like(x), torch.empty_like(gate)
    blocks = _blocks(count, d)
    sums = torch.empty((*blocks, d), dtype=torch.float32, device=x.device)
    with torch.cuda.device_of(x):
        _gated_backward_kernel[blocks](dy.contiguous(), x, weight, gate, dx, dgate, sums, count, d, eps, **_sizes(d))
    return dx, sums.sum(0).to(weight.dtype), dgate


def _sizes(d: int) -> dict[str, int]:
    width = triton.next_power_of_2(d)
    return {"ROWS": max(1, TILE // width), "WIDTH": width, "num_warps": WARPS}


def _blocks(count: int, d: int) -> tuple[int]:
    return (triton.cdiv(count, _sizes(d)["ROWS"]),)


@triton.jit
def _tile(count, d, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """This program's rows and columns, and which of them exist."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, WIDTH)
    return rows, columns[None, :], (rows < count)[:, None] & (columns < d)[None, :]


@triton.jit
def _load(base, at, mask):
    return tl.load(base + at, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _save(base, at, tile, mask):
    tl.store(base + at, tile.to(base.dtype.element_ty), mask=mask)


@triton.jit
def _of_part(a, b, c):
    """The pointer of this program's part."""
    part = tl.program_id(1)
    found = a
    if part == 1:
        found = b
    if part == 2:
        found = c
    return found


@triton.jit
def _rows_of_part(rows, heads, PARTS: tl.constexpr):
    """The rows of ``[.., PARTS * heads]`` that are the rows of ``[.., heads]`` in this program's part."""
    return rows // heads * (PARTS * heads) + tl.program_id(1) * heads + rows % heads


@triton.jit(do_not_specialize=["count"])
def _silu_forward_kernel(
    x, a, b, c,
    count, heads, d, least, PARTS: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    rows, columns, mask = _tile(count, d, ROWS, WIDTH)
    y, _, _ = activate(_load(x, _rows_of_part(rows, heads, PARTS)[:, None] * d + columns, mask), "silu")
    if tl.program_id(1) < UNIT:
        y = y / tl.maximum(tl.sqrt(tl.sum(y * y, axis=1)), least)[:, None]
    _save(_of_part(a, b, c), rows[:, None] * d + columns, y, mask)


@triton.jit(do_not_specialize=["count"])
def _silu_backward_kernel(
    x, da, db, dc, dx,
    count, heads, d, least, PARTS: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """For ``y = s / |s|``: ``ds = (dy - y (dy . y)) / |s|``. Below the least norm, the divisor is a constant."""
    rows, columns, mask = _tile(count, d, ROWS, WIDTH)
    at = _rows_of_part(rows, heads, PARTS)[:, None] * d + columns
    s, slope, _ = activate(_load(x, at, mask), "silu")
    ds = _load(_of_part(da, db, dc), rows[:, None] * d + columns, mask)
    if tl.program_id(1) < UNIT:
        norm = tl.sqrt(tl.sum(s * s, axis=1))
        r = 1 / tl.maximum(norm, least)
        along = tl.where(norm < least, 0.0, tl.sum(ds * s, axis=1) * r * r)
        ds = (ds - s * along[:, None]) * r[:, None]
    _save(dx, at, ds * slope, mask)


@triton.jit(do_not_specialize=["count"])
def _gated_forward_kernel(x, weight, gate, y, count, d, eps, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    rows, columns, mask = _tile(count, d, ROWS, WIDTH)
    at = rows[:, None] * d + columns
    value = _load(x, at, mask)
    r = tl.rsqrt(tl.sum(value * value, axis=1) / d + eps)[:, None]
    s, _, _ = activate(_load(gate, at, mask), "silu")
    _save(y, at, value * r * _load(weight, columns, columns < d) * s, mask)


@triton.jit(do_not_specialize=["count"])
def _gated_backward_kernel(
    dy, x, weight, gate, dx, dgate, sums, count, d, eps, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    """For ``n = x r`` with ``r = 1 / rms(x)``: ``dx = r (dn - n mean(dn n))``."""
    rows, columns, mask = _tile(count, d, ROWS, WIDTH)
    at = rows[:, None] * d + columns
    value = _load(x, at, mask)
    r = tl.rsqrt(tl.sum(value * value, axis=1) / d + eps)[:, None]
    n = value * r
    w = _load(weight, columns, columns < d)
    s, slope, _ = activate(_load(gate, at, mask), "silu")
    change = _load(dy, at, mask)
    _save(dgate, at, change * n * w * slope, mask)
    dn = change * s
    tl.store(sums + tl.program_id(0) * d + columns, tl.sum(dn * n, axis=0)[None, :], mask=columns < d)
    dn *= w
    _save(dx, at, r * (dn - n * (tl.sum(dn * n, axis=1) / d)[:, None]), mask)
