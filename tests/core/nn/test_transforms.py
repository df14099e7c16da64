"""The layer under torch.func: the definition can be transformed; backends that cannot be say so."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jacrev, jvp, stack_module_state, vmap

from titans_core import NeuralMemory


def make(seed=0, **options):
    torch.manual_seed(seed)
    return NeuralMemory(8, num_heads=2, **{"chunk_size": 4, "backend": "naive", **options}).double()


def loss_of(layer):
    return lambda parameters, x: functional_call(layer, parameters, (x,))[0].square().sum()


def gradient(layer, x):
    parameters = dict(layer.named_parameters())
    found = torch.autograd.grad(loss_of(layer)(parameters, x), list(parameters.values()))
    return dict(zip(parameters, found, strict=True))


X = torch.randn(3, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("options", [{}, {"gates": "chunk", "momentum": False}, {"depth": 1, "forget_to": "start"}])
def test_the_definition_can_be_transformed(options):
    layer = make(**options)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    expected = gradient(layer, X)
    torch.testing.assert_close(grad(loss_of(layer))(parameters, X), expected)
    # of each sequence by itself
    each = vmap(grad(loss_of(layer)), (None, 0))(parameters, X[:, None])
    torch.testing.assert_close({name: g.sum(0) for name, g in each.items()}, expected)
    # of two layers at once
    layers = [layer, make(seed=2, **options)]
    stacked, _ = stack_module_state(layers)
    losses = vmap(loss_of(layer), (0, None))(stacked, X)
    torch.testing.assert_close(losses, torch.stack([loss_of(m)(dict(m.named_parameters()), X) for m in layers]))


def test_forward_and_backward_derivatives_of_the_definition_are_the_same():
    layer, x, along = make(), X[:1, :5], X[1:2, :5]
    backward = jacrev(lambda x: layer(x)[0])(x)
    _, forward = jvp(lambda x: layer(x)[0], (x,), (along,))
    torch.testing.assert_close(forward, (backward * along).sum((-3, -2, -1)))


@pytest.mark.parametrize("options", [{}, {"depth": 1, "forget_to": "start", "gates": "chunk"}])
def test_a_batch_of_gradients_is_that_of_each(options):
    layer, x, along = make(**options), X[:2, :5].clone().requires_grad_(), torch.stack([X[1:, 4:], X[:2, :5]])
    inputs = [x, *layer.parameters()]

    def gradients(y, dy, **settings):
        return torch.autograd.grad(y, inputs, dy, retain_graph=True, **settings)

    y, _ = layer(x)
    expected = tuple(map(torch.stack, zip(*(gradients(y, dy) for dy in along), strict=True)))
    torch.testing.assert_close(vmap(lambda dy: gradients(y, dy))(along), expected)
    torch.testing.assert_close(gradients(y, along, is_grads_batched=True), expected)

    y, _ = make(backend="auto", **options)(x)
    with pytest.raises(RuntimeError, match=r"take one gradient at a time.*use a loop, or backend='naive'"):
        vmap(lambda dy: torch.autograd.grad(y, x, dy, retain_graph=True))(along)
    with pytest.raises(RuntimeError, match=r"take one gradient at a time.*use a loop, or backend='naive'"):
        torch.autograd.grad(y, x, along, is_grads_batched=True)


def test_forward_derivatives_need_no_transform():
    layer, x, along = make(), X[:1, :5], X[1:2, :5]
    _, expected = jvp(lambda x: layer(x)[0], (x,), (along,))
    with forward_ad.dual_level():
        y, _ = layer(forward_ad.make_dual(x, along))
        torch.testing.assert_close(forward_ad.unpack_dual(y).tangent, expected)
        with pytest.raises(RuntimeError, match=r"forward_ad cannot transform backend 'chunk'"):
            make(backend="auto")(x)


@pytest.mark.parametrize("options", [{}, {"depth": 1, "chunk_size": 1}])
def test_transforms_of_hand_written_gradients_are_refused_with_a_plain_message(options):
    layer = make(backend="auto", **options)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    for transform, x in ((grad(loss_of(layer)), X), (vmap(loss_of(layer), (None, 0)), X[:, None])):
        with pytest.raises(RuntimeError, match=r"cannot transform backend 'chunk'.*Use backend='naive'"):
            transform(parameters, x)
    # torch's own autograd takes it as it takes the layer
    torch.testing.assert_close(gradient(layer, X), gradient(make(**options), X))
