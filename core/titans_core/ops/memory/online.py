"""A linear memory without momentum whose gradients are fresh at every token: the gated delta rule, in blocks.

With ``chunk_size=1`` every gradient depends on the weights that the one before it left, so the form of ``chunk.py`` has
one token a chunk. For one layer without momentum the errors of a block of C tokens solve a triangular system instead
(the WY form of DeltaNet, Yang et al. 2024). With G, a, write and carry of :class:`Coefficients` and W at its start:

    delta_t = a_{t-1} k_t W - v_t - sum_{i<t} G[t-1, i] (k_t k_i^T) delta_i        the error at token t
    y_t     = a_t q_t W - sum_{i<=t} G[t, i] (q_t k_i^T) delta_i
    W      <- a_C W - sum_i write_i k_i^T delta_i
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from titans_core.ops.memory.functions import coefficients
from titans_core.ops.memory.state import MemoryState

BLOCK = 64  # tokens of a block: a matter of speed alone


def is_online(eta: Tensor | None, depth: int, chunk_size: int) -> bool:
    """Whether :func:`online_memory` computes such a memory."""
    return chunk_size == 1 and eta is None and depth == 1


def online_memory(
    q: Tensor, k: Tensor, v: Tensor, alpha: Tensor | None, theta: Tensor, state: MemoryState
) -> tuple[Tensor, MemoryState]:
    """Arguments as checked and upcast by :func:`titans_core.neural_memory`; one layer, no momentum, chunks of 1."""
    T = q.shape[1]
    W = state.weights[0]
    whole = T // BLOCK * BLOCK
    outputs = []
    for start, stop, size in ((0, whole, BLOCK), (whole, T, T - whole)):
        if start == stop:
            continue
        cut = partial(_blocks, start=start, stop=stop, size=size)
        y, W, last = _run(cut(q), cut(k), cut(v), None if alpha is None else cut(alpha), cut(theta), W)
        outputs.append(y.movedim((0, 3), (1, 2)).flatten(1, 2))
    S = k[:, -1].unsqueeze(-1) * (-theta[:, -1, :, None] * last).unsqueeze(-2)
    return torch.cat(outputs, dim=1), MemoryState((W,), (S,), (W,), 0)


def _run(
    q: Tensor, k: Tensor, v: Tensor, alpha: Tensor | None, theta: Tensor, W: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Blocks ``[N, B, H, C, .]`` -> outputs, the last weights, and the error of the last token."""
    c = coefficients(alpha, None, theta, "chunk")
    before = F.pad(c.G, (0, 0, 1, -1)) * (k @ k.mT)  # strictly lower: token t reads what stood there at t - 1
    faded = F.pad(c.read, (0, 0, 1, -1), value=0.0)
    faded = faded + F.pad(torch.ones_like(c.read[..., :1, :]), (0, 0, 0, c.read.shape[-2] - 1))  # a_0 = 1
    system = torch.eye(before.shape[-1], dtype=k.dtype, device=k.device) + before
    solved = torch.linalg.solve_triangular(system, torch.cat((faded * k, v), dim=-1), upper=False, unitriangular=True)
    keys, values = solved.split((k.shape[-1], v.shape[-1]), dim=-1)
    written = (c.write * k).mT

    starts, errors = [], []
    for keys_n, values_n, written_n, carry_n in zip(keys, values, written, c.carry.unsqueeze(-1), strict=True):
        starts.append(W)
        errors.append(keys_n @ W - values_n)
        W = carry_n * W - written_n @ errors[-1]
    delta = torch.stack(errors)
    y = c.read * (q @ torch.stack(starts)) - (c.G * (q @ k.mT)) @ delta
    return y, W, delta[-1, ..., -1, :]


def _blocks(x: Tensor, start: int, stop: int, size: int) -> Tensor:
    """Tokens start to stop of ``[B, T, H, ...]`` as ``[blocks, B, H, size, ...]``, contiguous."""
    return x[:, start:stop].unflatten(1, (-1, size)).movedim((1, 3), (0, 2)).contiguous()
