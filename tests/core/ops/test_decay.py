"""Products and sums of gates against the loops that define them."""

import pytest
import torch

from titans_core.ops.memory.decay import SCALE, decayed_sum, decayed_sum_gradient, scaled_back
from titans_core.ops.memory.functions import coefficients


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
def test_the_decayed_sum_of_the_unit_rows_holds_the_products_of_the_loops(name):
    f = torch.tensor(FACTORS[name], dtype=torch.float64)
    D = decayed_sum(f, torch.eye(len(f) + 1, dtype=f.dtype))
    torch.testing.assert_close(D, by_loops(f), rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", FACTORS)
def test_a_decayed_sum_and_its_gradients_are_those_of_the_products(name):
    f = torch.tensor(FACTORS[name], dtype=torch.float64, requires_grad=True)
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(len(f) + 1, 3, generator=generator, dtype=f.dtype, requires_grad=True)
    R = decayed_sum(f.detach(), X.detach())
    expected_R = by_loops(f) @ X
    torch.testing.assert_close(R, expected_R.detach(), rtol=1e-13, atol=1e-15)

    dR = torch.randn(R.shape, generator=generator, dtype=R.dtype)
    expected = torch.autograd.grad((expected_R * dR).sum(), (f, X))
    df, dX = decayed_sum_gradient(f.detach(), R, dR)
    assert df.isfinite().all()
    torch.testing.assert_close((df, dX), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("has_momentum", [True, False])
@pytest.mark.parametrize("forgets", [True, False])
@pytest.mark.parametrize("name", FACTORS)
def test_the_gradients_of_the_coefficients_agree_with_finite_differences(name, forgets, has_momentum):
    f = torch.tensor(FACTORS[name], dtype=torch.float64)
    alpha = (1 - f).requires_grad_() if forgets else None
    eta = f.flip(0).requires_grad_() if has_momentum else None
    theta = torch.linspace(0, 0.5, len(f), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda *gates: tuple(coefficients(*gates, len(f), "chunk")), (alpha, eta, theta))


def test_pieces_do_not_mix():
    f = torch.rand(2, 3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    f[0, 1, 2] = 0
    D = decayed_sum(f, torch.eye(7, dtype=f.dtype).expand(2, 3, 7, 7))
    for b in range(2):
        for n in range(3):
            torch.testing.assert_close(D[b, n], by_loops(f[b, n]), rtol=1e-14, atol=0)


def test_long_products_in_float32_have_no_infinity_or_nan():
    f = torch.rand(512, generator=torch.Generator().manual_seed(0))
    f[::50] = 0
    f[1::50] = 1
    D = decayed_sum(f, torch.eye(513))
    df, _ = decayed_sum_gradient(f, D, torch.ones_like(D))
    assert D.isfinite().all()
    assert df.isfinite().all()


@pytest.mark.parametrize("tokens", [1, 300])  # gates that a piece has, or each of its tokens
@pytest.mark.parametrize(("keep", "eta"), [(0.5, 0.5), (0.9, 0.3), (0.2, 0.9), (0.01, 0.02), (1.0, 0.5)])
def test_what_fades_is_zero_before_it_is_so_small_that_a_cpu_is_slow(keep, eta, tokens):
    size, theta = 300, 0.01
    gates = [torch.full((1, 1, tokens), value) for value in (1 - keep, eta, theta)]
    found = coefficients(*gates, size, "chunk")
    for x in found:
        assert not ((x != 0) & (x.abs() < torch.finfo(x.dtype).tiny)).any()

    g = [1.0]  # of two tokens that are so far apart, in Python's numbers
    for m in range(1, size):
        g.append(keep * g[-1] + eta**m)
    expected = torch.tensor([[theta * g[t - i] if i <= t else 0 for i in range(size)] for t in range(size)])
    torch.testing.assert_close(found.G[0, 0], expected, rtol=1e-4, atol=1e-30)
    write = [[theta * g[size - 1 - i], theta * eta ** (size - 1 - i)] for i in range(size)]
    torch.testing.assert_close(found.write[0, 0], torch.tensor(write), rtol=1e-4, atol=1e-30)
    carry = [keep**size, eta * g[-1], eta**size]
    torch.testing.assert_close(found.carry[0, 0], torch.tensor(carry), rtol=1e-4, atol=1e-30)


def test_scaled_sums_are_exact():
    """Scaling by a power of two is undone exactly."""
    f = torch.rand(64, generator=torch.Generator().manual_seed(0))
    unit = torch.eye(65)
    assert torch.equal(
        scaled_back(decayed_sum(f, SCALE * unit)), torch.nn.functional.hardshrink(decayed_sum(f, unit), 1 / SCALE)
    )
