"""A linear memory with ``chunk_size=1``, computed in blocks: the gated delta rule, with or without momentum.

With ``chunk_size=1`` every gradient depends on the weights left by the previous token, so the form of ``chunk.py``
would process one token at a time. For one layer, the errors of a block of C tokens instead solve a triangular system
(the WY form of DeltaNet, Yang et al. 2024; momentum only changes its coefficients). With G, a, b, write and carry of
:class:`Coefficients`, and W and S at the start of the block:

    delta_t = k_t (a_{t-1} W + b_{t-1} S) - v_t - sum_{i<t} G[t-1, i] (k_t k_i^T) delta_i        the error at token t
    y_t     = q_t (a_t W + b_t S)               - sum_{i<=t} G[t, i] (q_t k_i^T) delta_i
    W      <- a_C W + b_C S - sum_i g_i k_i^T delta_i
    S      <- e_C S         - sum_i s_i k_i^T delta_i

W and S are stacked in one tensor (``pair.py``). Without momentum there is no S.
"""

from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from titans_core.ops.memory.coefficients import Coefficients
from titans_core.ops.memory.functions import coefficients
from titans_core.ops.memory.pair import columns, join, split
from titans_core.ops.memory.state import MemoryState

BLOCK = 32  # tokens per block; affects speed only
GROUP = 512  # tokens whose blocks are prepared together; without gradients, each group's tensors are freed after use


def is_online(depth: int, chunk_size: int) -> bool:
    """Whether :func:`online_memory` can compute a memory of this depth and chunk size."""
    return chunk_size == 1 and depth == 1


def online_memory(
    q: Tensor, k: Tensor, v: Tensor, alpha: Tensor | None, eta: Tensor | None, theta: Tensor, state: MemoryState
) -> tuple[Tensor, MemoryState]:
    """One layer, chunks of 1. Arguments are already checked and cast by :func:`titans_core.neural_memory`."""
    T = q.shape[1]
    (W,), (S,) = state.weights, state.momentum
    WS = W if eta is None else join(W, S)
    # larger blocks mean fewer launches on a GPU, and fewer nodes in a compiled graph
    block = BLOCK if q.is_cpu and not torch.compiler.is_compiling() else 2 * BLOCK
    whole = T // block * block
    outputs = []
    for start, stop in pairwise((*range(0, whole, GROUP), whole, T)):
        if start == stop:
            continue
        cut = partial(_blocks, start=start, stop=stop, size=min(block, stop - start))
        gates = (None if alpha is None else cut(alpha), None if eta is None else cut(eta), cut(theta))
        c = coefficients(*gates, min(block, stop - start), "chunk")
        y, WS, last = _run(cut(q), cut(k), cut(v), c, WS)
        outputs.append(y.movedim((0, 3), (1, 2)).flatten(1, 2))
    if eta is None:
        W, S = WS, k[:, -1].unsqueeze(-1) * (-theta[:, -1, :, None] * last).unsqueeze(-2)
    else:
        W, S = split(WS, 2)
    return torch.cat(outputs, dim=1), MemoryState((W,), (S,), (W,), 0)


def _run(q: Tensor, k: Tensor, v: Tensor, c: Coefficients, WS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Blocks ``[N, B, H, C, .]`` -> outputs, the final ``WS``, and the error of the last token."""
    n = c.n
    before = F.pad(c.G, (0, 0, 1, -1)) * (k @ k.mT)  # strictly lower: token t reads the memory of t - 1
    first = c.read.new_tensor([1.0, 0.0][:n]).expand_as(c.read[..., :1, :])  # a_0 = 1 and b_0 = 0
    old = torch.cat((first, c.read[..., :-1, :]), dim=-2)
    known = torch.cat((_rows(k, old), v), dim=-1)
    solved = torch.linalg.solve_triangular(before, known, upper=False, unitriangular=True)  # unit diagonal
    keys, values = solved.split((n * k.shape[-1], v.shape[-1]), dim=-1)
    written = _rows(k, c.write).mT

    starts, errors = [], []
    for keys_n, values_n, written_n, carry_n in zip(keys, values, written, c.carry[..., None, None], strict=True):
        starts.append(WS)
        errors.append(keys_n @ WS - values_n)
        WS = _carried(WS, carry_n, n) - written_n @ errors[-1]
    delta = torch.stack(errors)
    y = _rows(q, c.read) @ torch.stack(starts) - (c.G * (q @ k.mT)) @ delta
    return y, WS, delta[-1, ..., -1, :]


def _rows(x: Tensor, p: Tensor) -> Tensor:
    """Rows ``[p_1 x | p_2 x]``: a differentiable ``pair.spread``."""
    return torch.cat([x * number for number in columns(p)], dim=-1)


def _carried(WS: Tensor, carry: Tensor, n: int) -> Tensor:
    """``a_C W + b_C S`` above ``e_C S``; without momentum ``a_C W``. ``carry`` is ``[..., 2 n - 1, 1, 1]``."""
    if n == 1:
        return carry[..., 0, :, :] * WS
    W, S = split(WS, n)
    a, b, e = carry.unbind(-3)
    return join(a * W + b * S, e * S)


def _blocks(x: Tensor, start: int, stop: int, size: int) -> Tensor:
    """Tokens start to stop of ``[B, T, H, ...]`` as contiguous ``[blocks, B, H, size, ...]``."""
    return x[:, start:stop].unflatten(1, (-1, size)).movedim((1, 3), (0, 2)).contiguous()
