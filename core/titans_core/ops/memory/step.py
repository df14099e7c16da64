"""A single token without a gradient, in plain PyTorch: the definition, with the inner gradient written by hand.

Generation calls the memory once per token, where the machinery for chunks would take several times longer.
"""

import torch
from torch import Tensor

from titans_core.ops.memory.activations import ACTIVATIONS
from titans_core.ops.memory.inner import rank_one
from titans_core.ops.memory.naive import read
from titans_core.ops.memory.state import MemoryState


def is_step(q: Tensor) -> bool:
    """Whether a call has a single token ``[B, 1, H, K]`` and needs no gradient. Compiled calls are not told apart."""
    return q.shape[1] == 1 and not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def memory_step(
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
    """Write one token and read it back. Arguments are already checked and cast by :func:`titans_core.neural_memory`."""
    phi = ACTIVATIONS[activation]
    anchor = state.weights if state.offset == 0 else state.anchor
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    alpha, eta = (None if g is None else g.mT[..., None] for g in (alpha, eta))
    theta = theta.mT[..., None]
    W, S = [], []
    for i, (x, delta) in enumerate(rank_one(k, v, anchor, phi)):
        s, w = x.mT * (-theta * delta), state.weights[i]
        if eta is not None:
            s = torch.addcmul(s, eta, state.momentum[i])
        if alpha is None:
            w = w + s
        else:
            w = torch.addcmul(s, 1 - alpha, w)
            if base is not None:
                w = torch.addcmul(w, alpha, base[i])
        W.append(w)
        S.append(s)
    weights = tuple(W)
    offset = (state.offset + 1) % chunk_size
    out = read(weights, q, phi).transpose(1, 2)
    return out, MemoryState(weights, tuple(S), weights if offset == 0 else anchor, offset)
