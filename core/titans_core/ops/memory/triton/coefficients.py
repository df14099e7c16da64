"""From gates to the coefficients of pieces, by recurrences over the tokens: one program a piece, one row in registers.

Row t of E and of R has a column for each token i of the piece and two more, for what was there before it:

    E_t = eta_t E_{t-1} + I_t           columns E[t, i], e_t, 0         E_0 = (0 .. 0, 1, 0)
    R_t = (1 - alpha_t) R_{t-1} + E_t   columns (A E)[t, i], b_t, a_t   R_0 = (0 .. 0, 0, 1)

Without momentum E_t is I_t, and then b and e are 0. Nothing is divided by a gate and no log is taken, so gates of 0 and
1 are exact, in the gradient too.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

# Rows that the backward pass holds in registers. It runs the recurrence again from the piece's first token once for
# every so many rows, which costs a few instructions a row, and writes no row to memory.
ROWS = 8


def coefficients_forward(
    alpha: Tensor | None, eta: Tensor | None, theta: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``G, read, write, carry`` as in :class:`titans_core.ops.memory.coefficients.Coefficients`.

    Args:
        alpha, eta, theta: gates of N pieces of C tokens, float32 ``[N, B, H, C]`` of any strides: views of
            ``[B, T, H]``. None is a gate of 0.

    Returns:
        With ``P = B * H``, and n = 2 (1 without momentum): G ``[N, P, C, C]``, read and write ``[N, P, C, n]``, carry
        ``[N, P, 3]`` (or 1).
    """
    N, B, H, C = theta.shape
    n = _columns(eta)

    def new(*shape: int) -> Tensor:
        return torch.empty((N, B * H, *shape), dtype=torch.float32, device=theta.device)

    G, read, write, carry = new(C, C), new(C, n), new(C, n), new(2 * n - 1)
    with torch.cuda.device_of(theta):
        _forward_kernel[(N * B * H,)](
            *(alpha, eta, theta),
            *map(_strides, (alpha, eta, theta)),
            *(G, read, write, carry),
            *(B, H, C),
            n=n,
            **_launch(C),
        )
    return G, read, write, carry


def coefficients_backward(
    alpha: Tensor | None,
    eta: Tensor | None,
    theta: Tensor,
    dG: Tensor,
    dread: Tensor,
    dwrite: Tensor,
    dcarry: Tensor,
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Gradients of the gates ``[N, B, H, C]``, from those of the coefficients. ``dG`` above the diagonal is not read.

    They lie in memory as ``[B, N, C, H]``: ``dtheta.permute(1, 0, 3, 2).flatten(1, 2)`` is a view ``[B, T, H]``.
    """
    N, B, H, C = theta.shape

    def new() -> Tensor:
        return torch.empty((B, N, C, H), dtype=torch.float32, device=theta.device).permute(1, 0, 3, 2)

    dalpha, deta, dtheta = None if alpha is None else new(), None if eta is None else new(), new()
    with torch.cuda.device_of(theta):
        _backward_kernel[(N * B * H,)](
            *(alpha, eta, theta),
            *map(_strides, (alpha, eta, theta)),
            *(x.contiguous() for x in (dG, dread, dwrite, dcarry)),
            *(dalpha, deta, dtheta),
            dtheta.stride(),
            *(B, H, C),
            n=_columns(eta),
            ROWS=ROWS,
            **_launch(C),
        )
    return dalpha, deta, dtheta


def _columns(eta: Tensor | None) -> int:
    return 1 if eta is None else 2


def _strides(gate: Tensor | None) -> tuple[int, ...]:
    return (0, 0, 0, 0) if gate is None else gate.stride()


def _launch(C: int) -> dict[str, int]:
    """The width of a row, and a warp for every 128 columns of it."""
    width = triton.next_power_of_2(C + 2)
    return {"WIDTH": width, "num_warps": max(1, width // 128)}


@triton.jit
def _first(gate, strides, B, H):
    """The first token's gate of this program's piece."""
    piece = tl.program_id(0).to(tl.int64)
    n, b, h = piece // (B * H), piece // H % B, piece % H
    return gate + n * strides[0] + b * strides[1] + h * strides[2]


@triton.jit
def _keep(alpha, strides, t):
    """``1 - alpha_t``."""
    keep = 1.0
    if alpha is not None:
        keep = 1.0 - tl.load(alpha + t * strides[3])
    return keep


@triton.jit
def _next(E, R, alpha, eta, alpha_strides, eta_strides, t, column):
    """Row t of E and of R, from row t - 1."""
    unit = (column == t).to(tl.float32)
    E = unit if eta is None else tl.load(eta + t * eta_strides[3]) * E + unit
    R = _keep(alpha, alpha_strides, t) * R + E
    return E, R


@triton.jit
def _start(slot):
    """Row 0 of E and of R, before the first token."""
    return (slot == 1).to(tl.float32), (slot == 0).to(tl.float32)


@triton.jit
def _block(first, alpha, eta, alpha_strides, eta_strides, column, slot, rows):
    """The last of some rows of E and of R, and for each row the two before it. Rows below 0 are row 0."""
    E, R = _start(slot)
    for t in tl.range(0, first, num_stages=1):
        E, R = _next(E, R, alpha, eta, alpha_strides, eta_strides, t, column)
    before = ()
    for j in tl.static_range(rows):
        before = before + ((E, R),)  # noqa: RUF005
        t = first + j
        E_t, R_t = _next(E, R, alpha, eta, alpha_strides, eta_strides, tl.maximum(t, 0), column)
        E = tl.where(t >= 0, E_t, E)
        R = tl.where(t >= 0, R_t, R)
    return E, R, before


@triton.jit
def _forward_kernel(
    alpha,
    eta,
    theta,
    alpha_strides,
    eta_strides,
    theta_strides,
    G,
    read,
    write,
    carry,
    B,
    H,
    C,
    n: tl.constexpr,
    WIDTH: tl.constexpr,
):
    piece = tl.program_id(0).to(tl.int64)
    if alpha is not None:
        alpha = _first(alpha, alpha_strides, B, H)
    if eta is not None:
        eta = _first(eta, eta_strides, B, H)
    theta = _first(theta, theta_strides, B, H)
    G += piece * C * C
    read += piece * C * n
    write += piece * C * n
    carry += piece * (2 * n - 1)

    column = tl.arange(0, WIDTH)
    is_token = column < C
    slot = C + 1 - column  # of the columns a, b: 0, 1
    is_slot = (slot >= 0) & (slot < n)
    theta_i = tl.load(theta + column * theta_strides[3], mask=is_token, other=0.0)

    E, R = _start(slot)
    for t in tl.range(0, C, num_stages=1):
        E, R = _next(E, R, alpha, eta, alpha_strides, eta_strides, t, column)
        tl.store(G + t * C + column, R * theta_i, mask=is_token)
        tl.store(read + t * n + slot, R, mask=is_slot)
    tl.store(write + column * n, R * theta_i, mask=is_token)
    tl.store(carry + slot, R, mask=is_slot)
    if eta is not None:
        tl.store(write + column * n + 1, E * theta_i, mask=is_token)
        tl.store(carry + 1 + slot, E, mask=slot == 1)


@triton.jit
def _backward_kernel(
    alpha,
    eta,
    theta,
    alpha_strides,
    eta_strides,
    theta_strides,
    dG,
    dread,
    dwrite,
    dcarry,
    dalpha,
    deta,
    dtheta,
    grad_strides,
    B,
    H,
    C,
    n: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    piece = tl.program_id(0).to(tl.int64)
    if alpha is not None:
        alpha = _first(alpha, alpha_strides, B, H)
        dalpha = _first(dalpha, grad_strides, B, H)
    if eta is not None:
        eta = _first(eta, eta_strides, B, H)
        deta = _first(deta, grad_strides, B, H)
    theta = _first(theta, theta_strides, B, H)
    dtheta = _first(dtheta, grad_strides, B, H)
    dG += piece * C * C
    dread += piece * C * n
    dwrite += piece * C * n
    dcarry += piece * (2 * n - 1)

    column = tl.arange(0, WIDTH)
    is_token = column < C
    slot = C + 1 - column  # of the columns a, b: 0, 1
    is_slot = (slot >= 0) & (slot < n)
    scale = tl.load(theta + column * theta_strides[3], mask=is_token, other=1.0)

    # What write and carry ask of the last rows is waiting for them. Both are over theta_i: scale puts it back.
    waiting = tl.load(dwrite + column * n, mask=is_token, other=0.0)
    waiting += tl.load(dcarry + slot, mask=is_slot, other=0.0)
    waiting_E = tl.zeros([WIDTH], dtype=tl.float32)
    if eta is not None:
        waiting_E = tl.load(dwrite + column * n + 1, mask=is_token, other=0.0)
        waiting_E += tl.load(dcarry + 1 + slot, mask=slot == 1, other=0.0)

    dtheta_i = tl.zeros([WIDTH], dtype=tl.float32)
    dR = tl.zeros([WIDTH], dtype=tl.float32)
    dE = tl.zeros([WIDTH], dtype=tl.float32)
    keep_after = 1.0
    eta_after = 1.0
    for block in tl.range(0, tl.cdiv(C, ROWS), num_stages=1):
        first = C - (block + 1) * ROWS  # of the rows of this block; below 0 where the first block has fewer
        E, R, before = _block(first, alpha, eta, alpha_strides, eta_strides, column, slot, ROWS)
        for j in tl.static_range(ROWS):
            t = first + ROWS - 1 - j
            row = tl.maximum(t, 0)  # rows below 0 come last: nothing of them is stored
            E_before, R_before = before[ROWS - 1 - j]
            asked = waiting + tl.load(dG + row * C + column, mask=column <= t, other=0.0)
            asked += tl.load(dread + row * n + slot, mask=is_slot, other=0.0)
            dtheta_i += asked * R
            dR = keep_after * dR + asked * scale
            if alpha is not None:
                tl.store(dalpha + row * grad_strides[3], -tl.sum(dR * R_before), mask=t >= 0)
                keep_after = _keep(alpha, alpha_strides, row)
            if eta is not None:
                dtheta_i += waiting_E * E
                dE = eta_after * dE + dR + waiting_E * scale
                tl.store(deta + row * grad_strides[3], tl.sum(dE * E_before), mask=t >= 0)
                eta_after = tl.load(eta + row * eta_strides[3])
            E, R = E_before, R_before
            waiting = tl.zeros([WIDTH], dtype=tl.float32)
            waiting_E = tl.zeros([WIDTH], dtype=tl.float32)
    tl.store(dtheta + column * grad_strides[3], dtheta_i, mask=is_token)
