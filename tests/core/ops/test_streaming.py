"""A memory cut anywhere and continued is the same memory: outputs, state, and gradients through the carried state."""

from itertools import combinations

import pytest
import torch

T = 11
CUTS = [*combinations(range(1, T), 1), *combinations(range(1, T), 2), tuple(range(1, T))]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["naive", "chunk"])
@pytest.mark.parametrize("chunk_size", [1, 4, 5, 64])
@pytest.mark.parametrize("forget_to", ["zero", "start"])
def test_a_memory_cut_anywhere_and_continued_is_the_same_memory(
    make_inputs, assert_same, chunk_size, backend, forget_to
):
    inputs = make_inputs(B=1, T=T)
    options = {"chunk_size": chunk_size, "forget_to": forget_to}
    expected = inputs.everything(backend="naive", **options)
    # the definition is slow, and has little to get wrong here: one cut, and token by token
    cuts = [c for c in CUTS if len(c) != 2] if backend == "naive" else CUTS
    for cut in cuts:
        assert_same(inputs.everything(cut, backend=backend, **options), expected)


@pytest.mark.parametrize("depth", [1, 3, 4])
@pytest.mark.parametrize("chunk_size", [4, 5])
def test_a_deep_or_linear_memory_continues_token_by_token(make_inputs, assert_same, depth, chunk_size):
    inputs = make_inputs(T=T, depth=depth)
    expected = inputs.everything(backend="naive", chunk_size=chunk_size)
    assert_same(inputs.everything(tuple(range(1, T)), chunk_size=chunk_size), expected)


@pytest.mark.parametrize("forget", [True, False])
@pytest.mark.parametrize("momentum", [True, False])
def test_a_memory_without_a_gate_continues_in_mid_chunk(make_inputs, assert_same, forget, momentum):
    inputs = make_inputs(T=T, forget=forget, momentum=momentum)
    expected = inputs.everything(backend="naive", chunk_size=4)
    assert_same(inputs.everything((3, 6, 7), chunk_size=4), expected)


@pytest.mark.parametrize("cut", [1, 4, 7])
@pytest.mark.parametrize("backends", [("naive", "chunk"), ("chunk", "naive")])
def test_one_backend_continues_what_another_began(make_inputs, assert_same, backends, cut):
    inputs = make_inputs(T=T)
    expected = inputs.everything(backend="naive", chunk_size=4)
    assert_same(inputs.everything((cut,), backend=backends, chunk_size=4), expected)


@pytest.mark.parametrize("backend", ["naive", "chunk"])
def test_the_state_counts_the_tokens_of_the_begun_chunk(make_inputs, backend):
    inputs = make_inputs(T=T)
    state = None
    for t in range(T):
        _, state = inputs.tokens(t, t + 1).run(state, chunk_size=4, backend=backend)
        assert state.offset == (t + 1) % 4
        if state.offset == 0:
            assert all(torch.equal(a, w) for a, w in zip(state.anchor, state.weights, strict=True))


@pytest.mark.parametrize("backend", ["naive", "chunk"])
def test_a_detached_state_continues_the_values_but_not_the_gradients(make_inputs, backend):
    inputs = make_inputs(T=T)
    first, second = inputs.tokens(0, 6), inputs.tokens(6, T)
    _, state = first.run(chunk_size=4, backend=backend)
    whole, _ = second.run(state, chunk_size=4, backend=backend)
    cut = state.detach()
    assert not any(x.requires_grad for x in (*cut.weights, *cut.momentum, *cut.anchor))
    assert all(x.requires_grad for x in (*state.weights, *state.momentum, *state.anchor))
    assert cut.offset == state.offset
    out, _ = second.run(cut, chunk_size=4, backend=backend)
    assert torch.equal(out, whole)

    (through,) = torch.autograd.grad(whole.sum(), inputs.v)
    (stopped,) = torch.autograd.grad(out.sum(), inputs.v)
    assert through[:, :6].abs().max() > 0
    assert stopped[:, :6].abs().max() == 0
    torch.testing.assert_close(stopped[:, 6:], through[:, 6:], rtol=1e-12, atol=1e-14)
    # M_0 is behind the state: the learned start gets no gradient from what comes after
    assert torch.autograd.grad(second.run(cut, chunk_size=4)[0].sum(), inputs.weights, allow_unused=True) == (
        None,
        None,
    )


def test_a_moved_state_keeps_its_place_in_the_sequence(make_inputs):
    inputs = make_inputs(T=T)
    _, state = inputs.run(chunk_size=4)
    moved = state.to("meta")
    assert moved.offset == state.offset == 3
    for name in ("weights", "momentum", "anchor"):
        for there, here in zip(getattr(moved, name), getattr(state, name), strict=True):
            assert (there.device.type, there.shape, there.dtype) == ("meta", here.shape, here.dtype)
    same = state.to(torch.device("cpu"))
    assert all(torch.equal(a, b) for a, b in zip(same.weights, state.weights, strict=True))


def test_a_saved_state_continues_where_it_stopped(make_inputs, tmp_path):
    inputs = make_inputs(T=T)
    _, state = inputs.tokens(0, 6).run(chunk_size=4)
    state = state.detach()
    torch.save(vars(state), tmp_path / "state.pt")
    loaded = type(state)(**torch.load(tmp_path / "state.pt", weights_only=True))
    out, _ = inputs.tokens(6, T).run(state, chunk_size=4)
    out_loaded, _ = inputs.tokens(6, T).run(loaded, chunk_size=4)
    assert torch.equal(out, out_loaded)


@pytest.mark.parametrize("backend", ["naive", "chunk"])
def test_a_state_is_not_changed_by_what_continues_it(make_inputs, backend):
    inputs = make_inputs(T=T)
    _, state = inputs.tokens(0, 6).run(chunk_size=4, backend=backend)
    before = [x.clone() for x in (*state.weights, *state.momentum, *state.anchor)]
    first, _ = inputs.tokens(6, T).run(state, chunk_size=4, backend=backend)
    second, _ = inputs.tokens(6, T).run(state, chunk_size=4, backend=backend)
    assert torch.equal(first, second)
    after = (*state.weights, *state.momentum, *state.anchor)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
