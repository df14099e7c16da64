"""Products of gates against the loops that define them."""

import pytest
import torch

from titans_core.ops.memory.coefficients import coefficients
from titans_core.ops.memory.decay import decay_gradient, decay_products


def by_loops(f):
    """``D[t, i] = prod_{j=i+1..t} f_j``, tokens from 1; 0 stands for before the piece."""
    zero, one = f.new_zeros(()), f.new_ones(())
    rows = []
    for t in range(len(f) + 1):
        row = []
        for i in range(len(f) + 1):
            product = one if i <= t else zero
            for j in range(i + 1, t + 1):
                product = product * f[j - 1]
            row.append(product)
        rows.append(torch.stack(row))
    return torch.stack(rows)


FACTORS = {
    "one token": [0.7],
    "one token that erases": [0.0],
    "ordinary": [0.9, 0.3, 0.5, 0.99, 0.2],
    "a zero": [0.9, 0.3, 0.0, 0.99, 0.2],
    "zeros at both ends": [0.0, 0.3, 0.5, 0.99, 0.0],
    "neighbouring zeros": [0.9, 0.0, 0.0, 0.99, 0.2],
    "all zeros": [0.0, 0.0, 0.0, 0.0],
    "all ones": [1.0, 1.0, 1.0, 1.0],
    "underflow": [1e-200, 1e-200, 1e-200, 1.0],
}


@pytest.mark.parametrize("name", FACTORS)
def test_products_and_their_gradients_are_those_of_the_loops(name):
    f = torch.tensor(FACTORS[name], dtype=torch.float64, requires_grad=True)
    generator = torch.Generator().manual_seed(0)
    D = decay_products(f.detach())
    expected_D = by_loops(f)
    torch.testing.assert_close(D, expected_D.detach(), rtol=1e-14, atol=0)

    dD = torch.randn(D.shape, generator=generator, dtype=D.dtype)
    (expected,) = torch.autograd.grad((expected_D * dD).sum(), f)
    actual = decay_gradient(D, D[1:, 1:].mT @ dD[1:])
    assert actual.isfinite().all()
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("has_momentum", [True, False])
@pytest.mark.parametrize("forgets", [True, False])
@pytest.mark.parametrize("name", FACTORS)
def test_the_gradients_of_the_coefficients_agree_with_finite_differences(name, forgets, has_momentum):
    f = torch.tensor(FACTORS[name], dtype=torch.float64)
    alpha = (1 - f).requires_grad_() if forgets else None
    eta = f.flip(0).requires_grad_() if has_momentum else None
    theta = torch.linspace(0, 0.5, len(f), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda *gates: tuple(coefficients(*gates)), (alpha, eta, theta))


def test_pieces_do_not_mix():
    f = torch.rand(2, 3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    f[0, 1, 2] = 0
    D = decay_products(f)
    assert D.shape == (2, 3, 7, 7)
    for b in range(2):
        for n in range(3):
            torch.testing.assert_close(D[b, n], by_loops(f[b, n]), rtol=1e-14, atol=0)


def test_long_products_in_float32_have_no_infinity_or_nan():
    f = torch.rand(512, generator=torch.Generator().manual_seed(0))
    f[::50] = 0
    f[1::50] = 1
    D = decay_products(f)
    grad = decay_gradient(D, D[1:, 1:].mT @ torch.ones_like(D[1:]))
    assert D.isfinite().all()
    assert grad.isfinite().all()
    assert torch.equal(D.diagonal(), torch.ones(513))
    assert D.triu(1).count_nonzero() == 0
