"""What the kernels share: tiles in and out of memory, products, and the activation with its derivatives.

A tile is ``[rows, columns]`` of a matrix whose columns lie side by side. Rows past the end of a piece are read as
zeros, which contribute nothing to any product, and are not written.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

import os

import triton
import triton.language as tl

# Triton's interpreter multiplies the bits of bf16 numbers as if they were integers, and does not know products of three
# of them; in float32 the former are the same, the latter, tested apart, nearly.
INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.jit
def load(base, rows, columns, width, mask):
    """The tile of those rows and columns, in float32."""
    return tl.load(base + rows[:, None] * width + columns[None, :], mask=mask[:, None], other=0.0).to(tl.float32)


@triton.jit
def load_all(base, rows, columns, width):
    """The same where no row is past the end."""
    return tl.load(base + rows[:, None] * width + columns[None, :]).to(tl.float32)


@triton.jit
def save(base, rows, columns, width, tile, mask):
    tl.store(base + rows[:, None] * width + columns[None, :], tile, mask=mask[:, None])


@triton.jit
def save_all(base, rows, columns, width, tile):
    tl.store(base + rows[:, None] * width + columns[None, :], tile)


@triton.jit
def column(base, rows, n, mask):
    """One of n numbers a row, as ``[rows, 1]``."""
    return tl.load(base + rows * n, mask=mask, other=0.0)[:, None]


@triton.jit
def dot(a, b, BF16: tl.constexpr):
    """``a @ b`` with a sum in float32, of bf16 numbers, or of float32 ones.

    Of those the matrix units cut off the last 13 bits, which puts a memory some thousandths off. So each product is
    three of bf16, of the upper and lower halves of the numbers: 16 bits, in half of the shared memory that three of
    tf32 take, and at twice their speed.
    """
    if BF16:
        a, b = a.to(tl.bfloat16), b.to(tl.bfloat16)
    if INTERPRETED:
        return tl.dot(a.to(tl.float32), b.to(tl.float32))
    elif BF16:
        return tl.dot(a, b)
    else:
        return tl.dot(a, b, input_precision="bf16x3")


@triton.jit
def activate(z, ACTIVATION: tl.constexpr):
    """``phi, phi', phi''``; what a caller does not use is not computed."""
    if ACTIVATION == "silu":
        p = tl.sigmoid(z)
        x = z * p
        q = 1 - p
        slope = p + x * q
        bend = (slope + p * (1 - x)) * q
    elif ACTIVATION == "gelu":
        p = 0.5 * (1 + tl.erf(z * 0.7071067811865476))
        density = tl.exp(-0.5 * z * z) * 0.3989422804014327
        x = z * p
        slope = p + z * density
        bend = (2 - z * z) * density
    else:
        slope = (z > 0).to(tl.float32)
        x = z * slope
        bend = z * 0
    return x, slope, bend
