"""The written-out derivatives of the activations against autograd."""

import pytest
import torch

from titans_core.ops.memory.activations import ACTIVATIONS

# relu has no slope at 0, so 0 is left to the test below
Z = torch.cat(
    (torch.linspace(-30, 30, 997, dtype=torch.float64), torch.tensor([-800.0, -1e-12, 1e-12, 800.0]).double())
)
Z = Z[Z != 0]


def derivative(fn, z):
    z = z.clone().requires_grad_()
    y = fn(z)
    return torch.autograd.grad(y.sum(), z)[0] if y.requires_grad else torch.zeros_like(z)


def slope(name, z):
    return ACTIVATIONS[name].with_slope(z)[1]


def bend(name, z):
    return ACTIVATIONS[name].with_bend(z)[2]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_slope_is_the_derivative_of_the_value(name):
    torch.testing.assert_close(slope(name, Z), derivative(ACTIVATIONS[name].value, Z), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_bend_is_the_derivative_of_the_slope(name):
    torch.testing.assert_close(bend(name, Z), derivative(lambda z: slope(name, z), Z), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_value_and_slope_are_the_same_with_and_without_more(name):
    phi = ACTIVATIONS[name]
    value, its_slope, _ = phi.with_bend(Z)
    torch.testing.assert_close(value, phi.value(Z), rtol=1e-14, atol=0)
    torch.testing.assert_close((value, its_slope), phi.with_slope(Z), rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_value_is_the_function_of_that_name(name):
    expected = {"silu": Z * torch.sigmoid(Z), "gelu": Z * torch.special.ndtr(Z), "relu": Z.clamp(min=0)}[name]
    torch.testing.assert_close(ACTIVATIONS[name].value(Z), expected, rtol=1e-12, atol=1e-14)


def test_derivatives_at_zero():
    zero = torch.zeros(1, dtype=torch.float64)
    at_zero = {name: (slope(name, zero).item(), bend(name, zero).item()) for name in ACTIVATIONS}
    assert at_zero["relu"] == (0, 0)
    assert at_zero["silu"] == pytest.approx((0.5, 0.5), rel=1e-15)
    assert at_zero["gelu"] == pytest.approx((0.5, (2 / torch.pi) ** 0.5), rel=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_derivatives_keep_dtype_and_argument_and_stay_finite_far_out(name, dtype):
    z = torch.tensor([-1e15, -1e4, -90.0, 0.0, 90.0, 1e4, 1e15], dtype=dtype)
    before = z.clone()
    phi = ACTIVATIONS[name]
    for x in (phi.value(z), *phi.with_slope(z), *phi.with_bend(z)):
        assert x.dtype == dtype
        assert torch.equal(z, before)
    # flat on the left, the identity on the right
    assert slope(name, z)[[0, 1, -2, -1]].tolist() == [0, 0, 1, 1]
    assert bend(name, z)[[0, 1, -2, -1]].tolist() == [0, 0, 0, 0]
