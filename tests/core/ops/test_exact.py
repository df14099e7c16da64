"""The definition against a loop by hand, and the fast form against the definition, in float64 to 1e-9 relative."""

import pytest
import torch

from titans_core import MemoryState, neural_memory
from titans_core.ops.memory import online

CHUNK_SIZES = [1, 2, 7, 16, 64]  # T is 23 below: none divides it, and one is longer
PHI = {"silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu, "relu": torch.relu}


def by_hand(inputs, chunk_size, activation, forget_to="zero"):
    """Eqs. 10-18 for one head of one sequence at a time, with vectors and matrices only."""
    phi = PHI[activation]

    def memory(W, x):
        for w in W[:-1]:
            x = phi(x @ w)
        return x @ W[-1]

    B, T, H, _ = inputs.q.shape
    out = [[[None] * H for _ in range(T)] for _ in range(B)]
    ends = {}
    for b in range(B):
        for h in range(H):
            W = [w[h] for w in inputs.weights]
            base = [w if forget_to == "start" else torch.zeros_like(w) for w in W]
            S = [torch.zeros_like(w) for w in W]
            for t in range(T):
                if t % chunk_size == 0:
                    anchor = W
                q, k, v = (x[b, t, h] for x in (inputs.q, inputs.k, inputs.v))
                alpha = 0 if inputs.alpha is None else inputs.alpha[b, t, h]
                eta = 0 if inputs.eta is None else inputs.eta[b, t, h]
                loss = 0.5 * ((memory(anchor, k) - v) ** 2).sum()
                u = torch.autograd.grad(loss, anchor, create_graph=True)
                S = [eta * s - inputs.theta[b, t, h] * g for s, g in zip(S, u, strict=True)]
                W = [w_0 + (1 - alpha) * (w - w_0) + s for w, w_0, s in zip(W, base, S, strict=True)]
                out[b][t][h] = memory(W, q)
            ends[b, h] = W, S, (W if T % chunk_size == 0 else anchor)

    def gather(part, layer):
        return torch.stack([torch.stack([ends[b, h][part][layer] for h in range(H)]) for b in range(B)])

    parts = (tuple(gather(part, layer) for layer in range(len(inputs.weights))) for part in range(3))
    out = torch.stack([torch.stack([torch.stack(heads) for heads in tokens]) for tokens in out])
    return out, MemoryState(*parts, T % chunk_size)


@pytest.mark.parametrize("forget_to", ["zero", "start"])
@pytest.mark.parametrize("activation", ["silu", "gelu", "relu"])
@pytest.mark.parametrize("chunk_size", [1, 4, 6])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_definition_is_the_paper_written_out_by_hand(
    make_inputs, assert_same, depth, chunk_size, activation, forget_to
):
    inputs = make_inputs(T=6, depth=depth)
    expected = inputs.summary(*by_hand(inputs, chunk_size, activation, forget_to))
    actual = inputs.everything(backend="naive", chunk_size=chunk_size, activation=activation, forget_to=forget_to)
    assert_same(actual, expected)


def test_the_definition_without_gates_is_gradient_descent_by_hand(make_inputs, assert_same):
    inputs = make_inputs(T=6, forget=False, momentum=False)
    expected = inputs.summary(*by_hand(inputs, 4, "silu"))
    assert_same(inputs.everything(backend="naive", chunk_size=4), expected)


@pytest.mark.parametrize("forget_to", ["zero", "start"])
@pytest.mark.parametrize("chunk_size", CHUNK_SIZES)
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_chunks_give_outputs_state_and_gradients_of_the_definition(
    make_inputs, assert_same, depth, chunk_size, forget_to
):
    inputs = make_inputs(T=23, depth=depth)
    expected = inputs.everything(backend="naive", chunk_size=chunk_size, forget_to=forget_to)
    assert_same(inputs.everything(backend="chunk", chunk_size=chunk_size, forget_to=forget_to), expected)


@pytest.mark.parametrize("backend", ["naive", "chunk"])
@pytest.mark.parametrize("depth", [1, 2])
def test_what_is_erased_is_the_start_again(make_inputs, backend, depth):
    inputs = make_inputs(depth=depth, momentum=False).map(torch.ones_like, ["alpha"]).map(torch.zeros_like, ["theta"])
    _, end = inputs.run(chunk_size=4, backend=backend, forget_to="start")
    for w, w_0 in zip(end.weights, inputs.weights, strict=True):
        torch.testing.assert_close(w, w_0.expand_as(w))


def test_without_a_forget_gate_there_is_nothing_to_forget_towards(make_inputs, assert_same):
    inputs = make_inputs(forget=False)
    assert_same(inputs.everything(chunk_size=4, forget_to="start"), inputs.everything(chunk_size=4))


@pytest.mark.parametrize("activation", ["silu", "gelu", "relu"])
@pytest.mark.parametrize("depth", [2, 3])
def test_chunks_are_exact_for_every_activation(make_inputs, assert_same, depth, activation):
    inputs = make_inputs(depth=depth)
    expected = inputs.everything(backend="naive", chunk_size=5, activation=activation)
    assert_same(inputs.everything(backend="chunk", chunk_size=5, activation=activation), expected)


@pytest.mark.parametrize("forget_to", ["zero", "start"])
@pytest.mark.parametrize("momentum", [True, False])
@pytest.mark.parametrize("forget", [True, False])
@pytest.mark.parametrize("chunk_size", [1, 5])
def test_chunks_are_exact_with_a_gate_switched_off(make_inputs, assert_same, chunk_size, forget, momentum, forget_to):
    inputs = make_inputs(forget=forget, momentum=momentum)
    expected = inputs.everything(backend="naive", chunk_size=chunk_size, forget_to=forget_to)
    assert_same(inputs.everything(backend="chunk", chunk_size=chunk_size, forget_to=forget_to), expected)


@pytest.mark.parametrize("backend", ["naive", "chunk"])
def test_a_gate_switched_off_is_a_gate_of_zero(make_inputs, assert_same, backend):
    off = make_inputs(forget=False, momentum=False)
    zero = torch.zeros_like(off.theta)
    out, end = neural_memory(off.q, off.k, off.v, zero, zero, off.theta, off.weights, chunk_size=5, backend=backend)
    assert_same(off.summary(out, end), off.everything(backend=backend, chunk_size=5))


@pytest.mark.parametrize("forget", [True, False])
@pytest.mark.parametrize("momentum", [True, False])
@pytest.mark.parametrize(
    ("T", "all_cuts"),
    [(5, [(), (1,)]), (64, [(), (1,), (63,)]), (150, [(), (1,), (64,), (63, 64, 130)])],
    ids=["5", "64", "150"],
)
@pytest.mark.parametrize("forget_to", ["zero", "start"])
def test_the_online_linear_memory_is_exact_in_blocks(
    make_inputs, make_state, assert_same, monkeypatch, T, all_cuts, momentum, forget, forget_to
):
    monkeypatch.setattr(online, "GROUP", 2 * online.BLOCK)
    inputs = make_inputs(T=T, depth=1, momentum=momentum, forget=forget)
    state = make_state(inputs)
    expected = inputs.everything(state=state, backend="naive", chunk_size=1, forget_to=forget_to)
    for cuts in all_cuts:
        actual = inputs.everything(cuts, state=state, backend="chunk", chunk_size=1, forget_to=forget_to)
        assert_same(actual, expected)


@pytest.mark.parametrize(("K", "V", "hidden"), [(1, 1, 1), (5, 2, 3), (2, 6, 9)])
def test_chunks_are_exact_for_keys_values_and_layers_of_any_width(make_inputs, assert_same, K, V, hidden):
    inputs = make_inputs(B=1, T=9, H=3, K=K, V=V, hidden=hidden, depth=3)
    assert_same(inputs.everything(chunk_size=4), inputs.everything(backend="naive", chunk_size=4))


# T: inside the chunk that the state has begun, to its very end, and beyond
@pytest.mark.parametrize("T", [1, 2, 4, 5, 7, 11])
@pytest.mark.parametrize("offset", [0, 3, 6])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("forget_to", ["zero", "start"])
def test_gradients_reach_the_state_that_a_call_continues(
    make_inputs, make_state, assert_same, depth, offset, T, forget_to
):
    inputs = make_inputs(T=T, depth=depth)
    state = make_state(inputs, offset)
    expected = inputs.everything(state=state, backend="naive", chunk_size=7, forget_to=forget_to)
    assert_same(inputs.everything(state=state, backend="chunk", chunk_size=7, forget_to=forget_to), expected)


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("forget_to", ["zero", "start"])
def test_hand_written_gradients_agree_with_finite_differences(make_inputs, make_state, depth, offset, forget_to):
    inputs = make_inputs(B=1, T=4, H=1, K=2, V=2, hidden=2, depth=depth)
    state = make_state(inputs, offset)

    def run(*tensors):
        parts = [tuple(tensors[i : i + depth]) for i in range(6, 6 + 3 * depth, depth)]
        begun = MemoryState(*parts, offset)
        options = {"chunk_size": 2, "backend": "chunk", "forget_to": forget_to}
        out, end = neural_memory(*tensors[:6], tuple(tensors[-depth:]), state=begun, **options)
        return out, *end.weights, *end.momentum, *end.anchor

    gates = (inputs.alpha, inputs.eta, inputs.theta)
    leaves = (inputs.q, inputs.k, inputs.v, *gates, *state.weights, *state.momentum, *state.anchor, *inputs.weights)
    assert torch.autograd.gradcheck(run, leaves)


def second_order(inputs, backend):
    """A gradient with respect to q that is itself to be differentiated."""
    out, _ = inputs.run(chunk_size=2, backend=backend)
    loss = out.square().sum()
    return loss, torch.autograd.grad(loss, inputs.q, create_graph=True)[0]


def test_the_definition_has_a_second_derivative(make_inputs):
    inputs = make_inputs(B=1, T=3, H=1, K=2, V=2, hidden=2)

    def run(q, k, theta):
        gates = (inputs.alpha, inputs.eta, theta)
        return neural_memory(q, k, inputs.v, *gates, inputs.weights, chunk_size=2, backend="naive")[0]

    assert torch.autograd.gradgradcheck(run, (inputs.q, inputs.k, inputs.theta))


def test_chunks_refuse_a_second_derivative(make_inputs):
    def penalty():
        second_order(make_inputs(), "chunk")[1].square().sum().backward()

    with pytest.raises(RuntimeError, match="second derivative"):
        penalty()


def test_chunks_refuse_a_second_derivative_beside_a_first_one(make_inputs):
    def loss_and_penalty():
        inputs = make_inputs()
        loss, dq = second_order(inputs, "chunk")
        torch.autograd.grad(loss + dq.square().sum(), inputs.k)

    with pytest.raises(RuntimeError, match="second derivative"):
        loss_and_penalty()


@pytest.mark.parametrize("leaf", ["q", "k", "v", "alpha", "eta", "theta", "weights[0]", "weights[1]"])
def test_a_gradient_is_the_same_when_nothing_else_needs_one(make_inputs, leaf):
    inputs = make_inputs()
    expected = inputs.everything(chunk_size=5)[f"gradient of {leaf}"]
    for name, x in inputs.leaves().items():
        x.requires_grad_(name == leaf)
    actual = inputs.everything(chunk_size=5)
    assert [name for name in actual if name.startswith("gradient")] == [f"gradient of {leaf}"]
    torch.testing.assert_close(actual[f"gradient of {leaf}"], expected, rtol=1e-12, atol=1e-14)


def test_a_second_backward_pass_gives_the_same_gradients(make_inputs):
    inputs = make_inputs()
    out, end = inputs.run(chunk_size=5, backend="chunk")
    loss = out.square().sum() + sum(w.square().sum() for w in (*end.weights, *end.momentum, *end.anchor))
    leaves = list(inputs.leaves().values())
    first = torch.autograd.grad(loss, leaves, retain_graph=True)
    second = torch.autograd.grad(loss, leaves)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("backend", ["naive", "chunk"])
@pytest.mark.parametrize("offset", [0, 3])
def test_a_call_leaves_its_arguments_as_they_were(make_inputs, make_state, backend, offset):
    inputs = make_inputs()
    state = make_state(inputs, offset)
    borrowed = [*inputs.leaves().values(), *state.weights, *state.momentum, *state.anchor]
    before = [x.detach().clone() for x in borrowed]
    inputs.everything(state=state, backend=backend, chunk_size=5)
    assert all(torch.equal(a, b) for a, b in zip(borrowed, before, strict=True))
    assert state.offset == offset


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_results_do_not_depend_on_whether_gradients_are_recorded(make_inputs, mode):
    inputs = make_inputs()
    out, end = inputs.run(chunk_size=5)
    with mode():
        out_without, end_without = inputs.run(chunk_size=5)
    assert not out_without.requires_grad
    assert torch.equal(out, out_without)
    assert all(torch.equal(a, b) for a, b in zip(end.weights, end_without.weights, strict=True))


def test_memory_layout_does_not_matter(make_inputs, assert_same):
    inputs = make_inputs()

    def strided(x):
        return x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()

    assert not strided(inputs.q).is_contiguous()
    assert_same(inputs.map(strided).everything(chunk_size=5), inputs.everything(chunk_size=5), rtol=1e-12)
