"""Gates of chunks against the same gates given token by token."""

import pytest
import torch

from titans_core import neural_memory
from titans_core.ops.memory import functions
from titans_core.ops.memory.coefficients import coefficients_backward, coefficients_forward
from titans_core.ops.memory.distances import distances_backward, distances_forward
from titans_core.ops.memory.gates import chunks_of, of_tokens

VALUES = {
    "ordinary": (0.3, 0.6),
    "nothing kept": (1.0, 0.0),
    "all kept": (0.0, 1.0),
    "equal": (0.4, 0.6),
    "mixed": (1.0, 1.0),
}
SWITCHES = [(True, True), (True, False), (False, True), (False, False)]  # forgetting, momentum


def of_pieces(name, forget, momentum):
    generator = torch.Generator().manual_seed(0)
    alpha, eta = (torch.full((2, 3, 1), value, dtype=torch.float64) for value in VALUES[name])
    theta = torch.rand(2, 3, 1, dtype=torch.float64, generator=generator)
    return alpha if forget else None, eta if momentum else None, theta


@pytest.mark.parametrize(("forget", "momentum"), SWITCHES)
@pytest.mark.parametrize("size", [2, 3, 16, 33])
@pytest.mark.parametrize("name", VALUES)
def test_by_distance_or_by_token_they_are_the_same(name, size, forget, momentum):
    gates = of_pieces(name, forget, momentum)
    each = [None if g is None else g.expand(2, 3, size).contiguous() for g in gates]
    found, expected = distances_forward(*gates, size), coefficients_forward(*each)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    assert all(x.is_contiguous() for x in found)

    generator = torch.Generator().manual_seed(1)
    grads = [torch.randn(x.shape, dtype=x.dtype, generator=generator) for x in found]
    found = distances_backward(*gates, size, *(g.clone() for g in grads))
    expected = coefficients_backward(*each, *(g.clone() for g in grads))
    for x, y in zip(found, expected, strict=True):
        if y is None:
            assert x is None
        else:
            torch.testing.assert_close(x, y.sum(-1, keepdim=True), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("forget", "momentum"), SWITCHES)
@pytest.mark.parametrize("name", VALUES)
def test_their_gradients_agree_with_finite_differences(name, forget, momentum):
    gates = [None if g is None else g.requires_grad_() for g in of_pieces(name, forget, momentum)]
    assert torch.autograd.gradcheck(lambda *g: tuple(functions.coefficients(*g, 5, "chunk")), gates)


def problem(B, T, H, chunk_size, offset, depth, forget, momentum):
    generator = torch.Generator().manual_seed(T)
    q, k, v = (torch.randn(B, T, H, 4, dtype=torch.float64, generator=generator) for _ in range(3))
    chunks = chunks_of(T, offset, chunk_size)
    alpha, eta, theta = (torch.rand(B, chunks, H, dtype=torch.float64, generator=generator) for _ in range(3))
    weights = [torch.randn(H, 4, 4, dtype=torch.float64, generator=generator) / 2 for _ in range(depth)]
    gates = (alpha / 4 if forget else None, eta if momentum else None, theta / chunk_size / 4)
    return (q, k / 4, v), gates, weights


@pytest.mark.parametrize("forget_to", ["zero", "start"])
@pytest.mark.parametrize(("forget", "momentum"), SWITCHES)
@pytest.mark.parametrize(
    ("depth", "chunk_size", "cuts"), [(2, 4, (5, 6, 18)), (1, 8, (3, 24)), (2, 1, (4,)), (1, 1, (9,)), (3, 16, (21,))]
)
def test_a_memory_with_gates_of_chunks_is_that_of_their_tokens(depth, chunk_size, cuts, forget, momentum, forget_to):
    """Forward and backward, cut anywhere, against the definition."""
    B, H, T = 2, 3, 29
    qkv, gates, weights = problem(B, T, H, chunk_size, 0, depth, forget, momentum)
    leaves = [x.requires_grad_() for x in (*qkv, *gates, *weights) if x is not None]
    each = [None if g is None else of_tokens(g, T, 0, chunk_size) for g in gates]
    options = {"chunk_size": chunk_size, "forget_to": forget_to}
    expected, _ = neural_memory(*qkv, *each, weights, backend="naive", **options)
    cotangent = torch.randn(expected.shape, dtype=expected.dtype, generator=torch.Generator().manual_seed(0))
    expected_grads = torch.autograd.grad((expected * cotangent).sum(), leaves)

    outputs, state, start = [], None, 0
    for stop in (*(c for c in cuts if c < T), T):
        of = slice(start // chunk_size, chunks_of(stop, 0, chunk_size))
        part = [None if g is None else g[:, of] for g in gates]
        y, state = neural_memory(*(x[:, start:stop] for x in qkv), *part, weights, state, backend="chunk", **options)
        outputs.append(y)
        start = stop
    found = torch.cat(outputs, dim=1)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    found_grads = torch.autograd.grad((found * cotangent).sum(), leaves)
    torch.testing.assert_close(found_grads, expected_grads, rtol=1e-9, atol=1e-9)
    naive, _ = neural_memory(*qkv, *gates, weights, backend="naive", **options)
    torch.testing.assert_close(naive, expected, rtol=0, atol=0)


def test_gates_of_two_kinds_or_of_too_many_chunks_are_refused():
    qkv, (alpha, eta, theta), weights = problem(2, 29, 3, 4, 0, 2, True, True)
    each = of_tokens(alpha, 29, 0, 4)
    with pytest.raises(ValueError, match="all gates must be per token or all per chunk"):
        neural_memory(*qkv, each, eta, theta, weights, chunk_size=4)
    with pytest.raises(ValueError, match=r"theta must be \[B, T, H\] = \(2, 29, 3\), or per chunk \[B, 8, H\], got"):
        neural_memory(*qkv, None, None, theta[:, 1:], weights, chunk_size=4)
