"""The gradient of storing: one kernel runs through the pieces from last to first, then one goes through all at once.

The first, ``_flow``, does only what the next piece waits for. It leaves the gradient of each piece's final WS, from
which the second, ``_write``, finds those of the keys and coefficients. Shapes and slices are as in ``forward.py``,
names as in the README's section on the backward pass. Signs follow its formulas: writes enter the memory with a minus.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from titans_core.ops.memory.pieces import Inputs
from titans_core.ops.memory.triton.exchange import FINISH, PUBLISH, collected, in_turns, meeting, publish, rows_of_first
from titans_core.ops.memory.triton.launch import COUNTS, choices_of, launch, meeting_slices, order, settings, tuned
from titans_core.ops.memory.triton.read_backward import ReadGradient
from titans_core.ops.memory.triton.tiles import (
    activate,
    again,
    column,
    dot,
    factor,
    first_token,
    load,
    load_all,
    load_turned,
    save,
    save_all,
    save_turned,
)


def store_backward(
    k: Tensor,
    write: Tensor,
    carry: Tensor,
    WS: list[Tensor],
    anchor: list[Tensor],
    base: list[Tensor],
    delta: Tensor,
    read: ReadGradient,
    flow: list[Tensor],
    activation: str,
    grads: Inputs,
) -> list[Tensor]:
    """Gradient of :func:`titans_core.ops.memory.triton.forward.store_forward`.

    Writes those of k, v, write and carry to ``grads``.

    Args:
        read: contribution of reading.
        flow: gradient of the final ``WS``, and of the base from its other uses, float32 ``[P, m, d, d']`` per layer.
            Becomes that of the starting ``WS`` and of the base.

    Returns:
        Gradient of the first piece's anchor, float32 ``[P, d, d']`` per layer.
    """
    N, P, C, V = delta.shape
    K, n, h = k.shape[-1], write.shape[-1], WS[0].shape[-1]
    danchor = [torch.empty_like(A, dtype=torch.float32) for A in anchor]
    dWS = [torch.empty_like(ws) for ws in WS]  # gradient of each piece's final WS
    common: dict[str, Any] = {"P": P, "C": C, "K": K, "V": V, "n": n, **order(k)}
    if len(WS) > 1:
        common |= {"H": h, "ACTIVATION": activation}
    in_order = {**common, "N": N, **settings(C, k, P)}
    at_once = {**common, **settings(C, k, N * P)}
    with torch.cuda.device_of(k):
        if len(WS) == 1:
            inputs = (k, write, carry, read.ddelta, *read.dWS, *flow, grads.v, *dWS, *danchor)
            launch(_flow_linear, lambda chosen: (P, V // chosen["BLOCK"]), *inputs, **in_order)
            wrote = (k, write, *WS, *anchor, delta, grads.v, read.dk, *dWS)
            launch(_write_linear, (N * P,), *wrote, grads.k, grads.c.write, grads.c.carry, **at_once)
        else:
            assert read.ddelta1 is not None
            assert read.dX2 is not None
            dz = torch.empty_like(read.dX2)  # gradient of the hidden layer before its activation
            room = meeting(N, P, meeting_slices(choices_of(_flow_deep.configs), h), in_order["BLOCK_C"], V, k)
            to = (grads.v, dz, *dWS, *danchor, *room)

            def grid(choice: dict[str, int]) -> tuple[int]:
                return (P * (h // choice["BLOCK"]),)

            errors = (delta, read.ddelta, read.ddelta1, read.dX2)
            inputs = (k, write, carry, *WS, *anchor, *errors, *read.dWS, *flow)
            in_turns(partial(launch, _flow_deep, grid, *inputs, *to, m=n + bool(base), **in_order), 0, N)
            wrote = (k, write, *WS, *anchor, *(base or (None, None)), delta, read.dk, dz, *dWS)
            launch(_write_deep, (N * P,), *wrote, grads.k, grads.c.write, grads.c.carry, **at_once)
    return danchor


@tuned("flow", in_order=True)
@triton.jit(do_not_specialize=COUNTS)
def _flow_linear(
    k_, write_, carry_, ddelta_read, dWS_read, flow,
    dv_, dWS, dA,
    N, P, C, CROWD, HEADS, LENGTH, K: tl.constexpr, V: tl.constexpr, n: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(0).to(tl.int64)
    rows, ks, vs = tl.arange(0, BLOCK_C), tl.arange(0, K), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = rows < C
    flow += p * n * K * V
    dW = load_all(flow, ks, vs, V)
    dS = dW
    if n == 2:
        dS = load_all(flow + K * V, ks, vs, V)
    for back in tl.range(0, N, num_stages=1):
        i = N - 1 - back
        piece, token = i * P + p, first_token(i, p, C, HEADS, LENGTH)
        k = load(k_ + token * K, rows * HEADS, ks, K, mask)
        g = column(write_ + piece * C * n, rows, n, mask)
        carry = carry_ + piece * (2 * n - 1)
        end, from_read = dWS + piece * n * K * V, dWS_read + piece * n * K * V
        ddelta = load(ddelta_read + piece * C * V, rows, vs, V, mask) - dot(k * g, dW, BF16)
        save_all(end, ks, vs, V, dW)
        new = tl.load(carry) * dW + load_all(from_read, ks, vs, V)
        if n == 2:
            s = column(write_ + piece * C * n + 1, rows, n, mask)
            ddelta -= dot(k * s, dS, BF16)
            save_all(end + K * V, ks, vs, V, dS)
            dS = tl.load(carry + 1) * dW + tl.load(carry + 2) * dS + load_all(from_read + K * V, ks, vs, V)
        save(dv_ + token * V, rows * HEADS, vs, V, -ddelta, mask)
        of_anchor = dot(tl.trans(k), ddelta, BF16)
        if i == 0:
            save_all(dA + p * K * V, ks, vs, V, of_anchor)
        dW = new + tl.where(i > 0, of_anchor, 0.0)
    save_all(flow, ks, vs, V, dW)
    if n == 2:
        save_all(flow + K * V, ks, vs, V, dS)


@tuned("flow1", "flow2", counters=["arrived"], in_order=True)
@triton.jit(do_not_specialize=(*COUNTS, "first", "last"))
def _flow_deep(
    k_, write_, carry_, WS1, WS2, A1, A2, delta_, ddelta_read, ddelta1_read, dX2_read, dWS1_read, dWS2_read,
    flow1, flow2,
    dv_, dz_, dWS1, dWS2, dA1, dA2, parts, arrived,
    first, last, N, P, C, CROWD, HEADS, LENGTH,
    K: tl.constexpr, V: tl.constexpr, H: tl.constexpr, n: tl.constexpr, m: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr, BF16: tl.constexpr, TURN: tl.constexpr,
):  # fmt: skip
    SLICES: tl.constexpr = H // BLOCK
    p, own = (tl.program_id(0) // SLICES).to(tl.int64), tl.program_id(0) % SLICES
    rows, ks, vs, hs = tl.arange(0, BLOCK_C), tl.arange(0, K), tl.arange(0, V), own * BLOCK + tl.arange(0, BLOCK)
    mask = rows < C
    carries: tl.constexpr = m + n - 1
    flow1, flow2 = flow1 + p * m * K * H, flow2 + p * m * H * V
    dW1, dW2 = load_all(flow1, ks, hs, H), load_turned(flow2, hs, vs, V)
    dS1, dS2 = dW1, dW2
    if n == 2:
        dS1, dS2 = load_all(flow1 + K * H, ks, hs, H), load_turned(flow2 + H * V, hs, vs, V)
    for back in tl.range(first, last, num_stages=1):
        i = N - 1 - back
        piece, token = i * P + p, first_token(i, p, C, HEADS, LENGTH)
        at1, at2 = WS1 + piece * n * K * H, WS2 + piece * n * H * V
        if i == 0:
            at1, at2 = A1 + p * K * H, A2 + p * H * V

        # the errors; the one at the output sums over all slices
        k = load(k_ + token * K, rows * HEADS, ks, K, mask)
        z = dot(k, load_all(at1, ks, hs, H), BF16)
        g = column(write_ + piece * C * n, rows, n, mask)
        ddelta1 = load(ddelta1_read + piece * C * H, rows, hs, H, mask) - dot(k * g, dW1, BF16)
        x, slope, _ = activate(z, ACTIVATION)
        ddelta = -dot(x * g, tl.trans(dW2), BF16)
        if n == 2:
            s = column(write_ + piece * C * n + 1, rows, n, mask)
            ddelta1 -= dot(k * s, dS1, BF16)
            ddelta -= dot(x * s, tl.trans(dS2), BF16)
        sloped = factor(ddelta1 * slope, BF16)
        ddelta += dot(sloped, tl.trans(load_turned(at2, hs, vs, V)), BF16)
        if TURN != FINISH:
            publish(ddelta, parts, arrived, back, p, P, own, SLICES, BLOCK_C, V)
        if TURN != PUBLISH:
            # while waiting: all that does not need their sum
            end1, end2 = dWS1 + piece * n * K * H, dWS2 + piece * n * H * V
            read1, read2 = dWS1_read + piece * m * K * H, dWS2_read + piece * m * H * V
            save_all(end1, ks, hs, H, dW1)
            save_turned(end2, hs, vs, V, dW2)
            delta = load(delta_ + piece * C * V, rows, vs, V, mask)
            dx = load(dX2_read + piece * C * H, rows, hs, H, mask) - g * dot(delta, dW2, BF16)
            if n == 2:
                save_all(end1 + K * H, ks, hs, H, dS1)
                save_turned(end2 + H * V, hs, vs, V, dS2)
                dx -= s * dot(delta, dS2, BF16)
            A2_s = load_turned(at2, hs, vs, V)
            z = again(z)
            _, slope, bend = activate(z, ACTIVATION)
            dz = dx * slope + ddelta1 * bend * dot(delta, A2_s, BF16)
            carry = carry_ + piece * carries
            a = tl.load(carry)
            if m > n:
                rest = tl.load(carry + carries - 1)
                dB1 = load_all(flow1 + n * K * H, ks, hs, H) + rest * dW1 + load_all(read1 + n * K * H, ks, hs, H)
                dB2 = load_turned(flow2 + n * H * V, hs, vs, V) + rest * dW2
                dB2 += load_turned(read2 + n * H * V, hs, vs, V)
                tl.debug_barrier()  # other threads may still load what these save
                save_all(flow1 + n * K * H, ks, hs, H, dB1)
                save_turned(flow2 + n * H * V, hs, vs, V, dB2)
                tl.debug_barrier()
            new1 = a * dW1 + load_all(read1, ks, hs, H)
            new2 = a * dW2 + load_turned(read2, hs, vs, V)
            if n == 2:
                b, e = tl.load(carry + 1), tl.load(carry + 2)
                dS1 = b * dW1 + e * dS1 + load_all(read1 + K * H, ks, hs, H)
                dS2 = b * dW2 + e * dS2 + load_turned(read2 + H * V, hs, vs, V)
            if i == 0:  # what follows is of the anchor, which is not the starting weights
                save_all(flow1, ks, hs, H, new1)
                save_turned(flow2, hs, vs, V, new2)
                new1 *= 0
                new2 *= 0
            dW2 = new2 + dot(tl.trans(delta), sloped, BF16)

            ddelta = collected(ddelta, parts, arrived, back, p, P, SLICES, BLOCK_C, V)
            ddelta += load(ddelta_read + piece * C * V, rows, vs, V, mask)
            save(dv_ + token * V, rows * HEADS, vs, V, -ddelta, rows_of_first(own, rows, C))
            ddelta = factor(ddelta, BF16)
            z = again(z)
            x, slope, _ = activate(z, ACTIVATION)
            dz = factor(dz + dot(ddelta, A2_s, BF16) * slope, BF16)
            save(dz_ + piece * C * H, rows, hs, H, dz, mask)
            dW2 += dot(tl.trans(ddelta), x, BF16)
            dW1 = new1 + dot(tl.trans(load(k_ + token * K, rows * HEADS, ks, K, mask)), dz, BF16)
    if TURN != PUBLISH:
        if last == N:
            save_all(dA1 + p * K * H, ks, hs, H, dW1)
            save_turned(dA2 + p * H * V, hs, vs, V, dW2)
        else:
            save_all(flow1, ks, hs, H, dW1)
            save_turned(flow2, hs, vs, V, dW2)
        if n == 2:
            save_all(flow1 + K * H, ks, hs, H, dS1)
            save_turned(flow2 + H * V, hs, vs, V, dS2)


@tuned()
@triton.jit(do_not_specialize=COUNTS)
def _write_linear(
    k_, write_, WS, A, delta_, dv_, dk_read, dWS,
    dk_, dwrite_, dcarry_,
    P, C, CROWD, HEADS, LENGTH, K: tl.constexpr, V: tl.constexpr, n: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0).to(tl.int64)
    token = first_token(piece // P, piece % P, C, HEADS, LENGTH)
    rows, ks = tl.arange(0, BLOCK_C), tl.arange(0, K)
    steps = rows * HEADS
    mask = rows < C
    k = load(k_ + token * K, steps, ks, K, mask)
    g = column(write_ + piece * C * n, rows, n, mask)
    dk = load(dk_read + piece * C * K, rows, ks, K, mask)
    dg = tl.zeros((BLOCK_C,), tl.float32)
    ds = tl.zeros((BLOCK_C,), tl.float32)
    # a number of these is of a row of the weights
    da = tl.zeros((K,), tl.float32)
    db = tl.zeros((K,), tl.float32)
    de = tl.zeros((K,), tl.float32)
    start, end = WS + piece * n * K * V, dWS + piece * n * K * V
    at = start
    if piece < P:
        at = A + piece * K * V
    for first in range(0, V, BLOCK):
        vs = first + tl.arange(0, BLOCK)
        delta = load(delta_ + piece * C * V, rows, vs, V, mask)
        dk -= dot(load(dv_ + token * V, steps, vs, V, mask), tl.trans(load_all(at, ks, vs, V)), BF16)
        dW = load_all(end, ks, vs, V)
        of_W = dot(delta, tl.trans(dW), BF16)
        dk -= g * of_W
        dg -= tl.sum(of_W * k, axis=1)
        dW = dW.to(tl.float32)
        da += tl.sum(dW * load_all(start, ks, vs, V), axis=1)
        if n == 2:
            s = column(write_ + piece * C * n + 1, rows, n, mask)
            S = load_all(start + K * V, ks, vs, V)
            db += tl.sum(dW * S, axis=1)
            dS = load_all(end + K * V, ks, vs, V)
            of_S = dot(delta, tl.trans(dS), BF16)
            dk -= s * of_S
            ds -= tl.sum(of_S * k, axis=1)
            de += tl.sum(dS.to(tl.float32) * S, axis=1)
    save(dk_ + token * K, steps, ks, K, dk, mask)
    tl.store(dwrite_ + (piece * C + rows) * n, dg, mask=mask)
    carry = dcarry_ + piece * (2 * n - 1)
    tl.store(carry, tl.sum(da))
    if n == 2:
        tl.store(dwrite_ + (piece * C + rows) * n + 1, ds, mask=mask)
        tl.store(carry + 1, tl.sum(db))
        tl.store(carry + 2, tl.sum(de))


@tuned()
@triton.jit(do_not_specialize=COUNTS)
def _write_deep(
    k_, write_, WS1, WS2, A1, A2, B1, B2, delta_, dk_read, dz_, dWS1, dWS2,
    dk_, dwrite_, dcarry_,
    P, C, CROWD, HEADS, LENGTH, K: tl.constexpr, V: tl.constexpr, H: tl.constexpr, n: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0).to(tl.int64)
    token = first_token(piece // P, piece % P, C, HEADS, LENGTH)
    rows, ks, vs = tl.arange(0, BLOCK_C), tl.arange(0, K), tl.arange(0, V)
    steps = rows * HEADS
    mask = rows < C
    start1, start2 = WS1 + piece * n * K * H, WS2 + piece * n * H * V
    at1, at2 = start1, start2
    if piece < P:
        at1, at2 = A1 + piece * K * H, A2 + piece * H * V
    end1, end2 = dWS1 + piece * n * K * H, dWS2 + piece * n * H * V
    dk = load(dk_read + piece * C * K, rows, ks, K, mask)
    g = column(write_ + piece * C * n, rows, n, mask)
    dg = tl.zeros((BLOCK_C,), tl.float32)
    ds = tl.zeros((BLOCK_C,), tl.float32)
    # a row of these is of a row of the weights
    da1, da2 = tl.zeros((K,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    db1, db2 = tl.zeros((K,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    de1, de2 = tl.zeros((K,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    dr1, dr2 = tl.zeros((K,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for first in range(0, H, BLOCK):
        hs = first + tl.arange(0, BLOCK)
        k = load(k_ + token * K, steps, ks, K, mask)
        delta = load(delta_ + piece * C * V, rows, vs, V, mask)
        A1_s = load_all(at1, ks, hs, H)
        x, slope, _ = activate(dot(k, A1_s, BF16), ACTIVATION)
        dk += dot(load(dz_ + piece * C * H, rows, hs, H, mask), tl.trans(A1_s), BF16)
        error = factor(dot(delta, tl.trans(load_all(at2, hs, vs, V)), BF16) * slope, BF16)
        dW2 = load_all(end2, hs, vs, V)
        dg -= tl.sum(x * dot(delta, tl.trans(dW2), BF16), axis=1)
        dW2 = dW2.to(tl.float32)
        da2 += tl.sum(dW2 * load_all(start2, hs, vs, V), axis=1)
        if B1 is not None:
            dr2 += tl.sum(dW2 * load_all(B2 + piece % P * H * V, hs, vs, V), axis=1)
        if n == 2:
            S2 = load_all(start2 + H * V, hs, vs, V)
            db2 += tl.sum(dW2 * S2, axis=1)
            dS2 = load_all(end2 + H * V, hs, vs, V)
            ds -= tl.sum(x * dot(delta, tl.trans(dS2), BF16), axis=1)
            de2 += tl.sum(dS2.to(tl.float32) * S2, axis=1)
        dW1 = load_all(end1, ks, hs, H)
        at = dot(error, tl.trans(dW1), BF16)
        dg -= tl.sum(at * k, axis=1)
        dk -= g * at
        dW1 = dW1.to(tl.float32)
        da1 += tl.sum(dW1 * load_all(start1, ks, hs, H), axis=1)
        if B1 is not None:
            dr1 += tl.sum(dW1 * load_all(B1 + piece % P * K * H, ks, hs, H), axis=1)
        if n == 2:
            s = column(write_ + piece * C * n + 1, rows, n, mask)
            S1 = load_all(start1 + K * H, ks, hs, H)
            db1 += tl.sum(dW1 * S1, axis=1)
            dS1 = load_all(end1 + K * H, ks, hs, H)
            at = dot(error, tl.trans(dS1), BF16)
            ds -= tl.sum(at * k, axis=1)
            dk -= s * at
            de1 += tl.sum(dS1.to(tl.float32) * S1, axis=1)
    save(dk_ + token * K, steps, ks, K, dk, mask)
    tl.store(dwrite_ + (piece * C + rows) * n, dg, mask=mask)
    carries: tl.constexpr = 2 * n - 1 if B1 is None else 2 * n
    carry = dcarry_ + piece * carries
    tl.store(carry, tl.sum(da1) + tl.sum(da2))
    if n == 2:
        tl.store(dwrite_ + (piece * C + rows) * n + 1, ds, mask=mask)
        tl.store(carry + 1, tl.sum(db1) + tl.sum(db2))
        tl.store(carry + 2, tl.sum(de1) + tl.sum(de2))
    if B1 is not None:
        tl.store(carry + carries - 1, tl.sum(dr1) + tl.sum(dr2))
