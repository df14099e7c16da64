"""Memory use of a call, and results that do not depend on how much is kept for the backward pass."""

import gc
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.checkpoint import checkpoint

from titans_core.ops.memory import groups
from titans_core.ops.memory.engines import engine_of
from titans_core.ops.memory.functions import coefficients
from titans_core.ops.memory.groups import Groups
from titans_core.ops.memory.pieces import Inputs, run_pieces


class LiveNumbers(TorchDispatchMode):
    """Counts the bytes of the tensors made under it: the most that lived at once, and the largest one."""

    def __init__(self):
        super().__init__()
        self.seen, self.live, self.peak, self.largest = {}, 0, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for x in tree_iter(result):
            if isinstance(x, torch.Tensor):
                self.count(x.untyped_storage())
        return result

    def count(self, storage):
        key = storage._cdata
        if key in self.seen:
            return
        size = storage.nbytes()

        def forget(_):
            del self.seen[key]
            self.live -= size

        self.seen[key] = weakref.ref(storage, forget)
        self.live += size
        self.peak, self.largest = max(self.peak, self.live), max(self.largest, size)


def test_no_weight_is_formed_for_every_token(make_inputs):
    T, C, d, h = 256, 32, 32, 32
    weight = d * h * 4  # bytes of one layer in float32; there are two
    inputs = make_inputs(B=1, T=T, H=1, K=d, V=d, hidden=h, dtype=torch.float32, rate=0.02)

    def measure(backend):
        with LiveNumbers() as numbers:
            out, _ = inputs.run(backend=backend, chunk_size=C)
            forward = numbers.peak
            torch.autograd.grad(out.sum(), list(inputs.leaves().values()))
        return numbers.largest, forward, numbers.peak

    largest, forward, peak = measure("chunk")
    assert largest < C * weight  # not even for the tokens of one chunk
    assert forward < T * weight
    assert peak < 2 * T * weight
    # the measure sees what it should: the definition keeps the weights of every token for its backward pass
    assert measure("naive")[1] > 2 * T * weight


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_no_chunk_leaves_its_weights(make_inputs, mode):
    C, d, h = 16, 16, 64

    def peak(T):
        # only the learned weights require a gradient, as in a layer that is being used
        inputs = make_inputs(B=1, T=T, H=1, K=d, V=d, hidden=h, dtype=torch.float32).map(torch.Tensor.detach)
        with LiveNumbers() as numbers, mode():
            inputs.run(chunk_size=C, backend="chunk")
        return numbers.peak

    weights_and_momentum = 2 * (d * h + h * d) * 4  # bytes
    # both longer than the pieces that are read together
    assert peak(4096) - peak(2048) < 2048 // C * weights_and_momentum


@pytest.mark.parametrize("momentum", [True, False])
def test_without_gradients_an_online_memory_holds_little_more_than_what_came_in_and_goes_out(make_inputs, momentum):
    d = 32

    def peak(T):
        inputs = make_inputs(B=1, T=T, H=1, K=d, V=d, depth=1, dtype=torch.float32, momentum=momentum)
        with LiveNumbers() as numbers, torch.no_grad():
            inputs.run(chunk_size=1, backend="chunk")
        return numbers.peak

    q_k_v_and_out = 4 * d * 4  # bytes of a token
    assert peak(2048) - peak(1024) < 1024 * 2 * q_k_v_and_out


@pytest.mark.parametrize("group_rows", [1, 12, 10_000])
@pytest.mark.parametrize("tape_bytes", [0, 2**40])
@pytest.mark.parametrize(
    ("depth", "momentum", "T", "cuts"), [(1, True, 29, ()), (2, True, 29, (6, 15)), (3, False, 40, ())]
)
@pytest.mark.parametrize("forget_to", ["zero", "start"])
def test_what_is_kept_and_what_is_made_again_changes_nothing(
    make_inputs, assert_same, monkeypatch, group_rows, tape_bytes, depth, momentum, T, cuts, forget_to
):
    monkeypatch.setattr(Groups, "tape_bytes", tape_bytes)
    monkeypatch.setattr(groups, "GROUP_ROWS", group_rows)
    inputs = make_inputs(T=T, depth=depth, momentum=momentum)
    options = {"chunk_size": 3, "forget_to": forget_to}
    expected = inputs.everything(cuts, backend="naive", **options)
    assert_same(inputs.everything(cuts, backend="chunk", **options), expected)


def test_a_second_backward_pass_after_making_the_tapes_again_gives_the_same_gradients(make_inputs, monkeypatch):
    monkeypatch.setattr(Groups, "tape_bytes", 0)
    inputs = make_inputs(T=40)
    loss = inputs.run(backend="chunk", chunk_size=3)[0].square().sum()
    first, second = (torch.autograd.grad(loss, list(inputs.leaves().values()), retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_making_the_tapes_again_bounds_the_memory_of_the_backward_pass(make_inputs, monkeypatch):
    C, d, h = 8, 16, 32

    def peak(T):
        inputs = make_inputs(B=1, T=T, H=1, K=d, V=d, hidden=h, dtype=torch.float32, rate=0.02)
        with LiveNumbers() as numbers:
            out, _ = inputs.run(backend="chunk", chunk_size=C)
            torch.autograd.grad(out.sum(), list(inputs.leaves().values()))
        return numbers.peak

    kept = peak(2048) - peak(512)
    monkeypatch.setattr(Groups, "tape_bytes", 0)
    monkeypatch.setattr(groups, "GROUP_ROWS", 2 * C)
    made_again = peak(2048) - peak(512)
    assert made_again < 0.5 * kept


def test_a_checkpointed_call_holds_no_tapes(make_inputs):
    inputs = make_inputs(B=1, T=256, H=1, K=16, V=16, hidden=64, dtype=torch.float32, rate=0.02)
    leaves = list(inputs.leaves().values())

    def measure(call):
        with LiveNumbers() as numbers:
            out = call()
        live = numbers.live
        return live, torch.autograd.grad(out.sum(), leaves)

    plain, expected = measure(lambda: inputs.run(backend="chunk", chunk_size=16)[0])
    held, found = measure(
        lambda: checkpoint(lambda: inputs.run(backend="chunk", chunk_size=16)[0], use_reentrant=False)
    )
    assert held < 0.2 * plain
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("backward", [True, False])
def test_memory_is_free_as_soon_as_the_results_are(make_inputs, backward):
    """A reference cycle between results and saved tensors would keep these until garbage collection."""
    inputs = make_inputs(B=1, T=64, H=1, K=8, V=8, hidden=8)
    gc.collect()
    gc.disable()
    try:
        with LiveNumbers() as numbers:
            out, state = inputs.run(backend="chunk", chunk_size=4)
            if backward:
                torch.autograd.grad(out.sum(), list(inputs.leaves().values()))
            del out, state
        assert numbers.live <= sum(x.nbytes for x in inputs.leaves().values())  # views of them were counted too
    finally:
        gc.enable()


@pytest.mark.parametrize(("backend", "depth"), [("chunk", 1), ("chunk", 2), ("chunk", 3), ("triton", 1), ("triton", 2)])
def test_an_engine_knows_how_large_its_tapes_are(backend, depth):
    if backend == "triton":
        pytest.importorskip("triton")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    N, P, C, d = 5, 2, 8, 16
    q, k, v = (engine_of(backend).to_pieces(x, C) for x in torch.randn(3, 1, N * C, P, d, device=device))
    c = coefficients(*torch.rand(3, N, P, C, device=device) / C, C, backend)
    WS = [torch.randn(P, 2 * d, d, device=device) for _ in range(depth)]
    engine = engine_of(backend)("silu", 2, [])
    *_, segments = run_pieces(engine, Inputs(q, k, v, c), WS, [ws[:, :d] for ws in WS], True)
    kept = {x.untyped_storage()._cdata: x.nbytes for _, tape in segments for x in beside_weights(tape)}
    assert sum(kept.values()) == 4 * N * P * C * engine.tape_width(C, [d] * depth)


def beside_weights(tape):
    parts = {name: part for name, part in tape._asdict().items() if name not in ("WS", "anchor")}
    return [x for x in tree_iter(parts) if isinstance(x, torch.Tensor)]


def test_without_gradients_a_kernel_holds_the_states_of_a_segment_not_of_all(make_inputs, monkeypatch):
    pytest.importorskip("triton")
    from titans_core.ops.memory.triton import engine

    seen = []
    monkeypatch.setattr(engine.Kernels, "segment_bytes", 30_000)  # the states and tape of 4 chunks
    real = engine.store_forward
    monkeypatch.setattr(engine, "store_forward", lambda k, v, g, *rest: seen.append(len(g)) or real(k, v, g, *rest))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = make_inputs(B=1, T=25 * 16, H=1, K=16, V=16, hidden=16, dtype=torch.float32)
    with torch.no_grad():
        inputs.map(lambda x: x.detach().to(device)).run(chunk_size=16, backend="triton")
    assert sum(seen) == 25
    assert max(seen) <= 5
