"""More laws of the network: units, order of series, missing series, the newest step, batches."""

import dataclasses

import pytest
import torch

from titans_ts.network.simba import Simba, SimbaConfig

CONFIG = SimbaConfig(h=3, input_size=20, patch_size=6, dim=8, num_layers=1, num_heads=2, chunk_size=2)


def make(**options):
    torch.manual_seed(0)
    network = Simba(dataclasses.replace(CONFIG, **options)).eval()
    torch.nn.init.normal_(network.direct.weight, std=0.1)
    return network


def windows(batch=2, series=3, length=20):
    return torch.randn(batch, length, series, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("num_series", [None, 3], ids=["alone", "mixed"])
@pytest.mark.parametrize(("a", "b"), [(2.0, 0.0), (0.5, -300.0), (1e4, 1e5)])
def test_forecasts_are_equivariant_to_units(a, b, num_series):
    network, x = make(num_series=num_series, mixer="mlp").double(), 1e4 * windows().double()
    # at this scale the 1e-5 in the variance is far below the tolerance
    torch.testing.assert_close(network(a * x + b), a * network(x) + b, rtol=1e-9, atol=0)


@pytest.mark.parametrize("num_series", [None, 3], ids=["alone", "mixed"])
def test_the_same_holds_for_einfft_in_float32(num_series):
    network, x = make(num_series=num_series), 100 * windows()
    torch.testing.assert_close(network(8 * x - 64), 8 * network(x) - 64, rtol=0, atol=0.02)


def test_a_window_that_does_not_change_is_forecast_as_its_level():
    x = torch.tensor([-3.0, 0.0, 50.0]).expand(1, 20, 3)
    torch.testing.assert_close(make()(x), x[:, :3], rtol=0, atol=0.05)


@pytest.mark.parametrize("mixer", ["einfft", "mlp"])
def test_separate_series_may_have_any_order(mixer):
    x, order = windows(), [2, 0, 1]
    network = make(mixer=mixer)
    torch.testing.assert_close(network(x[..., order]), network(x)[..., order], rtol=0, atol=1e-5)
    mixed = make(mixer=mixer, num_series=3)
    assert (mixed(x[..., order]) - mixed(x)[..., order]).abs().max() > 1e-3


def test_an_unknown_series_does_not_affect_others():
    network, x = make(), windows()
    holed = x.clone()
    holed[0, 4, 1] = float("nan")
    out, expected = network(holed), network(x)
    assert out[0, :, 1].isnan().all()
    torch.testing.assert_close(out[0][:, [0, 2]], expected[0][:, [0, 2]], rtol=0, atol=1e-5)
    torch.testing.assert_close(out[1], expected[1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("num_series", [None, 3], ids=["alone", "mixed"])
def test_windows_of_a_batch_do_not_mix(num_series):
    network, x = make(num_series=num_series), windows(batch=5)
    torch.testing.assert_close(torch.cat([network(one) for one in x.split(1)]), network(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("mixer", ["einfft", "mlp"])
@pytest.mark.parametrize(("input_size", "patch_size"), [(20, 6), (21, 6), (4, 16), (7, 2), (7, 1)])
def test_the_newest_step_moves_every_step_of_the_forecast_through_the_deep_path_alone(input_size, patch_size, mixer):
    network = make(input_size=input_size, patch_size=patch_size, mixer=mixer)
    torch.nn.init.zeros_(network.direct.weight)
    x = windows(batch=1, series=1, length=input_size)
    newer = x.clone()
    newer[:, -1] += 0.5
    # against normalisation itself: the forecasts differ also in the units of their windows
    change = (network(newer) - newer.mean(1, keepdim=True)) / newer.std(1, keepdim=True, correction=0)
    change -= (network(x) - x.mean(1, keepdim=True)) / x.std(1, keepdim=True, correction=0)
    assert change.abs().min() > 1e-5


def test_a_lookback_is_padded_to_whole_patches_with_its_oldest_value():
    network = make(input_size=20, patch_size=6)
    assert (network.num_patches, network.stride, network.padding) == (6, 3, 1)
    seen = []
    network.embed.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    x = windows(batch=1, series=1)
    network(x)
    lane = (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt()
    patches = seen[0][0, 0]
    torch.testing.assert_close(patches[0], torch.cat((lane[0, :1, 0], lane[0, :5, 0])))
    torch.testing.assert_close(patches[-1], lane[0, -6:, 0])


def test_the_deviation_of_a_lookback_with_few_known_values_is_shrunk():
    network = make(masked=True, least_variance=0.0)
    x = windows(batch=1, series=2)
    x[0, :-4, 1] = float("nan")
    x[0, -4:, 1] = torch.tensor([5.0, 5.0, 11.0, 11.0])
    _, center, scale = network.normalised(x)
    torch.testing.assert_close(center[0, 0, 1], torch.tensor(8.0))
    # the 16 of 20 that are missing are 0.8 of a value that lies one deviation of the series off
    torch.testing.assert_close(scale[0, 0, 1].square(), torch.tensor((4 * 9 + 0.8) / (4 + 0.8)))
    torch.testing.assert_close(scale[0, 0, 0], x[0, :, 0].std(correction=0))


def test_a_direct_path_starts_at_zero():
    assert Simba(CONFIG).direct.weight.count_nonzero() == 0


@pytest.mark.parametrize(("reach", "input_size"), [(0, 20), (2, 20), (9, 20), (5, 3)])
def test_the_known_future_moves_the_steps_within_its_reach(reach, input_size):
    h = 12
    network = with_future(h=h, input_size=input_size, futr=2, reach=reach)
    futr = torch.randn(1, input_size + h, 1, 2, requires_grad=True)  # shared by the series
    forecast = network(windows(batch=1, length=input_size), futr=futr)[0]
    for t in range(h):
        (moved,) = torch.autograd.grad(forecast[t].sum(), futr, retain_graph=True)
        steps = moved[0, input_size:, 0].abs().amin(dim=-1).nonzero().flatten().tolist()
        assert steps == [s for s in range(h) if abs(s - t) <= min(reach, input_size)]


def test_after_the_horizon_is_the_mean_of_the_lookback():
    network, longer = (with_future(h=h, futr=1, reach=3) for h in (4, 6))
    longer.future.load_state_dict(network.future.state_dict())
    futr = torch.randn(2, 26, 3, 1)
    futr[:, 24:] = futr[:, :20].mean(dim=1, keepdim=True)
    code, scale = torch.randn(2, 3, network.head.in_features), torch.rand(2, 1, 3)
    torch.testing.assert_close(longer.future(code, futr, scale)[:, :, :4], network.future(code, futr[:, :24], scale))


@pytest.mark.parametrize("unit", [0.5, 8.0])
def test_the_known_future_moves_a_forecast_by_as_much_whatever_the_deviation_of_the_window(unit):
    network = with_future(futr=1, reach=1)
    torch.nn.init.zeros_(network.future.out.weight)
    futr = torch.zeros(2, 23, 3, 1)
    later = futr.clone()
    later[:, -2] = 1.0
    x = unit * (windows() + 100.0)
    with torch.no_grad():
        moved = network(x, futr=later) - network(x, futr=futr)
    scale = x.var(dim=1, correction=0).sqrt()
    before, at, behind = network.future.direct.weight.flatten().tolist()  # a step is moved by the one behind it first
    expected = torch.tensor([behind, at, before])[:, None] * (scale / (scale + 0.1))[:, None]
    torch.testing.assert_close(moved, expected, rtol=1e-3, atol=1e-4)


def with_future(**options):
    """A network whose paths of the known future do not start at 0."""
    network = make(**options)
    for weight in network.future.parameters():
        torch.nn.init.normal_(weight)
    return network
