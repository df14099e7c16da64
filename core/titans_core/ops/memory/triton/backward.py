"""Backward kernels: one for all reads at once, then one that runs through the pieces from last to first.

Shapes and slices are as in ``forward.py``, names as in the README's section on the backward pass. Signs follow its
formulas: writes enter the memory with a minus.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from functools import partial
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from titans_core.ops.memory.pieces import Inputs
from titans_core.ops.memory.triton.exchange import FINISH, PUBLISH, collected, in_turns, meeting, publish
from titans_core.ops.memory.triton.launch import COUNTS, choices_of, launch, most_slices, settings, tuned
from titans_core.ops.memory.triton.tiles import activate, column, dot, factor, load, load_all, save, save_all

PARTS_BYTES = 256 * 2**20  # at most for gradients per slice, unless those of one piece take more


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
    deep = len(WS) > 1
    kernel, sliced = (_store_deep, h) if deep else (_store_linear, V)
    most = most_slices(choices_of(kernel.configs), K, V, h if deep else None)

    def new(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=k.device)

    found = StoreGradient([d.clone() for d in dend], [new(*A.shape) for A in anchor])
    # what each slice contributes, for some pieces at a time
    sizes = (C * K, C * n, carry.shape[-1])
    turns = min(N, max(1, PARTS_BYTES // (4 * P * most * sum(sizes))))
    parts = [new(turns * P * most * size) for size in sizes]
    dk, dwrite, dcarry = parts
    common = {"N": N, "P": P, "C": C, "K": K, "V": V, "n": n, **settings(C, k, activation, P)}
    inputs = (k, write, carry, *WS, *anchor)
    gradients = (delta, read.dk, read.ddelta)
    to = (dk, grads.v, dwrite, dcarry, *found.danchor)
    chosen = []

    def grid(choice: dict[str, int]) -> tuple[int]:
        chosen.append(sliced // choice["BLOCK"])
        return (P * chosen[-1],)

    with torch.cuda.device_of(k):
        if deep:
            gradients = (*(base or (None, None)), *gradients, read.ddelta1, read.dX2, *read.dWS, *found.dstart)
            room = meeting(N, P, most, common["BLOCK_C"], V, k.device)
            run = partial(launch, kernel, grid, *inputs, *gradients, *to, *room, H=h, **common)
        else:
            run = partial(launch, kernel, grid, *inputs, *gradients, read.dWS[0], found.dstart[0], *to, **common)
        for first in range(0, N, turns):
            last = min(N, first + turns)
            if deep:
                in_turns(partial(run, lowest=N - last), first, last)
            else:
                run(first, last, lowest=N - last)
            slices = chosen[-1]  # the tuner's last call is the launch itself
            done = slice(N - last, N - first)
            for part, whole in zip(parts, (grads.k[done], grads.c.write[done], grads.c.carry[done]), strict=True):
                whole.copy_(part[: whole.numel() * slices].view(len(whole), P, slices, *whole.shape[2:]).sum(2))
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
    k = factor(load(k_ + piece * C * K, rows, ks, K, mask), BF16)
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
        dy = factor(load(dy_ + piece * C * V, rows, vs, V, mask), BF16)
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
    dseen = factor(-to_read * G, BF16)
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
    seen1 = factor(G * dot(q, tl.trans(k), BF16), BF16)
    dy = factor(load(dy_ + piece * C * V, rows, vs, V, mask), BF16)
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
    da = tl.zeros((BLOCK_C,), tl.float32)
    db = tl.zeros((BLOCK_C,), tl.float32)
    drest = tl.zeros((BLOCK_C,), tl.float32)
    to_read1 = tl.zeros((BLOCK_C, BLOCK_C), tl.float32)
    dq = tl.zeros((BLOCK_C, K), tl.float32)
    for first in range(0, H, BLOCK):
        hs = first + tl.arange(0, BLOCK)
        # recompute the forward pass; inputs are reloaded per slice, because keeping them would exceed the registers
        q, k = load(q_ + piece * C * K, rows, ks, K, mask), load(k_ + piece * C * K, rows, ks, K, mask)
        dy = factor(load(dy_ + piece * C * V, rows, vs, V, mask), BF16)
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
        dz = factor(dhidden * read_slope, BF16)
        to_read1 += dot(dz, tl.trans(delta1), BF16)
        save(ddelta1_ + piece * C * H, rows, hs, H, -dot(tl.trans(seen1), dz, BF16), mask)
        at = dot(dz, tl.trans(W1), BF16)
        da += tl.sum(at * q, axis=1)
        dq += a * at
        save_all(dstart1, ks, hs, H, dot(tl.trans(qa), dz, BF16))
        if n == 2:
            at = dot(dz, tl.trans(S1), BF16)
            db += tl.sum(at * q, axis=1)
            dq += b * at
            save_all(dstart1 + K * H, ks, hs, H, dot(tl.trans(qb), dz, BF16))
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


@tuned("flow", held=True)
@triton.jit(do_not_specialize=(*COUNTS, "first", "last", "lowest"))
def _store_linear(
    k_, write_, carry_, WS, A, delta_, dk_read, ddelta_read, dWS_read, flow,
    dk_, dv_, dwrite_, dcarry_, dA,
    first, last, lowest, N, P, C, CROWD, K: tl.constexpr, V: tl.constexpr, n: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    SLICES: tl.constexpr = V // BLOCK
    p, own = (tl.program_id(0) // SLICES).to(tl.int64), tl.program_id(0) % SLICES
    rows, ks, vs = tl.arange(0, BLOCK_C), tl.arange(0, K), own * BLOCK + tl.arange(0, BLOCK)
    mask = rows < C
    flow += p * n * K * V
    dW = load_all(flow, ks, vs, V)
    dS = dW
    if n == 2:
        dS = load_all(flow + K * V, ks, vs, V)
    for back in tl.range(first, last, num_stages=1):
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
        delta = factor(load(delta_ + piece * C * V, rows, vs, V, mask), BF16)
        ddelta = load(ddelta_read + piece * C * V, rows, vs, V, mask)
        held = factor(dW, BF16)
        ddelta -= dot(k * g, held, BF16)
        at = dot(delta, tl.trans(held), BF16)
        dg = -tl.sum(at * k, axis=1)
        dk = load(dk_read + piece * C * K, rows, ks, K, mask & (own == 0)) - g * at
        da = tl.sum(dW * load_all(start, ks, vs, V))
        dW_new = a * dW + load_all(dWS_read + piece * n * K * V, ks, vs, V)
        part = (piece - lowest * P) * SLICES + own
        if n == 2:
            s = column(write_ + piece * C * n + 1, rows, n, mask)
            b, e = tl.load(carry + 1), tl.load(carry + 2)
            held = factor(dS, BF16)
            ddelta -= dot(k * s, held, BF16)
            at = dot(delta, tl.trans(held), BF16)
            tl.store(dwrite_ + (part * C + rows) * n + 1, -tl.sum(at * k, axis=1), mask=mask)
            dk -= s * at
            S = load_all(start + K * V, ks, vs, V)
            tl.store(dcarry_ + part * 3 + 1, tl.sum(dW * S))
            tl.store(dcarry_ + part * 3 + 2, tl.sum(dS * S))
            dS = b * dW + e * dS + load_all(dWS_read + (piece * n + 1) * K * V, ks, vs, V)
        save(dv_ + piece * C * V, rows, vs, V, -ddelta, mask)
        ddelta = factor(ddelta, BF16)
        dk += dot(ddelta, tl.trans(load_all(at_A, ks, vs, V)), BF16)
        at_anchor = dot(tl.trans(k), ddelta, BF16)
        if i == 0:
            save_all(dA + p * K * V, ks, vs, V, at_anchor)
        dW = dW_new + tl.where(i > 0, at_anchor, 0.0)
        save(dk_ + part * C * K, rows, ks, K, dk, mask)
        tl.store(dwrite_ + (part * C + rows) * n, dg, mask=mask)
        tl.store(dcarry_ + part * (2 * n - 1), da)
    save_all(flow, ks, vs, V, dW)
    if n == 2:
        save_all(flow + K * V, ks, vs, V, dS)


@tuned("flow1", "flow2", counters=["arrived"], held=True)
@triton.jit(do_not_specialize=(*COUNTS, "first", "last", "lowest"))
def _store_deep(
    k_, write_, carry_, WS1, WS2, A1, A2, B1, B2, delta_, dk_read, ddelta_read,
    ddelta1_read, dX2_read, dWS1_read, dWS2_read, flow1, flow2,
    dk_, dv_, dwrite_, dcarry_, dA1, dA2, parts, arrived,
    first, last, lowest, N, P, C, CROWD, K: tl.constexpr, V: tl.constexpr, H: tl.constexpr, n: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr, BF16: tl.constexpr, TURN: tl.constexpr,
):  # fmt: skip
    SLICES: tl.constexpr = H // BLOCK
    p, own = (tl.program_id(0) // SLICES).to(tl.int64), tl.program_id(0) % SLICES
    rows, ks, vs, hs = tl.arange(0, BLOCK_C), tl.arange(0, K), tl.arange(0, V), own * BLOCK + tl.arange(0, BLOCK)
    mask = rows < C
    m: tl.constexpr = n if B1 is None else n + 1
    carries: tl.constexpr = 2 * n - 1 if B1 is None else 2 * n
    flow1, flow2 = flow1 + p * m * K * H, flow2 + p * m * H * V
    dW1, dW2 = load_all(flow1, ks, hs, H), load_all(flow2, hs, vs, V)
    dS1, dS2 = dW1, dW2
    if n == 2:
        dS1, dS2 = load_all(flow1 + K * H, ks, hs, H), load_all(flow2 + H * V, hs, vs, V)
    for back in tl.range(first, last, num_stages=1):
        i = N - 1 - back
        piece = i * P + p
        start1, start2 = WS1 + piece * n * K * H, WS2 + piece * n * H * V
        at1, at2 = start1, start2
        if i == 0:
            at1, at2 = A1 + p * K * H, A2 + p * H * V

        # the errors; the one at the output sums over all slices
        k = load(k_ + piece * C * K, rows, ks, K, mask)
        A1_s = load_all(at1, ks, hs, H)
        A2_s = load_all(at2, hs, vs, V)
        ddelta1 = load(ddelta1_read + piece * C * H, rows, hs, H, mask)
        g = column(write_ + piece * C * n, rows, n, mask)
        x, slope, _ = activate(dot(k, A1_s, BF16), ACTIVATION)
        ddelta1 -= dot(k * g, dW1, BF16)
        ddelta = -dot(x * g, dW2, BF16)
        if n == 2:
            s = column(write_ + piece * C * n + 1, rows, n, mask)
            ddelta1 -= dot(k * s, dS1, BF16)
            ddelta -= dot(x * s, dS2, BF16)
        ddelta += dot(ddelta1 * slope, A2_s, BF16)
        if TURN != FINISH:
            publish(ddelta, parts, arrived, back, p, P, own, SLICES, BLOCK_C, V)
        if TURN != PUBLISH:
            # loaded while waiting; kept from before, they would take registers
            k = load(k_ + piece * C * K, rows, ks, K, mask)
            A1_s = load_all(at1, ks, hs, H)
            A2_s = load_all(at2, hs, vs, V)
            delta = load(delta_ + piece * C * V, rows, vs, V, mask)
            ddelta = collected(ddelta, parts, arrived, back, p, P, SLICES, BLOCK_C, V)
            ddelta += load(ddelta_read + piece * C * V, rows, vs, V, mask)
            save(dv_ + piece * C * V, rows, vs, V, -ddelta, mask & (own == 0))

            # the second layer, then the first
            carry = carry_ + piece * carries
            a = tl.load(carry)
            part = (piece - lowest * P) * SLICES + own
            dx = load(dX2_read + piece * C * H, rows, hs, H, mask)
            x, slope, bend = activate(dot(k, A1_s, BF16), ACTIVATION)
            delta, ddelta, A2_s = factor(delta, BF16), factor(ddelta, BF16), factor(A2_s, BF16)
            error = dot(delta, tl.trans(A2_s), BF16)
            dx += dot(ddelta, tl.trans(A2_s), BF16)
            at = dot(delta, tl.trans(dW2), BF16)
            dg = -tl.sum(at * x, axis=1)
            dx -= g * at
            da = tl.sum(dW2 * load_all(start2, hs, vs, V))
            if B1 is not None:
                rest = tl.load(carry + 2 * n - 1)
                drest = tl.sum(dW2 * load_all(B2 + p * H * V, hs, vs, V))
                dB = load_all(flow2 + n * H * V, hs, vs, V) + rest * dW2
                dB += load_all(dWS2_read + (piece * m + n) * H * V, hs, vs, V)
                save_all(flow2 + n * H * V, hs, vs, V, dB)
            new = a * dW2 + load_all(dWS2_read + piece * m * H * V, hs, vs, V)
            if n == 2:
                b, e = tl.load(carry + 1), tl.load(carry + 2)
                at = dot(delta, tl.trans(dS2), BF16)
                ds = -tl.sum(at * x, axis=1)
                dx -= s * at
                S = load_all(start2 + H * V, hs, vs, V)
                db, de = tl.sum(dW2 * S), tl.sum(dS2 * S)
                dS2 = b * dW2 + e * dS2 + load_all(dWS2_read + (piece * m + 1) * H * V, hs, vs, V)
            of_anchor = dot(tl.trans(ddelta1 * slope), delta, BF16) + dot(tl.trans(x), ddelta, BF16)
            if i == 0:
                save_all(dA2 + p * H * V, hs, vs, V, of_anchor)
            dW2 = new + tl.where(i > 0, of_anchor, 0.0)
            dz = factor(dx * slope + ddelta1 * error * bend, BF16)
            error = factor(error * slope, BF16)
            tl.debug_barrier()  # of the base's gradient, a piece may load what other threads saved for the next one

            k = load(k_ + piece * C * K, rows, ks, K, mask)
            at = dot(error, tl.trans(dW1), BF16)
            dg -= tl.sum(at * k, axis=1)
            tl.store(dwrite_ + (part * C + rows) * n, dg, mask=mask)
            dk = load(dk_read + piece * C * K, rows, ks, K, mask & (own == 0)) - g * at
            da += tl.sum(dW1 * load_all(start1, ks, hs, H))
            tl.store(dcarry_ + part * carries, da)
            if B1 is not None:
                drest += tl.sum(dW1 * load_all(B1 + p * K * H, ks, hs, H))
                tl.store(dcarry_ + part * carries + 2 * n - 1, drest)
                dB = load_all(flow1 + n * K * H, ks, hs, H) + rest * dW1
                dB += load_all(dWS1_read + (piece * m + n) * K * H, ks, hs, H)
                save_all(flow1 + n * K * H, ks, hs, H, dB)
            new = a * dW1 + load_all(dWS1_read + piece * m * K * H, ks, hs, H)
            if n == 2:
                at = dot(error, tl.trans(dS1), BF16)
                ds -= tl.sum(at * k, axis=1)
                tl.store(dwrite_ + (part * C + rows) * n + 1, ds, mask=mask)
                dk -= s * at
                S = load_all(start1 + K * H, ks, hs, H)
                tl.store(dcarry_ + part * carries + 1, db + tl.sum(dW1 * S))
                tl.store(dcarry_ + part * carries + 2, de + tl.sum(dS1 * S))
                dS1 = b * dW1 + e * dS1 + load_all(dWS1_read + (piece * m + 1) * K * H, ks, hs, H)
            dk += dot(dz, tl.trans(load_all(at1, ks, hs, H)), BF16)
            save(dk_ + part * C * K, rows, ks, K, dk, mask)
            of_anchor = dot(tl.trans(k), dz, BF16)
            if i == 0:
                save_all(dA1 + p * K * H, ks, hs, H, of_anchor)
            dW1 = new + tl.where(i > 0, of_anchor, 0.0)
    if TURN != PUBLISH:
        save_all(flow1, ks, hs, H, dW1)
        save_all(flow2, hs, vs, V, dW2)
        if n == 2:
            save_all(flow1 + K * H, ks, hs, H, dS1)
            save_all(flow2 + H * V, hs, vs, V, dS2)
