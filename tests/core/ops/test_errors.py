"""Every argument that does not fit is refused with a message that names it and says what was expected."""

import re
from dataclasses import replace

import pytest
import torch

from titans_core import MemoryState, NeuralMemory, TitansConfig, neural_memory

B, T, H, K, V, HIDDEN = 2, 3, 2, 4, 5, 6


@pytest.fixture
def arguments(make_inputs):
    i = make_inputs(B=B, T=T, H=H, K=K, V=V, hidden=HIDDEN, dtype=torch.float32)
    named = {n: getattr(i, n) for n in ("q", "k", "v", "alpha", "eta", "theta", "weights")}
    return named | {"state": None, "chunk_size": 4, "activation": "silu", "backend": "auto"}


@pytest.fixture
def begun(arguments):
    """A state in mid-chunk that fits the arguments."""
    return neural_memory(**arguments)[1].detach()


def refuse(arguments, error, *says):
    """The call raises ``error``, and its message contains each of ``says``, in order."""
    with pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, says))):
        neural_memory(**arguments)


TENSORS = ["q", "k", "v", "alpha", "eta", "theta", "weights[0]", "weights[1]"]


def changed(arguments, name, fn):
    """The arguments with ``fn`` applied to one tensor."""
    if name.startswith("weights"):
        layer = int(name[8:-1])
        weights = tuple(fn(w) if i == layer else w for i, w in enumerate(arguments["weights"]))
        return arguments | {"weights": weights}
    return arguments | {name: fn(arguments[name])}


def test_the_arguments_of_these_tests_are_accepted(arguments, begun):
    neural_memory(**arguments)
    neural_memory(**arguments | {"state": begun})


@pytest.mark.parametrize("name", TENSORS)
def test_arguments_that_are_not_tensors_are_named(arguments, name):
    refuse(changed(arguments, name, lambda x: x.tolist()), TypeError, f"{name} must be a torch.Tensor, got list")


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("name", TENSORS)
def test_a_dtype_that_is_not_floating_is_named(arguments, name, dtype):
    wrong = changed(arguments, name, lambda x: x.detach().to(dtype))
    refuse(wrong, TypeError, f"{name} must have a floating-point dtype, got {dtype}")


@pytest.mark.parametrize("name", TENSORS[1:])
def test_a_tensor_on_another_device_is_named(arguments, name):
    refuse(
        changed(arguments, name, lambda x: x.to("meta")), ValueError, "one device", "q is on cpu", f"{name} is on meta"
    )


def test_queries_on_another_device_are_noticed(arguments):
    refuse(changed(arguments, "q", lambda x: x.to("meta")), ValueError, "one device", "q is on meta", "k is on cpu")


@pytest.mark.parametrize("name", TENSORS[1:])
def test_float64_among_float32_is_named(arguments, name):
    says = ("use float64 for all tensors or for none", "q is torch.float32", f"{name} is torch.float64")
    refuse(changed(arguments, name, torch.Tensor.double), TypeError, *says)


@pytest.mark.parametrize("name", ["k", "v"])
def test_q_k_and_v_must_share_a_dtype(arguments, name):
    says = ("q, k and v must have the same dtype", "torch.float32", "torch.bfloat16")
    refuse(changed(arguments, name, torch.Tensor.bfloat16), TypeError, *says)


def test_theta_is_required(arguments):
    refuse(arguments | {"theta": None}, TypeError, "theta", "required", "only alpha and eta may be None")


def test_an_empty_batch_is_refused(arguments):
    empty = {n: arguments[n][:0] for n in ("q", "k", "v", "alpha", "eta", "theta")}
    refuse(arguments | empty, ValueError, "must not be empty", f"(0, {T}, {H}, {K})", "[B, T, H, K]")


def test_an_empty_sequence_is_refused(arguments):
    empty = {n: arguments[n][:, :0] for n in ("q", "k", "v", "alpha", "eta", "theta")}
    refuse(arguments | empty, ValueError, "must not be empty", f"({B}, 0, {H}, {K})", "[B, T, H, K]")


@pytest.mark.parametrize("shape", [(T, H, K), (1, B, T, H, K)])
def test_queries_of_the_wrong_rank_are_named(arguments, shape):
    refuse(arguments | {"q": torch.zeros(shape)}, ValueError, "q must be [B, T, H, K]", f"got shape {shape}")


@pytest.mark.parametrize("shape", [(B, T, H, K + 1), (B, T + 1, H, K), (B, T, H), (1, T, H, K)])
def test_keys_of_another_shape_than_queries_are_named(arguments, shape):
    wrong = arguments | {"k": torch.zeros(shape)}
    refuse(wrong, ValueError, f"k must have the shape of q, {(B, T, H, K)}", f"got {shape}")


@pytest.mark.parametrize("shape", [(B, T + 1, H, V), (B, T, 1, V), (1, T, H, V), (B, T, H)])
def test_values_of_the_wrong_shape_are_named(arguments, shape):
    wrong = arguments | {"v": torch.zeros(shape)}
    refuse(wrong, ValueError, "v must be [B, T, H, V]", f"{(B, T, H)}", f"got shape {shape}")


@pytest.mark.parametrize("shape", [(B, T), (B, T, 1), (1, T, H), (B, T + 1, H), (B, T, H, 1)])
@pytest.mark.parametrize("name", ["alpha", "eta", "theta"])
def test_a_gate_of_the_wrong_shape_is_named(arguments, name, shape):
    wrong = arguments | {name: torch.zeros(shape)}
    refuse(wrong, ValueError, f"{name} must be [B, T, H] = {(B, T, H)}", f"got shape {shape}")


@pytest.mark.parametrize(
    ("name", "shape", "d_in"),
    [
        ("weights[0]", (H + 1, K, HIDDEN), K),
        ("weights[0]", (H, K + 1, HIDDEN), K),
        ("weights[0]", (K, HIDDEN), K),
        ("weights[1]", (H, HIDDEN + 1, V), HIDDEN),
        ("weights[1]", (1, HIDDEN, V), HIDDEN),
    ],
)
def test_a_layer_of_the_wrong_shape_is_named(arguments, name, shape, d_in):
    wrong = changed(arguments, name, lambda w: torch.zeros(shape))
    refuse(wrong, ValueError, f"{name} must be [H, d_in, d_out] with H = {H} and d_in = {d_in}", f"got shape {shape}")


def test_the_last_layer_must_end_in_the_width_of_the_values(arguments):
    wrong = changed(arguments, "weights[1]", lambda w: torch.zeros(H, HIDDEN, V + 1))
    refuse(wrong, ValueError, f"the last layer must have d_out = V = {V}", f"got {V + 1}")


def test_a_memory_needs_a_layer(arguments):
    refuse(arguments | {"weights": ()}, ValueError, "weights must contain at least one tensor [H, d_in, d_out]")


@pytest.mark.parametrize("chunk_size", [0, -1, 2.0, "4", None, True])
def test_a_chunk_size_must_be_a_positive_integer(arguments, chunk_size):
    says = ("chunk_size must be an integer >= 1", f"got {chunk_size!r}")
    refuse(arguments | {"chunk_size": chunk_size}, ValueError, *says)


def test_an_unknown_place_to_forget_towards_is_refused_with_the_known_ones(arguments):
    says = ("forget_to must be one of ('zero', 'start')", "got 'mean'")
    refuse(arguments | {"forget_to": "mean"}, ValueError, *says)
    for make in (lambda: NeuralMemory(8, forget_to="mean"), lambda: TitansConfig(forget_to="mean")):
        with pytest.raises(ValueError, match=r"forget_to must be one of .* got 'mean'"):
            make()


def test_an_unknown_activation_is_refused_with_the_known_ones(arguments):
    says = ("activation must be one of ['gelu', 'relu', 'silu']", "got 'tanh'")
    refuse(arguments | {"activation": "tanh"}, ValueError, *says)


def test_an_unknown_backend_is_refused_with_the_known_ones(arguments):
    says = ("backend must be 'auto' or one of", "'chunk'", "'naive'", "got 'cuda'")
    refuse(arguments | {"backend": "cuda"}, ValueError, *says)


def test_an_unavailable_backend_says_why_and_what_to_use_instead(arguments):
    says = ("backend='triton' cannot run", "chunk_size of at most 128, got 256", "Use backend='chunk'")
    refuse(arguments | {"backend": "triton", "chunk_size": 256}, ValueError, *says)


def test_a_state_of_another_kind_is_named(arguments):
    refuse(arguments | {"state": {"weights": ()}}, TypeError, "state must be a MemoryState, got dict")


@pytest.mark.parametrize("part", ["weights", "momentum", "anchor"])
def test_a_state_of_the_wrong_shape_is_named(arguments, begun, part):
    expected = [(B, H, K, HIDDEN), (B, H, HIDDEN, V)]
    says = (f"state.{part} must have shapes {expected}", "[B, H, d_in, d_out]")
    other_batch = replace(begun, **{part: tuple(x[:1] for x in getattr(begun, part))})
    refuse(arguments | {"state": other_batch}, ValueError, *says, f"got {[(1, *shape[1:]) for shape in expected]}")
    other_depth = replace(begun, **{part: getattr(begun, part)[:1]})
    refuse(arguments | {"state": other_depth}, ValueError, *says, f"got {expected[:1]}")


@pytest.mark.parametrize("part", ["weights", "momentum", "anchor"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_state_of_the_wrong_dtype_is_named(arguments, begun, part, dtype):
    wrong = replace(begun, **{part: tuple(x.to(dtype) for x in getattr(begun, part))})
    refuse(arguments | {"state": wrong}, TypeError, f"state.{part} must be torch.float32", f"got {dtype}")


def test_a_float32_state_does_not_continue_in_float64(arguments, begun):
    wide = {n: arguments[n].double() for n in ("q", "k", "v", "alpha", "eta", "theta")}
    wide |= {"weights": tuple(w.double() for w in arguments["weights"]), "state": begun}
    refuse(arguments | wide, TypeError, "state.weights must be torch.float64", "got torch.float32")


@pytest.mark.parametrize("part", ["weights", "momentum", "anchor"])
def test_a_state_on_another_device_is_named(arguments, begun, part):
    wrong = replace(begun, **{part: getattr(begun.to("meta"), part)})
    refuse(arguments | {"state": wrong}, ValueError, f"state.{part} is on meta, but q is on cpu", "state.to(q.device)")


@pytest.mark.parametrize("offset", [-1, 4, 7])
def test_a_state_of_another_chunk_size_is_refused(arguments, begun, offset):
    says = (f"state.offset is {offset}", "does not fit chunk_size=4", "the same chunk_size in all calls")
    refuse(arguments | {"state": replace(begun, offset=offset)}, ValueError, *says)


@pytest.mark.parametrize("chunk_size", [1, 3, 5, 8])  # three tokens end a chunk of 3, and have a place in one of 5
def test_a_state_knows_the_chunks_it_was_made_in(arguments, begun, chunk_size):
    other = arguments | {"state": begun, "chunk_size": chunk_size}
    refuse(other, ValueError, "chunk_size=4", f"has {chunk_size}", "the same chunk_size in all calls")
    _, at_an_end = neural_memory(**arguments | {"state": begun, "chunk_size": 4} | last_token(arguments))
    assert at_an_end.offset == 0
    refuse(other | {"state": at_an_end}, ValueError, "chunk_size=4", f"has {chunk_size}")


def last_token(arguments):
    return {n: arguments[n][:, -1:] for n in ("q", "k", "v", "alpha", "eta", "theta")}


def test_a_state_that_does_not_say_its_chunks_goes_on_in_any_that_its_place_fits(arguments, begun):
    """A state made by hand, or saved by a version without this field."""
    out, end = neural_memory(**arguments | {"state": begun})
    again, state = neural_memory(**arguments | {"state": replace(begun, chunk_size=None)})
    assert torch.equal(out, again)
    assert state.chunk_size == end.chunk_size == 4


@pytest.mark.parametrize("backend", ["naive", "chunk"])
@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_one_token_or_less_than_a_chunk_is_written_and_read(arguments, backend, tokens):
    short = {n: arguments[n][:, :tokens] for n in ("q", "k", "v", "alpha", "eta")}
    theta = torch.full((B, tokens, H), 0.1)
    out, end = neural_memory(**arguments | short | {"theta": theta, "chunk_size": 64, "backend": backend})
    assert out.shape == (B, tokens, H, V)
    assert isinstance(end, MemoryState)
    assert end.offset == tokens
    # written: the memory is no longer where it started; a short chunk is not skipped
    for w, s, start in zip(end.weights, end.momentum, arguments["weights"], strict=True):
        assert w.shape == s.shape == (B, *start.shape)
        assert (s != 0).any(dim=-1).any(dim=-1).all()
        assert (w != start).any(dim=-1).any(dim=-1).all()
