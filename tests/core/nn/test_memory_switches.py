"""Laws of the memory layer over the whole grid of its switches, and its read written out by hand."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from titans_core import NeuralMemory

T, DIM, HEADS = 11, 8, 2


def make(**options):
    torch.manual_seed(0)
    return NeuralMemory(DIM, **{"num_heads": HEADS, "chunk_size": 4, **options}).double()


def sequence(batch=2, length=T, seed=1):
    return torch.randn(batch, length, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def run(layer, pieces, state=None):
    outputs = []
    for piece in pieces:
        y, state = layer(piece, state)
        outputs.append(y)
    return torch.cat(outputs, dim=1), state


def tensors(state):
    parts = [*state.memory.weights, *state.memory.momentum, *state.memory.anchor, state.tail, state.gates]
    return [p for p in parts if p is not None]


def set_gate(layer, name, logit):
    """The gate of every token and head is ``sigmoid(logit)``, whatever the input."""
    at = layer.gate_names.index(name) * layer.num_heads
    with torch.no_grad():
        layer.to_gates.weight[at : at + layer.num_heads] = 0
        layer.to_gates.bias[at : at + layer.num_heads] = logit


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("conv_size", [0, 1, 4])
@pytest.mark.parametrize(
    "forget", [{}, {"forget_to": "start"}, {"forget": False}], ids=["forget", "forget-to-start", "keep"]
)
@pytest.mark.parametrize("momentum", [True, False], ids=["momentum", "no-momentum"])
@pytest.mark.parametrize("gates", ["token", "chunk"])
def test_any_cut_gives_the_outputs_and_the_state_of_one_call(gates, momentum, forget, conv_size, depth):
    layer = make(gates=gates, momentum=momentum, **forget, conv_size=conv_size, depth=depth)
    x = sequence()
    with torch.no_grad():
        expected, end = layer(x)
        for lengths in ([1] * T, [3, 8], [4, 7], [6, 5], [2, 1, 3, 5]):
            out, state = run(layer, x.split(lengths, dim=1))
            torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)
            for a, b in zip(tensors(state), tensors(end), strict=True):
                torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("with_state", [False, True], ids=["learned-start", "state"])
@pytest.mark.parametrize("conv_size", [0, 3])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_read_is_the_formula_of_section_4_4(depth, conv_size, with_state):
    """Projection, convolution, SiLU, l2 norm, the memory's MLP, RMS norm, gate, projection: each in plain loops."""
    layer, x = make(depth=depth, conv_size=conv_size), sequence(length=5)
    torch.nn.init.normal_(layer.norm.weight)
    past = sequence(length=6, seed=2)
    state = layer.update(past) if with_state else None

    def silu(z):
        return z / (1 + (-z).exp())

    def project(z):
        return z @ layer.qkv.weight[:DIM].T

    with torch.no_grad():
        q = project(x)
        if conv_size:
            before = project(past)[:, -2:] if with_state else torch.zeros(2, 2, DIM, dtype=torch.float64)
            padded = torch.cat((before, q), dim=1)
            taps, bias = layer.conv.weight[:DIM], layer.conv.bias[:DIM]
            q = torch.stack([(padded[:, t : t + 3] * taps.T).sum(1) + bias for t in range(5)], dim=1)
        q = silu(q).reshape(2, 5, HEADS, DIM // HEADS)
        q = q / q.square().sum(-1, keepdim=True).sqrt()
        read = torch.empty_like(q)
        for b in range(2):
            for head in range(HEADS):
                z = q[b, :, head]
                for level in range(depth):
                    z = silu(z) if level else z
                    z = z @ (state.memory.weights[level][b, head] if with_state else layer.weights[level][head])
                read[b, :, head] = z
        read = read / (read.square().mean(-1, keepdim=True) + 1e-6).sqrt() * layer.norm.weight
        expected = (read.flatten(-2) * silu(x @ layer.out_gate.weight.T)) @ layer.out.weight.T
        torch.testing.assert_close(layer.retrieve(x, state), expected, rtol=0, atol=1e-10)


def test_without_the_forget_gate_a_memory_that_learns_nothing_is_unchanged():
    layer, x = make(forget=False), sequence()
    set_gate(layer, "theta", -1e3)
    for w, start in zip(layer.update(x).memory.weights, layer.weights, strict=True):
        torch.testing.assert_close(w, start.expand_as(w), rtol=0, atol=1e-12)


def test_a_forget_gate_that_is_open_erases_the_memory():
    layer, x = make(forget=True), sequence()
    set_gate(layer, "theta", -1e3)
    set_gate(layer, "alpha", 1e3)
    assert all(w.count_nonzero() == 0 for w in layer.update(x).memory.weights)


def test_past_surprise_moves_the_memory_on_after_the_last_lesson_and_only_with_momentum():
    for momentum in (True, False):
        layer, x = make(momentum=momentum, forget=False, chunk_size=1, conv_size=0), sequence()
        if momentum:
            set_gate(layer, "eta", 0.0)  # keep a half
        taught = layer.update(x[:, :3])
        set_gate(layer, "theta", -1e3)  # no new surprise from here on
        later = layer.update(x[:, 3:4], taught)
        for new, old, surprise in zip(later.memory.weights, taught.memory.weights, taught.memory.momentum, strict=True):
            assert surprise.abs().max() > 1e-4
            torch.testing.assert_close(new - old, 0.5 * surprise if momentum else 0 * surprise, rtol=0, atol=1e-12)


@pytest.mark.parametrize("chunk_size", [1, 4, 32])
def test_without_momentum_the_step_is_bounded_by_two_over_the_chunk(chunk_size):
    layer, x = make(momentum=False, chunk_size=chunk_size), sequence()
    set_gate(layer, "theta", 1e3)
    gates, _ = layer._gate(x, None)
    assert gates["theta"].unique().tolist() == [2 / chunk_size]


def test_a_switch_takes_its_parameters_with_it():
    def names(**options):
        return {name: tuple(p.shape) for name, p in make(**options).named_parameters()}

    full = names()
    assert full["to_gates.weight"] == (3 * HEADS, DIM)
    assert names(momentum=False)["to_gates.weight"] == (2 * HEADS, DIM)
    assert names(forget=False)["to_gates.weight"] == (2 * HEADS, DIM)
    assert names(momentum=False, forget=False)["to_gates.weight"] == (HEADS, DIM)
    assert set(full) - set(names(conv_size=0)) == {"conv.weight", "conv.bias"}
    assert set(full) - set(names(depth=1)) == {"weights.1"}
    assert names(depth=1)["weights.0"] == (HEADS, DIM // HEADS, DIM // HEADS)


def test_gates_per_chunk_continue_across_a_cut_within_a_chunk():
    """The second call must use the gates of a chunk whose first token only the first call saw."""
    layer, x = make(gates="chunk", conv_size=0), sequence()
    _, state = layer(x[:, :6])
    changed = dataclasses.replace(state, gates=state.gates + 1)
    same, other = layer(x[:, 6:], state)[0], layer(x[:, 6:], changed)[0]
    assert (same[:, :2] - other[:, :2]).abs().min() > 0  # tokens 6 and 7 end the chunk of 4 .. 7
    first, second = (layer._gate(x[:, 6:], s)[0]["theta"] for s in (state, changed))
    assert not torch.equal(first[:, :2], second[:, :2])
    assert torch.equal(first[:, 2:], second[:, 2:])  # a new chunk begins at token 8


def test_a_state_keeps_no_gates_of_earlier_chunks():
    state = make(gates="chunk")(sequence(length=64))[1]
    assert state.gates.untyped_storage().nbytes() == state.gates.nbytes


def test_float32_is_close_to_float64():
    layer, x = make(), sequence(length=64)
    expected, end = layer(x)
    out, state = layer.float()(x.float())
    assert state.memory.weights[0].dtype == torch.float32
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=2e-5)
    for a, b in zip(tensors(state), tensors(end), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=0, atol=2e-5)


@pytest.mark.parametrize("gates", ["token", "chunk"])
def test_under_bf16_autocast_a_stream_is_still_one_memory_in_float32(gates):
    layer, x = make(gates=gates).float(), sequence().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        whole, end = layer(x)
        parts, state = run(layer, x.split([3, 3, 5], dim=1))
    for part in ("weights", "momentum", "anchor"):
        assert {w.dtype for w in getattr(state.memory, part)} == {torch.float32}
    torch.testing.assert_close(parts.float(), whole.float(), rtol=0, atol=0.02)
    for a, b in zip(state.memory.weights, end.memory.weights, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0.02)


def test_a_state_is_detached_and_moved_as_a_whole():
    layer, x = make(gates="chunk"), sequence()
    state = layer.update(x[:, :6])
    assert all(t.requires_grad for t in tensors(state))
    assert not any(t.requires_grad for t in tensors(state.detach()))
    moved = state.to("meta")
    assert len(tensors(moved)) == len(tensors(state)) == 8
    assert {t.device.type for t in tensors(moved)} == {"meta"}
    assert moved.memory.offset == state.memory.offset == 2
    assert {t.device.type for t in tensors(state)} == {"cpu"}  # the state itself stays where it was


@pytest.mark.parametrize("chunk_size", [1, 16, 128])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_training_on_long_sequences_stays_finite(depth, chunk_size):
    torch.manual_seed(0)
    layer = NeuralMemory(DIM, num_heads=HEADS, depth=depth, chunk_size=chunk_size)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    x = torch.randn(1, 512, DIM)
    for _ in range(3):
        loss = (layer(x)[0] - x.roll(1, dims=1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert all(p.grad.isfinite().all() for p in layer.parameters())
    out, state = layer(x)
    assert out.isfinite().all()
    assert all(t.isfinite().all() for t in tensors(state))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"dim": 0}, "dim"),
        ({"chunk_size": 0}, "chunk_size"),
        ({"chunk_size": -1}, "chunk_size"),
        ({"expansion": 0}, "expansion"),
        ({"expansion": -1}, "expansion"),
    ],
)
def test_sizes_out_of_range_are_named(arguments, name):
    with pytest.raises(ValueError, match=name):
        NeuralMemory(**{"dim": DIM, **arguments})


@pytest.mark.parametrize(("arguments", "name"), [({"activation": "tanh"}, "tanh"), ({"backend": "cuda"}, "cuda")])
def test_choices_that_do_not_exist_are_named_at_the_latest_when_used(arguments, name):
    with pytest.raises(ValueError, match=name):
        NeuralMemory(DIM, num_heads=HEADS, **arguments)(sequence().float())


@pytest.mark.parametrize("gates", ["token", "chunk"])
def test_an_empty_sequence_is_refused_with_a_plain_message(gates):
    with pytest.raises(ValueError, match="must not be empty"):
        make(gates=gates)(sequence(length=0))


def test_a_state_of_another_batch_is_refused_with_a_plain_message():
    memory = make()
    _, state = memory(sequence(batch=2))
    with pytest.raises(ValueError, match="state holds 2 sequences, but x has 1"):
        memory(sequence(batch=1), state)


@pytest.mark.parametrize("gates", ["token", "chunk"])
@pytest.mark.parametrize("tokens", [0, 3, 8])  # none yet; in a chunk of either size; at the end of one
def test_a_state_of_a_layer_with_other_chunks_is_refused_with_a_plain_message(gates, tokens):
    """Its position in the chunk would often be valid, and the output would be that of neither layer."""
    small, large = (NeuralMemory(8, num_heads=2, chunk_size=size, gates=gates) for size in (4, 8))
    x = torch.randn(2, 8, 8)
    state = small.update(x[:, :tokens]) if tokens else small.initial_state(2)
    with pytest.raises(ValueError, match="chunk_size=4, but this call has 8"):
        large(x, state)
    small(x, state)


def test_a_read_is_checked_as_a_write_is():
    layer = NeuralMemory(8, num_heads=2, chunk_size=4)
    x = torch.randn(2, 5, 8)
    state = layer.update(x)
    for call in (layer, layer.retrieve, layer.update):
        for given, error, says in (
            ((x[0],), ValueError, r"must be \[B, T, 8\]"),
            ((x[..., :4],), ValueError, r"must be \[B, T, 8\]"),
            ((x.numpy(),), TypeError, "x must be a tensor"),
            ((x[:1], state), ValueError, "state holds 2 sequences"),
            ((x, state.to("meta")), ValueError, r"state is on meta, but x is on cpu: use state\.to\('cpu'\)"),
            ((x, state.memory), TypeError, "state must be a NeuralMemoryState returned by this layer"),
            ((x.double(),), TypeError, r"x must have the layer's dtype torch\.float32, got torch\.float64"),
            ((x.long(),), TypeError, r"x must have the layer's dtype torch\.float32, got torch\.int64"),
            (
                (x, NeuralMemory(16, num_heads=2).initial_state(2)),
                ValueError,
                r"state has memory shapes",
            ),
        ):
            with pytest.raises(error, match=says):
                call(*given)
    with torch.autocast("cpu", torch.bfloat16):
        layer(x.bfloat16())


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"expansion": "2"}, "expansion must be a number, got '2'"),
        ({"expansion": None}, "expansion must be a number, got None"),
        ({"expansion": float("inf")}, "expansion must be a number, got inf"),
        ({"momentum": "no"}, "momentum must be True or False, got 'no'"),
        ({"forget": None}, "forget must be True or False, got None"),
        ({"unit_values": 1}, "unit_values must be True or False, got 1"),
    ],
)
def test_settings_of_another_kind_are_refused(settings, says):
    with pytest.raises(ValueError, match=says):
        NeuralMemory(8, **settings)


def test_a_width_may_be_a_number_of_numpy():
    assert NeuralMemory(8, num_heads=2, expansion=np.int64(3)).weights[0].shape == (2, 4, 12)


def test_a_state_is_of_one_sequence_or_more():
    with pytest.raises(ValueError, match="batch_size must be an integer >= 1, got -1"):
        NeuralMemory(8).initial_state(-1)


class Adapter(nn.Module):
    """Like an adapter: it wraps the layer that it replaces and exposes its weight."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.beside = layer, nn.Linear(layer.in_features, layer.out_features, bias=False)

    @property
    def weight(self):
        return self.layer.weight

    def forward(self, x):
        return self.layer(x) + self.beside(x)


def test_what_stands_in_the_place_of_a_layer_is_asked_for_queries_too():
    memory = make()
    x = sequence()
    merged = copy.deepcopy(memory)
    memory.qkv = Adapter(memory.qkv).to(x.dtype)
    with torch.no_grad():
        merged.qkv.weight += memory.qkv.beside.weight
    state = merged.update(x)
    torch.testing.assert_close(memory.retrieve(x, state), merged.retrieve(x, state))
    hooked, patched = copy.deepcopy(merged), copy.deepcopy(merged)
    hooked.qkv.register_forward_hook(lambda module, given, out: 2 * out)
    own = patched.qkv.forward
    patched.qkv.forward = lambda x: 2 * own(x)  # as tools that move weights between devices do
    with torch.no_grad():
        merged.qkv.weight *= 2
    for changed in (hooked, patched):
        torch.testing.assert_close(changed.retrieve(x, state), merged.retrieve(x, state))
