"""MAL: memory as a layer before sliding-window attention (section 4.3, Fig. 5)."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from titans_core.models.blocks import memory_of, persistent_of, with_persistent
from titans_core.models.config import TitansConfig
from titans_core.nn import NeuralMemoryState
from titans_core.nn.attention import Attention, AttentionState
from titans_core.nn.norms import RMSNorm


@dataclass(frozen=True)
class LayeredState:
    """States of both layers."""

    memory: NeuralMemoryState
    attention: AttentionState


class MemoryAsLayer(nn.Module):
    """Eq. 29-31, with a residual connection around the memory (section 4.4):

    x~ = [p | x]
    y  = x~ + M(x~)
    o  = SW-Attn(norm y)
    """

    def __init__(self, config: TitansConfig) -> None:
        super().__init__()
        self.persistent = persistent_of(config)
        self.memory = memory_of(config)
        self.norm = RMSNorm(config.dim)
        self.attention = Attention(
            config.dim, config.num_heads, config.window, conv_size=config.conv_size, base=config.rope_base
        )

    def forward(self, x: Tensor, state: LayeredState | None = None) -> tuple[Tensor, LayeredState]:
        """Apply the layer to ``x [B, T, dim]``. Returns an output of the same shape and the new state."""
        return with_persistent(self.persistent, self._layers, x, state)

    def _layers(self, x: Tensor, state: Any) -> tuple[Tensor, LayeredState]:
        m, memory = self.memory(x, None if state is None else state.memory)
        o, attention = self.attention(self.norm(x + m), None if state is None else state.attention)
        return o, LayeredState(memory, attention)
