"""EinFFT compared with its formula written out in sums, and its properties as a layer."""

import cmath
import math
import os
import subprocess
import sys

import pytest
import torch

from titans_ts.network.einfft import EinFFT


def make(channels=6, blocks=2, sd=0.5, **options):
    torch.manual_seed(0)
    layer = EinFFT(channels, blocks, **options)
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=sd)
    return layer


def dft(z, inverse):
    """The orthonormal two-dimensional transform of a table ``z[p][n]`` of complex numbers, as a double sum."""
    P, N, sign = len(z), len(z[0]), 1 if inverse else -1
    turn = 2j * math.pi * sign
    return [
        [
            sum(z[p][n] * cmath.exp(turn * (a * p / P + b * n / N)) for p in range(P) for n in range(N))
            / math.sqrt(P * N)
            for b in range(N)
        ]
        for a in range(P)
    ]


def by_hand(layer, x):
    """x ``[P, C]`` -> ``[P, C]`` in Python's complex numbers."""
    P, N = x.shape[0], layer.num_blocks
    size = x.shape[1] // N
    first, shift_1, second, shift_2 = (
        torch.complex(p[0].detach().double(), p[1].detach().double())
        for p in (layer.weight_1, layer.bias_1, layer.weight_2, layer.bias_2)
    )

    def linear(z, weight, bias):  # z[p][n][d]
        return [
            [
                [sum(z[p][n][d] * weight[n, d, e].item() for d in range(size)) + bias[n, e].item() for e in range(size)]
                for n in range(N)
            ]
            for p in range(P)
        ]

    def both(f, z):
        return [[[complex(f(c.real), f(c.imag)) for c in row] for row in table] for table in z]

    def transform(z, inverse):
        each = [dft([[z[p][n][d] for n in range(N)] for p in range(P)], inverse) for d in range(size)]
        return [[[each[d][p][n] for d in range(size)] for n in range(N)] for p in range(P)]

    def shrink(v):
        return math.copysign(max(abs(v) - layer.shrink, 0.0), v)

    z = [[[complex(x[p, n * size + d].item()) for d in range(size)] for n in range(N)] for p in range(P)]
    z = both(lambda v: max(v, 0.0), linear(transform(z, inverse=False), first, shift_1))
    z = transform(both(shrink, linear(z, second, shift_2)), inverse=True)
    rows = [[z[p][n][d].real for n in range(N) for d in range(size)] for p in range(P)]
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(("tokens", "channels", "blocks"), [(5, 6, 2), (4, 4, 4), (1, 3, 1), (3, 6, 3)])
def test_einfft_equals_the_double_sum_of_the_paper(tokens, channels, blocks):
    layer = make(channels, blocks, shrink=0.1)
    x = torch.randn(2, tokens, channels)
    expected = torch.stack([by_hand(layer, one) for one in x])
    torch.testing.assert_close(layer(x).double(), expected, rtol=0, atol=5e-6)
    torch.testing.assert_close(layer.double()(x.double()), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_layer_in_another_dtype_computes_the_same(dtype):
    """Lightning's precisions "64-true" and "bf16-true" convert the whole network."""
    layer, x = make(), torch.randn(2, 5, 6)
    expected = layer(x)
    out = layer.to(dtype)(x.to(dtype))
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), expected, rtol=0, atol=1e-5 if dtype == torch.float64 else 0.1)


@pytest.mark.parametrize(("channels", "blocks"), [(8, 4), (12, 4), (6, 1), (6, 3)])
def test_the_number_of_parameters_follows_from_channels_and_blocks(channels, blocks):
    layer = EinFFT(channels, blocks)
    assert sum(p.numel() for p in layer.parameters()) == 4 * channels**2 // blocks + 4 * channels


def test_parameters_start_small():
    torch.manual_seed(0)
    for p in EinFFT(256, 4).parameters():
        assert p.std().item() == pytest.approx(0.02, rel=0.15)


def test_gradients_are_those_of_finite_differences():
    layer, x = make(), torch.randn(1, 3, 6)
    probe = torch.randn(1, 3, 6)

    def value():
        return (layer(x) * probe).sum()

    for p, grad in zip(layer.parameters(), torch.autograd.grad(value(), list(layer.parameters())), strict=True):
        direction = torch.randn_like(p)
        slope = (grad * direction).sum().item()
        with torch.no_grad():
            p += 1e-2 * direction
            above = value().item()
            p -= 2e-2 * direction
            below = value().item()
            p += 1e-2 * direction
        assert slope == pytest.approx((above - below) / 2e-2, rel=0.05, abs=0.02)
        assert abs(slope) > 1e-3


def test_every_output_sees_every_token_and_channel_but_no_other_sequence():
    layer, x = make(sd=1.0), torch.randn(2, 4, 6, requires_grad=True)
    grad = torch.autograd.grad(layer(x)[0, 0, 0], x)[0]
    assert (grad[0].abs() > 0).all()
    assert grad[1].count_nonzero() == 0


def test_under_bf16_autocast_the_transform_stays_float32():
    layer, x = make(), torch.randn(2, 5, 6)
    expected = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer(x), expected)
        out = layer(x.bfloat16())
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), expected, rtol=0, atol=0.1)


def test_a_large_threshold_shrinks_everything_away():
    assert make(shrink=1e6)(torch.randn(2, 5, 6)).count_nonzero() == 0


def test_one_sequence_of_many_blocks_does_not_corrupt_memory():
    """In its own process, because fft2 wrote out of bounds there, for which glibc aborts a process."""
    code = """
import torch
from titans_ts.network.einfft import EinFFT

torch.set_num_threads(1)
layer = EinFFT(862 * 32, 862)
for _ in range(3):
    x = torch.randn(1, 11, 862 * 32, requires_grad=True)
    layer(x).square().sum().backward()
    assert x.grad.isfinite().all()
"""
    checked = {**os.environ, "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "85"}
    done = subprocess.run([sys.executable, "-c", code], env=checked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
