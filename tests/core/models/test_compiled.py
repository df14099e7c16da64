"""Language models compile to graphs that do not grow with the text."""

import subprocess
import sys

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend


def ids_of(T):
    return torch.randint(29, (2, T), generator=torch.Generator().manual_seed(T))


@pytest.mark.slow
def test_the_graphs_of_a_segment_serve_texts_of_any_number_of_segments(make_model):
    torch._dynamo.reset()
    shape = dict(num_layers=1, dtype=torch.float32, segment=8, conv_size=0, num_persistent=0)
    model, eager = make_model("mac", **shape), make_model("mac", **shape)
    counter = CompileCounterWithBackend("eager")  # the graphs are counted; tests of training make backward graphs too
    for block in model.blocks:
        block.compile(backend=counter)

    def run(model, ids):
        logits, state = model(ids)
        grads = torch.autograd.grad(logits.square().sum(), [*model.blocks.parameters()])
        return [logits, *state.blocks[0].memory.memory.weights, *grads]

    graphs = []
    for T in (22, 39, 54, 30, 71, 86):  # their last segments are alike
        found, expected = run(model, ids_of(T)), run(eager, ids_of(T))
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))
        graphs.append(counter.frame_count)
    assert graphs[2:] == [graphs[2]] * 4


OF_BEFORE = """
import pytest
import torch
from torch.fx.experimental import symbolic_shapes
full = torch.compiler.disable
torch.compiler.disable = lambda fn=None, recursive=True: full(fn, recursive)
del torch.compiler.is_exporting, symbolic_shapes.has_static_value
from titans_core import TitansConfig, TitansLM
model = TitansLM(TitansConfig(architecture="mac", vocab_size=29, dim=16, num_layers=1, num_heads=2, segment=8))
print(model(torch.arange(20)[None])[0].shape)
"""


def test_mac_runs_on_a_torch_that_cannot_tell_which_lengths_are_open():
    found = subprocess.run([sys.executable, "-c", OF_BEFORE], capture_output=True, text=True)
    assert "[1, 20, 29]" in found.stdout, found.stderr
