"""MAC: memory as a context of attention (section 4.1, Fig. 2 and 3a)."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from titans_core.models.blocks import memory_of
from titans_core.models.config import TitansConfig
from titans_core.nn import NeuralMemoryState
from titans_core.nn.attention import SegmentAttention, SegmentState
from titans_core.nn.layers import Gate
from titans_core.nn.norms import RMSNorm
from titans_core.ops.memory.lengths import at_most, is_of_many_lengths


@dataclass(frozen=True)
class ContextState:
    """State of a sequence, at the start or in the middle of a segment.

    Attributes:
        before: the memory after the last complete segment, which the current segment queries.
        memory: the current memory.
        tail: inputs that the convolution of the next queries still needs, ``[B, conv_size - 1, dim]``.
        segment: keys and values of the current segment; None before the first token.
        offset: number of tokens already read in the current segment.
    """

    before: NeuralMemoryState
    memory: NeuralMemoryState
    tail: Tensor
    segment: SegmentState | None = None
    offset: int = 0


class MemoryAsContext(nn.Module):
    """Eq. 21-25, for segment t:

    h = M*_{t-1}(q)             what the memory after the last segment retrieves for each token
    y = x + Attn([p | h | x])   causal, see :class:`~titans_core.nn.attention.SegmentAttention`
    M_t = M_{t-1}(y)            the memory reads the output of attention
    o = y (x) M*_t(y)           the gated product of :class:`~titans_core.nn.layers.Gate`

    Attention has its own residual connection (section 4.4), so that the memory reads the tokens from the start of
    training. The memory reads y normalised. In the last line, each token reads the memory after its own y is written,
    but not yet later ones: a language model must not see later tokens.
    """

    def __init__(self, config: TitansConfig) -> None:
        super().__init__()
        self.segment = config.segment
        self.tail = max(0, config.conv_size - 1)
        self.memory = memory_of(config)
        self.attention = SegmentAttention(
            config.dim, config.num_heads, config.segment, config.num_persistent, config.conv_size, config.rope_base
        )
        self.norm = RMSNorm(config.dim)
        self.gate = Gate(config.dim)

    def forward(self, x: Tensor, state: ContextState | None = None) -> tuple[Tensor, ContextState]:
        """Apply the layer to ``x [B, T, dim]``. Returns an output of the same shape and the new state."""
        if state is None:
            memory = self.memory.initial_state(x.shape[0])
            state = ContextState(memory, memory, x.new_zeros(x.shape[0], self.tail, x.shape[2]))
        # one graph of all segments fits only one length; with dynamic lengths, one compiled graph is called per segment
        if is_of_many_lengths(x):
            from titans_core.models.segments_apart import segments_apart

            return segments_apart(self, x, state)
        return self._segments(x, state)

    def _segments(self, x: Tensor, state: ContextState) -> tuple[Tensor, ContextState]:
        outputs, start = [], 0
        while start < x.shape[1]:
            stop = at_most(start + self.segment - state.offset, x.shape[1])
            # a new tensor: its memory layout does not depend on the length of x
            seen = torch.cat((state.tail.to(x.dtype), x[:, start:stop]), dim=1)
            o, state = self._within(seen, state)
            outputs.append(o)
            start = stop
        return torch.cat(outputs, dim=1), state

    def _within(self, seen: Tensor, state: ContextState) -> tuple[Tensor, ContextState]:
        """Process tokens of one segment, preceded by the inputs that the query convolution still needs."""
        earlier, x = seen[:, : self.tail], seen[:, self.tail :]
        tail = self.memory.qkv(earlier) if self.tail else None
        h = self.memory.retrieve(x, replace(state.before, tail=tail))
        found, segment = self.attention(x, h, state.segment)
        y = x + found
        m, memory = self.memory(self.norm(y), state.memory)
        o = self.gate(y, m)
        tail, offset = seen[:, seen.shape[1] - self.tail :].clone(), state.offset + x.shape[1]
        if offset == self.segment:
            return o, ContextState(memory, memory, tail, segment.ended())
        return o, ContextState(state.before, memory, tail, segment, offset)
