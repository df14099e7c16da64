"""Helpers shared by the kernels: tile loads and stores, products, and the activation with its derivatives.

A tile is ``[rows, columns]`` of a row-major matrix. Rows past the end of a piece are loaded as zeros, which contribute
nothing to any product, and are not stored.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

import os

import triton
import triton.language as tl

# Triton's interpreter treats bf16 bits as integers and does not support "bf16x3". There, products run in float32: equal
# to bf16 products, and nearly equal to bf16x3 ones, which have tests of their own.
INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.jit
def first_token(i, p, C, HEADS, LENGTH):
    """Row of the first token of piece i of memory p in tokens ``[B, LENGTH, HEADS, d]``; the next is HEADS further."""
    return (p // HEADS * LENGTH + i * C) * HEADS + p % HEADS


@triton.jit
def load(base, rows, columns, width, mask):
    """Load the tile at these rows and columns."""
    return tl.load(base + rows[:, None] * width + columns[None, :], mask=mask[:, None], other=0.0)


@triton.jit
def load_all(base, rows, columns, width):
    """Load a tile with no row past the end."""
    return tl.load(base + rows[:, None] * width + columns[None, :])


@triton.jit
def save(base, rows, columns, width, tile, mask):
    tl.store(base + rows[:, None] * width + columns[None, :], tile, mask=mask[:, None])


@triton.jit
def save_all(base, rows, columns, width, tile):
    tl.store(base + rows[:, None] * width + columns[None, :], tile)


@triton.jit
def load_turned(base, rows, columns, width):
    """Load a tile of the second layer as ``[columns, rows]``.

    Triton gives each warp other rows of a product. A product of a piece and a memory's keys or values has rows enough;
    a slice of the hidden layer has fewer, and several warps would hold and compute the same.
    """
    return tl.trans(load_all(base, rows, columns, width))


@triton.jit
def save_turned(base, rows, columns, width, tile):
    """Save a tile of the second layer that is held as ``[columns, rows]``."""
    save_all(base, rows, columns, width, tl.trans(tile))


@triton.jit
def column(base, rows, n, mask):
    """Load one of n numbers per row, as ``[rows, 1]``."""
    return tl.load(base + rows * n, mask=mask, other=0.0)[:, None]


@triton.jit
def again(tile):
    """The same tile, from which the compiler computes again what it would keep in registers since an earlier use."""
    if not INTERPRETED:
        tile = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=f,f", [tile], tl.float32, is_pure=False, pack=1)
    return tile


@triton.jit
def factor(tile, BF16: tl.constexpr):
    """A tile as it enters products.

    Left alone, Triton orders a tile for ``mma.sync`` as soon as it is loaded, in float32, with a copy for every warp,
    which takes more registers than there are. It does not look behind an assembler instruction, so it orders the
    rounded tile.
    """
    if tile.dtype == tl.float32:
        tile = again(tile)
    if BF16:
        tile = tile.to(tl.bfloat16)
    return tile


@triton.jit
def dot(a, b, BF16: tl.constexpr):
    """``a @ b`` of bf16 or float32 numbers, accumulated in float32.

    For float32 inputs, tf32 would drop the last 13 bits, which puts a memory off by some thousandths. Each product is
    instead computed as three bf16 products of the upper and lower halves of the numbers. This keeps 16 bits, uses half
    the shared memory of three tf32 products, and is twice as fast.
    """
    a, b = factor(a, BF16), factor(b, BF16)
    if INTERPRETED:
        return tl.dot(a.to(tl.float32), b.to(tl.float32))
    elif BF16:
        return tl.dot(a, b)
    else:
        return tl.dot(a, b, input_precision="bf16x3")


@triton.jit
def activate(z, ACTIVATION: tl.constexpr):
    """``phi, phi', phi''``. The compiler removes those that a caller does not use."""
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
