"""backend="triton" against the definition in float64: outputs, state, gradients. Without a GPU, in the interpreter."""

import warnings
from types import SimpleNamespace

import pytest
import torch

from titans_core import NeuralMemory, neural_memory

pytest.importorskip("triton")

import triton
from triton.runtime import interpreter

from titans_core.ops.memory import dispatch
from titans_core.ops.memory.triton import engine, forward, read_backward, store_backward
from titans_core.ops.memory.triton.engine import Kernels
from titans_core.ops.memory.triton.launch import (
    CHOICES,
    IN_ORDER,
    as_configs,
    choices_of,
    meeting_slices,
    settings,
    worth_meeting,
    worth_trying,
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# the interpreter multiplies in float32, a GPU in three products of bf16 for one
TOLERANCE = {torch.float32: 1e-3 if DEVICE == "cuda" else 2e-5, torch.bfloat16: 1e-2}


@pytest.fixture(autouse=True)
def narrowest_slices(monkeypatch):
    """Several slices also in a narrow layer, and on a GPU no search for each of these many shapes."""
    choose_among(CHOICES[1:2], IN_ORDER[1:2], monkeypatch)


@pytest.fixture(autouse=True)
def rounded_as_on_a_gpu(monkeypatch):
    """The interpreter cuts float32 off where a GPU rounds it to bf16, which is a multiple of the error."""
    convert = interpreter._convert_float

    def rounding(data, source, target, mode):
        if (source, target) != (triton.language.float32, triton.language.bfloat16):
            return convert(data, source, target, mode)
        return torch.tensor(data.view("float32")).to(torch.bfloat16).view(torch.uint16).numpy()

    monkeypatch.setattr(interpreter, "_convert_float", rounding)


PARTS = [
    (forward, "store"),
    (forward, "read"),
    (read_backward, "read"),
    (store_backward, "flow"),
    (store_backward, "write"),
]
ORDERED = (forward._store_linear, forward._store_deep, store_backward._flow_linear, store_backward._flow_deep)


def choose_among(choices, in_order, monkeypatch):
    """The choices of slices and warps for the first call on a shape; without a GPU only one."""
    for module, part in PARTS:
        for kernel in (getattr(module, f"_{part}_linear"), getattr(module, f"_{part}_deep")):
            monkeypatch.setattr(kernel, "configs", as_configs(in_order if kernel in ORDERED else choices))
            # tests search side by side on one GPU: what is fastest then is no choice to keep on disk
            monkeypatch.setattr(kernel, "cache_results", False)


def as_dtype(inputs, dtype):
    """The same inputs as leaves on the device: tokens in dtype, gates and weights in float32."""

    def leaf(x, to):
        return x.detach().to(DEVICE, to).requires_grad_()

    inputs = inputs.map(lambda x: leaf(x, dtype), ("q", "k", "v"))
    inputs = inputs.map(lambda x: leaf(x, torch.float32), ("alpha", "eta", "theta"))
    return type(inputs)(**{**vars(inputs), "weights": tuple(leaf(w, torch.float32) for w in inputs.weights)})


def assert_close(actual, expected, tolerance):
    """Each tensor to a fraction of its norm."""
    for name, want in expected.items():
        got = actual[name].double().cpu()
        assert got.isfinite().all(), name
        error = (got - want).norm() / max(want.norm(), 1e-6)
        assert error < tolerance, f"{name}: {error:.1e}"


def compare(inputs, dtype=torch.float32, cuts=(), chunk_size=16, **options):
    # the same numbers for both, rounded once
    rounded = inputs.map(lambda x: x.detach().to(dtype).double().requires_grad_(), ("q", "k", "v"))
    expected = rounded.everything(cuts, backend="naive", chunk_size=chunk_size, **options)
    given = as_dtype(inputs, dtype)
    actual = given.everything(cuts, backend="triton", chunk_size=chunk_size, **options)
    assert_close(actual, expected, TOLERANCE[dtype])


SHAPES = {"K": 16, "V": 16, "hidden": 32}
# on a GPU the shapes that benchmarks/memory_gpu.py measures: wide layers, chunk after chunk, many programs at once
# each choice by itself, and the search among them; in the interpreter warps are nothing, nor is there a search
if DEVICE == "cuda":
    LARGE, EXPANSIONS = {"B": 2, "T": 256, "H": 16, "K": 64, "V": 64}, (1, 2, 4)
    # float32 compiles for a minute if it is searched in one test
    SEARCHED = [(torch.bfloat16, CHOICES, IN_ORDER)]
    SEARCHED += [
        (dtype, [CHOICES[i]], [IN_ORDER[j]])
        for dtype in (torch.float32, torch.bfloat16)
        for i, j in ((0, 0), (1, 1), (2, 0), (3, 2), (4, 3))
    ]
else:
    LARGE, EXPANSIONS = {"B": 1, "T": 40, "H": 1, "K": 32, "V": 32}, (2,)
    SEARCHED = [(dtype, CHOICES[:1], IN_ORDER[:1]) for dtype in (torch.float32, torch.bfloat16)]


@pytest.mark.parametrize(("dtype", "choices", "in_order"), SEARCHED, ids=str)
@pytest.mark.parametrize(("depth", "expansion"), [(1, 1), *((2, e) for e in EXPANSIONS)])
def test_every_choice_of_slices_and_warps_gives_the_same(
    make_inputs, monkeypatch, choices, in_order, depth, expansion, dtype
):
    choose_among(choices, in_order, monkeypatch)
    inputs = make_inputs(**LARGE, hidden=expansion * LARGE["K"], depth=depth, rate=0.05, extreme=False)
    if dtype == torch.float32:  # at the alphas that are drawn nothing of a piece would be left at the end of the next
        inputs = inputs.map(lambda alpha: (0.01 * alpha).detach().requires_grad_(), ("alpha",))
    given, chunk_size = as_dtype(inputs, dtype), LARGE["K"]
    # in float64 chunks are the definition, as other tests show, and are done with these shapes at once
    exact = given.map(lambda x: x.detach().double().requires_grad_())
    weights = tuple(w.detach().double().requires_grad_() for w in given.weights)
    exact = type(exact)(**{**vars(exact), "weights": weights})
    expected = {name: x.cpu() for name, x in exact.everything(backend="chunk", chunk_size=chunk_size).items()}
    assert_close(given.everything(backend="triton", chunk_size=chunk_size), expected, TOLERANCE[dtype])


@pytest.mark.parametrize(
    ("sizes", "kept", "meeting"),
    [
        ({"K": 64, "V": 64, "H": 256, "BLOCK_C": 64}, CHOICES[:3], (32, 4, 1)),
        ({"K": 16, "V": 16, "H": 16, "BLOCK_C": 64}, CHOICES[1:3], (16, 4, 1)),
        ({"K": 64, "V": 16, "BLOCK_C": 16}, CHOICES[1:3], (16, 4, 1)),
        ({"K": 64, "V": 128, "BLOCK_C": 64}, CHOICES[3:], (32, 8, 1)),
        ({"K": 128, "V": 64, "H": 16, "BLOCK_C": 16}, CHOICES[4:], (16, 8, 1)),
        ({"K": 32, "V": 32, "H": 128, "BLOCK_C": 128}, CHOICES[3:], (32, 8, 1)),
    ],
)
def test_slices_too_wide_and_warps_without_rows_are_not_tried(sizes, kept, meeting):
    assert choices_of(worth_trying(as_configs(CHOICES), sizes)) == list(kept)
    assert choices_of(worth_meeting(as_configs(IN_ORDER), {}, **sizes)) == [meeting]
    if "H" in sizes:
        assert meeting_slices(IN_ORDER, sizes["H"]) == sizes["H"] // meeting[0]


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2])
def test_slices_and_warps_are_chosen_again_for_more_programs(make_inputs, monkeypatch, depth):
    """Timing one piece of one memory would not represent a full device, whose resources programs share."""
    seen = {}
    for module, part in PARTS:
        kernel = getattr(module, f"_{part}_{'deep' if depth == 2 else 'linear'}")
        assert "CROWD" in kernel.keys

        def launched(*args, where=(module.__name__, part), **kwargs):  # what it computes is of other tests
            seen.setdefault(where, []).append(kwargs["CROWD"])
            if callable(kwargs["grid"]):
                kwargs["grid"]({"BLOCK": 16})

        monkeypatch.setattr(kernel, "run", launched)
    for B, T in ((1, 16), (3, 16), (3, 48)):
        make = as_dtype(make_inputs(B=B, T=T, H=2, depth=depth, **SHAPES), torch.float32)
        make.everything(backend="triton", chunk_size=16)
    assert len(seen) == len(PARTS)
    for (_, part), crowds in seen.items():
        if part in ("read", "write"):
            assert crowds == [2, 8, 32]
        elif DEVICE == "cuda" or depth == 1:
            assert crowds == [2, 8, 8]
        else:  # two launches for each piece
            assert crowds == [2] * 2 + [8] * 2 + [8] * 6
    assert settings(16, torch.empty(0), 10_000)["CROWD"] == settings(16, torch.empty(0), 300)["CROWD"]


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [True, False])
@pytest.mark.parametrize(("forget", "forget_to"), [(True, "zero"), (True, "start"), (False, "zero")])
@pytest.mark.parametrize("depth", [1, 2])
def test_kernels_are_the_definition_forward_and_backward(make_inputs, depth, forget, momentum, forget_to):
    B = 2 if forget and momentum and forget_to == "zero" else 1
    compare(make_inputs(B=B, T=45, depth=depth, forget=forget, momentum=momentum, **SHAPES), forget_to=forget_to)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["silu", "gelu", "relu"])
def test_every_activation(make_inputs, activation):
    compare(make_inputs(B=1, T=33, H=1, **SHAPES), activation=activation)


@pytest.mark.parametrize(
    ("K", "V", "hidden", "depth"), [(16, 32, 64, 2), (64, 16, 16, 2), (32, 16, 1, 1), (16, 64, 1, 1)]
)
def test_widths_that_differ(make_inputs, K, V, hidden, depth):
    compare(make_inputs(B=1, T=20, H=1, K=K, V=V, hidden=hidden, depth=depth))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("K", "V", "hidden", "depth", "activation", "forget_to"),
    [
        (8, 8, 16, 2, "silu", "zero"),
        (8, 24, 20, 2, "gelu", "start"),
        (16, 16, 1, 2, "relu", "start"),
        (3, 16, 1, 1, "silu", "zero"),
        (32, 1, 1, 1, "silu", "start"),
    ],
)
def test_any_width_is_filled_up_with_zeros_that_stay(make_inputs, K, V, hidden, depth, activation, forget_to):
    make = make_inputs(B=1, T=20, H=2, K=K, V=V, hidden=hidden, depth=depth, rate=0.1)
    compare(make, forget_to=forget_to, activation=activation, cuts=(7,))  # the second call takes and gives a state


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2])
def test_single_tokens_behind_a_text_in_widths_that_are_filled_up(make_inputs, depth):
    """A state has the given widths, whichever kernel made it: the kernel for single tokens accepts any width."""
    inputs = as_dtype(make_inputs(B=2, T=19, H=2, K=8, V=12, hidden=20, depth=depth, rate=0.1), torch.float32)
    with torch.no_grad():
        whole, expected = inputs.run(backend="naive", chunk_size=4)
        out, state = inputs.tokens(0, 13).run(backend="triton", chunk_size=4)
        outputs = [out]
        for t in range(13, 19):
            out, state = inputs.tokens(t, t + 1).run(state, backend="triton", chunk_size=4)
            outputs.append(out)
    assert state.offset == expected.offset
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole, rtol=1e-4, atol=1e-4)
    for part in ("weights", "momentum", "anchor"):
        torch.testing.assert_close(getattr(state, part), getattr(expected, part), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("chunk_size", "T"), [(1, 5), (13, 30), (16, 7), (64, 70)])
def test_chunks_of_any_size_and_parts_of_chunks(make_inputs, chunk_size, T):
    compare(make_inputs(B=1, T=T, H=1, rate=0.1, **SHAPES), chunk_size=chunk_size)


@pytest.mark.slow
@pytest.mark.parametrize(("K", "V"), [(128, 128), (16, 128)])
def test_the_widest_tiles_of_float32(make_inputs, monkeypatch, K, V):
    """They fit a GPU's shared memory with the last choice only."""
    choose_among(CHOICES[-1:], IN_ORDER[-1:], monkeypatch)
    compare(make_inputs(B=1, T=131, H=1, K=K, V=V, hidden=32, rate=0.02, extreme=False), chunk_size=128)


@pytest.mark.slow
@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU multiplies so by itself")
@pytest.mark.parametrize("forget_to", ["zero", "start"])
@pytest.mark.parametrize("depth", [1, 2])
def test_three_products_of_bf16_are_nearly_one_of_float32(make_inputs, monkeypatch, depth, forget_to):
    products = []

    def halves(x):
        x = torch.from_numpy(x.data.copy())
        high = x.bfloat16().float()
        return high.numpy(), (x - high).bfloat16().float().numpy()

    def of_halves(builder, a, b, to, *settings):
        (high_a, low_a), (high_b, low_b) = halves(a), halves(b)
        products.append(low_a @ high_b + high_a @ low_b + high_a @ high_b + to.data)
        return interpreter.TensorHandle(products[-1], to.dtype.scalar)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", of_halves)
    monkeypatch.setitem(TOLERANCE, torch.float32, 1e-4)
    compare(make_inputs(B=1, T=37, H=1, depth=depth, rate=0.1, extreme=False, **SHAPES), forget_to=forget_to)
    assert products


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cuts", "forget_to"), [((5,), "start"), ((16,), "zero"), ((7, 20), "zero"), ((7, 20), "start")]
)
def test_a_cut_sequence_gives_the_same(make_inputs, cuts, forget_to):
    compare(make_inputs(B=1, T=37, H=1, **SHAPES), cuts=cuts, forget_to=forget_to)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("depth", "forget_to", "momentum"), [(1, "zero", True), (1, "start", False), (2, "zero", False), (2, "start", True)]
)
def test_bfloat16_tokens_with_sums_and_state_in_float32(make_inputs, depth, forget_to, momentum):
    inputs = make_inputs(B=1, T=40, H=2, depth=depth, rate=0.1, extreme=False, momentum=momentum, **SHAPES)
    with torch.no_grad():
        out, state = as_dtype(inputs, torch.bfloat16).run(backend="triton", chunk_size=16)
    assert out.dtype == torch.bfloat16
    assert state.weights[0].dtype == torch.float32
    compare(inputs, torch.bfloat16, forget_to=forget_to)


@pytest.mark.parametrize("forget_to", ["zero", "start"])
def test_bfloat16_tokens_of_a_memory_of_one_layer_fresh_at_every_token(make_inputs, forget_to):
    """Which is computed in blocks, in float32."""
    inputs = make_inputs(B=1, T=70, H=2, depth=1, rate=0.1, extreme=False, momentum=False, **SHAPES)
    compare(inputs, torch.bfloat16, chunk_size=1, forget_to=forget_to)


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "forget_to"), [(2, "zero"), (2, "start"), (1, "zero")])
@pytest.mark.parametrize(("momentum", "dtype"), [(True, torch.float32), (False, torch.bfloat16)], ids=str)
def test_every_number_that_is_returned_was_written(make_inputs, monkeypatch, momentum, dtype, depth, forget_to):
    """Of several whole pieces in one launch, and of a part of one; of one piece and extreme gates."""

    def poisoned(make):
        def made(*args, **kwargs):
            x = make(*args, **kwargs)
            return x.fill_(torch.nan) if x.is_floating_point() else x

        return made

    monkeypatch.setattr(torch, "empty", poisoned(torch.empty))
    monkeypatch.setattr(torch, "empty_like", poisoned(torch.empty_like))
    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned(torch.Tensor.new_empty))
    inputs = make_inputs(B=1, T=37, H=2, depth=depth, momentum=momentum, rate=0.1, extreme=False, **SHAPES)
    compare(inputs, dtype, forget_to=forget_to)
    if dtype == torch.float32:
        compare(make_inputs(B=1, T=21, H=1, depth=depth, momentum=momentum, **SHAPES), forget_to=forget_to)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
@pytest.mark.parametrize("depth", [1, 2])
def test_two_runs_are_the_same_to_the_last_bit(make_inputs, depth):
    given = as_dtype(make_inputs(**LARGE, hidden=64, depth=depth, rate=0.05, extreme=False), torch.bfloat16)
    first, second = (given.everything(backend="triton", chunk_size=64) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("B", "H", "depth", "forget_to", "dtype", "tape", "segment"),
    [
        (2, 1, 2, "zero", torch.float32, 0, 0),
        (1, 2, 2, "start", torch.bfloat16, 2**40, 25_000),
        (2, 2, 1, "zero", torch.float32, 2**40, 0),
    ],
    ids=str,
)
def test_what_is_kept_and_how_it_is_cut_changes_nothing(
    make_inputs, monkeypatch, B, H, depth, forget_to, dtype, tape, segment
):
    """Tapes of all segments, or none; segments of one piece, or of two."""
    lengths = []
    store = engine.store_forward
    monkeypatch.setattr(engine, "store_forward", lambda k, v, g, *rest: lengths.append(len(g)) or store(k, v, g, *rest))
    inputs = as_dtype(make_inputs(B=B, T=35, H=H, depth=depth, rate=0.1, extreme=False, **SHAPES), dtype)
    results = []
    for sizes in ((2**40, 2**40), (tape, segment)):
        monkeypatch.setattr(Kernels, "tape_bytes", sizes[0])
        monkeypatch.setattr(Kernels, "segment_bytes", sizes[1])
        results.append(inputs.everything(backend="triton", chunk_size=8, forget_to=forget_to))
    cut = [1, 1, 1, 1] if tape and not segment else [2, 2]
    assert lengths[:2] == [4, 1]
    assert lengths[2 : 3 + len(cut)] == [*cut, 1]
    assert len(lengths) == 3 + len(cut) + (0 if tape else 1 + len(cut))  # once more in the backward pass
    assert_close(results[1], {name: x.double().cpu() for name, x in results[0].items()}, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "forget_to"), [(2, "zero"), (2, "start"), (1, "start")])
@pytest.mark.parametrize("momentum", [True, False])
def test_token_by_token_is_one_call(make_inputs, momentum, depth, forget_to):
    inputs = as_dtype(make_inputs(B=1, T=19, depth=depth, momentum=momentum, **SHAPES), torch.float32)
    options = {"backend": "triton", "chunk_size": 8, "forget_to": forget_to}
    with torch.no_grad():
        whole, end = inputs.run(**options)
        outputs, state = [], None
        for t in range(19):
            out, state = inputs.tokens(t, t + 1).run(state, **options)
            outputs.append(out)
    tolerance = {"rtol": TOLERANCE[torch.float32], "atol": TOLERANCE[torch.float32]}
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole, **tolerance)
    for part in ("weights", "momentum", "anchor"):
        torch.testing.assert_close(getattr(state, part), getattr(end, part), **tolerance)
    assert state.offset == end.offset


@pytest.mark.slow
@pytest.mark.parametrize("dim", [32, 16])  # heads of width 16, or 8, which is filled up
def test_a_compiled_layer_on_kernels_is_one_graph_and_computes_the_same(dim):
    torch.manual_seed(0)
    layer = NeuralMemory(dim, num_heads=2, chunk_size=16, backend="triton").to(DEVICE)
    x = torch.randn(1, 21, dim, device=DEVICE, requires_grad=True)
    torch._dynamo.reset()
    results = []
    for run in (layer, torch.compile(layer, backend="aot_eager", fullgraph=True)):
        y, _ = run(x)
        results.append((y, torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])))
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [True, False])
def test_a_layer_under_autocast_takes_its_tokens_in_bfloat16(monkeypatch, momentum):
    """Autocast on CUDA returns norms in float32; this simulates it on a CPU."""
    normalize = torch.nn.functional.normalize
    if DEVICE == "cpu":
        monkeypatch.setattr(torch.nn.functional, "normalize", lambda x, **options: normalize(x.float(), **options))
    torch.manual_seed(0)
    layer = NeuralMemory(32, num_heads=2, chunk_size=16, momentum=momentum, backend="triton").to(DEVICE)
    x = torch.randn(1, 21, 32, device=DEVICE)
    with torch.no_grad():
        expected, _ = layer(x)
    with torch.autocast(DEVICE, torch.bfloat16):
        y, _ = layer(x)
        y.float().square().sum().backward()
    assert y.dtype == torch.bfloat16
    assert_close({"y": y.detach()}, {"y": expected.double().cpu()}, 3e-2)
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dtype": torch.float64}, "float64"),
        ({"chunk_size": 256}, "a chunk_size of at most 128, got 256"),
        ({"K": 129}, "of at most width 128, got 129 and 16"),
        ({"hidden": 513}, "a hidden width of at most 512, got 513"),
        ({"depth": 3}, "1 or 2 layers, got 3"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(make_inputs, change, reason):
    options = {"dtype": torch.float32, "K": 16, "V": 16, "hidden": 32, "chunk_size": 16, **change}
    chunk_size = options.pop("chunk_size")
    inputs = make_inputs(B=1, T=4, H=1, **options)
    inputs = inputs.map(lambda x: x.to(DEVICE))
    inputs = type(inputs)(**{**vars(inputs), "weights": tuple(w.to(DEVICE) for w in inputs.weights)})
    with pytest.raises(ValueError, match=f"backend='triton' cannot run here: .*{reason}"):
        inputs.run(backend="triton", chunk_size=chunk_size)


def test_an_older_triton_is_refused_and_auto_says_what_runs_instead(monkeypatch):
    on_cuda = SimpleNamespace(is_cuda=True, device=torch.device("cuda:0"), dtype=torch.float32)
    weights = (torch.zeros(1, 16, 32), torch.zeros(1, 32, 16))
    # as torch 2.6 brings it: it lacks what the kernels' tuning asks of it
    monkeypatch.setattr(triton, "__version__", "3.2.0")
    reason = r"the kernels need Triton 3\.6 or newer, .*found 3\.2\.0"
    with pytest.warns(UserWarning, match=f"using backend='chunk' instead: {reason}"):
        assert dispatch.resolve_backend("auto", on_cuda, weights, 16) == "chunk"
    with pytest.raises(ValueError, match=f"backend='triton' cannot run here: {reason}"):
        dispatch.resolve_backend("triton", on_cuda, weights, 16)


@pytest.mark.skipif(DEVICE == "cuda", reason="there is a CUDA device")
def test_without_a_cuda_device_the_kernels_are_refused_and_auto_runs_chunks(make_inputs, monkeypatch, recwarn):
    monkeypatch.delenv("TRITON_INTERPRET")
    inputs = make_inputs(B=1, T=4, H=1, dtype=torch.float32, **SHAPES)
    with pytest.raises(ValueError, match=r"the kernels need a CUDA device. Use backend='chunk' or 'auto'"):
        inputs.run(backend="triton")
    auto, _ = inputs.run(backend="auto")
    assert torch.equal(auto, inputs.run(backend="chunk")[0])
    assert not recwarn.list


def test_on_cuda_auto_is_the_kernels_or_says_once_for_each_reason_what_runs_instead(monkeypatch):
    reasons = [None, "too wide", "too wide", "too deep", "too wide"]
    monkeypatch.setattr(dispatch, "why_not_triton", lambda *given: reasons.pop(0))
    dispatch._warn.cache_clear()
    on_cuda = SimpleNamespace(is_cuda=True)

    def door():
        return dispatch.resolve_backend("auto", on_cuda, (), 16)

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert [door() for _ in range(5)] == ["triton", *["chunk"] * 4]
    assert [str(w.message).partition(": ")[2] for w in found] == ["too wide.", "too deep."]
    assert {w.filename for w in found} == {__file__}


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
def test_auto_runs_the_kernels_on_cuda_and_says_what_runs_instead():
    generator = torch.Generator(DEVICE).manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator, device=DEVICE)

    theta = torch.full((1, 20, 1), 0.01, device=DEVICE)

    def run(width, backend):
        weights = (normal(1, width, 32), normal(1, 32, width))
        q, k, v = normal(1, 20, 1, width), normal(1, 20, 1, width), normal(1, 20, 1, width)
        assert width != 16 or dispatch.resolve_backend(backend, q, weights, 16) == "triton"
        return neural_memory(q, k, v, None, None, theta, weights, chunk_size=16, backend=backend)[0]

    dispatch._warn.cache_clear()
    run(16, "auto")
    with pytest.warns(UserWarning, match="using backend='chunk' instead"):
        run(130, "auto")
