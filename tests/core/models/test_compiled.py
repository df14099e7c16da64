"""Language models compile to graphs that do not grow with the text."""

import torch
from torch._dynamo.testing import CompileCounterWithBackend


def ids_of(T):
    return torch.randint(29, (2, T), generator=torch.Generator().manual_seed(T))


def test_the_graphs_of_a_segment_serve_texts_of_any_number_of_segments(make_model):
    torch._dynamo.reset()
    shape = dict(num_layers=1, dtype=torch.float32, segment=8, conv_size=0, num_persistent=0)
    model, eager = make_model("mac", **shape), make_model("mac", **shape)
    counter = CompileCounterWithBackend("aot_eager")
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
