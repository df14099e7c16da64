"""Parts shared by all architectures: the residual block and persistent tokens."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from titans_core.models.config import TitansConfig
from titans_core.nn import NeuralMemory
from titans_core.nn.layers import SwiGLU
from titans_core.nn.norms import RMSNorm


class Block(nn.Module):
    """``x + Mixer(norm x)``, then ``x + SwiGLU(norm x)``: pre-norm and residual (section 4.4)."""

    def __init__(self, config: TitansConfig, mixer: nn.Module) -> None:
        super().__init__()
        self.mixer_norm, self.mixer = RMSNorm(config.dim), mixer
        self.mlp_norm, self.mlp = RMSNorm(config.dim), SwiGLU(config.dim, config.hidden)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Apply the block to ``x [B, T, dim]``. Returns an output of the same shape and the mixer's new state."""
        y, state = self.mixer(self.mixer_norm(x), state)
        x = x + y
        return x + self.mlp(self.mlp_norm(x)), state


def memory_of(config: TitansConfig) -> NeuralMemory:
    """Build the neural memory of a block."""
    return NeuralMemory(
        config.dim,
        config.num_heads,
        depth=config.memory_depth,
        expansion=config.memory_expansion,
        chunk_size=config.chunk_size,
        conv_size=config.conv_size,
        momentum=config.momentum,
        forget=config.forget,
        forget_to=config.forget_to,
        unit_values=True,
    )


def persistent_of(config: TitansConfig) -> nn.Parameter | None:
    """Persistent memory: learned tokens ``[num_persistent, dim]`` (Eq. 19), at the scale of a normalised input."""
    return nn.Parameter(torch.randn(config.num_persistent, config.dim)) if config.num_persistent else None


def with_persistent(
    persistent: Tensor | None, layer: Callable[[Tensor, Any], tuple[Tensor, Any]], x: Tensor, state: Any
) -> tuple[Tensor, Any]:
    """``layer([p_1 .. p_N | x])`` without the first N outputs (Eq. 26, 29); with a state, p has been read already."""
    if state is not None or persistent is None:
        return layer(x, state)
    y, state = layer(torch.cat((persistent.to(x.dtype).expand(x.shape[0], -1, -1), x), dim=1), None)
    return y[:, len(persistent) :], state
