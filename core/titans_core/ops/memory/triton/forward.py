"""Forward kernels: one stores pieces in order and saves the starting WS of each; one reads all pieces at once.

Shapes: N pieces, P = B * heads memories, C tokens in a piece, n = 2 (1 without momentum). A deep memory is K -> h -> V.
When storing, a program holds a slice of h in registers; when reading, it goes through h in slices, so no program holds
a whole layer. A linear memory is K -> V, in slices of V. Weights of single tokens are never formed.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from titans_core.ops.memory.triton.exchange import FINISH, PUBLISH, collected, in_turns, meeting, publish, rows_of_first
from titans_core.ops.memory.triton.launch import COUNTS, choices_of, launch, meeting_slices, order, settings, tuned
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


def store_forward(
    k: Tensor,
    v: Tensor,
    write: Tensor,
    carry: Tensor,
    WS: list[Tensor],
    last: list[Tensor],
    anchor: list[Tensor],
    base: list[Tensor],
    activation: str,
) -> tuple[list[Tensor], Tensor]:
    """Store keys ``[B, N C, heads, K]`` and values ``[B, N C, heads, V]``, which may be parts of longer sequences.

    Args:
        write, carry: coefficients, ``[N, P, C, n]`` and ``[N, P, 2 n - 1]``, or ``[N, P, 2 n]`` with a base.
        WS: the memory before, and then after, float32 ``[P, n, d, d']`` per layer.
        last: weights at which the last piece takes its gradients, float32 ``[P, d, d']`` per layer. Written if there
            is more than one piece.
        anchor: the same for the first piece, as precise as the tokens. The other pieces use their starting weights.
        base: what a deep memory forgets towards, ``[P, d, d']`` per layer. Empty for zero.

    Returns:
        The starting WS of each piece, ``[N, P, n, d, d']`` per layer, and the errors at the output, ``[N, P, C, V]``,
        as precise as the tokens.
    """
    N, P, C, n = write.shape
    K, V = k.shape[-1], v.shape[-1]
    starts = [k.new_empty((N, *ws.shape)) for ws in WS]
    delta = k.new_empty((N, P, C, V))
    common = {"N": N, "P": P, "C": C, "K": K, "V": V, "n": n, **order(k), **settings(C, k, P)}
    with torch.cuda.device_of(k):
        if len(WS) == 1:
            inputs = (k, v, write, carry, *starts, *anchor, *WS, *last, delta)
            launch(_store_linear, lambda chosen: (P, V // chosen["BLOCK"]), *inputs, **common)
        else:
            H = WS[0].shape[-1]
            common |= {"H": H, "ACTIVATION": activation}
            room = meeting(N, P, meeting_slices(choices_of(_store_deep.configs), H), common["BLOCK_C"], V, k)
            inputs = (k, v, write, carry, *starts, *anchor, *(base or (None, None)), *WS, *last, delta, *room)

            def grid(choice: dict[str, int]) -> tuple[int]:
                return (P * (H // choice["BLOCK"]),)

            in_turns(partial(launch, _store_deep, grid, *inputs, **common), 0, N)
    return starts, delta


def read_forward(
    q: Tensor,
    k: Tensor,
    G: Tensor,
    read: Tensor,
    WS: list[Tensor],
    anchor: list[Tensor],
    base: list[Tensor],
    delta: Tensor,
    activation: str,
    y: Tensor,
    keep_seen: bool,
) -> Tensor | None:
    """Write the outputs for queries ``[B, N C, heads, K]`` to y ``[B, N C, heads, V]``.

    With ``keep_seen``, a deep memory returns queries times keys of the second layer, ``[N, P, C, C]``, for its
    gradient; otherwise None. ``read`` is ``[N, P, C, n]``, or ``[N, P, C, n + 1]`` with a base. ``WS``, ``anchor``,
    ``base`` and ``delta`` are those of :func:`store_forward`.
    """
    N, P, C, V = delta.shape
    K, n = q.shape[-1], WS[0].shape[2]
    seen = q.new_empty((N, P, C, C)) if keep_seen and len(WS) > 1 else None
    common = {"P": P, "C": C, "K": K, "V": V, "n": n, **order(q), **settings(C, q, N * P)}
    with torch.cuda.device_of(q):
        if len(WS) == 1:
            launch(_read_linear, (N * P,), q, k, G, read, WS[0], delta, y, **common)
        else:
            inputs = (q, k, G, read, *WS, *anchor, *(base or (None, None)), delta)
            common |= {"H": WS[0].shape[-1], "ACTIVATION": activation}
            launch(_read_deep, (N * P,), *inputs, y, seen, **common)
    return seen


@tuned("end", in_order=True)
@triton.jit(do_not_specialize=COUNTS)
def _store_linear(
    k_, v_, write_, carry_, WS, A, end, last, delta_,
    N, P, C, CROWD, HEADS, LENGTH, K: tl.constexpr, V: tl.constexpr, n: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(0).to(tl.int64)
    rows, ks, vs = tl.arange(0, BLOCK_C), tl.arange(0, K), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = rows < C
    end += p * n * K * V
    W = load_all(end, ks, vs, V)
    S = W
    if n == 2:
        S = load_all(end + K * V, ks, vs, V)
    at = factor(load_all(A + p * K * V, ks, vs, V), BF16)
    for i in tl.range(0, N, num_stages=1):
        piece, token = i * P + p, first_token(i, p, C, HEADS, LENGTH)
        start = WS + piece * n * K * V
        save_all(start, ks, vs, V, W)
        if n == 2:
            save_all(start + K * V, ks, vs, V, S)
        if (i > 0) & (i == N - 1):
            save_all(last + p * K * V, ks, vs, V, W)
        k = load(k_ + token * K, rows * HEADS, ks, K, mask)
        delta = factor(dot(k, at, BF16) - load(v_ + token * V, rows * HEADS, vs, V, mask), BF16)
        save(delta_ + piece * C * V, rows, vs, V, delta, mask)
        g = column(write_ + piece * C * n, rows, n, mask)
        carry = carry_ + piece * (2 * n - 1)
        W = tl.load(carry) * W - dot(tl.trans(k * g), delta, BF16)
        if n == 2:
            W += tl.load(carry + 1) * S
            s = column(write_ + piece * C * n + 1, rows, n, mask)
            S = tl.load(carry + 2) * S - dot(tl.trans(k * s), delta, BF16)
        at = factor(W, BF16)
    save_all(end, ks, vs, V, W)
    if n == 2:
        save_all(end + K * V, ks, vs, V, S)


@tuned("end1", "end2", counters=["arrived"], in_order=True)
@triton.jit(do_not_specialize=(*COUNTS, "first", "last"))
def _store_deep(
    k_, v_, write_, carry_, WS1, WS2, A1, A2, B1, B2, end1, end2, last1, last2, delta_, parts, arrived,
    first, last, N, P, C, CROWD, HEADS, LENGTH, K: tl.constexpr, V: tl.constexpr, H: tl.constexpr, n: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr, BF16: tl.constexpr, TURN: tl.constexpr,
):  # fmt: skip
    SLICES: tl.constexpr = H // BLOCK
    p, own = (tl.program_id(0) // SLICES).to(tl.int64), tl.program_id(0) % SLICES
    rows, ks, vs, hs = tl.arange(0, BLOCK_C), tl.arange(0, K), tl.arange(0, V), own * BLOCK + tl.arange(0, BLOCK)
    mask = rows < C
    end1, end2 = end1 + p * n * K * H, end2 + p * n * H * V
    W1, W2 = load_all(end1, ks, hs, H), load_turned(end2, hs, vs, V)
    S1, S2 = W1, W2
    if n == 2:
        S1, S2 = load_all(end1 + K * H, ks, hs, H), load_turned(end2 + H * V, hs, vs, V)
    at1, at2 = factor(W1, BF16), factor(W2, BF16)  # where this piece takes its gradients
    if first == 0:
        at1, at2 = load_all(A1 + p * K * H, ks, hs, H), load_turned(A2 + p * H * V, hs, vs, V)
    for i in tl.range(first, last, num_stages=1):
        piece, token = i * P + p, first_token(i, p, C, HEADS, LENGTH)
        k = load(k_ + token * K, rows * HEADS, ks, K, mask)
        z = dot(k, at1, BF16)
        x, _, _ = activate(z, ACTIVATION)
        delta = dot(x, tl.trans(at2), BF16)
        if TURN != FINISH:
            publish(delta, parts, arrived, i, p, P, own, SLICES, BLOCK_C, V)
        if TURN != PUBLISH:
            # while waiting: all that does not need their sum
            start1, start2 = WS1 + piece * n * K * H, WS2 + piece * n * H * V
            save_all(start1, ks, hs, H, W1)
            save_turned(start2, hs, vs, V, W2)
            if (i > 0) & (i == N - 1):
                save_all(last1 + p * K * H, ks, hs, H, W1)
                save_turned(last2 + p * H * V, hs, vs, V, W2)
            g = column(write_ + piece * C * n, rows, n, mask)
            carry = carry_ + piece * (2 * n - 1 if B1 is None else 2 * n)
            a = tl.load(carry)
            W1 = a * W1
            W2 = a * W2
            if n == 2:
                save_all(start1 + K * H, ks, hs, H, S1)
                save_turned(start2 + H * V, hs, vs, V, S2)
                s = column(write_ + piece * C * n + 1, rows, n, mask)
                b, e = tl.load(carry + 1), tl.load(carry + 2)
                W1 += b * S1
                W2 += b * S2
                S1 = e * S1
                S2 = e * S2
            if B1 is not None:
                rest = tl.load(carry + 2 * n - 1)
                W1 += rest * load_all(B1 + p * K * H, ks, hs, H)
                W2 += rest * load_turned(B2 + p * H * V, hs, vs, V)
            v = load(v_ + token * V, rows * HEADS, vs, V, mask)

            delta = factor(collected(delta, parts, arrived, i, p, P, SLICES, BLOCK_C, V) - v, BF16)
            save(delta_ + piece * C * V, rows, vs, V, delta, rows_of_first(own, rows, C))
            x, slope, _ = activate(again(z), ACTIVATION)
            delta1 = factor(dot(delta, at2, BF16) * slope, BF16)
            k = load(k_ + token * K, rows * HEADS, ks, K, mask)  # kept from before, it would take registers
            W1 -= dot(tl.trans(k * g), delta1, BF16)
            W2 -= dot(tl.trans(delta), x * g, BF16)
            if n == 2:
                S1 -= dot(tl.trans(k * s), delta1, BF16)
                S2 -= dot(tl.trans(delta), x * s, BF16)
            at1, at2 = factor(W1, BF16), factor(W2, BF16)
    if TURN != PUBLISH:
        save_all(end1, ks, hs, H, W1)
        save_turned(end2, hs, vs, V, W2)
        if n == 2:
            save_all(end1 + K * H, ks, hs, H, S1)
            save_turned(end2 + H * V, hs, vs, V, S2)


@tuned()
@triton.jit(do_not_specialize=COUNTS)
def _read_linear(
    q_, k_, G_, read_, WS, delta_, y_,
    P, C, CROWD, HEADS, LENGTH, K: tl.constexpr, V: tl.constexpr, n: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK: tl.constexpr, BF16: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0).to(tl.int64)
    token = first_token(piece // P, piece % P, C, HEADS, LENGTH)
    rows, ks = tl.arange(0, BLOCK_C), tl.arange(0, K)
    steps = rows * HEADS
    mask = rows < C
    q = load(q_ + token * K, steps, ks, K, mask)
    k = load(k_ + token * K, steps, ks, K, mask)
    G = tl.load(G_ + piece * C * C + rows[:, None] * C + rows[None, :], mask=mask[:, None] & mask[None, :], other=0.0)
    seen = G * dot(q, tl.trans(k), BF16)
    a = column(read_ + piece * C * n, rows, n, mask)
    for first in range(0, V, BLOCK):
        vs = first + tl.arange(0, BLOCK)
        y = dot(q * a, load_all(WS + piece * n * K * V, ks, vs, V), BF16)
        if n == 2:
            b = column(read_ + piece * C * n + 1, rows, n, mask)
            y += dot(q * b, load_all(WS + (piece * n + 1) * K * V, ks, vs, V), BF16)
        y -= dot(seen, load(delta_ + piece * C * V, rows, vs, V, mask), BF16)
        save(y_ + token * V, steps, vs, V, y, mask)


@tuned()
@triton.jit(do_not_specialize=COUNTS)
def _read_deep(
    q_, k_, G_, read_, WS1, WS2, A1, A2, B1, B2, delta_, y_, seen_,
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
    q = load(q_ + token * K, steps, ks, K, mask)
    k = factor(load(k_ + token * K, steps, ks, K, mask), BF16)
    delta = factor(load(delta_ + piece * C * V, rows, vs, V, mask), BF16)
    G = tl.load(G_ + piece * C * C + rows[:, None] * C + rows[None, :], mask=square, other=0.0)
    seen1 = factor(G * dot(q, tl.trans(k), BF16), BF16)
    m: tl.constexpr = n if B1 is None else n + 1
    a = column(read_ + piece * C * m, rows, m, mask)
    at1, at2 = WS1 + piece * n * K * H, WS2 + piece * n * H * V
    start1, start2 = at1, at2
    if piece < P:
        at1, at2 = A1 + piece * K * H, A2 + piece * H * V
    y = tl.zeros((BLOCK_C, V), tl.float32)
    seen = tl.zeros((BLOCK_C, BLOCK_C), tl.float32)
    for first in range(0, H, BLOCK):
        hs = first + tl.arange(0, BLOCK)
        x, slope, _ = activate(dot(k, load_all(at1, ks, hs, H), BF16), ACTIVATION)
        delta1 = dot(delta, tl.trans(load_all(at2, hs, vs, V)), BF16) * slope
        z = dot(q * a, load_all(start1, ks, hs, H), BF16) - dot(seen1, delta1, BF16)
        if n == 2:
            b = column(read_ + piece * C * m + 1, rows, m, mask)
            z += dot(q * b, load_all(start1 + K * H, ks, hs, H), BF16)
        if B1 is not None:
            rest = column(read_ + piece * C * m + n, rows, m, mask)
            z += dot(q * rest, load_all(B1 + piece % P * K * H, ks, hs, H), BF16)
        hidden, _, _ = activate(z, ACTIVATION)
        seen += dot(hidden, tl.trans(x), BF16)
        y += dot(hidden * a, load_all(start2, hs, vs, V), BF16)
        if n == 2:
            y += dot(hidden * b, load_all(start2 + H * V, hs, vs, V), BF16)
        if B1 is not None:
            y += dot(hidden * rest, load_all(B2 + piece % P * H * V, hs, vs, V), BF16)
    G = tl.load(G_ + piece * C * C + rows[:, None] * C + rows[None, :], mask=square, other=0.0)
    y -= dot(G * seen, load(delta_ + piece * C * V, rows, vs, V, mask), BF16)
    save(y_ + token * V, steps, vs, V, y, mask)
    if seen_ is not None:
        tl.store(seen_ + piece * C * C + rows[:, None] * C + rows[None, :], seen, mask=square)
