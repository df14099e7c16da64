"""float32 is accurate enough, bf16 is only used for tokens, and weights are not formed for every token."""

from dataclasses import replace

import pytest
import torch

BF16 = torch.autocast("cpu", dtype=torch.bfloat16)


def state_tensors(state):
    return (*state.weights, *state.momentum, *state.anchor)


@pytest.mark.parametrize("backend", ["naive", "chunk"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_under_autocast_the_state_is_float32_and_the_output_has_the_dtype_of_the_values(make_inputs, backend, dtype):
    inputs = make_inputs(dtype=torch.float32).map(lambda x: x.to(dtype), ["q", "k", "v"])
    with BF16:
        out, end = inputs.run(chunk_size=4, backend=backend)
    assert out.dtype == dtype
    assert all(x.dtype == torch.float32 for x in state_tensors(end))
    # and autocast changed no number
    out_without, end_without = inputs.run(chunk_size=4, backend=backend)
    assert torch.equal(out, out_without)
    assert all(torch.equal(a, b) for a, b in zip(state_tensors(end), state_tensors(end_without), strict=True))


@pytest.mark.parametrize("backend", ["naive", "chunk"])
def test_bf16_inputs_are_computed_in_float32(make_inputs, backend):
    narrow = make_inputs(dtype=torch.bfloat16)
    wide = replace(narrow.map(torch.Tensor.float), weights=tuple(w.float() for w in narrow.weights))
    out, end = narrow.run(chunk_size=4, backend=backend)
    out_wide, end_wide = wide.run(chunk_size=4, backend=backend)
    assert torch.equal(out, out_wide.bfloat16())
    assert all(torch.equal(a, b) for a, b in zip(state_tensors(end), state_tensors(end_wide), strict=True))
    grads = torch.autograd.grad(out.float().sum(), list(narrow.leaves().values()))
    assert all(g.dtype == torch.bfloat16 and g.isfinite().all() for g in grads)


def test_a_bf16_sequence_continues_from_its_float32_state(make_inputs):
    inputs = make_inputs(dtype=torch.float32).map(torch.Tensor.bfloat16, ["q", "k", "v"])
    whole, _ = inputs.run(chunk_size=4)
    with BF16:
        first, state = inputs.tokens(0, 6).run(chunk_size=4)
        second, _ = inputs.tokens(6, 13).run(state, chunk_size=4)
    # bf16 has 8 bits: the float32 results differ by rounding, and round to neighbours at most
    torch.testing.assert_close(torch.cat((first, second), dim=1), whole, rtol=2**-7, atol=1e-6)


@pytest.mark.parametrize("chunk_size", [1, 16])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_float32_agrees_with_float64(make_inputs, assert_same, depth, chunk_size):
    shape = {"T": 64, "K": 8, "V": 8, "hidden": 16, "depth": depth, "rate": 0.05, "extreme": False}
    wide, narrow = make_inputs(**shape), make_inputs(**shape, dtype=torch.float32)
    probe = torch.randn(wide.v.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def results(inputs):
        out, end = inputs.run(chunk_size=chunk_size, backend="chunk")
        grads = torch.autograd.grad((out * probe.to(out.dtype)).sum(), list(inputs.leaves().values()))
        found = {"out": out} | {f"state {i}": x for i, x in enumerate(state_tensors(end))}
        found |= dict(zip(inputs.leaves(), grads, strict=True))
        assert all(x.dtype == inputs.q.dtype for x in found.values())
        return {n: x.double() for n, x in found.items()}

    assert_same(results(narrow), results(wide), rtol=5e-6)


@pytest.mark.parametrize(("depth", "chunk_size"), [(1, 1), (1, 64), (2, 64), (4, 128)])
def test_a_long_sequence_with_gates_at_their_limits_stays_finite(make_inputs, depth, chunk_size):
    T = 1024 if chunk_size == 1 else 16384
    inputs = make_inputs(B=1, T=T, H=1, K=4, V=4, hidden=8, depth=depth, dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)

    def one_of(*values):
        return torch.tensor(values)[torch.randint(len(values), (1, T, 1), generator=generator)]

    alpha, eta = one_of(0.0, 1e-7, 1e-38, 1e-4), one_of(0.0, 1e-38, 0.9, 0.99, 1 - 2**-24, 1.0)
    alpha[:, T - 8], alpha[:, T - 4] = 1 - 2**-24, 1  # a deep memory does not come back from this
    # all steps of a chunk are taken at one point: theta of the order of 1 / chunk_size keeps their sum small
    theta = one_of(0.0, 1e-38, 0.1 / chunk_size)
    gates = (x.requires_grad_() for x in (alpha, eta, theta))
    inputs = replace(inputs, **dict(zip(("alpha", "eta", "theta"), gates, strict=True)))

    out, end = inputs.run(chunk_size=chunk_size, backend="chunk")
    assert all(x.isfinite().all() for x in (out, *state_tensors(end)))
    assert (out[:, : T - 8].abs().amax(-1) > 1e-6).all()  # nor did the memory die
    for name, grad in zip(inputs.leaves(), torch.autograd.grad(out.sum(), inputs.leaves().values()), strict=True):
        assert grad.isfinite().all(), name


def test_a_backward_pass_under_autocast_is_float32_too(make_inputs):
    inputs = make_inputs(dtype=torch.float32)

    def gradients():
        out, _ = inputs.run(chunk_size=4, backend="chunk")
        return torch.autograd.grad(out.sum(), list(inputs.leaves().values()))

    expected = gradients()
    with BF16:
        actual = gradients()
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
