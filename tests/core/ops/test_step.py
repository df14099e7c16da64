"""Single tokens without a gradient, which have a form of their own, against the definition in float64."""

import itertools

import pytest
import torch

from titans_core import NeuralMemory
from titans_core.ops.memory import chunk


def in_steps(inputs, state, backend, **options):
    outputs = []
    for t in range(inputs.q.shape[1]):
        out, state = inputs.tokens(t, t + 1).run(state, backend=backend, **options)
        outputs.append(out)
    return torch.cat(outputs, dim=1), state


@pytest.mark.parametrize(
    ("depth", "momentum", "forget", "chunk_size"),
    [*itertools.product((1, 2, 3), (True, False), (True, False), (1, 4))],
)
@pytest.mark.parametrize("forget_to", ["zero", "start"])
def test_steps_are_the_definition(make_inputs, monkeypatch, depth, momentum, forget, chunk_size, forget_to):
    taken = []
    step = chunk.memory_step
    monkeypatch.setattr(chunk, "memory_step", lambda *args: taken.append(1) or step(*args))
    inputs = make_inputs(T=9, depth=depth, momentum=momentum, forget=forget, rate=0.1)
    options = {"chunk_size": chunk_size, "forget_to": forget_to}
    with torch.no_grad():
        out, state = in_steps(inputs, None, "chunk", **options)
        expected, end = in_steps(inputs, None, "naive", **options)
    assert len(taken) == 9
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
    assert state.offset == end.offset
    for part in ("weights", "momentum", "anchor"):
        torch.testing.assert_close(getattr(state, part), getattr(end, part), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("depth", [1, 2])
def test_steps_continue_what_a_call_left_and_a_call_continues_steps(make_inputs, make_state, depth):
    """From a state whose weights, momentum and anchor all differ, and back; the given state is left as it was."""
    inputs = make_inputs(T=14, depth=depth, rate=0.1)
    state = make_state(inputs, offset=2)
    before = [x.clone() for x in (*state.weights, *state.momentum, *state.anchor)]
    with torch.no_grad():
        expected, end = inputs.run(state, backend="naive", chunk_size=5)
        first, carried = inputs.tokens(0, 6).run(state, backend="chunk", chunk_size=5)
        second, carried = in_steps(inputs.tokens(6, 9), carried, "chunk", chunk_size=5)
        third, carried = inputs.tokens(9, 14).run(carried, backend="chunk", chunk_size=5)
        alone, _ = inputs.tokens(0, 1).run(state, backend="chunk", chunk_size=5)
    torch.testing.assert_close(torch.cat((first, second, third), dim=1), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(alone, expected[:, :1], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(carried.weights, end.weights, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(carried.momentum, end.momentum, rtol=1e-9, atol=1e-9)
    after = (*state.weights, *state.momentum, *state.anchor)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_token_that_needs_a_gradient_gets_one(make_inputs):
    inputs = make_inputs(T=1)
    out, _ = inputs.run(backend="chunk", chunk_size=4)
    assert out.requires_grad


@pytest.mark.parametrize("gates", ["token", "chunk"])
def test_a_layer_generates_in_steps_what_it_reads_at_once(gates):
    torch.manual_seed(0)
    layer = NeuralMemory(16, 2, chunk_size=4, gates=gates).double()
    x = torch.randn(2, 11, 16, dtype=torch.float64)
    with torch.no_grad():
        expected, _ = layer(x)
        outputs, state = [], None
        for t in range(11):
            y, state = layer(x[:, t : t + 1], state)
            outputs.append(y)
    torch.testing.assert_close(torch.cat(outputs, dim=1), expected, rtol=1e-9, atol=1e-9)
