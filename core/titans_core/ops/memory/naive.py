"""Neural memory, one token at a time. This file is the reference definition.

    u_t = grad_M l(M_{t'}; k_t, v_t),  l = 1/2 |M(k) - v|^2      momentary surprise (Eq. 12, 17)
    S_t = eta_t S_{t-1} - theta_t u_t                            past surprise (Eq. 10, 14, 18)
    M_t = (1 - alpha_t) M_{t-1} + S_t                            forgetting (Eq. 13)
    y_t = M_t(q_t)                                               read after write (Eq. 15)

``t' = t - mod(t, C)`` is the start of t's chunk (Eq. 16). The inner gradient is computed by autograd.

With a base, forgetting pulls the memory towards it instead of zero:
``M_t = (1 - alpha_t) M_{t-1} + alpha_t base + S_t``.

Source: Titans (arXiv:2501.00663). Gates are post-activation.
"""

import torch
from torch import Tensor

from titans_core.ops.memory.activations import ACTIVATIONS, Activation
from titans_core.ops.memory.state import MemoryState


def read(weights: tuple[Tensor, ...], x: Tensor, activation: Activation) -> Tensor:
    """``M(x)``: an MLP without biases. weights ``[B, H, d_in, d_out]``, x ``[B, H, N, d_in]``."""
    for w in weights[:-1]:
        x = activation.value(x @ w)
    return x @ weights[-1]


def naive_memory(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alpha: Tensor | None,
    eta: Tensor | None,
    theta: Tensor,
    state: MemoryState,
    chunk_size: int,
    activation: str,
    base: tuple[Tensor, ...] | None,
) -> tuple[Tensor, MemoryState]:
    """The definition. Arguments are already checked and cast by :func:`titans_core.neural_memory`."""
    phi = ACTIVATIONS[activation]

    def inner_loss(memory: tuple[Tensor, ...], k_t: Tensor, v_t: Tensor) -> Tensor:
        error = read(memory, k_t, phi) - v_t
        return 0.5 * error.square().sum()  # sequences and heads are independent, so summing keeps gradients separate

    surprise = torch.func.grad(inner_loss)
    M, S, anchor, offset = state.weights, state.momentum, state.anchor, state.offset
    outputs = []
    for t in range(q.shape[1]):
        if offset == 0:
            anchor = M
        q_t, k_t, v_t = (x[:, t, :, None, :] for x in (q, k, v))
        u = surprise(anchor, k_t, v_t)
        theta_t = theta[:, t, :, None, None]
        eta_t = eta[:, t, :, None, None] if eta is not None else 0.0
        keep_t = 1 - alpha[:, t, :, None, None] if alpha is not None else 1.0

        S = tuple(eta_t * s - theta_t * u_l for s, u_l in zip(S, u, strict=True))
        M = tuple(keep_t * w + s for w, s in zip(M, S, strict=True))
        if base is not None:
            M = tuple(w + (1 - keep_t) * w_0 for w, w_0 in zip(M, base, strict=True))
        outputs.append(read(M, q_t, phi)[:, :, 0])

        offset = (offset + 1) % chunk_size
    return torch.stack(outputs, dim=1), MemoryState(M, S, M if offset == 0 else anchor, offset)
