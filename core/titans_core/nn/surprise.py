"""Size of a memory's momentary surprise at each token (Titans, Eq. 12 and 17).

    u_t = grad_M l(M_{t'}; k_t, v_t),  l = 1/2 |M(k) - v|^2        M_{t'}: the weights at the start of t's chunk

For each layer of the memory, ``u = x^T delta`` has rank one, so ``|u| = |x| |delta|`` and u is never formed. For a
linear memory with ``chunk_size=1``, the error at each token comes from reading the memory with the next key.
"""

import torch
from torch import Tensor

from titans_core.nn.memory import NeuralMemory
from titans_core.nn.state import NeuralMemoryState
from titans_core.ops.memory import read_memory
from titans_core.ops.memory.activations import ACTIVATIONS
from titans_core.ops.memory.gates import of_tokens
from titans_core.ops.memory.inner import rank_one
from titans_core.ops.memory.online import is_online


@torch.no_grad()
def momentary_surprise(memory: NeuralMemory, x: Tensor, state: NeuralMemoryState | None) -> Tensor:
    """Size of the momentary surprise ``[B, T, H]`` for tokens ``x [B, T, dim]`` that continue ``state``.

    It is the Frobenius norm of the inner gradient of each head's memory, over all its layers.

    Raises:
        TypeError, ValueError: as for the layer's ``forward``.
    """
    memory._check(x, state)
    q, k, v, _ = memory._project(x, state)
    gates, _ = memory._gate(x, state)
    inner = memory.initial_state(len(x)).memory if state is None else state.memory
    gates = {name: of_tokens(gate, x.shape[1], inner.offset, memory.chunk_size) for name, gate in gates.items()}
    if is_online(len(memory.weights), memory.chunk_size):
        k, v = (vectors.to(inner.weights[0].dtype) for vectors in (k, v))
        first = read_memory(k[:, :1], inner.weights)
        recalled, _ = memory._run(k.roll(-1, 1), k, v, gates, inner)
        return k.norm(dim=-1) * (torch.cat((first, recalled[:, :-1]), dim=1) - v).norm(dim=-1)
    found, start = [], 0
    while start < x.shape[1]:
        # up to the end of the current chunk, whose gradients are all taken at one anchor
        part = slice(start, start + memory.chunk_size - inner.offset)
        found.append(_norm(k[:, part], v[:, part], inner.anchor, memory.activation))
        of_part = {name: gate[:, part] for name, gate in gates.items()}
        _, inner = memory._run(q[:, part], k[:, part], v[:, part], of_part, inner)
        start = part.stop
    return torch.cat(found, dim=1)


def _norm(k: Tensor, v: Tensor, anchor: tuple[Tensor, ...], activation: str) -> Tensor:
    """Gradient norm for keys and values ``[B, T, H, .]`` at the memory ``anchor``, ``[B, H, d_in, d_out]`` a layer."""
    dtype = anchor[0].dtype
    k, v = (x.to(dtype).transpose(1, 2) for x in (k, v))
    pairs = rank_one(k, v, anchor, ACTIVATIONS[activation])
    total = sum(x.square().sum(-1) * delta.square().sum(-1) for x, delta in pairs)
    assert isinstance(total, Tensor)
    return total.sqrt().transpose(1, 2)
