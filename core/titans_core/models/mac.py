"""MAC: memory as a context of attention (section 4.1, Fig. 2 and 3a)."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from titans_core.models.blocks import memory_of, norm
from titans_core.models.config import TitansConfig
from titans_core.nn import NeuralMemoryState
from titans_core.nn.attention import SegmentAttention, SegmentState
from titans_core.nn.layers import Gate
from titans_core.ops.memory.lengths import at_most, between_graphs, is_of_many_lengths


@dataclass(frozen=True)
class ContextState:
    """Where a sequence stands, in the middle of a segment or at its beginning.

    Attributes:
        before: the memory as the last whole segment left it, which the segment at hand queries.
        memory: the memory now.
        tail: inputs that the convolution of the next queries still sees, ``[B, conv_size - 1, dim]``.
        segment: keys and values of the segment at hand; None before the first token.
        offset: tokens of the segment at hand already read.
    """

    before: NeuralMemoryState
    memory: NeuralMemoryState
    tail: Tensor
    segment: SegmentState | None = None
    offset: int = 0


class MemoryAsContext(nn.Module):
    """Eq. 21-25, for segment t:

    h = M*_{t-1}(q)             what memory says to each token, as the last segment left it
    y = x + Attn([p | h | x])   causal, see :class:`~titans_core.nn.attention.SegmentAttention`
    M_t = M_{t-1}(y)            memory reads what attention found
    o = y (x) M*_t(y)           the gated product of :class:`~titans_core.nn.layers.Gate`

    Attention has a residual connection of its own (section 4.4), so that memory reads the tokens from the start of
    training on; it reads y normalised. In the last line each token reads the memory as its own y left it, not yet those
    behind it: a model of language must not see later tokens.
    """

    def __init__(self, config: TitansConfig) -> None:
        super().__init__()
        self.segment = config.segment
        self.tail = max(0, config.conv_size - 1)
        self.memory = memory_of(config)
        self.attention = SegmentAttention(
            config.dim, config.num_heads, config.segment, config.num_persistent, config.conv_size, config.rope_base
        )
        self.norm = norm(config)
        self.gate = Gate(config.dim)

    def forward(self, x: Tensor, state: ContextState | None = None) -> tuple[Tensor, ContextState]:
        """x ``[B, T, dim]`` -> the same shape, and the state after it."""
        if state is None:
            memory = self.memory.initial_state(len(x))
            state = ContextState(memory, memory, x.new_zeros(len(x), self.tail, x.shape[2]))
        # a graph of all segments is of as many as there are: of texts of many lengths, each is a call of one graph
        return self._segments_apart(x, state) if is_of_many_lengths(x) else self._segments(x, state)

    def _segments(self, x: Tensor, state: ContextState) -> tuple[Tensor, ContextState]:
        outputs, start = [], 0
        while start < x.shape[1]:
            stop = at_most(start + self.segment - state.offset, x.shape[1])
            # made here: its place in memory does not depend on the length of x
            seen = torch.cat((state.tail.to(x.dtype), x[:, start:stop]), dim=1)
            o, state = self._within(seen, state)
            outputs.append(o)
            start = stop
        return torch.cat(outputs, dim=1), state

    _segments_apart = between_graphs(
        _segments, "MAC compiles its segments one by one for texts of many lengths: leave fullgraph out"
    )

    def _within(self, seen: Tensor, state: ContextState) -> tuple[Tensor, ContextState]:
        """Tokens of one segment, behind those that the convolution of the queries still sees."""
        x = seen[:, self.tail :]
        h = self.memory.retrieve(seen, replace(state.before, tail=None))[:, self.tail :]
        found, segment = self.attention(x, h, state.segment)
        y = x + found
        m, memory = self.memory(self.norm(y), state.memory)
        o = self.gate(y, m)
        tail, offset = seen[:, seen.shape[1] - self.tail :].clone(), state.offset + x.shape[1]
        if offset == self.segment:
            return o, ContextState(memory, memory, tail, segment.ended())
        return o, ContextState(state.before, memory, tail, segment, offset)
