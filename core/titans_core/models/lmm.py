"""LMM: the long-term memory alone (section 5.1)."""

from torch import Tensor, nn

from titans_core.models.blocks import memory_of, persistent_of, with_persistent
from titans_core.models.config import TitansConfig
from titans_core.nn import NeuralMemoryState


class MemoryAlone(nn.Module):
    """``o = M([p | x])``: the memory reads the persistent tokens, then the sequence."""

    def __init__(self, config: TitansConfig) -> None:
        super().__init__()
        self.memory = memory_of(config)
        self.persistent = persistent_of(config)

    def forward(self, x: Tensor, state: NeuralMemoryState | None = None) -> tuple[Tensor, NeuralMemoryState]:
        """Apply the layer to ``x [B, T, dim]``. Returns an output of the same shape and the new state."""
        return with_persistent(self.persistent, self.memory, x, state)
