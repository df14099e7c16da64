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
    again,
    column,
    dot,
    factor,
    first_token,
    load,
    load_all,
    save,
    save_all,
    save_turned,
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
    common = {"P": P, "C": C, "K": K, "V": V, "n": n, **order(q), **settings(C, q, N * P)}
    to = (grads.q, found.dk, grads.c.G, grads.c.read, found.ddelta)
    with torch.cuda.device_of(q):
        if deep:
            inputs = (dy, q, k, G, read, *WS, *anchor, *(base or (None, None)), delta, seen)
            common |= {"H": h, "ACTIVATION": activation}
            launch(_read_deep, (N * P,), *inputs, *to, found.ddelta1, found.dX2, *found.dWS, **common)
        else:
            launch(_read_linear, (N * P,), *(dy, q, k, G, read, WS[0], delta), *to, found.dWS[0], **common)
    return found


@tuned()
@triton.jit(do_not_specialize=COUNTS)
def _read_linear(
    dy_, q_, k_, G_, read_, WS, delta_,
    dq_, dk_, dG_, dread_, ddelta_, dWS,
    P, C, CROWD, HEADS, LENGTH, K: tl.constexpr, V: tl.constexpr, n: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0).to(tl.int64)
    token = first_token(piece // P, piece % P, C, HEADS, LENGTH)
    rows, ks = tl.arange(0, BLOCK_C), tl.arange(0, K)
    steps = rows * HEADS
    mask = rows < C
    square = mask[:, None] & mask[None, :]
    at_square = piece * C * C + rows[:, None] * C + rows[None, :]
    q = load(q_ + token * K, steps, ks, K, mask)
    k = load(k_ + token * K, steps, ks, K, mask)
    seen = factor(dot(q, tl.trans(k), BF16) * tl.load(G_ + at_square, mask=square, other=0.0), BF16)
    a = column(read_ + piece * C * n, rows, n, mask)
    to_read = tl.zeros((BLOCK_C, BLOCK_C), tl.float32)
    dq = tl.zeros((BLOCK_C, K), tl.float32)
    da = tl.zeros((BLOCK_C,), tl.float32)
    db = tl.zeros((BLOCK_C,), tl.float32)
    W, dW = WS + piece * n * K * V, dWS + piece * n * K * V
    for first in range(0, V, BLOCK):
        vs = first + tl.arange(0, BLOCK)
        dy = factor(load(dy_ + token * V, steps, vs, V, mask), BF16)
        delta = load(delta_ + piece * C * V, rows, vs, V, mask)
        to_read += dot(dy, tl.trans(delta), BF16)
        save(ddelta_ + piece * C * V, rows, vs, V, -dot(tl.trans(seen), dy, BF16), mask)
        at = dot(dy, tl.trans(load_all(W, ks, vs, V)), BF16)
        dq += a * at
        da += tl.sum(at * q, axis=1)
        save_all(dW, ks, vs, V, dot(tl.trans(q * a), dy, BF16))
        if n == 2:
            b = column(read_ + piece * C * n + 1, rows, n, mask)
            at = dot(dy, tl.trans(load_all(W + K * V, ks, vs, V)), BF16)
            dq += b * at
            db += tl.sum(at * q, axis=1)
            save_all(dW + K * V, ks, vs, V, dot(tl.trans(q * b), dy, BF16))
    q, k = load(q_ + token * K, steps, ks, K, mask), load(k_ + token * K, steps, ks, K, mask)
    tl.store(dG_ + at_square, -to_read * dot(q, tl.trans(k), BF16), mask=square)
    dseen = factor(-to_read * tl.load(G_ + at_square, mask=square, other=0.0), BF16)
    save(dq_ + token * K, steps, ks, K, dq + dot(dseen, k, BF16), mask)
    tl.store(dread_ + (piece * C + rows) * n, da, mask=mask)
    if n == 2:
        tl.store(dread_ + (piece * C + rows) * n + 1, db, mask=mask)
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
    dy, delta = load(dy_ + token * V, steps, vs, V, mask), load(delta_ + piece * C * V, rows, vs, V, mask)
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
    da = tl.zeros((BLOCK_C,), tl.float32)
    db = tl.zeros((BLOCK_C,), tl.float32)
    drest = tl.zeros((BLOCK_C,), tl.float32)
    to_read1 = tl.zeros((BLOCK_C, BLOCK_C), tl.float32)
    dq = tl.zeros((BLOCK_C, K), tl.float32)
    for first in range(0, H, BLOCK):
        hs = first + tl.arange(0, BLOCK)
        # recompute the forward pass; what is loaded or computed again would take too many registers if it were kept
        a = column(read_ + piece * C * m, rows, m, mask)
        x, slope, _ = activate(
            dot(load(k_ + token * K, steps, ks, K, mask), load_all(at1, ks, hs, H), BF16), ACTIVATION
        )
        dhidden = dot(dseen2, x, BF16)
        delta1 = dot(load(delta_ + piece * C * V, rows, vs, V, mask), tl.trans(load_all(at2, hs, vs, V)), BF16) * slope
        delta1 = factor(delta1, BF16)
        q = load(q_ + token * K, steps, ks, K, mask)
        z = dot(q * a, load_all(start1, ks, hs, H), BF16) - dot(seen1, delta1, BF16)
        if n == 2:
            b = column(read_ + piece * C * m + 1, rows, m, mask)
            z += dot(q * b, load_all(start1 + K * H, ks, hs, H), BF16)
        if B1 is not None:
            rest = column(read_ + piece * C * m + n, rows, m, mask)
            z += dot(q * rest, load_all(B1 + piece % P * K * H, ks, hs, H), BF16)
        hidden, _, _ = activate(z, ACTIVATION)

        # second layer
        save(dX2_ + piece * C * H, rows, hs, H, dot(tl.trans(dseen2), hidden, BF16), mask)
        dy = load(dy_ + token * V, steps, vs, V, mask)
        at = dot(dy, tl.trans(load_all(start2, hs, vs, V)), BF16)
        da += tl.sum(at * hidden, axis=1)
        dhidden += a * at
        save_turned(dstart2, hs, vs, V, dot(tl.trans(dy), hidden * a, BF16))
        if n == 2:
            at = dot(dy, tl.trans(load_all(start2 + H * V, hs, vs, V)), BF16)
            db += tl.sum(at * hidden, axis=1)
            dhidden += b * at
            save_turned(dstart2 + H * V, hs, vs, V, dot(tl.trans(dy), hidden * b, BF16))
        if B1 is not None:
            at = dot(dy, tl.trans(load_all(B2 + piece % P * H * V, hs, vs, V)), BF16)
            drest += tl.sum(at * hidden, axis=1)
            dhidden += rest * at
            save_turned(dstart2 + n * H * V, hs, vs, V, dot(tl.trans(dy), hidden * rest, BF16))

        # first layer
        _, slope, _ = activate(again(z), ACTIVATION)
        dz = factor(dhidden * slope, BF16)
        to_read1 += dot(dz, tl.trans(delta1), BF16)
        save(ddelta1_ + piece * C * H, rows, hs, H, -dot(tl.trans(seen1), dz, BF16), mask)
        q = load(q_ + token * K, steps, ks, K, mask)
        at = dot(dz, tl.trans(load_all(start1, ks, hs, H)), BF16)
        da += tl.sum(at * q, axis=1)
        dq += a * at
        save_all(dstart1, ks, hs, H, dot(tl.trans(q * a), dz, BF16))
        if n == 2:
            at = dot(dz, tl.trans(load_all(start1 + K * H, ks, hs, H)), BF16)
            db += tl.sum(at * q, axis=1)
            dq += b * at
            save_all(dstart1 + K * H, ks, hs, H, dot(tl.trans(q * b), dz, BF16))
        if B1 is not None:
            at = dot(dz, tl.trans(load_all(B1 + piece % P * K * H, ks, hs, H)), BF16)
            drest += tl.sum(at * q, axis=1)
            dq += rest * at
            save_all(dstart1 + n * K * H, ks, hs, H, dot(tl.trans(q * rest), dz, BF16))
    tl.debug_barrier()  # dG was stored by other threads
    G = tl.load(G_ + at_square, mask=square, other=0.0)
    q, k = load(q_ + token * K, steps, ks, K, mask), load(k_ + token * K, steps, ks, K, mask)
    dG = tl.load(dG_ + at_square, mask=square, other=0.0) - to_read1 * dot(q, tl.trans(k), BF16)
    tl.store(dG_ + at_square, dG, mask=square)
    dseen1 = factor(-to_read1 * G, BF16)
    save(dq_ + token * K, steps, ks, K, dq + dot(dseen1, k, BF16), mask)
    save(dk_ + piece * C * K, rows, ks, K, dot(tl.trans(dseen1), q, BF16), mask)
    tl.store(dread_ + (piece * C + rows) * m, da, mask=mask)
    if n == 2:
        tl.store(dread_ + (piece * C + rows) * m + 1, db, mask=mask)
    if B1 is not None:
        tl.store(dread_ + (piece * C + rows) * m + n, drest, mask=mask)
