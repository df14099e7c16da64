"""From gates to coefficients: how strongly each token of a piece reads what was written before it.

``E_t = eta_t E_{t-1} + I_t`` and ``A_t = (1 - alpha_t) A_{t-1} + E_t``, row by row. The backward pass recomputes these
sums, which is cheaper than storing them.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from titans_core.ops.memory.decay import SCALE, decayed_sum, decayed_sum_gradient, scaled_back


class Coefficients(NamedTuple):
    """Everything that one piece of C tokens needs from its gates. Shapes omit leading dimensions.

    With ``A[t, i] = prod_{j=i+1..t} (1 - alpha_j)`` and ``E[t, i] = prod_{j=i+1..t} eta_j``, and a and e the same
    products from the start of the piece:

        M_t = a_t M + b_t S - sum_i G[t, i] u_i,    G = A E diag(theta),  b = A e
        S_t = e_t S         - sum_i E[t, i] theta_i u_i

    where M and S are the values before the piece. S is needed only after the last token. Without momentum, E is the
    identity and S is unused: n is 1, otherwise 2.
    """

    G: Tensor  # [C, C]
    read: Tensor  # [C, n]: a and b, weights of M and S at each token; with a base also 1 - a, its weight
    write: Tensor  # [C, n]: G[C, i] and E[C, i] theta_i, weights of each u_i in the final M and S
    carry: Tensor  # [1] or [3]: a_C, or a_C, b_C and e_C, weights of M and S after the piece; with a base also 1 - a_C

    @property
    def n(self) -> int:
        """2, or 1 without momentum."""
        return self.write.shape[-1]

    def with_base(self) -> "Coefficients":
        """Add the weights of a base that forgetting pulls towards: 1 - a wherever M has weight a."""
        read, carry = (torch.cat((x, 1 - x[..., :1]), dim=-1) for x in (self.read, self.carry))
        return self._replace(read=read, carry=carry)


def coefficients_forward(
    alpha: Tensor | None, eta: Tensor | None, theta: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The :class:`Coefficients` of pieces of C tokens, for gates ``[..., C]``. None means a gate of 0."""
    E, A = _sums(alpha, eta, theta, slice(-1, None))
    n = A.shape[-1] - theta.shape[-1]
    write, carry = A[..., -1, n:, None], A[..., -1, :n]
    if E is not None:
        write = torch.cat((write, E[..., -1, 1:, None]), dim=-1)
        carry = torch.cat((carry, E[..., -1, :1]), dim=-1)
    G = A[..., 1:, n:] * theta.unsqueeze(-2)
    # clone: slices that are already contiguous would share memory
    read, carry = (x.clone(memory_format=torch.contiguous_format) for x in (A[..., 1:, :n], carry))
    return G, read, write * theta.unsqueeze(-1), carry


def coefficients_backward(
    alpha: Tensor | None,
    eta: Tensor | None,
    theta: Tensor,
    dG: Tensor,
    dread: Tensor,
    dwrite: Tensor,
    dcarry: Tensor,
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Gradients of alpha, eta and theta."""
    E, A = _sums(alpha, eta, theta, slice(None))
    n = A.shape[-1] - theta.shape[-1]
    dA = torch.empty_like(A)
    of_G = dA[..., 1:, n:]
    dtheta = torch.mul(dG, A[..., 1:, n:], out=of_G).sum(-2) + dwrite[..., 0] * A[..., -1, n:]
    if alpha is None and eta is None:
        return None, None, dtheta
    dA[..., 0, :] = 0
    dA[..., 1:, :n] = dread
    torch.mul(dG, theta.unsqueeze(-2), out=of_G)
    dA[..., -1, :n] += dcarry[..., :n]
    dA[..., -1, n:] += dwrite[..., 0] * theta
    dkeep, dA = decayed_sum_gradient(None if alpha is None else 1 - alpha, A, dA)
    deta = None
    if eta is not None and E is not None:
        dtheta += dwrite[..., 1] * E[..., -1, 1:]
        dE = dA[..., 1:]
        dE[..., -1, :1] += dcarry[..., n:]
        dE[..., -1, 1:] += dwrite[..., 1] * theta
        deta, _ = decayed_sum_gradient(eta, E, dE)
    return None if dkeep is None else -dkeep, deta, dtheta


def _sums(alpha: Tensor | None, eta: Tensor | None, theta: Tensor, rows_of_E: slice) -> tuple[Tensor | None, Tensor]:
    """Rows of ``[e | E]``, or None without momentum, and ``[a | b | A E]``, or ``[a | A]``. Row 0 is before the piece.

    The sums are as large as the largest tensors of a forward pass, so the second is computed in place of the first.
    """
    ones = torch.eye(theta.shape[-1] + 1, dtype=theta.dtype, device=theta.device) * SCALE
    keep = None if alpha is None else 1 - alpha
    if eta is None:
        return None, scaled_back(decayed_sum(keep, ones)).expand(*theta.shape[:-1], *ones.shape)
    A = theta.new_empty(*theta.shape[:-1], len(ones), 1 + len(ones))
    A[..., 0] = 0
    E = decayed_sum(eta, ones, out=A[..., 1:])[..., rows_of_E, :].clone(memory_format=torch.contiguous_format)
    A[..., 0, :2] = ones[0, :2]  # before the piece, a = 1 and b = 0
    return scaled_back(E), scaled_back(decayed_sum(keep, A, out=A))
