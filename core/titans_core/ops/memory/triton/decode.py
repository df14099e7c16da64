"""One token for a batch of memories: write it, then read. For generation, where products are matrix-vector products.

With the anchor's weights A, a layer's input x, and its error delta for the token's key,

    S' = eta S - theta x^T delta        W' = (1 - alpha) W + S'        y = M_{W'}(q)

With a base that forgetting pulls towards, W' has ``alpha base`` added.

Every weight is loaded once, those of the anchor twice. There is no gradient.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from titans_core.ops.memory.triton.tiles import activate

Layers = Sequence[Tensor]

TILE = 4096  # weights of a layer held in registers at once
WARPS = 4


def decode_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alpha: Tensor | None,
    eta: Tensor | None,
    theta: Tensor,
    weights: Layers,
    momentum: Layers,
    anchor: Layers,
    activation: str,
    base: Layers = (),
) -> tuple[Tensor, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Write one token to each of P memories and read it back.

    Args:
        q, k: ``[P, K]``, float32 or bfloat16.
        v: ``[P, V]``, the same dtype.
        alpha, eta, theta: gates ``[P]``, float32. None means a gate of 0.
        weights, momentum, anchor: W, S and A, one or two layers ``[P, d_in, d_out]``, float32. They are not modified.
        activation: activation between two layers: "silu", "gelu" or "relu".
        base: what forgetting pulls towards, ``[H, d_in, d_out]`` per layer, where P is a multiple of H and the head
            varies fastest. Empty for zero.

    Returns:
        y ``[P, V]`` in the dtype of v, the new weights, and the new momentum.
    """
    (P, K), V = k.shape, v.shape[1]
    q, k, v, theta = (x.contiguous() for x in (q, k, v, theta))
    alpha, eta = (None if x is None else x.contiguous() for x in (alpha, eta))
    old = [x.contiguous() for layer in zip(weights, momentum, anchor, strict=True) for x in layer]
    y = torch.empty((P, V), dtype=v.dtype, device=v.device)
    new = [torch.empty(w.shape, dtype=w.dtype, device=w.device) for w in weights for _ in range(2)]
    to: list[Tensor | None] = [x.contiguous() for x in base] or [None] * len(weights)
    heads = base[0].shape[0] if base else 1
    with torch.cuda.device_of(q):
        if len(weights) == 1:
            sizes = linear_sizes(K, V)
            grid = (P, triton.cdiv(V, sizes["PART"]))
            _linear_kernel[grid](q, k, v, alpha, eta, theta, *old, *to, y, *new, heads, K, V, **sizes, num_warps=WARPS)
        else:
            hidden = weights[0].shape[2]
            _deep_kernel[(P,)](
                *(q, k, v, alpha, eta, theta, *old, *to, y, *new),
                *(heads, K, hidden, V),
                **deep_sizes(K, hidden, V),
                ACTIVATION=activation,
                num_warps=WARPS,
            )
    return y, tuple(new[::2]), tuple(new[1::2])


def linear_sizes(K: int, V: int) -> dict[str, int]:
    """Tile sizes for one layer: all of K and a part of V."""
    rows, columns = triton.next_power_of_2(K), triton.next_power_of_2(V)
    return {"ROWS": rows, "PART": min(columns, 32, TILE // rows)}


def deep_sizes(K: int, hidden: int, V: int) -> dict[str, int]:
    """Tile sizes for two layers: all of K by a part of the hidden units, and that part by all of V."""
    rows, columns = triton.next_power_of_2(K), triton.next_power_of_2(V)
    return {"ROWS": rows, "PART": min(triton.next_power_of_2(hidden), TILE // max(rows, columns)), "COLUMNS": columns}


@triton.jit
def _gates(alpha, eta, theta, p):
    """``1 - alpha``, eta and theta of memory p."""
    keep = 1.0
    momentum = 0.0
    if alpha is not None:
        keep = 1.0 - tl.load(alpha + p)
    if eta is not None:
        momentum = tl.load(eta + p)
    return keep, momentum, tl.load(theta + p)


@triton.jit
def _write(W, S, base, W_new, S_new, at, at_base, mask, u, keep, eta, theta, HAS_MOMENTUM: tl.constexpr):
    """Store ``S' = eta S - theta u`` and ``W' = keep W + (1 - keep) base + S'`` for a tile; return ``W'``."""
    s = -theta * u
    if HAS_MOMENTUM:
        s += eta * tl.load(S + at, mask=mask, other=0.0)
    w = keep * tl.load(W + at, mask=mask, other=0.0) + s
    if base is not None:
        w += (1.0 - keep) * tl.load(base + at_base, mask=mask, other=0.0)
    tl.store(S_new + at, s, mask=mask)
    tl.store(W_new + at, w, mask=mask)
    return w


@triton.jit
def _linear_kernel(
    q,
    k,
    v,
    alpha,
    eta,
    theta,
    W,
    S,
    A,
    base,
    y,
    W_new,
    S_new,
    heads,
    K,
    V,
    ROWS: tl.constexpr,
    PART: tl.constexpr,
):
    """One program per memory and part of V; the columns of a single layer are independent."""
    p = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, ROWS)
    j = tl.program_id(1) * PART + tl.arange(0, PART)
    mask = (i < K)[:, None] & (j < V)[None, :]
    at_base = i[:, None] * V + j[None, :]
    at = p * K * V + at_base
    at_base += p % heads * K * V

    keep, momentum, rate = _gates(alpha, eta, theta, p)
    x = tl.load(k + p * K + i, mask=i < K, other=0.0).to(tl.float32)
    h = tl.load(q + p * K + i, mask=i < K, other=0.0).to(tl.float32)
    target = tl.load(v + p * V + j, mask=j < V, other=0.0).to(tl.float32)
    delta = tl.sum(x[:, None] * tl.load(A + at, mask=mask, other=0.0), axis=0) - target
    u = x[:, None] * delta[None, :]
    w = _write(W, S, base, W_new, S_new, at, at_base, mask, u, keep, momentum, rate, eta is not None)
    tl.store(y + p * V + j, tl.sum(h[:, None] * w, axis=0).to(y.dtype.element_ty), mask=j < V)


@triton.jit
def _deep_kernel(
    q,
    k,
    v,
    alpha,
    eta,
    theta,
    W1,
    S1,
    A1,
    W2,
    S2,
    A2,
    base1,
    base2,
    y,
    W1_new,
    S1_new,
    W2_new,
    S2_new,
    heads,
    K,
    hidden,
    V,
    ROWS: tl.constexpr,
    PART: tl.constexpr,
    COLUMNS: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """One program per memory. It passes over the hidden units twice: to compute the error, then to write and read."""
    p = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, ROWS)
    j = tl.arange(0, COLUMNS)
    start1 = p * K * hidden
    start2 = p * hidden * V

    keep, momentum, rate = _gates(alpha, eta, theta, p)
    x1 = tl.load(k + p * K + i, mask=i < K, other=0.0).to(tl.float32)
    h1 = tl.load(q + p * K + i, mask=i < K, other=0.0).to(tl.float32)
    delta2 = -tl.load(v + p * V + j, mask=j < V, other=0.0).to(tl.float32)
    for part in tl.range(0, hidden, PART, num_stages=1):
        m = part + tl.arange(0, PART)
        mask1 = (i < K)[:, None] & (m < hidden)[None, :]
        mask2 = (m < hidden)[:, None] & (j < V)[None, :]
        a1 = tl.load(A1 + start1 + i[:, None] * hidden + m[None, :], mask=mask1, other=0.0)
        a2 = tl.load(A2 + start2 + m[:, None] * V + j[None, :], mask=mask2, other=0.0)
        x2, _, _ = activate(tl.sum(x1[:, None] * a1, axis=0), ACTIVATION)
        delta2 += tl.sum(x2[:, None] * a2, axis=0)

    out = tl.zeros([COLUMNS], dtype=tl.float32)
    for part in tl.range(0, hidden, PART, num_stages=1):
        m = part + tl.arange(0, PART)
        mask1 = (i < K)[:, None] & (m < hidden)[None, :]
        mask2 = (m < hidden)[:, None] & (j < V)[None, :]
        here1, here2 = i[:, None] * hidden + m[None, :], m[:, None] * V + j[None, :]
        at1, at2 = start1 + here1, start2 + here2
        here1 += p % heads * K * hidden
        here2 += p % heads * hidden * V
        x2, slope, _ = activate(tl.sum(x1[:, None] * tl.load(A1 + at1, mask=mask1, other=0.0), axis=0), ACTIVATION)
        delta1 = slope * tl.sum(delta2[None, :] * tl.load(A2 + at2, mask=mask2, other=0.0), axis=1)

        u = x1[:, None] * delta1[None, :]
        w = _write(W1, S1, base1, W1_new, S1_new, at1, here1, mask1, u, keep, momentum, rate, eta is not None)
        h2, _, _ = activate(tl.sum(h1[:, None] * w, axis=0), ACTIVATION)
        u = x2[:, None] * delta2[None, :]
        w = _write(W2, S2, base2, W2_new, S2_new, at2, here2, mask2, u, keep, momentum, rate, eta is not None)
        out += tl.sum(h2[:, None] * w, axis=0)
    tl.store(y + p * V + j, out.to(y.dtype.element_ty), mask=j < V)
