"""Laws of the memory as a layer: streaming, causality, reading and writing apart, switches."""

import itertools
import subprocess
import sys

import pytest
import torch

import titans_core
from titans_core import NeuralMemory
from titans_core.nn import convolution, momentary_surprise
from titans_core.nn import memory as layer_module
from titans_core.nn.convolution import CausalConv
from titans_core.ops.memory import read_memory

T, DIM = 13, 8
OPTIONS = [
    {},
    {"gates": "chunk"},
    {"momentum": False},
    {"forget": False},
    {"momentum": False, "forget": False, "gates": "chunk"},
    {"conv_size": 0},
    {"conv_size": 1},
    {"conv_size": 6},  # longer than a chunk
    {"depth": 1},
    {"depth": 3, "expansion": 1.5},
    {"chunk_size": 1},
    {"chunk_size": 64},
    {"activation": "gelu", "num_heads": 1},
]
IDS = [",".join(f"{k}={v}" for k, v in o.items()) or "default" for o in OPTIONS]


def make(**options):
    torch.manual_seed(0)
    return NeuralMemory(DIM, **{"num_heads": 2, "chunk_size": 4, **options}).double()


def sequence(batch=2, length=T, seed=1):
    return torch.randn(batch, length, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tensors(state):
    parts = [*state.memory.weights, *state.memory.momentum, *state.memory.anchor, state.tail, state.gates]
    return [p for p in parts if p is not None]


@pytest.mark.parametrize("options", OPTIONS, ids=IDS)
def test_token_by_token_equals_one_call(options):
    layer, x = make(**options), sequence()
    expected, end = layer(x)
    state, outputs = None, []
    for t in range(T):
        y, state = layer(x[:, t : t + 1], state)
        outputs.append(y)
    torch.testing.assert_close(torch.cat(outputs, dim=1), expected, rtol=1e-10, atol=1e-12)
    assert state.memory.offset == end.memory.offset == T % layer.chunk_size
    for a, b in zip(tensors(state), tensors(end), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("cut", range(1, T))
@pytest.mark.parametrize("gates", ["token", "chunk"])
def test_a_cut_sequence_has_the_outputs_and_gradients_of_one_call(cut, gates):
    layer, x = make(gates=gates), sequence().requires_grad_()
    probe = sequence(seed=2)
    parameters = [x, *layer.parameters()]
    whole = layer(x)[0]
    first, state = layer(x[:, :cut])
    parts = torch.cat((first, layer(x[:, cut:], state)[0]), dim=1)
    torch.testing.assert_close(parts, whole, rtol=1e-10, atol=1e-12)
    expected = torch.autograd.grad((whole * probe).sum(), parameters)
    for a, b in zip(torch.autograd.grad((parts * probe).sum(), parameters), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("options", OPTIONS, ids=IDS)
def test_a_later_token_never_changes_an_earlier_output(options):
    layer, x = make(**options), sequence()
    changed = x.clone()
    changed[:, 7:] += 1
    before, after = layer(x)[0], layer(changed)[0]
    torch.testing.assert_close(after[:, :7], before[:, :7], rtol=0, atol=1e-12)
    assert (after[:, 7:] - before[:, 7:]).abs().amax(-1).min() > 1e-6


def test_sequences_of_a_batch_do_not_mix():
    layer, x = make(), sequence(batch=3)
    together = layer(x)[0]
    for b in range(3):
        torch.testing.assert_close(layer(x[b : b + 1])[0], together[b : b + 1], rtol=1e-10, atol=1e-12)


def test_update_gives_the_state_of_the_definition():
    layer, x = make(), sequence()
    found = layer.update(x[:, 5:], layer.update(x[:, :5]))
    for a, b in zip(tensors(found), tensors(make(backend="naive")(x)[1]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("conv_size", [0, 4])
def test_retrieve_reads_what_update_wrote_and_writes_nothing(conv_size):
    layer, x = make(conv_size=conv_size), sequence()
    state = layer.update(x[:, :6])
    before = [t.clone() for t in tensors(state)]
    recalled = layer.retrieve(x[:, 6:], state)
    assert all(torch.equal(a, b) for a, b in zip(tensors(state), before, strict=True))

    # the queries of forward, read from the frozen memory, and finished as forward finishes
    q = layer._project(x[:, 6:], state)[0]
    expected = layer._finish(read_memory(q, state.memory.weights), x[:, 6:])
    torch.testing.assert_close(recalled, expected, rtol=1e-10, atol=1e-12)
    assert (
        recalled - layer.retrieve(x[:, 6:])
    ).abs().max() > 1e-6  # a memory that has read nothing says something else


def test_reading_after_writing_one_token_equals_forward():
    layer, x = make(conv_size=0), sequence(length=1)
    y, state = layer(x)
    torch.testing.assert_close(layer.retrieve(x, state), y, rtol=1e-10, atol=1e-12)


def test_the_learned_start_is_a_state():
    layer, x = make(), sequence()
    torch.testing.assert_close(layer(x, layer.initial_state(2))[0], layer(x)[0], rtol=0, atol=0)
    torch.testing.assert_close(layer.retrieve(x, layer.initial_state(2)), layer.retrieve(x), rtol=1e-12, atol=1e-14)


def gates_of(layer, x, monkeypatch):
    """What the layer hands to the operator."""
    seen = {}

    def spy(q, k, v, alpha, eta, theta, *rest, **kwargs):
        seen.update(q=q, k=k, alpha=alpha, eta=eta, theta=theta)
        return titans_core.neural_memory(q, k, v, alpha, eta, theta, *rest, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(layer_module, "neural_memory", spy)
        layer(x)
    return seen


@pytest.mark.parametrize(("momentum", "forget"), list(itertools.product([True, False], repeat=2)))
def test_switches_take_gates_away(momentum, forget, monkeypatch):
    layer = make(momentum=momentum, forget=forget)
    seen = gates_of(layer, sequence(), monkeypatch)
    assert (seen["eta"] is not None) == momentum
    assert (seen["alpha"] is not None) == forget
    assert layer.to_gates.out_features == 2 * (1 + momentum + forget)
    assert len(make(depth=1).weights) == 1
    assert not any("conv" in name for name, _ in make(conv_size=0).named_parameters())


@pytest.mark.parametrize("chunk_size", [1, 4, 32])
def test_gates_start_at_sensible_values_and_the_step_of_a_chunk_is_bounded(chunk_size, monkeypatch):
    layer = make(chunk_size=chunk_size)
    seen = gates_of(layer, sequence(), monkeypatch)
    assert seen["alpha"].mean().item() == pytest.approx(min(0.05, 1 / (8 * chunk_size)), rel=0.2)
    assert seen["eta"].mean().item() == pytest.approx(0.5 if chunk_size > 1 else 0.1, rel=0.2)
    layer.to_gates.weight.data.mul_(1e3)
    seen = gates_of(layer, sequence(), monkeypatch)
    assert (seen["theta"] <= 2 * (1 - seen["eta"]) / chunk_size + 1e-12).all()
    for name in ("q", "k"):
        torch.testing.assert_close(seen[name].norm(dim=-1), torch.ones(2, T, 2, dtype=torch.float64))


def test_gates_per_chunk_are_one_of_each_and_follow_its_first_token(monkeypatch):
    layer, x = make(gates="chunk", chunk_size=4), sequence()
    alpha = gates_of(layer, x, monkeypatch)["alpha"]
    assert alpha.shape[1] == -(-T // 4)
    later = x.clone()
    later[:, 1:4] += 1
    assert torch.equal(gates_of(layer, later, monkeypatch)["alpha"][:, 0], alpha[:, 0])
    first = x.clone()
    first[:, 4] += 1
    assert not torch.equal(gates_of(layer, first, monkeypatch)["alpha"][:, 1], alpha[:, 1])


def test_under_bf16_autocast_the_memory_stays_float32():
    layer, x = make().float(), sequence().float()
    expected = layer(x)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, state = layer(x)
        _, state = layer(x, state)
    assert all(w.dtype == torch.float32 for w in state.memory.weights)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(layer(x)[0].float(), expected, rtol=0.1, atol=0.1)


def test_detach_cuts_the_past_off():
    layer, x = make(gates="chunk"), sequence().requires_grad_()
    _, state = layer(x[:, :6])
    (grad,) = torch.autograd.grad(layer(x[:, 6:], state.detach().to("cpu"))[0].sum(), x)
    assert grad[:, :6].count_nonzero() == 0
    assert grad[:, 6:].count_nonzero() > 0


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("chunk_size", [1, 16, 128])
def test_training_from_the_start_stays_finite(depth, chunk_size):
    torch.manual_seed(0)
    layer = NeuralMemory(16, num_heads=2, depth=depth, chunk_size=chunk_size)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    x = torch.randn(1, 300, 16)
    for _ in range(4):
        loss = (layer(x)[0] - x.roll(1, dims=1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert all(p.grad.isfinite().all() for p in layer.parameters())
    assert layer(x)[0].isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"dim": 10, "num_heads": 4}, "multiple of num_heads"),
        ({"dim": 8, "num_heads": 0}, "num_heads must be an integer >= 1"),
        ({"dim": 8, "chunk_size": 16.0}, "chunk_size must be an integer"),
        ({"dim": None}, "dim must be an integer"),
        ({"dim": 8, "depth": 0}, "depth must be an integer >= 1"),
        ({"dim": 8, "conv_size": -1}, "conv_size must be an integer >= 0"),
        ({"dim": 8, "gates": "each"}, "gates must be one of"),
        ({"dim": 8, "activation": "tanh"}, "activation must be one of"),
        ({"dim": 8, "backend": "cuda"}, "backend must be 'auto' or one of"),
    ],
)
def test_bad_arguments_are_named(arguments, says):
    with pytest.raises(ValueError, match=says):
        NeuralMemory(**arguments)


@pytest.mark.parametrize(
    ("there", "says"),
    [
        ({"conv_size": 3}, "conv_size=3, but this layer has 4"),
        ({"gates": "chunk"}, "gates='chunk', but this layer has 'token'"),
    ],
)
def test_the_state_of_another_layer_is_refused(there, says):
    state = NeuralMemory(8, chunk_size=4, **there)(torch.randn(1, 3, 8))[1]
    with pytest.raises(ValueError, match=says):
        NeuralMemory(8, chunk_size=4)(torch.randn(1, 3, 8), state)


def test_surprise_checks_what_a_forward_pass_checks():
    layer = NeuralMemory(8, chunk_size=4)
    state = layer(torch.randn(1, 3, 8))[1]
    for shape, says in (((3, 8), "x must be"), ((2, 0, 8), "not be empty"), ((2, 3, 8), "state holds 1 sequences")):
        with pytest.raises(ValueError, match=says):
            momentary_surprise(layer, torch.randn(shape), state)


def test_the_learned_start_does_not_change_with_the_parameters():
    layer = NeuralMemory(8)
    state = layer.initial_state(2)
    before = state.memory.weights[0].clone()
    with torch.no_grad():
        layer.weights[0].add_(1)
    assert torch.equal(state.memory.weights[0], before)


@pytest.mark.parametrize("backend", ["naive", "chunk"])
def test_a_state_within_the_first_chunk_does_not_change_with_the_parameters(backend):
    layer = NeuralMemory(8, chunk_size=4, backend=backend)
    with torch.no_grad():
        _, state = layer(torch.randn(1, 3, 8))
        before = [w.clone() for w in state.memory.anchor]
        for w in layer.weights:
            w.add_(1)
    assert all(torch.equal(now, then) for now, then in zip(state.memory.anchor, before, strict=True))


def test_gradients_of_zeros_are_finite_in_half_precision():
    layer = NeuralMemory(16, num_heads=2, chunk_size=4).half()
    x = torch.zeros(1, 6, 16, dtype=torch.half)
    (layer(x)[0].sum() + layer.retrieve(x).sum()).backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.slow
def test_the_public_names_are_few_and_importing_them_loads_no_torch():
    assert titans_core.__all__ == [
        "LMState",
        "MemoryState",
        "NeuralMemory",
        "NeuralMemoryState",
        "TitansConfig",
        "TitansLM",
        "neural_memory",
    ]
    code = (
        "import sys, titans_core as t; assert 'torch' not in sys.modules; t.NeuralMemory, t.TitansLM; "
        "print([m for m in ('torch', 'torch._dynamo', 'triton') if m in sys.modules])"  # the compiler takes a second
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "['torch']\n"
    assert run.stderr == ""


def test_the_convolution_sums_the_gradients_of_many_sequences_in_float32(monkeypatch):
    monkeypatch.setattr(convolution, "_few", lambda x: [slice(i, i + 1) for i in range(len(x))])
    conv = CausalConv(2, 1).bfloat16()
    out, _ = conv(torch.ones(600, 16, 2, dtype=torch.bfloat16))
    out.backward(torch.ones_like(out))
    assert conv.weight.grad.tolist() == [[9600], [9600]]


@pytest.mark.parametrize("size", [1, 3])
def test_the_convolution_is_the_usual_one_with_its_first_and_second_derivatives(size):
    torch.manual_seed(0)
    conv = CausalConv(4, size).double()
    torch.nn.init.normal_(conv.bias)
    x = torch.randn(2, 6, 4, dtype=torch.float64, requires_grad=True)
    padded = torch.nn.functional.pad(x.mT, (size - 1, 0))
    expected = torch.nn.functional.conv1d(padded, conv.weight.unsqueeze(1), conv.bias, groups=4).mT
    torch.testing.assert_close(conv(x)[0], expected)
    assert torch.autograd.gradcheck(lambda x: conv(x)[0], x)
    assert torch.autograd.gradgradcheck(lambda x: conv(x)[0].square(), x)
    for a, b in zip(
        *(torch.autograd.grad(y.sin().sum(), conv.parameters()) for y in (conv(x)[0], expected)), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_the_bias_of_the_convolution_alone_may_need_a_second_derivative_or_a_batch_of_gradients():
    conv = CausalConv(4, 3).double()
    conv.weight.requires_grad_(False)
    y, _ = conv(torch.randn(2, 6, 4, dtype=torch.float64))
    (db,) = torch.autograd.grad(y.square().sum(), conv.bias, create_graph=True)
    torch.testing.assert_close(db, 2 * y.sum((0, 1)))
    (ddb,) = torch.autograd.grad(db.sum(), conv.bias)
    assert ddb.tolist() == [24] * 4  # 2 for each of 12 tokens
    (each,) = torch.autograd.grad(
        conv(y.detach())[0].sum((0, 1)), conv.bias, torch.eye(4).double(), is_grads_batched=True
    )
    assert each.tolist() == (12 * torch.eye(4)).tolist()


def test_second_derivatives_are_there_with_the_definition():
    layer, x = make(backend="naive"), sequence(batch=1, length=5).requires_grad_()
    (first,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
    assert torch.autograd.grad(first.square().sum(), x)[0].isfinite().all()
