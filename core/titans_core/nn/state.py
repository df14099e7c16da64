"""State that a :class:`~titans_core.nn.NeuralMemory` layer carries from one call to the next."""

from dataclasses import dataclass

from torch import Tensor

from titans_core.ops.memory.state import MemoryState, Movable, exportable


@exportable
@dataclass(frozen=True)
class NeuralMemoryState(Movable):
    """Everything needed to continue a sequence at its next token exactly.

    Attributes:
        memory: the memory: weights, momentum, and position in the current chunk.
        tail: last ``conv_size - 1`` inputs of the convolution, ``[B, conv_size - 1, 3 dim]``, or None.
        gates: gate logits of the current chunk (theta, and alpha and eta if used), ``[B, 1, gates * H]``. None with
            gates per token.
    """

    memory: MemoryState
    tail: Tensor | None = None
    gates: Tensor | None = None
