"""From gates to the coefficients of pieces, by recurrences over tokens. One program per piece keeps a row in registers.

Row t of E and of R has a column for each token i of the piece, and two more for the state before the piece:

    E_t = eta_t E_{t-1} + I_t           columns E[t, i], e_t, 0         E_0 = (0 .. 0, 1, 0)
    R_t = (1 - alpha_t) R_{t-1} + E_t   columns (A E)[t, i], b_t, a_t   R_0 = (0 .. 0, 0, 1)

Without momentum, E_t is I_t, and b and e are 0. There is no division by a gate and no logarithm, so gates of 0 and 1
are exact, also in the gradient.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

# Number of rows that the backward pass holds in registers. For each block of this many rows it reruns the recurrence
# from the piece's first token. This costs a few instructions per row, and no row is written to memory.
ROWS = 8


def coefficients_forward(
    alpha: Tensor | None, eta: Tensor | None, theta: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``G, read, write, carry`` as in :class:`titans_core.ops.memory.coefficients.Coefficients`.

    Args:
        alpha, eta, theta: gates of pieces of C tokens, float32 ``[N, P, C]``. None means a gate of 0.

    Returns:
        With n = 2 (1 without momentum): G ``[N, P, C, C]``, read and write ``[N, P, C, n]``, carry ``[N, P, 2 n - 1]``.
    """
    N, P, C = theta.shape
    n = _columns(eta)

    def new(*shape: int) -> Tensor:
        return torch.empty((N, P, *shape), dtype=torch.float32, device=theta.device)

    G, read, write, carry = new(C, C), new(C, n), new(C, n), new(2 * n - 1)
    with torch.cuda.device_of(theta):
        gates = map(_contiguous, (alpha, eta, theta))
        _forward_kernel[(N * P,)](*gates, G, read, write, carry, C, n=n, **_launch(C))
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
    """Gradients of the gates ``[N, P, C]`` from those of the coefficients. ``dG`` above the diagonal is ignored."""
    N, P, C = theta.shape
    found = [
        None if gate is None else torch.empty((N, P, C), dtype=torch.float32, device=theta.device)
        for gate in (alpha, eta, theta)
    ]
    with torch.cuda.device_of(theta):
        _backward_kernel[(N * P,)](
            *map(_contiguous, (alpha, eta, theta, dG, dread, dwrite, dcarry)),
            *found,
            C,
            n=_columns(eta),
            ROWS=ROWS,
            **_launch(C),
        )
    dalpha, deta, dtheta = found
    assert dtheta is not None
    return dalpha, deta, dtheta


def _columns(eta: Tensor | None) -> int:
    return 1 if eta is None else 2


def _contiguous(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


def _launch(C: int) -> dict[str, int]:
    """Row width, and one warp per 128 columns."""
    width = triton.next_power_of_2(C + 2)
    return {"WIDTH": width, "num_warps": max(1, width // 128)}


@triton.jit
def _keep(alpha, t):
    """``1 - alpha_t``."""
    keep = 1.0
    if alpha is not None:
        keep = 1.0 - tl.load(alpha + t)
    return keep


@triton.jit
def _next(E, R, alpha, eta, t, column):
    """Row t of E and R from row t - 1."""
    unit = (column == t).to(tl.float32)
    E = unit if eta is None else tl.load(eta + t) * E + unit
    R = _keep(alpha, t) * R + E
    return E, R


@triton.jit
def _start(slot):
    """Row 0 of E and R, before the first token."""
    return (slot == 1).to(tl.float32), (slot == 0).to(tl.float32)


@triton.jit
def _block(first, alpha, eta, column, slot, rows):
    """The last of ``rows`` rows of E and R, and for each row the preceding pair. Rows below 0 count as row 0."""
    E, R = _start(slot)
    for t in tl.range(0, first, num_stages=1):
        E, R = _next(E, R, alpha, eta, t, column)
    before = ()
    for j in tl.static_range(rows):
        before = before + ((E, R),)  # noqa: RUF005
        t = first + j
        E_t, R_t = _next(E, R, alpha, eta, tl.maximum(t, 0), column)
        E = tl.where(t >= 0, E_t, E)
        R = tl.where(t >= 0, R_t, R)
    return E, R, before


@triton.jit
def _forward_kernel(
    alpha,
    eta,
    theta,
    G,
    read,
    write,
    carry,
    C,
    n: tl.constexpr,
    WIDTH: tl.constexpr,
):
    piece = tl.program_id(0).to(tl.int64)
    if alpha is not None:
        alpha += piece * C
    if eta is not None:
        eta += piece * C
    theta += piece * C
    G += piece * C * C
    read += piece * C * n
    write += piece * C * n
    carry += piece * (2 * n - 1)

    column = tl.arange(0, WIDTH)
    is_token = column < C
    slot = C + 1 - column  # of the columns a, b: 0, 1
    is_slot = (slot >= 0) & (slot < n)
    theta_i = tl.load(theta + column, mask=is_token, other=0.0)

    E, R = _start(slot)
    for t in tl.range(0, C, num_stages=1):
        E, R = _next(E, R, alpha, eta, t, column)
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
    dG,
    dread,
    dwrite,
    dcarry,
    dalpha,
    deta,
    dtheta,
    C,
    n: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    piece = tl.program_id(0).to(tl.int64)
    if alpha is not None:
        alpha += piece * C
        dalpha += piece * C
    if eta is not None:
        eta += piece * C
        deta += piece * C
    theta += piece * C
    dtheta += piece * C
    dG += piece * C * C
    dread += piece * C * n
    dwrite += piece * C * n
    dcarry += piece * (2 * n - 1)

    column = tl.arange(0, WIDTH)
    is_token = column < C
    slot = C + 1 - column  # of the columns a, b: 0, 1
    is_slot = (slot >= 0) & (slot < n)
    scale = tl.load(theta + column, mask=is_token, other=1.0)

    # Gradients that reach the last rows through write and carry, without the factor theta_i that scale supplies.
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
        first = C - (block + 1) * ROWS  # first row of this block; below 0 if the piece's first block is short
        E, R, before = _block(first, alpha, eta, column, slot, ROWS)
        for j in tl.static_range(ROWS):
            t = first + ROWS - 1 - j
            row = tl.maximum(t, 0)  # rows below 0 come last and are not stored
            E_before, R_before = before[ROWS - 1 - j]
            gradient = waiting + tl.load(dG + row * C + column, mask=column <= t, other=0.0)
            gradient += tl.load(dread + row * n + slot, mask=is_slot, other=0.0)
            dtheta_i += gradient * R
            dR = keep_after * dR + gradient * scale
            if alpha is not None:
                tl.store(dalpha + row, -tl.sum(dR * R_before), mask=t >= 0)
                keep_after = _keep(alpha, row)
            if eta is not None:
                dtheta_i += waiting_E * E
                dE = eta_after * dE + dR + waiting_E * scale
                tl.store(deta + row, tl.sum(dE * E_before), mask=t >= 0)
                eta_after = tl.load(eta + row)
            E, R = E_before, R_before
            waiting = tl.zeros([WIDTH], dtype=tl.float32)
            waiting_E = tl.zeros([WIDTH], dtype=tl.float32)
    tl.store(dtheta + column, dtheta_i, mask=is_token)
