"""What a :class:`~titans_core.nn.NeuralMemory` layer carries from one call to the next."""

from dataclasses import dataclass

import torch
from torch import Tensor

from titans_core.ops.memory.state import MemoryState, exportable, map_state


@exportable
@dataclass(frozen=True)
class NeuralMemoryState:
    """Enough to continue a sequence at its next token as if it had never been cut.

    Attributes:
        memory: the memory itself: weights, momentum, and its place in the current chunk.
        tail: the last ``conv_size - 1`` inputs of the convolution, ``[B, conv_size - 1, 3 dim]``; or None.
        gates: logits of theta, alpha and eta (those there are) of the chunk at hand, ``[B, 1, gates * H]``; None with
            gates per token.
    """

    memory: MemoryState
    tail: Tensor | None = None
    gates: Tensor | None = None

    def detach(self) -> "NeuralMemoryState":
        """The same state, cut from the graph: for truncated back-propagation through time."""
        return map_state(torch.Tensor.detach, self)

    def to(self, device: torch.device | str) -> "NeuralMemoryState":
        """The same state on another device."""
        return map_state(lambda t: t.to(device), self)
