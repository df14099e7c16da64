"""The causal convolution: one kernel forward, and one for all of its gradients.

Row t of ``[B, T, C]`` is ``y_t = bias + sum_s weight[:, size - 1 - s] x_{t - s}``, where rows below 0 are the tail. A
program has a block of rows and channels of one sequence, and computes in float32.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK_T, BLOCK_C, WARPS = 32, 64, 8  # rows and channels of a block, and the warps of a program
PROGRAMS = 128  # backward, at most this many programs for the same channels, which bounds the memory for their sums


def convolve(x: Tensor, tail: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Convolve ``x [B, T, C]``, preceded by ``tail [B, size - 1, C]``, with ``weight [C, size]`` and ``bias [C]``."""
    B, T, C = x.shape
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    blocks = triton.cdiv(T, BLOCK_T)
    with torch.cuda.device_of(x):
        _forward_kernel[(B * blocks, triton.cdiv(C, BLOCK_C))](
            *_contiguous(x, tail, weight.mT, bias), y, T, C, blocks, **_sizes(weight)
        )
    return y


def convolve_backward(dy: Tensor, x: Tensor, tail: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, tail, weight and bias."""
    B, T, C = x.shape
    size = weight.shape[-1]
    dx, dtail = (torch.empty_like(a, memory_format=torch.contiguous_format) for a in (x, tail))
    blocks = triton.cdiv(T + size - 1, BLOCK_T)
    programs = min(B * blocks, PROGRAMS)
    # each program's sums: the gradients of the taps, newest first, and of the bias
    sums = torch.empty((programs, size + 1, C), dtype=torch.float32, device=x.device)
    with torch.cuda.device_of(x):
        _backward_kernel[(programs, triton.cdiv(C, BLOCK_C))](
            *_contiguous(dy, x, tail, weight.mT),
            *(dx, dtail, sums),
            *(B * blocks, T, C, blocks),
            **_sizes(weight),
        )
    total = sums.sum(0)
    return dx, dtail, total[:size].flip(0).mT.to(weight.dtype), total[size].to(weight.dtype)


def _contiguous(*tensors: Tensor) -> list[Tensor]:
    return [x.contiguous() for x in tensors]


def _sizes(weight: Tensor) -> dict[str, int]:
    return {"SIZE": weight.shape[-1], "BLOCK_T": BLOCK_T, "BLOCK_C": BLOCK_C, "num_warps": WARPS}


@triton.jit
def _load(base, rows, columns, T, C):
    """Load rows of ``[T, C]`` as float32. Rows outside are zero."""
    mask = ((rows >= 0) & (rows < T))[:, None] & (columns < C)[None, :]
    return tl.load(base + rows[:, None] * C + columns[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _save(base, rows, columns, T, C, tile):
    mask = ((rows >= 0) & (rows < T))[:, None] & (columns < C)[None, :]
    tl.store(base + rows[:, None] * C + columns[None, :], tile.to(base.dtype.element_ty), mask=mask)


@triton.jit
def _tap(taps, columns, s, C, SIZE: tl.constexpr):
    """The weights of all channels for the token ``s`` steps back."""
    return tl.load(taps + (SIZE - 1 - s) * C + columns, mask=columns < C, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _appended(tiles, tile):
    return tiles + (tile,)  # noqa: RUF005  Triton cannot unpack a tuple


@triton.jit(do_not_specialize=["T", "blocks"])
def _forward_kernel(
    x, tail, taps, bias, y,
    T, C, blocks, SIZE: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0).to(tl.int64)
    sequence, first = block // blocks, block % blocks * BLOCK_T
    x += sequence * T * C
    y += sequence * T * C
    tail += sequence * (SIZE - 1) * C
    rows = first + tl.arange(0, BLOCK_T)
    columns = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)

    out = tl.zeros([BLOCK_T, BLOCK_C], dtype=tl.float32)
    out += tl.load(bias + columns, mask=columns < C, other=0.0).to(tl.float32)[None, :]
    for s in tl.static_range(SIZE):
        before = _load(x, rows - s, columns, T, C)
        if first < s:
            before += _load(tail, rows - s + SIZE - 1, columns, SIZE - 1, C)
        out += _tap(taps, columns, s, C, SIZE) * before
    _save(y, rows, columns, T, C, out)


@triton.jit(do_not_specialize=["total", "T", "blocks"])
def _backward_kernel(
    dy_, x_, tail_, taps, dx_, dtail_, sums,
    total, T, C, blocks, SIZE: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Row r of x or, below 0, of the tail was read by rows r to r + size - 1 of the output."""
    columns = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    # Of each tap, newest first, and of the bias, for each row of a block. They are added up over rows once, at the end.
    found = ()
    for _ in tl.static_range(SIZE + 1):
        found = _appended(found, tl.zeros([BLOCK_T, BLOCK_C], dtype=tl.float32))
    for block in tl.range(tl.program_id(0), total, tl.num_programs(0), num_stages=1):
        sequence, first = (block // blocks).to(tl.int64), block % blocks * BLOCK_T - (SIZE - 1)
        of_sequence, of_tail = sequence * T * C, sequence * (SIZE - 1) * C
        rows = first.to(tl.int64) + tl.arange(0, BLOCK_T)

        row = _load(x_ + of_sequence, rows, columns, T, C)
        if first < 0:
            row += _load(tail_ + of_tail, rows + SIZE - 1, columns, SIZE - 1, C)
        gradient = tl.zeros([BLOCK_T, BLOCK_C], dtype=tl.float32)
        more = ()
        for s in tl.static_range(SIZE):
            after = _load(dy_ + of_sequence, rows + s, columns, T, C)
            gradient += _tap(taps, columns, s, C, SIZE) * after
            more = _appended(more, found[s] + row * after)
            if s == 0:
                bias = found[SIZE] + after
        found = _appended(more, bias)
        _save(dx_ + of_sequence, rows, columns, T, C, gradient)
        if first < 0:
            _save(dtail_ + of_tail, rows + SIZE - 1, columns, SIZE - 1, C, gradient)
    to = sums + tl.program_id(0) * (SIZE + 1) * C + columns
    for s in tl.static_range(SIZE + 1):
        tl.store(to + s * C, tl.sum(found[s], axis=0), mask=columns < C)
