"""Small layers shared by the architectures."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titans_core.nn.eager import untouched
from titans_core.nn.norms import RMSNorm


def part_of(linear: nn.Linear, x: Tensor, outputs: slice) -> Tensor:
    """Some outputs of a projection without bias, where possible without computing the others."""
    if untouched(linear, nn.Linear):
        return F.linear(x, linear.weight[outputs])
    # an adapter in its place, a patch or a hook must see the full projection
    return linear(x)[..., outputs]


class SwiGLU(nn.Module):
    """``(SiLU(x W1) * x W2) W3`` (Shazeer 2020), without biases."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.into = nn.Linear(dim, 2 * hidden, bias=False)
        self.out = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.into(x).chunk(2, dim=-1)
        return self.out(F.silu(gate) * value)


class Gate(nn.Module):
    """Gated product ``y (x) m`` of two branches, each normalised with learned weights (section 4.2).

    Computes ``norm(y) * sigmoid(norm(m)) + norm(m) * sigmoid(norm(y))``: each branch gates the other, so the content of
    both reaches the output. With a single product, one branch acts only as a gate and its content is lost, which breaks
    recall.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm, self.memory_norm = RMSNorm(dim), RMSNorm(dim)

    def forward(self, y: Tensor, memory: Tensor) -> Tensor:
        y, memory = self.norm(y), self.memory_norm(memory)
        return y * torch.sigmoid(memory) + memory * torch.sigmoid(y)
