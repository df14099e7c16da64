"""The network and its parts: EinFFT, normalised windows, and series that mix only if set to."""

import numpy as np
import pytest
import torch

from titans_core.train.batches import loader
from titans_ts.evaluation import all_windows
from titans_ts.network.einfft import EinFFT
from titans_ts.network.simba import Simba, SimbaConfig, default_patch
from titans_ts.network.windows import Table, all_windows_of

CONFIG = {"h": 5, "input_size": 24, "patch_size": 6, "dim": 8, "num_layers": 2, "num_heads": 2, "chunk_size": 2}


def make(**options):
    torch.manual_seed(0)
    network = Simba(SimbaConfig(**{**CONFIG, **options})).eval()
    torch.nn.init.normal_(network.direct.weight, std=0.1)
    return network


def windows(batch=3, series=4, length=24):
    return torch.randn(batch, length, series, generator=torch.Generator().manual_seed(1))


def test_einfft_is_its_formula_in_complex_numbers():
    torch.manual_seed(0)
    B, P, blocks, size = 2, 5, 4, 3
    layer, x = EinFFT(blocks * size, blocks), torch.randn(B, P, blocks * size)
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=0.3)
    z = torch.fft.fft2(x.reshape(B, P, blocks, size), dim=(1, 2), norm="ortho")

    def product(z, weight, bias):
        full, shift = torch.complex(*weight), torch.complex(*bias)
        rows = [z[:, :, n] @ full[n] + shift[n] for n in range(blocks)]
        return torch.stack(rows, dim=2)

    def both(f, z):
        return torch.complex(f(z.real), f(z.imag))

    z = both(torch.relu, product(z, layer.weight_1, layer.bias_1))
    z = both(lambda t: torch.sign(t) * (t.abs() - 0.01).clamp(min=0), product(z, layer.weight_2, layer.bias_2))
    expected = torch.fft.ifft2(z, dim=(1, 2), norm="ortho").real.reshape(B, P, -1)
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-5)
    assert sum(p.numel() for p in layer.parameters()) == 4 * 12**2 // blocks + 4 * 12
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer(x), layer(x.clone()))
        torch.testing.assert_close(layer(x.bfloat16()).float(), expected, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("options", [{}, {"num_series": 4}, {"mixer": "mlp"}, {"mixer": "mlp", "num_series": 4}])
def test_forecasts_follow_the_scale_and_level_of_their_window(options):
    network, x = make(**options), windows()
    torch.testing.assert_close(network(30 * x + 7), 30 * network(x) + 7, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("mixer", ["einfft", "mlp"])
def test_a_series_does_not_depend_on_its_neighbours_unless_they_are_mixed(mixer):
    x = windows()
    changed = x.clone()
    changed[:, :, 0] = changed[:, :, 0].flip(1)
    alone = make(mixer=mixer)
    torch.testing.assert_close(alone(changed)[..., 1:], alone(x)[..., 1:], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(alone(x[..., 2:3]), alone(x)[..., 2:3], rtol=1e-5, atol=1e-6)
    mixed = make(mixer=mixer, num_series=4)
    assert (mixed(changed)[..., 1:] - mixed(x)[..., 1:]).abs().amax() > 1e-6


@pytest.mark.parametrize(("input_size", "patch_size"), [(24, 6), (25, 6), (23, 7), (5, 16), (1, 1), (96, 16)])
def test_any_lookback_works_and_every_step_of_it_counts(input_size, patch_size):
    network = make(input_size=input_size, patch_size=patch_size)
    torch.nn.init.zeros_(network.direct.weight)  # only the deep path
    x = windows(batch=1, series=1, length=input_size).requires_grad_()
    y = network(x)
    assert y.shape == (1, 5, 1)
    if input_size > 1:
        (grad,) = torch.autograd.grad(y.square().sum(), x)
        assert (grad.abs() > 0).all()


@pytest.mark.parametrize(
    ("input_size", "patch_size", "patches"), [(12, 16, 1), (96, 16, 11), (192, 16, 23), (336, 28, 23), (720, 60, 23)]
)
def test_default_patches_are_usual_at_96_and_only_a_few_more_for_longer_windows(input_size, patch_size, patches):
    assert default_patch(input_size) == patch_size
    assert make(input_size=input_size, patch_size=default_patch(input_size)).num_patches == patches


@pytest.mark.parametrize("input_size", [193, 337, 767, 768, 769, 5000, 50_000])
def test_a_patch_of_a_long_lookback_is_even_and_has_at_most_64_steps(input_size):
    size = default_patch(input_size)
    assert size % 2 == 0
    assert size == 64 if input_size > 768 else input_size / 12 <= size < input_size / 12 + 2


def test_the_memory_of_the_network_learns_across_chunks():
    """With one chunk for all patches no gradient is taken at written weights, with small ones it is: they differ."""
    x = windows()
    small, large = make(chunk_size=2), make(chunk_size=64)
    large.load_state_dict(small.state_dict())
    assert (small(x) - large(x)).abs().max() > 1e-6


def test_memory_depth_sets_the_layers_of_the_memory():
    assert [len(make(memory_depth=depth).blocks[0].memory.weights) for depth in (1, 2, 3)] == [1, 2, 3]
    assert make(memory_depth=1, chunk_size=1)(windows()).isfinite().all()


def test_an_unknown_mixer_is_named():
    with pytest.raises(ValueError, match=r"mixer must be one of .*'fourier'"):
        make(mixer="fourier")
    with pytest.raises(ValueError, match="multiple of num_blocks"):
        EinFFT(10, 4)


def test_validation_windows_begin_a_lookback_before_the_border():
    values = torch.arange(50.0)[:, None]
    val = all_windows_of(Table(values), 10, 4, 30, 50, together=False)
    inputs, targets = val[[0, len(val) - 1]][:2]
    assert len(val) == 20 - 4 + 1
    assert inputs[0, :, 0].tolist() == list(range(20, 30))
    assert targets[0, :, 0].tolist() == [30, 31, 32, 33]
    assert targets[1, :, 0].tolist() == [46, 47, 48, 49]
    train = all_windows_of(Table(values), 10, 4, 0, 30, together=False)
    assert len(train) == 30 - 14 + 1
    assert train[[0]][1][0, :, 0].tolist() == [10, 11, 12, 13]
    assert train[[16]][1][0, :, 0].tolist() == [26, 27, 28, 29]


def test_without_a_seed_windows_come_in_order():
    in_turn = loader(all_windows_of(Table(torch.arange(20.0)[:, None]), 4, 2, 0, 20, together=True), batch_size=6)
    firsts = torch.cat([batch.x[:, 0, 0] for batch in in_turn])
    assert firsts.tolist() == list(range(15))


def test_all_windows_are_views():
    values = np.random.default_rng(0).normal(size=(30, 2))
    inputs, targets = all_windows(values, 8, 3)
    assert np.shares_memory(inputs, values)
    assert np.shares_memory(targets, values)
    assert len(inputs) == len(targets) == 20
    np.testing.assert_array_equal(inputs[5], values[5:13])
    np.testing.assert_array_equal(targets[5], values[13:16])
