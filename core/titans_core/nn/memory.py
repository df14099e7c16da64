"""The neural memory as a layer: projections, gates and output around the operator (Titans, sections 3.1, 3.2, 4.4)."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from titans_core.checks import at_least, is_number
from titans_core.nn.convolution import CausalConv
from titans_core.nn.layers import part_of
from titans_core.nn.norms import RMSNorm, gated, silu_parts, unit_silu
from titans_core.nn.state import NeuralMemoryState
from titans_core.ops.memory import MemoryState, neural_memory, read_memory
from titans_core.ops.memory.api import check_activation, check_forget_to
from titans_core.ops.memory.dispatch import check_backend

GATES = ("token", "chunk")


def _logit(p: float) -> float:
    return math.log(p / (1 - p))


class NeuralMemory(nn.Module):
    """Sequence layer whose memory is a small MLP per head, trained by gradient descent while the layer reads.

    Queries, keys and values are linear projections of the input, each followed by a depthwise causal convolution and
    SiLU. Queries and keys are l2-normalised. Gates depend on the input. The memory's output is normalised per head,
    gated by a linear function of the input, and projected (section 4.4).

    The inner learning rate is ``theta = 2 (1 - eta) / chunk_size * sigmoid(.)``. All steps of a chunk are taken at the
    same weights and add up, and momentum multiplies them by ``1 / (1 - eta)``, so the effective step of a chunk is at
    most 2. Beyond that, gradient descent on a quadratic with unit keys diverges.

    With ``torch.utils.checkpoint``, use ``use_reentrant=False``. The reentrant kind, with any layer, sees only tensors
    that are arguments or outputs themselves, not those in a state: a state that passes it has no gradient, and what a
    later piece would teach an earlier one is lost without a message.

    Args:
        dim: width of input and output; must be a multiple of ``num_heads``.
        num_heads: number of independent memories, each ``dim // num_heads`` wide.
        depth: number of layers of the memory, L >= 1. 1 is a linear memory (Table 5, "Linear Memory").
        expansion: hidden width of a deep memory, as a multiple of the head width.
        chunk_size: number of tokens whose inner gradients are taken at the same weights (Eq. 16).
        conv_size: length of the convolution; 0 removes it (Table 5, "w/o Convolution").
        gates: "token" for one set of gates per token, or "chunk" for one set per chunk (section 3.2). A chunk's gates
            are computed from its first token, so outputs stay causal and streaming stays exact.
        momentum: False removes past surprise (Table 5, "w/o Momentum").
        forget: False removes the forget gate (Table 5, "w/o Weight Decay").
        forget_to: what forgetting pulls the memory towards: "zero" (Eq. 13), or "start", the initial memory. A deep
            memory pulled towards zero stops learning on long streams (see :func:`titans_core.neural_memory`).
        activation: activation between the layers of the memory: "silu", "gelu" or "relu".
        unit_values: l2-normalise values too. The gradient of a deep memory's first layers grows with the size of the
            values. With unit values the step stays within its bound, however long training runs. False leaves values
            unscaled, as in the paper.
        backend: backend of :func:`titans_core.neural_memory`.

    Raises:
        ValueError: if an argument is out of range.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 4,
        depth: int = 2,
        expansion: float = 2,
        chunk_size: int = 64,
        conv_size: int = 4,
        gates: str = "token",
        momentum: bool = True,
        forget: bool = True,
        forget_to: str = "zero",
        activation: str = "silu",
        unit_values: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        for name, value, least in (
            ("dim", dim, 1),
            ("num_heads", num_heads, 1),
            ("depth", depth, 1),
            ("conv_size", conv_size, 0),
            ("chunk_size", chunk_size, 1),
        ):
            at_least(name, value, least)
        if dim % num_heads:
            raise ValueError(f"dim must be a multiple of num_heads, got dim={dim} and num_heads={num_heads}.")
        if not is_number(expansion) or not math.isfinite(expansion):
            raise ValueError(f"expansion must be a number, got {expansion!r}.")
        for name, switch in (("momentum", momentum), ("forget", forget), ("unit_values", unit_values)):
            if not isinstance(switch, bool):
                raise ValueError(f"{name} must be True or False, got {switch!r}.")
        hidden = round(dim // num_heads * expansion)
        if hidden < 1:
            raise ValueError(
                f"expansion must give a hidden width of at least 1, got expansion={expansion} with a head width of "
                f"{dim // num_heads}."
            )
        check_forget_to(forget_to)
        check_activation(activation)
        check_backend(backend)
        if gates not in GATES:
            raise ValueError(f"gates must be one of {GATES}, got {gates!r}.")
        self.dim, self.num_heads, self.chunk_size = int(dim), int(num_heads), int(chunk_size)
        self.gates, self.momentum, self.forget, self.forget_to = gates, momentum, forget, forget_to
        self.activation, self.unit_values, self.backend = activation, unit_values, backend

        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.conv = CausalConv(3 * dim, conv_size) if conv_size > 0 else None

        # Initial gates: theta at half of its bound, eta 0.5, and forgetting over about eight chunks. A deep memory that
        # forgets faster than it learns decays to 0 and cannot recover; this slows the decay but does not prevent it on
        # long sequences with small chunks. With chunk_size=1 every gradient already accounts for the previous step, and
        # past surprise would count it twice, so eta starts at 0.1: with 0.5, recall (benchmarks/lm_mqar.py) and E. coli
        # (benchmarks/dna_language.py) were worse.
        forgetting = min(0.05, 1 / (8 * chunk_size))
        past = 0.5 if chunk_size > 1 else 0.1
        starts = {"theta": 0.5, "alpha": forgetting if forget else None, "eta": past if momentum else None}
        self.gate_names = tuple(name for name, p in starts.items() if p is not None)
        self.to_gates = nn.Linear(dim, len(self.gate_names) * num_heads)
        nn.init.normal_(self.to_gates.weight, std=0.1 * dim**-0.5)
        with torch.no_grad():
            bias = torch.tensor([_logit(p) for p in starts.values() if p is not None])
            self.to_gates.bias.copy_(bias.repeat_interleave(num_heads))

        head = dim // num_heads
        widths = [head, *[hidden] * (depth - 1), head]
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(num_heads, a, b) * a**-0.5) for a, b in pairwise(widths)
        )
        self.norm = RMSNorm(head)
        self.out_gate = nn.Linear(dim, dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, state: NeuralMemoryState | None = None) -> tuple[Tensor, NeuralMemoryState]:
        """Write each token to the memory, then read the memory with it.

        Args:
            x: input ``[B, T, dim]``.
            state: state returned by an earlier call. The sequence continues from it, and the outputs equal those of a
                single call on the whole sequence.

        Returns:
            The output ``[B, T, dim]`` and the state after the last token.
        """
        self._check(x, state)
        q, k, v, tail = self._project(x, state)
        gates, last = self._gate(x, state)
        out, memory = self._run(q, k, v, gates, None if state is None else state.memory)
        return self._finish(out, x), NeuralMemoryState(memory, tail, last)

    def retrieve(self, x: Tensor, state: NeuralMemoryState | None = None) -> Tensor:
        """Read without writing (Eq. 15): every token of ``x [B, T, dim]`` queries the memory held in ``state``.

        The convolution of the queries continues from the state's tail. Without a state, the learned initial memory is
        read.
        """
        self._check(x, state)
        queries = slice(0, self.dim)
        q = part_of(self.qkv, x, queries)
        if self.conv is not None:
            tail = None if state is None or state.tail is None else state.tail[..., queries]
            q, _ = self.conv(q, tail, queries)
        q = unit_silu(q.unflatten(-1, (self.num_heads, -1)))
        memory = self._start() if state is None else state.memory.weights
        return self._finish(read_memory(q, memory, self.activation), x)

    def update(self, x: Tensor, state: NeuralMemoryState | None = None) -> NeuralMemoryState:
        """Write without reading: return the state that :meth:`forward` would return."""
        return self(x, state)[1]

    def initial_state(self, batch_size: int) -> NeuralMemoryState:
        """Return the state before the first token: the learned initial memory for ``batch_size`` sequences."""
        if not isinstance(batch_size, torch.SymInt):  # as in an exported program with a free batch size
            at_least("batch_size", batch_size, 1)
        return NeuralMemoryState(MemoryState.initial(self._start(), batch_size, self.chunk_size))

    def _check(self, x: Tensor, state: NeuralMemoryState | None) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(f"x must be a tensor [B, T, {self.dim}], got {type(x).__name__}.")
        if x.ndim != 3 or x.shape[2] != self.dim or x.numel() == 0:
            raise ValueError(f"x must be [B, T, {self.dim}] and must not be empty, got shape {tuple(x.shape)}.")
        given, own = x.dtype, self.qkv.weight.dtype if type(self.qkv) is nn.Linear else x.dtype
        # "meta" knows no autocast
        mixed = given != own and (x.is_meta or not torch.is_autocast_enabled(x.device.type))
        if mixed or not given.is_floating_point:
            raise TypeError(f"x must have the layer's dtype {own}, got {given}: convert x, or use autocast.")
        if state is None:
            return
        if not isinstance(state, NeuralMemoryState):
            raise TypeError(f"state must be a NeuralMemoryState returned by this layer, got {type(state).__name__}.")
        held = state.memory.weights[0].shape[0]  # not len(): it would fix the batch size of an exported program
        if held != x.shape[0]:
            raise ValueError(
                f"state holds {held} sequences, but x has {x.shape[0]}: continue with the batch "
                "that the state came from."
            )
        at = state.memory.weights[0].device
        if at != x.device:
            raise ValueError(f"state is on {at}, but x is on {x.device}: use state.to({str(x.device)!r}).")
        shapes = tuple(w.shape[1:] for w in state.memory.weights)
        if shapes != tuple(w.shape for w in self.weights):
            raise ValueError(
                f"state has memory shapes {[tuple(s) for s in shapes]}, but this layer has "
                f"{[tuple(w.shape) for w in self.weights]} (heads, in, out): use the layer that returned the state."
            )
        size = 0 if self.conv is None else self.conv.weight.shape[-1]
        if state.tail is not None and state.tail.shape[1] + 1 != size:
            raise ValueError(
                f"state comes from a layer with conv_size={state.tail.shape[1] + 1}, but this layer has {size}: use "
                "the layer that returned the state."
            )
        of_chunks = state.gates is not None
        if of_chunks != (self.gates == "chunk") and (of_chunks or state.memory.offset):
            raise ValueError(
                f"state comes from a layer with gates={GATES[of_chunks]!r}, but this layer has {self.gates!r}: use "
                "the layer that returned the state."
            )

    def _start(self) -> tuple[Tensor, ...]:
        """The learned initial memory in the dtype of a state: float32, or float64 for a float64 layer."""
        return tuple(w.to(torch.promote_types(w.dtype, torch.float32)) for w in self.weights)

    def _project(self, x: Tensor, state: NeuralMemoryState | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        qkv, tail = self.qkv(x), None
        if self.conv is not None:
            qkv, tail = self.conv(qkv, None if state is None else state.tail)
        q, k, v = silu_parts(qkv.unflatten(-1, (3 * self.num_heads, -1)), 3, unit=3 if self.unit_values else 2)
        return q, k, v, tail

    def _gate(self, x: Tensor, state: NeuralMemoryState | None) -> tuple[dict[str, Tensor], Tensor | None]:
        """Gates by name, after activation: ``[B, T, H]``, and None.

        With gates per chunk: ``[B, chunks, H]``, and the gate logits of the current chunk.
        """
        if self.gates == "token":
            logits, last = self.to_gates(x), None
        else:
            offset = 0 if state is None else state.memory.offset
            logits = self.to_gates(x[:, -offset % self.chunk_size :: self.chunk_size])
            if state is not None and state.gates is not None and offset > 0:  # at offset 0 a new chunk starts
                logits = torch.cat((state.gates.to(logits.dtype), logits), dim=1)
            last = logits[:, -1:].clone()  # a view would keep those of all chunks in memory
        parts = torch.sigmoid(logits.to(torch.promote_types(logits.dtype, torch.float32))).chunk(
            len(self.gate_names), dim=-1
        )
        gates = dict(zip(self.gate_names, parts, strict=True))
        gates["theta"] = gates["theta"] * (2 / self.chunk_size)
        if self.momentum:
            gates["theta"] = gates["theta"] * (1 - gates["eta"])
        return gates, last

    def _run(
        self, q: Tensor, k: Tensor, v: Tensor, gates: dict[str, Tensor], state: MemoryState | None
    ) -> tuple[Tensor, MemoryState]:
        return neural_memory(
            q,
            k,
            v,
            gates.get("alpha"),
            gates.get("eta"),
            gates["theta"],
            tuple(self.weights),
            state,
            chunk_size=self.chunk_size,
            activation=self.activation,
            forget_to=self.forget_to,
            backend=self.backend,
        )

    def _finish(self, out: Tensor, x: Tensor) -> Tensor:
        return self.out(gated(self.norm, out, self.out_gate(x)))
