"""The public functions: names, choice of a backend, and reading without writing."""

import pytest
import torch

import titans_core.ops.memory
from titans_core.ops.memory import dispatch, read_memory


def test_the_public_names_are_these():
    assert titans_core.ops.memory.__all__ == ["MemoryState", "neural_memory", "read_memory"]
    assert titans_core.neural_memory is titans_core.ops.memory.neural_memory
    assert titans_core.MemoryState is titans_core.ops.memory.MemoryState


def test_without_a_choice_the_fast_form_runs(make_inputs):
    inputs = make_inputs()
    out, _ = inputs.run(chunk_size=4)
    assert torch.equal(out, inputs.run(chunk_size=4, backend="auto")[0])
    assert torch.equal(out, inputs.run(chunk_size=4, backend="chunk")[0])
    assert not torch.equal(out, inputs.run(chunk_size=4, backend="naive")[0])  # equal up to rounding only


def test_a_warning_about_the_choice_names_the_line_that_called_the_model(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(dispatch, "why_not_triton", lambda *given: "too wide")
    dispatch._warn.cache_clear()
    model = torch.nn.Sequential(titans_core.NeuralMemory(8, num_heads=1)).double()
    with pytest.warns(UserWarning, match="using backend='chunk' instead: too wide") as warned:
        model(torch.zeros(1, 3, 8).double())
    assert warned[0].filename == __file__


def test_without_a_choice_a_chunk_has_64_tokens_and_the_activation_is_silu(make_inputs):
    inputs = make_inputs(T=70)
    out, end = inputs.run()
    assert end.offset == 6
    assert torch.equal(out, inputs.run(chunk_size=64, activation="silu")[0])


def test_weights_may_come_in_any_sequence(make_inputs):
    i = make_inputs()
    out, _ = titans_core.neural_memory(i.q, i.k, i.v, i.alpha, i.eta, i.theta, list(i.weights), chunk_size=4)
    assert torch.equal(out, i.run(chunk_size=4)[0])


@pytest.mark.parametrize("activation", ["silu", "gelu", "relu"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_last_output_is_the_final_state_read_at_the_last_query(make_inputs, depth, activation):
    inputs = make_inputs(depth=depth)
    out, end = inputs.run(chunk_size=4, activation=activation)
    read = read_memory(inputs.q[:, -1:], end.weights, activation)
    torch.testing.assert_close(read, out[:, -1:], rtol=1e-10, atol=1e-12)


def test_a_learned_start_reads_the_same_for_every_sequence(make_inputs):
    inputs = make_inputs(B=3)
    read = read_memory(inputs.q, inputs.weights)
    for b in range(3):
        for h in range(2):
            first, second = (w[h] for w in inputs.weights)
            expected = torch.nn.functional.silu(inputs.q[b, :, h] @ first) @ second
            torch.testing.assert_close(read[b, :, h], expected, rtol=1e-12, atol=1e-14)


def test_reading_does_not_write(make_inputs):
    inputs = make_inputs()
    _, end = inputs.run(chunk_size=4)
    before = [w.clone() for w in end.weights]
    first = read_memory(inputs.q, end.weights)
    assert torch.equal(first, read_memory(inputs.q, end.weights))
    assert all(torch.equal(a, b) for a, b in zip(before, end.weights, strict=True))


def test_a_read_returns_the_dtype_of_the_query_and_computes_in_that_of_the_memory(make_inputs):
    inputs = make_inputs(dtype=torch.float32)
    q = inputs.q.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        read = read_memory(q, inputs.weights)
    assert read.dtype == torch.bfloat16
    assert torch.equal(read, read_memory(q.float(), inputs.weights).bfloat16())


def test_a_query_of_integers_is_refused(make_inputs):
    inputs = make_inputs(dtype=torch.float32)
    with pytest.raises(TypeError, match=r"q must have a floating-point dtype, got torch\.int64"):
        read_memory(inputs.q.long(), inputs.weights)
