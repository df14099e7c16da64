"""Laws that hold for every input: drawn at random, the same draws in every run."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from titans_core import neural_memory
from titans_core.ops.memory import read_memory

few = settings(derandomize=True, deadline=None, max_examples=50, database=None)

small = st.integers(1, 4)
shapes = st.fixed_dictionaries(
    {
        "B": st.integers(1, 3),
        "T": st.integers(1, 19),
        "H": st.integers(1, 3),
        "K": small,
        "V": small,
        "hidden": small,
        "depth": small,
        "forget": st.booleans(),
        "momentum": st.booleans(),
        "seed": st.integers(0, 2**16),
    }
)
chunk_sizes = st.integers(1, 20)
backends = st.sampled_from(["naive", "chunk"])
forget_to = st.sampled_from(["zero", "start"])
# the ends of [0, 1], their neighbours in float64, and numbers whose products underflow
gate_values = st.sampled_from([0.0, 5e-324, 1e-200, 1e-16, 1e-3, 0.5, 0.999, 1 - 2**-53, 1.0])


@few
@given(shapes, chunk_sizes, st.integers(1, 8), forget_to)
def test_chunks_are_the_definition_for_any_shape(make_inputs, assert_same, shape, chunk_size, offset_seed, forget_to):
    inputs = make_inputs(**shape)
    cut = offset_seed % shape["T"]
    options = {"chunk_size": chunk_size, "forget_to": forget_to}
    expected = inputs.everything(backend="naive", **options)
    assert_same(inputs.everything((cut,) if cut else (), **options), expected)


@few
@given(shapes, chunk_sizes, forget_to, st.data())
def test_extreme_gates_give_the_finite_results_of_the_definition(
    make_inputs, assert_same, shape, chunk_size, forget_to, data
):
    inputs = make_inputs(**(shape | {"forget": True, "momentum": True}))

    def gates(x):
        n = min(x.numel(), 7)
        drawn = data.draw(st.lists(gate_values, min_size=n, max_size=n))
        return torch.tensor(drawn, dtype=x.dtype).repeat(x.numel())[: x.numel()].view_as(x).requires_grad_()

    inputs = inputs.map(gates, ["alpha", "eta"])
    expected = inputs.everything(backend="naive", chunk_size=chunk_size, forget_to=forget_to)
    actual = inputs.everything(chunk_size=chunk_size, forget_to=forget_to)
    assert all(x.isfinite().all() for x in actual.values())
    assert_same(actual, expected)


@few
@given(shapes, chunk_sizes, backends, st.data())
def test_a_later_token_never_changes_an_earlier_output(make_inputs, shape, chunk_size, backend, data):
    inputs = make_inputs(**shape)
    t = data.draw(st.integers(0, shape["T"] - 1))
    other = make_inputs(**(shape | {"seed": shape["seed"] + 1}))
    now, later = inputs.leaves(), other.leaves()
    mixed = replace(
        inputs,
        **{n: torch.cat((now[n][:, :t], later[n][:, t:]), dim=1) for n in now if not n.startswith("weights")},
    )
    before, _ = inputs.run(chunk_size=chunk_size, backend=backend)
    after, _ = mixed.run(chunk_size=chunk_size, backend=backend)
    torch.testing.assert_close(after[:, :t], before[:, :t], rtol=1e-12, atol=1e-12)
    # and the change does arrive: the outputs are not constants
    assert not torch.equal(after[:, t], before[:, t])


@few
@given(shapes, chunk_sizes, backends, st.data())
def test_an_earlier_output_has_no_gradient_towards_a_later_token(make_inputs, shape, chunk_size, backend, data):
    inputs = make_inputs(**shape)
    t = data.draw(st.integers(1, shape["T"]))
    out, _ = inputs.run(chunk_size=chunk_size, backend=backend)
    tokens = [x for n, x in inputs.leaves().items() if not n.startswith("weights")]
    for grad in torch.autograd.grad(out[:, :t].sum(), tokens):
        assert grad[:, t:].count_nonzero() == 0


@few
@given(shapes, chunk_sizes, backends)
def test_a_memory_that_never_learns_is_its_start(make_inputs, shape, chunk_size, backend):
    inputs = make_inputs(**(shape | {"forget": False})).map(torch.zeros_like, ["theta"])
    out, end = inputs.run(chunk_size=chunk_size, backend=backend)
    torch.testing.assert_close(out, read_memory(inputs.q, inputs.weights), rtol=1e-12, atol=1e-14)
    for w, s, start in zip(end.weights, end.momentum, inputs.weights, strict=True):
        assert torch.equal(w, start.expand_as(w))
        assert s.count_nonzero() == 0


@few
@given(shapes, chunk_sizes, backends)
def test_a_memory_that_never_learns_only_decays(make_inputs, shape, chunk_size, backend):
    inputs = make_inputs(**(shape | {"forget": True})).map(torch.zeros_like, ["theta"])
    out, end = inputs.run(chunk_size=chunk_size, backend=backend)
    left = torch.ones_like(inputs.alpha[:, 0])
    for t in range(shape["T"]):
        left = left * (1 - inputs.alpha[:, t])
        decayed = tuple(left[..., None, None] * w for w in inputs.weights)
        expected = read_memory(inputs.q[:, t : t + 1], decayed)
        torch.testing.assert_close(out[:, t : t + 1], expected, rtol=1e-12, atol=1e-14)
    for w, expected in zip(end.weights, decayed, strict=True):
        torch.testing.assert_close(w, expected, rtol=1e-12, atol=1e-14)


@few
@given(shapes, chunk_sizes, backends)
def test_full_forgetting_leaves_only_the_surprise(make_inputs, shape, chunk_size, backend):
    inputs = make_inputs(**(shape | {"forget": True})).map(torch.ones_like, ["alpha"])
    out, end = inputs.run(chunk_size=chunk_size, backend=backend)
    for w, s in zip(end.weights, end.momentum, strict=True):
        torch.testing.assert_close(w, s, rtol=1e-12, atol=1e-14)
    last = read_memory(inputs.q[:, -1:], end.momentum)
    torch.testing.assert_close(out[:, -1:], last, rtol=1e-9, atol=1e-12)


@few
@given(shapes, backends)
def test_full_forgetting_without_momentum_remembers_one_token(make_inputs, shape, backend):
    inputs = make_inputs(**(shape | {"forget": True, "momentum": False, "depth": 1}))
    inputs = inputs.map(torch.ones_like, ["alpha"])
    out, _ = inputs.run(chunk_size=shape["T"], backend=backend)
    # M_t = -theta_t u_t = theta_t k_t^T (v_t - k_t M_0)
    surprise = inputs.v - read_memory(inputs.k, inputs.weights)
    match = (inputs.k * inputs.q).sum(-1) * inputs.theta
    torch.testing.assert_close(out, match[..., None] * surprise, rtol=1e-12, atol=1e-12)


@few
@given(shapes, chunk_sizes, backends)
def test_no_momentum_keeps_no_past_surprise(make_inputs, shape, chunk_size, backend):
    inputs = make_inputs(**(shape | {"momentum": False}))
    _, end = inputs.run(chunk_size=chunk_size, backend=backend)
    # -theta u of the last token alone: the momentum of a call that begins with it, at the same anchor
    T = shape["T"]
    begin = (T - 1) // chunk_size * chunk_size
    anchor = inputs.weights
    if begin:
        anchor = inputs.tokens(0, begin).run(chunk_size=chunk_size, backend="naive")[1].weights
    k, v = inputs.k[:, -1:].transpose(1, 2), inputs.v[:, -1:].transpose(1, 2)
    at = tuple(w.expand(shape["B"], *w.shape[-3:]) for w in anchor)
    x = k
    for w in at[:-1]:
        x = torch.nn.functional.silu(x @ w)
    loss = 0.5 * (x @ at[-1] - v).square().sum()
    for s, u in zip(end.momentum, torch.autograd.grad(loss, at), strict=True):
        torch.testing.assert_close(s, -inputs.theta[:, -1, :, None, None] * u, rtol=1e-9, atol=1e-12)


@few
@given(shapes, chunk_sizes, backends)
def test_a_sequence_does_not_depend_on_its_neighbours_in_the_batch(make_inputs, shape, chunk_size, backend):
    inputs = make_inputs(**shape)
    out, end = inputs.run(chunk_size=chunk_size, backend=backend)
    for b in range(shape["B"]):
        alone, end_alone = inputs.map(lambda x, b=b: x[b : b + 1]).run(chunk_size=chunk_size, backend=backend)
        torch.testing.assert_close(alone, out[b : b + 1], rtol=1e-12, atol=1e-12)
        for part in ("weights", "momentum", "anchor"):
            for x, y in zip(getattr(end_alone, part), getattr(end, part), strict=True):
                torch.testing.assert_close(x, y[b : b + 1], rtol=1e-12, atol=1e-12)
    (grad,) = torch.autograd.grad(out[0].sum(), inputs.v)
    assert grad[1:].count_nonzero() == 0


@few
@given(shapes, chunk_sizes, backends, st.randoms(use_true_random=False))
def test_permuted_heads_give_permuted_results(make_inputs, shape, chunk_size, backend, random):
    inputs = make_inputs(**shape)
    order = random.sample(range(shape["H"]), shape["H"])

    def permuted(x, dim):
        return x.detach().index_select(dim, torch.tensor(order)).requires_grad_()

    shuffled = inputs.map(lambda x: permuted(x, 2))
    shuffled = replace(shuffled, weights=tuple(permuted(w, 0) for w in inputs.weights))
    out, end = inputs.run(chunk_size=chunk_size, backend=backend)
    out_shuffled, end_shuffled = shuffled.run(chunk_size=chunk_size, backend=backend)
    torch.testing.assert_close(out_shuffled, permuted(out, 2), rtol=1e-12, atol=1e-12)
    for part in ("weights", "momentum", "anchor"):
        for x, y in zip(getattr(end_shuffled, part), getattr(end, part), strict=True):
            torch.testing.assert_close(x, permuted(y, 1), rtol=1e-12, atol=1e-12)
    grads = torch.autograd.grad(out.square().sum(), inputs.weights)
    for x, y in zip(torch.autograd.grad(out_shuffled.square().sum(), shuffled.weights), grads, strict=True):
        torch.testing.assert_close(x, permuted(y, 0), rtol=1e-9, atol=1e-12)


@few
@given(shapes, chunk_sizes, backends)
def test_a_small_enough_step_brings_the_memory_closer_to_the_written_values(make_inputs, shape, chunk_size, backend):
    inputs = make_inputs(**(shape | {"T": 1, "forget": False, "momentum": False, "extreme": False, "rate": 1e-3}))
    _, end = inputs.run(chunk_size=chunk_size, backend=backend)
    before = (read_memory(inputs.k, inputs.weights) - inputs.v).square().sum()
    after = (read_memory(inputs.k, end.weights) - inputs.v).square().sum()
    assert after < before


@pytest.mark.parametrize("backend", ["naive", "chunk"])
def test_a_linear_memory_recalls_the_written_values(backend):
    # orthonormal keys, theta = 1, one gradient per token: the delta rule stores each pair exactly
    generator = torch.Generator().manual_seed(0)
    k = torch.eye(4, dtype=torch.float64)[None, :, None]
    v = torch.randn(1, 4, 1, 3, generator=generator, dtype=torch.float64)
    start = torch.randn(1, 4, 3, generator=generator, dtype=torch.float64)
    theta = torch.ones(1, 4, 1, dtype=torch.float64)
    _, end = neural_memory(k, k, v, None, None, theta, (start,), chunk_size=1, backend=backend)
    torch.testing.assert_close(read_memory(k, end.weights), v, rtol=1e-12, atol=1e-14)


def test_in_a_long_stream_a_deep_memory_lives_on_if_it_forgets_towards_its_start(make_inputs):
    inputs = make_inputs(B=1, T=2000, H=1, K=8, V=8, hidden=16, extreme=False, rate=0.02).map(torch.Tensor.detach)
    norms = {}
    for where in ("zero", "start"):
        _, end = inputs.run(chunk_size=16, forget_to=where)
        norms[where] = [w[0].norm() / w_0.norm() for w, w_0 in zip(end.weights, inputs.weights, strict=True)]
    assert max(norms["zero"]) < 0.2
    assert min(norms["start"]) > 0.5
