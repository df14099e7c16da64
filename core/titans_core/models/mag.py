"""MAG: memory as a gate beside sliding-window attention (section 4.2, Fig. 3b and 4)."""

from dataclasses import dataclass

from torch import Tensor, nn

from titans_core.models.blocks import memory_of, with_persistent
from titans_core.models.config import TitansConfig
from titans_core.nn import NeuralMemoryState
from titans_core.nn.attention import Attention, AttentionState
from titans_core.nn.layers import Gate


@dataclass(frozen=True)
class GatedState:
    """States of both branches."""

    attention: AttentionState
    memory: NeuralMemoryState


class MemoryAsGate(nn.Module):
    """Eq. 26-28. Both branches read the same persistent tokens p first:

    y = SW-Attn*([p | x])
    o = y (x) M([p | x])        the gated product of :class:`~titans_core.nn.layers.Gate`
    """

    def __init__(self, config: TitansConfig) -> None:
        super().__init__()
        self.attention = Attention(
            config.dim, config.num_heads, config.window, config.num_persistent, config.conv_size, config.rope_base
        )
        self.memory = memory_of(config)
        self.gate = Gate(config.dim)

    def forward(self, x: Tensor, state: GatedState | None = None) -> tuple[Tensor, GatedState]:
        """Apply the layer to ``x [B, T, dim]``. Returns an output of the same shape and the new state."""
        y, attention = self.attention(x, None if state is None else state.attention)
        m, memory = with_persistent(self.attention.persistent, self.memory, x, None if state is None else state.memory)
        return self.gate(y, m), GatedState(attention, memory)
