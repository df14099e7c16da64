"""Backward kernels: one for all reads at once, then one that runs through the pieces from last to first.

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
from titans_core.ops.memory.triton.launch import COUNTS, launch, settings, tuned
from titans_core.ops.memory.triton.tiles import activate, column, dot, load, load_all, save, save_all


class ReadGradient(NamedTuple):
    """What reading contributes to gradients that are complete after :func:`store_backward`; all float32.

    m is n, or n + 1 with a base.
    """

    dk: Tensor  # [N, P, C, K]
    ddelta: Tensor  # gradient of the errors at the output, [N, P, C, V]
    ddelta1: Tensor | None  # gradient of the errors at the hidden layer, [N, P, C, h]
    dX2: Tensor | None  # gradient of the hidden activations of the keys, [N, P, C, h]
    dWS: list[Tensor]  # gradient of each piece's starting WS and of the base, [N, P, m, d, d'] per layer


class StoreGradient(NamedTuple):
    """Gradients of what the first piece starts from; all float32."""

    dstart: list[Tensor]  # gradient of its starting WS and of the base, [P, m, d, d'] per layer
    danchor: list[Tensor]  # gradient of its anchor, [P, d, d'] per layer


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
    """Gradient of :func:`titans_core.ops.memory.triton.forward.read_forward`, for ``dy`` ``[N, P, C, V]``.

    Writes those of q, G and read to ``grads``.
    """
    N, P, C, K = q.shape
    V, n, m, h = delta.shape[-1], WS[0].shape[2], read.shape[-1], WS[0].shape[-1]

    def new(*shape: int) -> Tensor:
        return torch.empty((N, P, *shape), dtype=torch.float32, device=q.device)

    deep = len(WS) > 1
    found = ReadGradient(
        dk=new(C, K),
        ddelta=new(C, V),
        ddelta1=new(C, h) if deep else None,
        dX2=new(C, h) if deep else None,
        dWS=[new(m, *ws.shape[3:]) for ws in WS],
    )
    common = {"P": P, "C": C, "K": K, "V": V, "n": n, **settings(C, q, activation, N * P)}
    to = (grads.q, found.dk, grads.c.G, grads.c.read, found.ddelta)
    with torch.cuda.device_of(q):
        if deep:
            inputs = (dy, q, k, G, read, *WS, *anchor, *(base or (None, None)), delta, seen)
            launch(_read_deep, (N * P,), *inputs, *to, found.ddelta1, found.dX2, *found.dWS, H=h, **common)
        else:
            launch(_read_linear, (N * P,), *(dy, q, k, G, read, WS[0], delta), *to, found.dWS[0], **common)
    return found


def store_backward(
    k: Tensor,
    write: Tensor,
    carry: Tensor,
    WS: list[Tensor],
    anchor: list[Tensor],
    base: list[Tensor],
    delta: Tensor,
    read: ReadGradient,
    dend: list[Tensor],
    activation: str,
    grads: Inputs,
) -> StoreGradient:
    """Gradient of :func:`titans_core.ops.memory.triton.forward.store_forward`.

    Writes those of k, v, write and carry to ``grads``.

    Args:
        read: contribution of reading.
        dend: gradient of the final ``WS``, and of the base from its other uses, ``[P, m, d, d']`` per layer.
    """
    N, P, C, K = k.shape
    V, n, h = delta.shape[-1], write.shape[-1], WS[0].shape[-1]

    def new(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=k.device)

    # gradients passed from piece to piece: read from one half, written to the other
    flow = [new(2, *d.shape) for d in dend]
    for f, d in zip(flow, dend, strict=True):
        f[N % 2].copy_(d)
    found = StoreGradient([f[0] for f in flow], [new(*A.shape) for A in anchor])
    to = (grads.k, grads.v, grads.c.write, grads.c.carry, *found.danchor)
    common = {"N": N, "P": P, "C": C, "K": K, "V": V, "n": n, **settings(C, k, activation, P)}
    inputs = (k, write, carry, *WS, *anchor)
    gradients = (delta, read.dk, read.ddelta)
    with torch.cuda.device_of(k):
        if len(WS) == 1:
            launch(_store_linear, (P,), *inputs, *gradients, read.dWS[0], flow[0], *to, **common)
        else:
            gradients = (*(base or (None, None)), *gradients, read.ddelta1, read.dX2, *read.dWS, *flow)
            launch(_store_deep, (P,), *inputs, *gradients, *to, H=h, **common)
    return found


@tuned()
@triton.jit(do_not_specialize=COUNTS)
def _read_linear(
    dy_, q_, k_, G_, read_, WS, delta_,
    dq_, dk_, dG_, dread_, ddelta_, dWS,
    P, C, CROWD, K: tl.constexpr, V: tl.constexpr, n: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0).to(tl.int64)
    rows, ks = tl.arange(0, BLOCK_C), tl.arange(0, K)
    mask = rows < C
    square = mask[:, None] & mask[None, :]
    at_square = piece * C * C + rows[:, None] * C + rows[None, :]
    q = load(q_ + piece * C * K, rows, ks, K, mask)
    k = load(k_ + piece * C * K, rows, ks, K, mask)
    G = tl.load(G_ + at_square, mask=square, other=0.0)
    seen = dot(q, tl.trans(k), BF16)
    a = column(read_ + piece * C * n, rows, n, mask)
    da = tl.zeros((BLOCK_C,), tl.float32)
    db = tl.zeros((BLOCK_C,), tl.float32)
    to_read = tl.zeros((BLOCK_C, BLOCK_C), tl.float32)
    dq = tl.zeros((BLOCK_C, K), tl.float32)
    W, dW = WS + piece * n * K * V, dWS + piece * n * K * V
    for first in range(0, V, BLOCK):
        vs = first + tl.arange(0, BLOCK)
        dy = load(dy_ + piece * C * V, rows, vs, V, mask)
        delta = load(delta_ + piece * C * V, rows, vs, V, mask)
        to_read += dot(dy, tl.trans(delta), BF16)
        save(ddelta_ + piece * C * V, rows, vs, V, -dot(tl.trans(G * seen), dy, BF16), mask)
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
    tl.store(dG_ + at_square, -to_read * seen, mask=square)
    dseen = -to_read * G
    save(dq_ + piece * C * K, rows, ks, K, dq + dot(dseen, k, BF16), mask)
    save(dk_ + piece * C * K, rows, ks, K, dot(tl.trans(dseen), q, BF16), mask)
    tl.store(dread_ + (piece * C + rows) * n, da, mask=mask)
    if n == 2:
        tl.store(dread_ + (piece * C + rows) * n + 1, db, mask=mask)


@tuned()
@triton.jit(do_not_specialize=COUNTS)
def _read_deep(
    dy_, q_, k_, G_, read_, WS1, WS2, A1, A2, B1, B2, delta_, seen_,
    dq_, dk_, dG_, dread_, ddelta_, ddelta1_, dX2_, dWS1, dWS2,
    P, C, CROWD, K: tl.constexpr, V: tl.constexpr, H: tl.constexpr, n: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0).to(tl.int64)
    rows, ks, vs = tl.arange(0, BLOCK_C), tl.arange(0, K), tl.arange(0, V)
    mask = rows < C
    square = mask[:, None] & mask[None, :]
    at_square = piece * C * C + rows[:, None] * C + rows[None, :]
    G = tl.load(G_ + at_square, mask=square, other=0.0)
    q, k = load(q_ + piece * C * K, rows, ks, K, mask), load(k_ + piece * C * K, rows, ks, K, mask)
    seen1 = G * dot(q, tl.trans(k), BF16)
    dy, delta = load(dy_ + piece * C * V, rows, vs, V, mask), load(delta_ + piece * C * V, rows, vs, V, mask)
    seen2 = tl.load(seen_ + at_square, mask=square, other=0.0)
    save(ddelta_ + piece * C * V, rows, vs, V, -dot(tl.trans(G * seen2), dy, BF16), mask)
    dseen2 = -dot(dy, tl.trans(delta), BF16)
    tl.store(dG_ + at_square, dseen2 * seen2, mask=square)
    dseen2 *= G
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
        # recompute the forward pass; inputs are reloaded per slice, because keeping them would exceed the registers
        q, k = load(q_ + piece * C * K, rows, ks, K, mask), load(k_ + piece * C * K, rows, ks, K, mask)
        dy, delta = load(dy_ + piece * C * V, rows, vs, V, mask), load(delta_ + piece * C * V, rows, vs, V, mask)
        a = column(read_ + piece * C * m, rows, m, mask)
        x, slope, _ = activate(dot(k, load_all(at1, ks, hs, H), BF16), ACTIVATION)
        delta1 = dot(delta, tl.trans(load_all(at2, hs, vs, V)), BF16) * slope
        W1 = load_all(start1, ks, hs, H)
        z = dot(q * a, W1, BF16) - dot(seen1, delta1, BF16)
        if n == 2:
            b = column(read_ + piece * C * m + 1, rows, m, mask)
            S1 = load_all(start1 + K * H, ks, hs, H)
            z += dot(q * b, S1, BF16)
        if B1 is not None:
            rest = column(read_ + piece * C * m + n, rows, m, mask)
            base1, base2 = load_all(B1 + piece % P * K * H, ks, hs, H), load_all(B2 + piece % P * H * V, hs, vs, V)
            z += dot(q * rest, base1, BF16)
        hidden, read_slope, _ = activate(z, ACTIVATION)

        # second layer
        at = dot(dy, tl.trans(load_all(start2, hs, vs, V)), BF16)
        da += tl.sum(at * hidden, axis=1)
        dhidden = a * at + dot(dseen2, x, BF16)
        save_all(dstart2, hs, vs, V, dot(tl.trans(hidden * a), dy, BF16))
        if n == 2:
            at = dot(dy, tl.trans(load_all(start2 + H * V, hs, vs, V)), BF16)
            db += tl.sum(at * hidden, axis=1)
            dhidden += b * at
            save_all(dstart2 + H * V, hs, vs, V, dot(tl.trans(hidden * b), dy, BF16))
        if B1 is not None:
            at = dot(dy, tl.trans(base2), BF16)
            drest += tl.sum(at * hidden, axis=1)
            dhidden += rest * at
            save_all(dstart2 + n * H * V, hs, vs, V, dot(tl.trans(hidden * rest), dy, BF16))
        save(dX2_ + piece * C * H, rows, hs, H, dot(tl.trans(dseen2), hidden, BF16), mask)

        # first layer
        dz = dhidden * read_slope
        to_read1 += dot(dz, tl.trans(delta1), BF16)
        save(ddelta1_ + piece * C * H, rows, hs, H, -dot(tl.trans(seen1), dz, BF16), mask)
        at = dot(dz, tl.trans(W1), BF16)
        da += tl.sum(at * q, axis=1)
        dq += a * at
        save_all(dstart1, ks, hs, H, dot(tl.trans(q * a), dz, BF16))
        if n == 2:
            at = dot(dz, tl.trans(S1), BF16)
            db += tl.sum(at * q, axis=1)
            dq += b * at
            save_all(dstart1 + K * H, ks, hs, H, dot(tl.trans(q * b), dz, BF16))
        if B1 is not None:
            at = dot(dz, tl.trans(base1), BF16)
            drest += tl.sum(at * q, axis=1)
            dq += rest * at
            save_all(dstart1 + n * K * H, ks, hs, H, dot(tl.trans(q * rest), dz, BF16))
    tl.debug_barrier()  # dG was stored by other threads
    G = tl.load(G_ + at_square, mask=square, other=0.0)
    q, k = load(q_ + piece * C * K, rows, ks, K, mask), load(k_ + piece * C * K, rows, ks, K, mask)
    dG = tl.load(dG_ + at_square, mask=square, other=0.0) - to_read1 * dot(q, tl.trans(k), BF16)
    tl.store(dG_ + at_square, dG, mask=square)
    dseen1 = -to_read1 * G
    save(dq_ + piece * C * K, rows, ks, K, dq + dot(dseen1, k, BF16), mask)
    save(dk_ + piece * C * K, rows, ks, K, dot(tl.trans(dseen1), q, BF16), mask)
    tl.store(dread_ + (piece * C + rows) * m, da, mask=mask)
    if n == 2:
        tl.store(dread_ + (piece * C + rows) * m + 1, db, mask=mask)
    if B1 is not None:
        tl.store(dread_ + (piece * C + rows) * m + n, drest, mask=mask)


@tuned("flow")
@triton.jit(do_not_specialize=COUNTS)
def _store_linear(
    k_, write_, carry_, WS, A, delta_, dk_read, ddelta_read, dWS_read, flow,
    dk_, dv_, dwrite_, dcarry_, dA,
    N, P, C, CROWD, K: tl.constexpr, V: tl.constexpr, n: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(0).to(tl.int64)
    rows, ks = tl.arange(0, BLOCK_C), tl.arange(0, K)
    mask = rows < C
    for back in tl.range(0, N, num_stages=1):
        i = N - 1 - back
        piece = i * P + p
        k = load(k_ + piece * C * K, rows, ks, K, mask)
        g = column(write_ + piece * C * n, rows, n, mask)
        carry = carry_ + piece * (2 * n - 1)
        a = tl.load(carry)
        start = WS + piece * n * K * V
        at_A = start
        if i == 0:
            at_A = A + p * K * V
        old, new = flow + (((i + 1) % 2) * P + p) * n * K * V, flow + ((i % 2) * P + p) * n * K * V
        dk = load(dk_read + piece * C * K, rows, ks, K, mask)
        dg = tl.zeros((BLOCK_C,), tl.float32)
        ds = tl.zeros((BLOCK_C,), tl.float32)
        da = 0.0
        db = 0.0
        de = 0.0
        for first in range(0, V, BLOCK):
            vs = first + tl.arange(0, BLOCK)
            delta = load(delta_ + piece * C * V, rows, vs, V, mask)
            ddelta = load(ddelta_read + piece * C * V, rows, vs, V, mask)
            dW = load_all(old, ks, vs, V)
            ddelta -= dot(k * g, dW, BF16)
            at = dot(delta, tl.trans(dW), BF16)
            dg -= tl.sum(at * k, axis=1)
            dk -= g * at
            da += tl.sum(dW * load_all(start, ks, vs, V))
            dW_new = a * dW + load_all(dWS_read + piece * n * K * V, ks, vs, V)
            if n == 2:
                s = column(write_ + piece * C * n + 1, rows, n, mask)
                b, e = tl.load(carry + 1), tl.load(carry + 2)
                dS = load_all(old + K * V, ks, vs, V)
                ddelta -= dot(k * s, dS, BF16)
                at = dot(delta, tl.trans(dS), BF16)
                ds -= tl.sum(at * k, axis=1)
                dk -= s * at
                S = load_all(start + K * V, ks, vs, V)
                db += tl.sum(dW * S)
                de += tl.sum(dS * S)
                dS_new = b * dW + e * dS + load_all(dWS_read + (piece * n + 1) * K * V, ks, vs, V)
                save_all(new + K * V, ks, vs, V, dS_new)
            save(dv_ + piece * C * V, rows, vs, V, -ddelta, mask)
            dk += dot(ddelta, tl.trans(load_all(at_A, ks, vs, V)), BF16)
            at_anchor = dot(tl.trans(k), ddelta, BF16)
            if i == 0:
                save_all(dA + p * K * V, ks, vs, V, at_anchor)
            else:
                dW_new += at_anchor
            save_all(new, ks, vs, V, dW_new)
        save(dk_ + piece * C * K, rows, ks, K, dk, mask)
        tl.store(dwrite_ + (piece * C + rows) * n, dg, mask=mask)
        dcarry = dcarry_ + piece * (2 * n - 1)
        tl.store(dcarry, da)
        if n == 2:
            tl.store(dwrite_ + (piece * C + rows) * n + 1, ds, mask=mask)
            tl.store(dcarry + 1, db)
            tl.store(dcarry + 2, de)
        tl.debug_barrier()  # the previous piece reads what other threads wrote here


@tuned("flow1", "flow2")
@triton.jit(do_not_specialize=COUNTS)
def _store_deep(
    k_, write_, carry_, WS1, WS2, A1, A2, B1, B2, delta_, dk_read, ddelta_read,
    ddelta1_read, dX2_read, dWS1_read, dWS2_read, flow1, flow2,
    dk_, dv_, dwrite_, dcarry_, dA1, dA2,
    N, P, C, CROWD, K: tl.constexpr, V: tl.constexpr, H: tl.constexpr, n: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(0).to(tl.int64)
    rows, ks, vs = tl.arange(0, BLOCK_C), tl.arange(0, K), tl.arange(0, V)
    mask = rows < C
    m: tl.constexpr = n if B1 is None else n + 1
    WIDE: tl.constexpr = not BF16 and BLOCK_C * (K if K > V else V) > 128 * 64
    for back in tl.range(0, N, num_stages=1):
        i = N - 1 - back
        piece = i * P + p
        k = load(k_ + piece * C * K, rows, ks, K, mask)
        delta = load(delta_ + piece * C * V, rows, vs, V, mask)
        g = column(write_ + piece * C * n, rows, n, mask)
        carry = carry_ + piece * (2 * n - 1 if B1 is None else 2 * n)
        a = tl.load(carry)
        start1, start2 = WS1 + piece * n * K * H, WS2 + piece * n * H * V
        at1, at2 = start1, start2
        if i == 0:
            at1, at2 = A1 + p * K * H, A2 + p * H * V
        old1, new1 = flow1 + (((i + 1) % 2) * P + p) * m * K * H, flow1 + ((i % 2) * P + p) * m * K * H
        old2, new2 = flow2 + (((i + 1) % 2) * P + p) * m * H * V, flow2 + ((i % 2) * P + p) * m * H * V

        # the errors; the one at the output sums over all slices
        ddelta = load(ddelta_read + piece * C * V, rows, vs, V, mask)
        for first in range(0, H, BLOCK):
            hs = first + tl.arange(0, BLOCK)
            if WIDE:  # reload: keeping tiles across all slices would exceed the shared memory
                k = load(k_ + piece * C * K, rows, ks, K, mask)
            x, slope, _ = activate(dot(k, load_all(at1, ks, hs, H), BF16), ACTIVATION)
            ddelta1 = load(ddelta1_read + piece * C * H, rows, hs, H, mask)
            ddelta1 -= dot(k * g, load_all(old1, ks, hs, H), BF16)
            ddelta -= dot(x * g, load_all(old2, hs, vs, V), BF16)
            if n == 2:
                s = column(write_ + piece * C * n + 1, rows, n, mask)
                ddelta1 -= dot(k * s, load_all(old1 + K * H, ks, hs, H), BF16)
                ddelta -= dot(x * s, load_all(old2 + H * V, hs, vs, V), BF16)
            ddelta += dot(ddelta1 * slope, load_all(at2, hs, vs, V), BF16)
        save(dv_ + piece * C * V, rows, vs, V, -ddelta, mask)

        # the activations, writing and carrying
        dk = load(dk_read + piece * C * K, rows, ks, K, mask)
        dg = tl.zeros((BLOCK_C,), tl.float32)
        ds = tl.zeros((BLOCK_C,), tl.float32)
        da = 0.0
        db = 0.0
        de = 0.0
        drest = 0.0
        for first in range(0, H, BLOCK):
            hs = first + tl.arange(0, BLOCK)
            if WIDE:
                k = load(k_ + piece * C * K, rows, ks, K, mask)
                delta = load(delta_ + piece * C * V, rows, vs, V, mask)
            A1_s, A2_s = load_all(at1, ks, hs, H), load_all(at2, hs, vs, V)
            x, slope, bend = activate(dot(k, A1_s, BF16), ACTIVATION)
            error = dot(delta, tl.trans(A2_s), BF16)
            dW1, dW2 = load_all(old1, ks, hs, H), load_all(old2, hs, vs, V)
            ddelta1 = load(ddelta1_read + piece * C * H, rows, hs, H, mask) - dot(k * g, dW1, BF16)
            dx = load(dX2_read + piece * C * H, rows, hs, H, mask) + dot(ddelta, tl.trans(A2_s), BF16)

            at = dot(delta, tl.trans(dW2), BF16)
            dg -= tl.sum(at * x, axis=1)
            dx -= g * at
            at = dot(error * slope, tl.trans(dW1), BF16)
            dg -= tl.sum(at * k, axis=1)
            dk -= g * at
            da += tl.sum(dW1 * load_all(start1, ks, hs, H)) + tl.sum(dW2 * load_all(start2, hs, vs, V))
            dW1_new = a * dW1 + load_all(dWS1_read + piece * m * K * H, ks, hs, H)
            dW2_new = a * dW2 + load_all(dWS2_read + piece * m * H * V, hs, vs, V)
            if n == 2:
                s = column(write_ + piece * C * n + 1, rows, n, mask)
                b, e = tl.load(carry + 1), tl.load(carry + 2)
                dS1, dS2 = load_all(old1 + K * H, ks, hs, H), load_all(old2 + H * V, hs, vs, V)
                ddelta1 -= dot(k * s, dS1, BF16)
                at = dot(delta, tl.trans(dS2), BF16)
                ds -= tl.sum(at * x, axis=1)
                dx -= s * at
                at = dot(error * slope, tl.trans(dS1), BF16)
                ds -= tl.sum(at * k, axis=1)
                dk -= s * at
                S1, S2 = load_all(start1 + K * H, ks, hs, H), load_all(start2 + H * V, hs, vs, V)
                db += tl.sum(dW1 * S1) + tl.sum(dW2 * S2)
                de += tl.sum(dS1 * S1) + tl.sum(dS2 * S2)
                dS1 = b * dW1 + e * dS1 + load_all(dWS1_read + (piece * m + 1) * K * H, ks, hs, H)
                dS2 = b * dW2 + e * dS2 + load_all(dWS2_read + (piece * m + 1) * H * V, hs, vs, V)
                save_all(new1 + K * H, ks, hs, H, dS1)
                save_all(new2 + H * V, hs, vs, V, dS2)
            if B1 is not None:
                rest = tl.load(carry + 2 * n - 1)
                drest += tl.sum(dW1 * load_all(B1 + p * K * H, ks, hs, H))
                drest += tl.sum(dW2 * load_all(B2 + p * H * V, hs, vs, V))
                dB1 = load_all(old1 + n * K * H, ks, hs, H) + rest * dW1
                dB2 = load_all(old2 + n * H * V, hs, vs, V) + rest * dW2
                dB1 += load_all(dWS1_read + (piece * m + n) * K * H, ks, hs, H)
                dB2 += load_all(dWS2_read + (piece * m + n) * H * V, hs, vs, V)
                save_all(new1 + n * K * H, ks, hs, H, dB1)
                save_all(new2 + n * H * V, hs, vs, V, dB2)
            dz = dx * slope + ddelta1 * error * bend
            dk += dot(dz, tl.trans(A1_s), BF16)
            at_A1 = dot(tl.trans(k), dz, BF16)
            at_A2 = dot(tl.trans(ddelta1 * slope), delta, BF16)
            at_A2 += dot(tl.trans(x), ddelta, BF16)
            if i == 0:
                save_all(dA1 + p * K * H, ks, hs, H, at_A1)
                save_all(dA2 + p * H * V, hs, vs, V, at_A2)
            else:
                dW1_new += at_A1
                dW2_new += at_A2
            save_all(new1, ks, hs, H, dW1_new)
            save_all(new2, hs, vs, V, dW2_new)
        save(dk_ + piece * C * K, rows, ks, K, dk, mask)
        tl.store(dwrite_ + (piece * C + rows) * n, dg, mask=mask)
        dcarry = dcarry_ + piece * (2 * n - 1 if B1 is None else 2 * n)
        tl.store(dcarry, da)
        if n == 2:
            tl.store(dwrite_ + (piece * C + rows) * n + 1, ds, mask=mask)
            tl.store(dcarry + 1, db)
            tl.store(dcarry + 2, de)
        if B1 is not None:
            tl.store(dcarry + 2 * n - 1, drest)
        tl.debug_barrier()  # the previous piece reads what other threads wrote here
