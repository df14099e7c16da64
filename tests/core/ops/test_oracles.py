"""The memory against other people's code and against the models that the paper says it generalises (Appendix C).

The peers are test-only extras: where one is missing or broken, these tests fail.
"""

import pytest
import torch

from titans_core import MemoryState, neural_memory

BACKENDS = ["naive", "chunk"]


def close(actual, expected, rtol=1e-9):
    assert actual.shape == expected.shape
    error, scale = (actual - expected).abs().max().item(), expected.abs().max().item()
    assert error <= rtol * scale, f"error {error:.2e}, largest entry {scale:.2e}"


# Peers


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_linear_memory_without_momentum_is_the_gated_delta_rule_of_fla(make_inputs, backend, begun):
    from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule

    i = make_inputs(T=32, depth=1, momentum=False, extreme=False)  # log(1 - alpha) has no alpha = 1
    B = i.q.shape[0]
    start = torch.stack([i.weights[0] + b * begun for b in range(B)])
    keep = 1 - i.alpha
    expected, expected_end = naive_recurrent_gated_delta_rule(
        q=i.q,
        k=i.k,
        v=keep[..., None] * i.v,
        beta=i.theta / keep,
        g=keep.log(),
        scale=1.0,
        initial_state=start,
        output_final_state=True,
    )
    state = MemoryState((start,), (torch.zeros_like(start),), (start,)) if begun else None
    out, end = i.run(state, chunk_size=1, backend=backend)
    # the peer computes in float32 (rounding 6e-8 a step), so that is all the two can agree on
    close(out.float(), expected, rtol=2e-6)
    close(end.weights[0].float(), expected_end, rtol=2e-6)

    leaves = [i.q, i.k, i.v, i.alpha, i.theta, i.weights[0]]
    probe = torch.randn(out.shape, generator=torch.Generator().manual_seed(0), dtype=out.dtype)
    expected_grads = torch.autograd.grad((expected * probe).sum(), leaves)
    for grad, expected_grad in zip(torch.autograd.grad((out * probe).sum(), leaves), expected_grads, strict=True):
        close(grad, expected_grad, rtol=5e-6)


# 16 tokens: whole chunks of 1 and 4, a last chunk of 1 in 5, of 2 in 7; 32 is longer than the sequence
@pytest.mark.parametrize("chunk_size", [1, 4, 5, 7, 32])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_deep_memory_is_the_neural_memory_of_titans_pytorch(backend, depth, chunk_size):
    from titans_pytorch import NeuralMemory

    torch.manual_seed(0)
    B, T, dim = 2, 16, 6
    peer = NeuralMemory(
        dim,
        chunk_size=1,
        batch_size=chunk_size,
        heads=1,
        pre_rmsnorm=False,
        mem_model_norm_add_residual=False,
        store_memory_loss_fn=lambda prediction, target: (prediction - target).pow(2).sum(-1),
        default_step_transform_max_lr=0.05,
        default_model_kwargs={"depth": depth, "expansion_factor": 1.5},
    ).double()
    x = torch.randn(B, T, dim, dtype=torch.float64, requires_grad=True)
    expected, peer_state = peer(x)
    peer_weights, peer_momentum = peer_state.states

    out, end = neural_memory(
        q=peer.to_queries(x)[:, :, None],
        k=peer.to_keys(x)[:, :, None],
        v=peer.to_values(x)[:, :, None],
        alpha=peer.to_decay_factor(x).sigmoid(),
        eta=peer.to_momentum(x)[0].sigmoid(),
        # the peer's loss has no factor 1/2
        theta=2 * peer.adaptive_step_transform(peer.to_adaptive_step(x))[..., None],
        weights=tuple(peer.memory_model_parameters),
        chunk_size=chunk_size,
        activation="gelu",
        backend=backend,
    )
    close(out[:, :, 0], expected)
    for layer, name in enumerate(peer.memory_model_parameter_names):
        close(end.weights[layer][:, 0], peer_weights[name])
        close(end.momentum[layer][:, 0], peer_momentum[name][0])

    parts = (
        peer.to_queries,
        peer.to_keys,
        peer.to_values,
        peer.to_decay_factor,
        peer.to_momentum,
        peer.to_adaptive_step,
    )
    learned = [x, *peer.memory_model_parameters, *(p for part in parts for p in part.parameters())]
    probe = torch.randn(expected.shape, dtype=torch.float64)
    expected_grads = torch.autograd.grad((expected * probe).sum(), learned)
    grads = torch.autograd.grad((out[:, :, 0] * probe).sum(), learned)
    for grad, expected_grad in zip(grads, expected_grads, strict=True):
        close(grad, expected_grad)


# Models of Appendix C. The paper writes column vectors, S k; here S is transposed: k S.


@pytest.mark.parametrize("backend", BACKENDS)
def test_delta_net_is_a_linear_memory_without_momentum_and_forgetting(make_inputs, backend):
    i = make_inputs(depth=1, forget=False, momentum=False)
    S = i.weights[0].mT  # one per head
    outputs = []
    for t in range(i.q.shape[1]):
        k, v, theta = i.k[:, t, :, :, None], i.v[:, t, :, :, None], i.theta[:, t, :, None, None]
        S = S @ (torch.eye(k.shape[2], dtype=k.dtype) - theta * k @ k.mT) + theta * v @ k.mT  # Eq. 34
        outputs.append((S @ i.q[:, t, :, :, None])[..., 0])
    out, end = i.run(chunk_size=1, backend=backend)
    close(out, torch.stack(outputs, dim=1))
    close(end.weights[0], S.mT)


@pytest.mark.parametrize("backend", BACKENDS)
def test_longhorn_is_a_linear_memory_with_an_implicit_step(make_inputs, backend):
    i = make_inputs(depth=1, forget=False, momentum=False).map(lambda k: 3 * k, ["k"])
    step = i.theta / (1 + i.theta * i.k.square().sum(-1))
    S = i.weights[0].mT.expand(i.q.shape[0], -1, -1, -1)
    outputs = []
    for t in range(i.q.shape[1]):
        k, v, theta = i.k[:, t, :, :, None], i.v[:, t, :, :, None], i.theta[:, t, :, None, None]
        # what the closed form of Eq. 35 solves: argmin_S' |S' - S|^2 + theta |S' k - v|^2
        identity = torch.eye(k.shape[2], dtype=k.dtype)
        S = torch.linalg.solve(identity + theta * k @ k.mT, S + theta * v @ k.mT, left=False)
        outputs.append((S @ i.q[:, t, :, :, None])[..., 0])
    out, end = neural_memory(i.q, i.k, i.v, None, None, step, i.weights, chunk_size=1, backend=backend)
    close(out, torch.stack(outputs, dim=1))
    close(end.weights[0], S.mT)


@pytest.mark.parametrize("chunk_size", [1, 4, 64])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_ttt_layer_is_a_deep_memory_without_momentum_and_forgetting(make_inputs, backend, chunk_size):
    i = make_inputs(B=1, H=1, forget=False, momentum=False)

    def mlp(W, x):
        return torch.nn.functional.gelu(x @ W[0]) @ W[1]

    W = [w[0] for w in i.weights]
    outputs = []
    for start in range(0, i.q.shape[1], chunk_size):  # mini-batch gradient descent, gradients at its start
        at = W
        for t in range(start, min(start + chunk_size, i.q.shape[1])):
            loss = 0.5 * (mlp(at, i.k[0, t, 0]) - i.v[0, t, 0]).square().sum()
            W = [
                w - i.theta[0, t, 0] * g
                for w, g in zip(W, torch.autograd.grad(loss, at, retain_graph=True), strict=True)
            ]
            outputs.append(mlp(W, i.q[0, t, 0]))
    out, end = i.run(chunk_size=chunk_size, activation="gelu", backend=backend)
    close(out[0, :, 0], torch.stack(outputs))
    for layer in range(2):
        close(end.weights[layer][0, 0], W[layer])


@pytest.mark.parametrize("backend", BACKENDS)
def test_linear_attention_is_one_chunk_of_an_empty_linear_memory(make_inputs, backend):
    i = make_inputs(depth=1)
    empty = (torch.zeros_like(i.weights[0]),)
    out, end = neural_memory(
        i.q, i.k, i.v, None, None, torch.ones_like(i.theta), empty, chunk_size=i.q.shape[1], backend=backend
    )
    seen = torch.einsum("bthd,bihd->bhti", i.q, i.k).tril()
    close(out, torch.einsum("bhti,bihv->bthv", seen, i.v))
    close(end.weights[0], torch.einsum("bihd,bihv->bhdv", i.k, i.v))


@pytest.mark.parametrize("backend", BACKENDS)
def test_retention_is_one_chunk_of_an_empty_linear_memory_that_forgets(make_inputs, backend):
    i = make_inputs(depth=1)
    T, rate = i.q.shape[1], 0.1
    empty = (torch.zeros_like(i.weights[0]),)
    out, _ = neural_memory(
        i.q,
        i.k,
        i.v,
        torch.full_like(i.theta, rate),
        None,
        torch.ones_like(i.theta),
        empty,
        chunk_size=T,
        backend=backend,
    )
    age = (torch.arange(T)[:, None] - torch.arange(T)).to(i.q.dtype)
    seen = torch.einsum("bthd,bihd->bhti", i.q, i.k) * (1 - rate) ** age
    close(out, torch.einsum("bhti,bihv->bthv", seen.tril(), i.v))
