"""The gradient of reading: one kernel for all pieces at once. It recomputes what reading found.

Shapes and slices are as in ``forward.py``, names as in the README's section on the backward pass. Signs follow its
formulas: writes enter the memory with a minus.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from titans_core.ops.memory.pieces import Inputs
from titans_core.ops.memory.triton.launch import COUNTS, launch, order, settings, tuned
from titans_core.ops.memory.triton.tiles import (
    activate,
    column,
    dot,
    factor,
    first_token,
    load,
    load_all,
    save,
    save_all,
)


class ReadGradient(NamedTuple):
    """What reading contributes to gradients that storing completes.

    m is n, or n + 1 with a base. dk and ddelta are float32, the others as precise as the tokens.
    """

    dk: Tensor  # [N, P, C, K]
    ddelta: Tensor  # gradient of the errors at the output, [N, P, C, V]
    ddelta1: Tensor | None  # gradient of the errors at the hidden layer, [N, P, C, h]
    dX2: Tensor | None  # gradient of the hidden activations of the keys, [N, P, C, h]
    dWS: list[Tensor]  # gradient of each piece's starting WS and of the base, [N, P, m, d, d'] per layer


def read_backward(
    dy: Tensor,
    q: Tensor,
    k: Tensor,
    G: Tensor,
    read: Tensor,
    WS: list[Tensor],
    anchor: list[Tensor],
    base: list[Tensor],
    delta: Tensor,
    seen: Tensor | None,
    activation: str,
    grads: Inputs,
) -> ReadGradient:
    """Gradient of :func:`titans_core.ops.memory.triton.forward.read_forward`, for ``dy`` ``[B, N C, heads, V]``.

    Writes those of q, G and read to ``grads``.
    """
    N, P, C, V = delta.shape
    K, n, m, h = q.shape[-1], WS[0].shape[2], read.shape[-1], WS[0].shape[-1]

    def new(*shape: int, dtype: torch.dtype = q.dtype) -> Tensor:
        return torch.empty((N, P, *shape), dtype=dtype, device=q.device)

    deep = len(WS) > 1
    found = ReadGradient(
        dk=new(C, K, dtype=torch.float32),
        ddelta=new(C, V, dtype=torch.float32),
        ddelta1=new(C, h) if deep else None,
        dX2=new(C, h) if deep else None,
        dWS=[new(m, *ws.shape[3:]) for ws in WS],
    )
    at = [A.to(q.dtype).contiguous() for A in anchor]
    common = {"P": P, "C": C, "K": K, "V": V, "n": n, **order(q), **settings(C, q, activation, N * P)}
    to = (grads.q, found.dk, grads.c.G, grads.c.read, found.ddelta)
    with torch.cuda.device_of(q):
        if deep:
            inputs = (dy, q, k, G, read, *WS, *at, *(base or (None, None)), delta, seen)
            launch(_read_deep, (N * P,), *inputs, *to, found.ddelta1, found.dX2, *found.dWS, H=h, **common)
        else:
            launch(_read_linear, (N * P,), *(dy, q, k, G, read, WS[0], delta), *to, found.dWS[0], **common)
    return found


@tuned()
@triton.jit(do_not_specialize=COUNTS)
def _read_linear(
    dy_, q_, k_, G_, read_, WS, delta_,
    dq_, dk_, dG_, dread_, ddelta_, dWS,
    P, C, CROWD, HEADS, LENGTH, K: tl.constexpr, V: tl.constexpr, n: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0).to(tl.int64)
    token = first_token(piece // P, piece % P, C, HEADS, LENGTH)
    rows, ks = tl.arange(0, BLOCK_C), tl.arange(0, K)
    steps = rows * HEADS
    mask = rows < C
    square = mask[:, None] & mask[None, :]
    at_square = piece * C * C + rows[:, None] * C + rows[None, :]
    q = load(q_ + token * K, steps, ks, K, mask)
    k = factor(load(k_ + token * K, steps, ks, K, mask), BF16)
    G = tl.load(G_ + at_square, mask=square, other=0.0)
    seen = dot(q, tl.trans(k), BF16)
    a = column(read_ + piece * C * n, rows, n, mask)
    to_read = tl.zeros((BLOCK_C, BLOCK_C), tl.float32)
    at_W = tl.zeros((BLOCK_C, K), tl.float32)
    at_S = tl.zeros((BLOCK_C, K), tl.float32)
    W, dW = WS + piece * n * K * V, dWS + piece * n * K * V
    for first in range(0, V, BLOCK):
        vs = first + tl.arange(0, BLOCK)
        dy = factor(load(dy_ + token * V, steps, vs, V, mask), BF16)
        delta = load(delta_ + piece * C * V, rows, vs, V, mask)
        to_read += dot(dy, tl.trans(delta), BF16)
        save(ddelta_ + piece * C * V, rows, vs, V, -dot(tl.trans(G * seen), dy, BF16), mask)
        at_W += dot(dy, tl.trans(load_all(W, ks, vs, V)), BF16)
        save_all(dW, ks, vs, V, dot(tl.trans(q * a), dy, BF16))
        if n == 2:
            b = column(read_ + piece * C * n + 1, rows, n, mask)
            at_S += dot(dy, tl.trans(load_all(W + K * V, ks, vs, V)), BF16)
            save_all(dW + K * V, ks, vs, V, dot(tl.trans(q * b), dy, BF16))
    tl.store(dG_ + at_square, -to_read * seen, mask=square)
    dseen = factor(-to_read * G, BF16)
    dq = a * at_W + dot(dseen, k, BF16)
    tl.store(dread_ + (piece * C + rows) * n, tl.sum(at_W * q, axis=1), mask=mask)
    if n == 2:
        dq += column(read_ + piece * C * n + 1, rows, n, mask) * at_S
        tl.store(dread_ + (piece * C + rows) * n + 1, tl.sum(at_S * q, axis=1), mask=mask)
    save(dq_ + token * K, steps, ks, K, dq, mask)
    save(dk_ + piece * C * K, rows, ks, K, dot(tl.trans(dseen), q, BF16), mask)


@tuned()
@triton.jit(do_not_specialize=COUNTS)
def _read_deep(
    dy_, q_, k_, G_, read_, WS1, WS2, A1, A2, B1, B2, delta_, seen_,
    dq_, dk_, dG_, dread_, ddelta_, ddelta1_, dX2_, dWS1, dWS2,
    P, C, CROWD, HEADS, LENGTH, K: tl.constexpr, V: tl.constexpr, H: tl.constexpr, n: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0).to(tl.int64)
    token = first_token(piece // P, piece % P, C, HEADS, LENGTH)
    rows, ks, vs = tl.arange(0, BLOCK_C), tl.arange(0, K), tl.arange(0, V)
    steps = rows * HEADS
    mask = rows < C
    square = mask[:, None] & mask[None, :]
    at_square = piece * C * C + rows[:, None] * C + rows[None, :]
    G = tl.load(G_ + at_square, mask=square, other=0.0)
    q, k = load(q_ + token * K, steps, ks, K, mask), load(k_ + token * K, steps, ks, K, mask)
    seen1 = factor(G * dot(q, tl.trans(k), BF16), BF16)
    dy = factor(load(dy_ + token * V, steps, vs, V, mask), BF16)
    delta = factor(load(delta_ + piece * C * V, rows, vs, V, mask), BF16)
    seen2 = tl.load(seen_ + at_square, mask=square, other=0.0)
    save(ddelta_ + piece * C * V, rows, vs, V, -dot(tl.trans(G * seen2), dy, BF16), mask)
    dseen2 = -dot(dy, tl.trans(delta), BF16)
    tl.store(dG_ + at_square, dseen2 * seen2, mask=square)
    dseen2 = factor(dseen2 * G, BF16)
    m: tl.constexpr = n if B1 is None else n + 1

    start1, start2 = WS1 + piece * n * K * H, WS2 + piece * n * H * V
    at1, at2 = start1, start2
    if piece < P:
        at1, at2 = A1 + piece * K * H, A2 + piece * H * V
    dstart1, dstart2 = dWS1 + piece * m * K * H, dWS2 + piece * m * H * V
    # sums over the slices; those of the coefficients are summed over columns at the end only
    to_read1 = tl.zeros((BLOCK_C, BLOCK_C), tl.float32)
    at_W1, at_W2 = tl.zeros((BLOCK_C, K), tl.float32), tl.zeros((BLOCK_C, BLOCK), tl.float32)
    at_S1, at_S2 = tl.zeros((BLOCK_C, K), tl.float32), tl.zeros((BLOCK_C, BLOCK), tl.float32)
    at_B1, at_B2 = tl.zeros((BLOCK_C, K), tl.float32), tl.zeros((BLOCK_C, BLOCK), tl.float32)
    for first in range(0, H, BLOCK):
        hs = first + tl.arange(0, BLOCK)
        # recompute the forward pass; inputs are reloaded per slice, because keeping them would exceed the registers
        q, k = load(q_ + token * K, steps, ks, K, mask), load(k_ + token * K, steps, ks, K, mask)
        dy = factor(load(dy_ + token * V, steps, vs, V, mask), BF16)
        delta = factor(load(delta_ + piece * C * V, rows, vs, V, mask), BF16)
        a = column(read_ + piece * C * m, rows, m, mask)
        x, slope, _ = activate(dot(k, load_all(at1, ks, hs, H), BF16), ACTIVATION)
        delta1 = factor(dot(delta, tl.trans(load_all(at2, hs, vs, V)), BF16) * slope, BF16)
        W1 = factor(load_all(start1, ks, hs, H), BF16)
        qa = factor(q * a, BF16)
        z = dot(qa, W1, BF16) - dot(seen1, delta1, BF16)
        if n == 2:
            b = column(read_ + piece * C * m + 1, rows, m, mask)
            S1 = factor(load_all(start1 + K * H, ks, hs, H), BF16)
            qb = factor(q * b, BF16)
            z += dot(qb, S1, BF16)
        if B1 is not None:
            rest = column(read_ + piece * C * m + n, rows, m, mask)
            base1, base2 = load_all(B1 + piece % P * K * H, ks, hs, H), load_all(B2 + piece % P * H * V, hs, vs, V)
            z += dot(q * rest, base1, BF16)
        hidden, read_slope, _ = activate(z, ACTIVATION)

        # second layer
        at = dot(dy, tl.trans(load_all(start2, hs, vs, V)), BF16)
        at_W2 += at * hidden
        dhidden = a * at + dot(dseen2, x, BF16)
        save_all(dstart2, hs, vs, V, dot(tl.trans(hidden * a), dy, BF16))
        if n == 2:
            at = dot(dy, tl.trans(load_all(start2 + H * V, hs, vs, V)), BF16)
            at_S2 += at * hidden
            dhidden += b * at
            save_all(dstart2 + H * V, hs, vs, V, dot(tl.trans(hidden * b), dy, BF16))
        if B1 is not None:
            at = dot(dy, tl.trans(base2), BF16)
            at_B2 += at * hidden
            dhidden += rest * at
            save_all(dstart2 + n * H * V, hs, vs, V, dot(tl.trans(hidden * rest), dy, BF16))
        save(dX2_ + piece * C * H, rows, hs, H, dot(tl.trans(dseen2), hidden, BF16), mask)

        # first layer
        dz = factor(dhidden * read_slope, BF16)
        to_read1 += dot(dz, tl.trans(delta1), BF16)
        save(ddelta1_ + piece * C * H, rows, hs, H, -dot(tl.trans(seen1), dz, BF16), mask)
        at_W1 += dot(dz, tl.trans(W1), BF16)
        save_all(dstart1, ks, hs, H, dot(tl.trans(qa), dz, BF16))
        if n == 2:
            at_S1 += dot(dz, tl.trans(S1), BF16)
            save_all(dstart1 + K * H, ks, hs, H, dot(tl.trans(qb), dz, BF16))
        if B1 is not None:
            at_B1 += dot(dz, tl.trans(base1), BF16)
            save_all(dstart1 + n * K * H, ks, hs, H, dot(tl.trans(q * rest), dz, BF16))
    tl.debug_barrier()  # dG was stored by other threads
    G = tl.load(G_ + at_square, mask=square, other=0.0)
    q, k = load(q_ + token * K, steps, ks, K, mask), load(k_ + token * K, steps, ks, K, mask)
    dG = tl.load(dG_ + at_square, mask=square, other=0.0) - to_read1 * dot(q, tl.trans(k), BF16)
    tl.store(dG_ + at_square, dG, mask=square)
    dseen1 = factor(-to_read1 * G, BF16)
    dread_ += piece * C * m
    dq = column(read_ + piece * C * m, rows, m, mask) * at_W1 + dot(dseen1, k, BF16)
    tl.store(dread_ + rows * m, tl.sum(at_W1 * q, axis=1) + tl.sum(at_W2, axis=1), mask=mask)
    if n == 2:
        dq += column(read_ + piece * C * m + 1, rows, m, mask) * at_S1
        tl.store(dread_ + rows * m + 1, tl.sum(at_S1 * q, axis=1) + tl.sum(at_S2, axis=1), mask=mask)
    if B1 is not None:
        dq += column(read_ + piece * C * m + n, rows, m, mask) * at_B1
        tl.store(dread_ + rows * m + n, tl.sum(at_B1 * q, axis=1) + tl.sum(at_B2, axis=1), mask=mask)
    save(dq_ + token * K, steps, ks, K, dq, mask)
    save(dk_ + piece * C * K, rows, ks, K, dot(tl.trans(dseen1), q, BF16), mask)
