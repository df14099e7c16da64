"""torch.compile and torch.export capture the memory without graph breaks, with the same results."""

import importlib.util
import logging
import re
from pathlib import Path

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from titans_core import NeuralMemory, TitansConfig, TitansLM
from titans_core.models.state import tensors
from titans_core.ops.memory import functions
from titans_core.ops.memory.engines import engine_of

# "aot_eager" traces forward and backward as the default compiler does, and leaves the C++ to others
BACKEND = "aot_eager"
INTERPRETED = importlib.util.find_spec("triton") is not None and not torch.cuda.is_available()
ON_KERNELS = pytest.mark.skipif(not INTERPRETED, reason="needs Triton's interpreter")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("T", "options"),
    [
        (40, {}),  # the second part has another length, so the graph is compiled for any
        (42, {"momentum": False, "forget": False, "gates": "chunk"}),
        (42, {"forget_to": "start"}),
        (42, {"depth": 1, "chunk_size": 1}),
    ],
    ids=["all", "least", "forget-to-start", "online"],
)
def test_a_compiled_layer_is_one_graph_with_the_same_outputs_state_and_gradients(T, options):
    torch.manual_seed(0)
    layer = NeuralMemory(16, num_heads=2, **{"chunk_size": 8, **options})
    x = torch.randn(2, T, 16, requires_grad=True)

    def run(layer):
        y1, state = layer(x[:, :21])  # ends in mid-chunk
        y2, state = layer(x[:, 21:], state)
        results = [y1, y2, *state.memory.weights, *state.memory.momentum]
        grads = torch.autograd.grad(sum(r.square().sum() for r in results), [x, *layer.parameters()])
        return results, grads

    torch._dynamo.reset()
    compiled = torch.compile(layer, backend=BACKEND, fullgraph=True)
    torch.testing.assert_close(run(compiled), run(layer), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [32, 16])  # heads of 16, which kernels have, and of 8, which are filled up
@pytest.mark.parametrize("backend", ["chunk", pytest.param("triton", marks=ON_KERNELS)])
def test_an_exported_layer_computes_the_same(backend, dim):
    layer = NeuralMemory(dim, num_heads=2, chunk_size=8, backend=backend).eval()
    x = torch.randn(2, 21, dim)
    program = torch.export.export(layer, (x,))
    nodes = [node for m in program.graph_module.modules() for node in m.graph.nodes]
    assert any("titans.pieces" in str(node.target) for node in nodes)
    assert_same(program.module()(x), layer(x))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"gates": "chunk", "forget_to": "start"}, {"depth": 1, "momentum": False}])
def test_an_exported_layer_continues_from_a_state_for_any_number_of_chunks(options, tmp_path, caplog):
    layer = NeuralMemory(16, num_heads=2, chunk_size=8, **options).eval()
    x = torch.randn(2, 32, 16)
    _, state = layer(x)
    lengths = torch.export.ShapesCollection()
    lengths[x] = {1: 8 * torch.export.Dim("chunks", min=2)}
    torch.export.save(torch.export.export(layer, (x, state), dynamic_shapes=lengths), tmp_path / "layer.pt2")
    program = torch.export.load(tmp_path / "layer.pt2").module()
    # such as of an example that could not be read without unpickling
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
    found = expected = state
    for chunks in (2, 7, 3):
        x = torch.randn(2, 8 * chunks, 16)
        (y, found), (y_expected, expected) = program(x, found), layer(x, expected)
        assert_same((y, found), (y_expected, expected))


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids)[0]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [None, "lmm", "mac", "mag", "mal"])
def test_a_program_may_be_exported_for_any_number_of_sequences(architecture):
    batch = torch.export.Dim("batch", min=2, max=64)
    if architecture is None:  # the layer with a state
        model = NeuralMemory(16, num_heads=2, chunk_size=8).eval()
        x = [torch.randn(B, 16, 16) for B in (2, 5)]
        examples = [(one, model(one)[1]) for one in x]
        shapes = torch.export.ShapesCollection()
        for one in (x[0], *tensors(examples[0][1])):
            shapes[one] = {0: batch}
    else:
        config = TitansConfig(
            architecture=architecture,
            vocab_size=11,
            dim=16,
            num_layers=1,
            num_heads=2,
            chunk_size=4,
            window=8,
            segment=8,
        )
        model = Logits(TitansLM(config)).eval()
        examples = [(torch.randint(11, (B, 16)),) for B in (2, 5)]
        shapes = {"ids": {0: batch}}
    program = torch.export.export(model, examples[0], dynamic_shapes=shapes)
    same = assert_same if architecture is None else torch.testing.assert_close
    same(program.module()(*examples[1]), model(*examples[1]))


def test_the_example_of_export_runs():
    page = (Path(__file__).resolve().parents[3] / "docs" / "memory.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {}
    exec(example, names)
    assert names["y"].shape == (1, 160, 64)


def assert_same(found, expected):
    (y, state), (y_expected, state_expected) = found, expected
    torch.testing.assert_close(y, y_expected)
    assert state.memory.offset == state_expected.memory.offset
    torch.testing.assert_close(list(tensors(state)), list(tensors(state_expected)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "cuts"),
    [
        ({"momentum": False}, (24, 30, 37)),  # behind a chunk, or in one that three tokens leave, or fill
        ({"gates": "chunk"}, (30, 37)),
        ({"depth": 1, "chunk_size": 1}, ()),
    ],
)
def test_graphs_are_of_any_length_and_streams_are_cut_anywhere(options, cuts):
    torch.manual_seed(0)
    torch._dynamo.reset()
    layer = NeuralMemory(16, num_heads=2, **{"chunk_size": 8, **options})
    counter = CompileCounterWithBackend("eager")  # graphs are traced once; the tests above trace backward graphs too
    compiled = torch.compile(layer, backend=counter, fullgraph=True)
    with torch.no_grad():
        for T in (21, 27, 37, 61):
            x = torch.randn(2, T, 16)
            torch.testing.assert_close(compiled(x)[0], layer(x)[0], rtol=1e-5, atol=1e-5)
        assert counter.frame_count <= 2  # of the first length, and of any
        for T in cuts:
            parts = torch.randn(2, T, 16), torch.randn(2, 3, 16)
            first, state = compiled(parts[0])
            then, _ = compiled(parts[1], state)
            expected, _ = layer(torch.cat(parts, 1))
            torch.testing.assert_close(torch.cat((first, then), 1), expected, rtol=1e-5, atol=1e-5)


def test_a_compiled_piece_of_one_token_is_no_alias():
    torch._dynamo.reset()
    layer = NeuralMemory(8, num_heads=1, chunk_size=8, momentum=False)
    x = torch.randn(1, 9, 8)
    y = torch.compile(layer, backend=BACKEND, fullgraph=True)(x)[0]
    torch.testing.assert_close(y, layer(x)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("momentum", "base", "backend"),
    [
        (True, False, "chunk"),
        (False, False, "chunk"),
        (True, True, "chunk"),
        pytest.param(False, False, "triton", marks=ON_KERNELS),
        pytest.param(True, True, "triton", marks=ON_KERNELS),
    ],
)
def test_the_operators_keep_the_rules_of_the_library(momentum, base, backend):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator, requires_grad=True)

    B, H = (1, 2) if backend == "triton" else (2, 3)  # the interpreter is slow
    for gates_of_a_piece in (1, 4):
        gates = [torch.rand(B, H, gates_of_a_piece, generator=generator).requires_grad_() for _ in range(3)]
        alpha, eta, theta = (gates[0], gates[1] if momentum else None, gates[2])
        torch.library.opcheck(functions._coefficients_op, (alpha, eta, theta, 4, backend))

    c = [x.detach().requires_grad_() for x in functions.coefficients(alpha, eta, theta, 4, backend)]
    n = 2 if momentum else 1
    d, h = (16, 32) if backend == "triton" else (5, 6)
    layers = [normal(H, n * d, h), normal(H, n * h, d), normal(H, d, h), normal(H, h, d)]
    if base:
        c = functions.Coefficients(*c).with_base()
        layers += [normal(H, d, h), normal(H, h, d)]
    to_pieces = engine_of(backend).to_pieces
    tokens = [to_pieces(normal(1, B * 4, H, d), 4).detach().requires_grad_() for _ in range(3)]
    tensors = [*tokens, *c, *layers]
    torch.library.opcheck(functions._pieces_op, (tensors, 2, "silu", backend))

    with torch.no_grad():  # however gradients lie in memory, those that are returned lie as the compiler was told
        grads = [torch.rand_like(x.mT, memory_format=torch.contiguous_format).mT
                 for x in functions._pieces_op(tensors, 2, "silu", backend)]  # fmt: skip
        found = functions._pieces_backward_op(grads, tensors, 2, "silu", backend)
    assert all(x.is_contiguous() for x in found)


def test_the_operator_takes_the_anchor_of_a_state_in_any_memory_layout():
    c = functions.coefficients(None, torch.rand(1, 3, 4), torch.rand(1, 3, 4), 4, "chunk")
    tokens = [torch.randn(1, 3, 4, 5) for _ in range(3)]
    anchor = [torch.randn(3, 6, 5).mT, torch.randn(3, 5, 6).mT]
    tensors = [*tokens, *c, torch.randn(3, 10, 6), torch.randn(3, 12, 5), *anchor]
    torch.library.opcheck(functions._pieces_op, (tensors, 2, "silu", "chunk"), test_utils="test_faketensor")
