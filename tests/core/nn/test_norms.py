"""Norms and dropout written out for a CPU equal torch's."""

import pytest
import torch
import torch.nn.functional as F

from titans_core.nn.dropout import Dropout
from titans_core.nn.norms import RMSNorm, gated, unit_silu

SHAPES = [(7,), (3, 5), (2, 3, 4, 16), (0, 8)]


def norm_of(dim: int, dtype: torch.dtype = torch.float64) -> RMSNorm:
    norm = RMSNorm(dim, eps=1e-3).to(dtype)
    with torch.no_grad():
        norm.weight.copy_(1 + 0.3 * torch.randn(dim, dtype=dtype))
    return norm


def torchs(norm: RMSNorm, x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, norm.weight.shape, norm.weight, norm.eps)


@pytest.mark.parametrize("shape", SHAPES)
def test_rms_norm_and_its_gradients_are_those_of_torch(shape):
    norm = norm_of(shape[-1])
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    dy = torch.randn(shape, dtype=torch.float64)
    y, expected = norm(x), torchs(norm, x)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-14)
    found = torch.autograd.grad(y, (x, norm.weight), dy)
    for own, torchs_own in zip(found, torch.autograd.grad(expected, (x, norm.weight), dy), strict=True):
        torch.testing.assert_close(own, torchs_own, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("shape", SHAPES)
def test_unit_silu_and_its_gradient_are_those_of_torch(shape):
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    dy = torch.randn(shape, dtype=torch.float64)
    y, expected = unit_silu(x), F.normalize(F.silu(x), dim=-1)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-15)
    (found,), (right,) = (torch.autograd.grad(out, x, dy) for out in (y, expected))
    torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 4, 16), (0, 2, 8)])
def test_gated_vectors_and_their_gradients_are_those_of_torch(shape):
    norm = norm_of(shape[-1])
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    gate = torch.randn(*shape[:-2], shape[-2] * shape[-1], dtype=torch.float64, requires_grad=True)
    dy, inputs = torch.randn_like(gate), (x, norm.weight, gate)
    y, expected = gated(norm, x, gate), torchs(norm, x).flatten(-2) * F.silu(gate)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-14)
    found, right = (torch.autograd.grad(out, inputs, dy) for out in (y, expected))
    for own, torchs_own in zip(found, right, strict=True):
        torch.testing.assert_close(own, torchs_own, rtol=1e-12, atol=1e-13)


def test_gated_vectors_that_are_gated_by_themselves_are_differentiated_again():
    norm = norm_of(4)
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: gated(norm, x, x.flatten(-2)), (x,))


def test_what_hangs_on_a_norm_is_called_where_it_gates():
    norm, x, gate = norm_of(4), torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 12, dtype=torch.float64)
    norm.register_forward_hook(lambda module, given, y: 2 * y)
    torch.testing.assert_close(gated(norm, x, gate), 2 * torchs(norm, x).flatten(-2) * F.silu(gate))


def test_vectors_in_any_layout_have_the_norms_of_their_copies():
    norm = norm_of(4)
    x = torch.randn(2, 4, 5, dtype=torch.float64).mT.requires_grad_()
    copy = x.detach().contiguous().requires_grad_()
    for f in (norm, unit_silu):
        dy = torch.randn(2, 4, 5, dtype=torch.float64).mT
        there, here = (torch.autograd.grad(f(z), z, dy)[0] for z in (x, copy))
        torch.testing.assert_close(f(x), f(copy), rtol=1e-15, atol=0)  # torch's SiLU ends otherwise in other layouts
        torch.testing.assert_close(there, here, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_vectors_too_short_for_a_length_of_1_have_a_finite_gradient(dtype):
    x = torch.zeros(3, 4, dtype=dtype)
    x[1] = torch.tensor([3e-13, -4e-13, 0, 0], dtype=dtype)
    x[2, 0] = 2.0
    x.requires_grad_()
    dy = torch.ones(3, 4, dtype=dtype)
    found, right = (torch.autograd.grad(y, x, dy)[0] for y in (unit_silu(x), F.normalize(F.silu(x), dim=-1)))
    assert found.isfinite().all()
    torch.testing.assert_close(found, right)


def test_gradients_can_be_differentiated_again():
    norm = norm_of(5)
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(norm, (x,))
    assert torch.autograd.gradgradcheck(
        lambda x, w: torch.func.functional_call(norm, {"weight": w}, (x,)), (x, norm.weight.detach().requires_grad_())
    )
    assert torch.autograd.gradcheck(unit_silu, (x,))
    assert torch.autograd.gradgradcheck(unit_silu, (x,))


def test_a_weight_that_is_made_of_what_it_weighs_has_its_gradient_once():
    norm = norm_of(5)
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)

    def of(f):
        return torch.autograd.grad(f(x, 2 * x.sum(0)).square().sum(), x, create_graph=True)[0]

    right = of(lambda x, w: F.rms_norm(x, w.shape, w, norm.eps))
    torch.testing.assert_close(of(lambda x, w: torch.func.functional_call(norm, {"weight": w}, (x,))), right)


def test_autocast_does_not_round_the_gradient_of_float32():
    norm = norm_of(64, torch.float32)
    x, dy = torch.randn(50, 64, requires_grad=True), torch.randn(50, 64)
    (right,) = torch.autograd.grad(norm(x), x, dy)
    with torch.autocast("cpu", torch.bfloat16):
        (found,) = torch.autograd.grad(norm(x), x, dy)
    torch.testing.assert_close(found, right, rtol=0, atol=0)


def test_half_precision_by_wider_weights_is_rounded_once_and_by_one_kernel(monkeypatch):
    norm = norm_of(64, torch.float32)
    x, dy = torch.randn(50, 64).bfloat16().requires_grad_(), torch.randn(50, 64).bfloat16()
    wide = norm(x.float())
    right = torch.autograd.grad(wide, (x, norm.weight), dy.float())
    given = []
    monkeypatch.setattr(F, "rms_norm", lambda x, *rest: given.append(x.dtype) or torch.rms_norm(x, *rest))
    for precise in (True, False):  # as on a CPU, and as on other devices
        monkeypatch.setattr("titans_core.nn.norms.eager_on_cpu", lambda _, precise=precise: precise)
        with torch.autocast("cpu", torch.bfloat16):
            y = norm(x)
        torch.testing.assert_close(y, wide.bfloat16())
        for found, expected in zip(torch.autograd.grad(y, (x, norm.weight), dy), right, strict=True):
            torch.testing.assert_close(found, expected)
    assert given == [torch.float32]


def test_functions_can_be_transformed():
    norm, x = norm_of(5), torch.randn(3, 5, dtype=torch.float64)
    each = torch.func.vmap(torch.func.grad(lambda row: unit_silu(norm(row)).pow(3).sum()))(x)
    rows = x.clone().requires_grad_()
    (right,) = torch.autograd.grad(unit_silu(norm(rows)).pow(3).sum(), rows)
    torch.testing.assert_close(each, right, rtol=1e-12, atol=1e-14)


def test_a_width_that_does_not_fit_is_refused():
    with pytest.raises(RuntimeError, match="normalized_shape"):
        RMSNorm(1)(torch.randn(2, 8))


def test_only_required_gradients_are_computed():
    norm = norm_of(5)
    x = torch.randn(3, 5, dtype=torch.float64)
    (dw,) = torch.autograd.grad(norm(x).square().sum(), norm.weight, create_graph=True)
    (right,) = torch.autograd.grad(torchs(norm, x).square().sum(), norm.weight)
    torch.testing.assert_close(dw, right, rtol=1e-12, atol=1e-13)
    norm.requires_grad_(False)
    assert not norm(x).requires_grad


def test_float32_is_as_near_to_float64_as_torchs_own():
    norm = norm_of(64, torch.float32)
    x = torch.randn(4000, 64, requires_grad=True)
    dy = torch.randn(4000, 64)
    exact_x, exact = x.detach().double().requires_grad_(), RMSNorm(64, eps=1e-3).double()
    exact.load_state_dict(norm.state_dict())
    right = torch.autograd.grad(torchs(exact, exact_x), (exact_x, exact.weight), dy.double())
    own = torch.autograd.grad(norm(x), (x, norm.weight), dy)
    by_torch = torch.autograd.grad(torchs(norm, x), (x, norm.weight), dy)
    for mine, theirs, truth in zip(own, by_torch, right, strict=True):
        assert (mine - truth).abs().max() <= 2 * (theirs - truth).abs().max() + 1e-7 * truth.abs().max()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_takes_the_norm_as_torch_does(dtype):
    x = torch.randn(6, 16).to(dtype)
    assert unit_silu(x).dtype == dtype
    torch.testing.assert_close(unit_silu(x), F.normalize(F.silu(x), dim=-1), rtol=0, atol=0)
    norm, gate = RMSNorm(16).to(dtype), torch.randn(3, 32).to(dtype)
    torch.testing.assert_close(norm(x), torchs(norm, x), rtol=0, atol=0)
    expected = torchs(norm, x).view(3, 32) * F.silu(gate)
    torch.testing.assert_close(gated(norm, x.view(3, 2, 16), gate), expected, rtol=0, atol=0)


def test_norms_compile_to_one_graph():
    norm = norm_of(8)
    x = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)

    def both(x):
        return gated(norm, unit_silu(norm(x)).unsqueeze(-2), x)

    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), both(x), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("p", [0.1, 0.2, 0.5, 0.99])
def test_dropout_zeroes_a_share_and_keeps_the_mean(p):
    torch.manual_seed(0)
    x = torch.ones(1003, 211, requires_grad=True)
    y = Dropout(p)(x)
    zeros, n = (y == 0).double().mean().item(), x.numel()
    assert abs(zeros - p) < 5 * (p * (1 - p) / n) ** 0.5
    assert y.unique().tolist() == pytest.approx([0, 1 / (1 - p)], rel=1e-3)
    (dx,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(dx, y.detach(), rtol=0, atol=0)


def test_dropout_falls_alike_on_every_place_and_on_neighbours_independently():
    torch.manual_seed(0)
    keep = (Dropout(0.3)(torch.ones(4000, 9)) != 0).double()
    assert (keep.mean(0) - 0.7).abs().max() < 5 * (0.21 / 4000) ** 0.5
    for lag in range(1, 9):
        together = (keep[:, lag:] * keep[:, :-lag]).mean()
        assert abs(together - 0.49) < 5 * (0.25 / (4000 * (9 - lag))) ** 0.5


def test_dropout_follows_the_seed_and_is_off_in_evaluation():
    x, drop = torch.randn(50, 7), Dropout(0.4)
    first, second, other = ((torch.manual_seed(seed), drop(x))[1] for seed in (1, 1, 2))
    assert first.equal(second)
    assert not first.equal(other)
    assert drop.eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert Dropout(1.0)(x).equal(torch.zeros_like(x))
    assert Dropout(1e-6)(torch.ones(1000)).sum() > 990


def test_dropout_can_be_differentiated_twice():
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)

    def dropped(x):
        torch.manual_seed(3)
        return Dropout(0.5)(x).square()

    assert torch.autograd.gradgradcheck(dropped, (x,))


def test_what_is_gated_may_be_changed_in_place_and_its_norm_is_told_of_its_gradient():
    norm, x = norm_of(4), torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    gate, seen = torch.randn(2, 12, dtype=torch.float64), []
    (right,) = torch.autograd.grad(2 * gated(norm, x, gate).sum(), x)
    gated(norm, x, gate).mul_(2).sum().backward()
    torch.testing.assert_close(x.grad, right)
    norm.register_full_backward_hook(lambda *given: seen.append(given))
    gated(norm, x, gate).sum().backward()
    assert len(seen) == 1
