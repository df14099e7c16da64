"""The kernels around the memory against the same formulas in float64, and a layer on them against one without."""

import json
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from titans_core import NeuralMemory
from titans_core.nn import convolution, eager, norms
from titans_core.nn.convolution import CausalConv
from titans_core.nn.norms import RMSNorm, gated, silu_parts, unit_silu
from titans_core.nn.triton import convolution as conv_kernels
from titans_core.nn.triton import rows as row_kernels

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    """Use the kernels on every device, and fill new memory with NaN, to detect values that they do not write."""
    for module in (convolution, norms):
        monkeypatch.setattr(module, "on_kernels", lambda x: eager._eager() and x.dtype != torch.float64)

    def poisoned(empty):
        def nan(*args, **kwargs):
            return empty(*args, **kwargs).fill_(float("nan"))

        return nan

    for name in ("empty", "empty_like"):
        for module in (conv_kernels, row_kernels):
            monkeypatch.setattr(module.torch, name, poisoned(getattr(torch, name)))
    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned(torch.Tensor.new_empty))


def normal(*shape, seed=0, dtype=torch.float32, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=generator)).to(DEVICE, dtype).requires_grad_()


def wide(*tensors):
    return [x.detach().double().requires_grad_() for x in tensors]


def close(found, expected, tolerance, least=1e-3):
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a.shape == b.shape, i
        if not b.numel():  # the tail of a convolution of size 1
            continue
        error, scale = (a.double() - b).abs().max().item(), b.abs().max().item()
        assert error <= tolerance * max(scale, least), f"{i}: error {error:.2e}, largest entry {scale:.2e}"  # NaN too


def gradients(outputs, inputs, seed=9):
    """Gradients for the same random gradients of the outputs, whatever the dtype."""
    dys = [normal(*y.shape, seed=seed + i).detach().to(y.dtype) for i, y in enumerate(outputs)]
    return torch.autograd.grad(outputs, inputs, dys)


def plain_conv(x, tail, weight, bias):
    return F.conv1d(torch.cat((tail, x), dim=1).mT, weight[:, None], bias, groups=len(weight)).mT


SHAPES = [(2, 5, 7, 4), (1, 1, 3, 4), (3, 33, 66, 3), (1, 70, 16, 1), (2, 2, 5, 9), (1, 40, 8, 35), (1, 32, 64, 2)]


@pytest.mark.parametrize(("B", "T", "C", "size"), SHAPES)
@pytest.mark.parametrize("programs", [1, 1024])
def test_a_convolution_and_its_gradients(monkeypatch, B, T, C, size, programs):
    monkeypatch.setattr(conv_kernels, "PROGRAMS", programs)
    inputs = (normal(B, T, C), normal(B, size - 1, C, seed=1), normal(C, size, seed=2), normal(C, seed=3))
    y = conv_kernels.convolve(*inputs)
    expected_inputs = wide(*inputs)
    expected = plain_conv(*expected_inputs)
    close([y], [expected], 1e-5)
    dy = normal(B, T, C, seed=4).detach()
    found = conv_kernels.convolve_backward(dy, *inputs[:3])
    close(found, torch.autograd.grad(expected, expected_inputs, dy.double()), 1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES.items())
def test_a_convolution_in_each_precision(dtype, tolerance):
    conv = CausalConv(20, 4).to(DEVICE, dtype)
    x = normal(2, 37, 20, dtype=dtype)
    (y, tail), parameters = conv(x), (conv.weight, conv.bias)
    x64, *p64 = wide(x, *parameters)
    expected = plain_conv(x64, x64.new_zeros(2, 3, 20), *p64)
    assert y.dtype == dtype
    close([y, tail], [expected, x64[:, -3:]], tolerance)
    close(gradients([y], (x, *parameters)), gradients([expected], (x64, *p64)), tolerance)


def test_a_convolution_of_views_and_of_a_part_of_the_channels():
    conv = CausalConv(6, 3).to(DEVICE)
    x = normal(2, 8, 12)
    whole, _ = conv(x[..., ::2])
    part, _ = conv(x[..., 4:8:2], channels=slice(2, 4))
    torch.testing.assert_close(part, whole[..., 2:4], rtol=0, atol=0)
    first, tail = conv(x[:, :5, ::2])
    second, _ = conv(x[:, 5:, ::2], tail)
    torch.testing.assert_close(torch.cat((first, second), 1), whole)


def plain_parts(x, parts, unit):
    pieces = F.silu(x).chunk(parts, dim=-2)
    return [F.normalize(s, dim=-1) if i < unit else s for i, s in enumerate(pieces)]


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES.items())
@pytest.mark.parametrize(("parts", "unit"), [(3, 2), (3, 3), (1, 1), (2, 0)])
def test_silu_of_parts_and_its_gradient(parts, unit, dtype, tolerance):
    x = normal(2, 5, 3 * parts, 20, dtype=dtype, scale=3.0)
    (x64,) = wide(x)
    found, expected = silu_parts(x, parts, unit), plain_parts(x64, parts, unit)
    assert all(y.dtype == dtype and y.is_contiguous() for y in found)
    close(found, expected, tolerance)
    close(gradients(found, [x]), gradients(expected, [x64]), tolerance)


@pytest.mark.parametrize("d", [1, 16, 4096])
def test_silu_of_narrow_and_wide_rows_of_a_view(d):
    x = normal(2, d, 3)
    (x64,) = wide(x)
    y, expected = unit_silu(x.mT), plain_parts(x64.mT.unsqueeze(-2), 1, 1)[0].squeeze(-2)
    close([y], [expected], 1e-5)
    # the gradient of a single number is 0, the difference of two numbers of the size of the incoming gradient
    close(gradients([y], [x]), gradients([expected], [x64]), 1e-5, least=0.1)


@pytest.mark.parametrize("value", [0.0, 2e-5])
def test_rows_below_the_least_length_are_divided_by_it(value):
    x = torch.full((1, 2, 4), value, device=DEVICE, dtype=torch.float16, requires_grad=True)
    (x64,) = wide(x)
    y, expected = unit_silu(x), F.silu(x64) / torch.finfo(torch.float16).tiny
    dy = normal(1, 2, 4, dtype=torch.float16, scale=1e-3).detach()
    found, right = (torch.autograd.grad(y, x, dy)[0], torch.autograd.grad(expected, x64, dy.double())[0])
    torch.testing.assert_close(y.double(), expected, rtol=1e-2, atol=0)
    torch.testing.assert_close(found.double(), right, rtol=1e-2, atol=0)


@pytest.mark.parametrize("shape", [(2, 3, 4, 16), (1, 1, 7), (50, 3, 70)])
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES.items())
def test_gated_vectors_and_their_gradients(shape, dtype, tolerance):
    norm = RMSNorm(shape[-1], eps=1e-3).to(DEVICE, dtype)
    with torch.no_grad():
        norm.weight.copy_(1 + 0.3 * normal(shape[-1], seed=5))
    x, gate = normal(*shape, dtype=dtype), normal(*shape[:-2], shape[-2] * shape[-1], seed=1, dtype=dtype)
    x64, gate64, weight64 = wide(x, gate, norm.weight)
    y = gated(norm, x, gate)
    expected = F.rms_norm(x64, weight64.shape, weight64, norm.eps).flatten(-2) * F.silu(gate64)
    assert y.dtype == dtype
    close([y], [expected], tolerance)
    close(gradients([y], (x, gate, norm.weight)), gradients([expected], (x64, gate64, weight64)), max(tolerance, 1e-5))


def test_gated_vectors_of_several_precisions_give_the_wider_one():
    norm = RMSNorm(8).to(DEVICE)
    y = gated(norm, normal(2, 3, 8, dtype=torch.bfloat16), normal(2, 24, dtype=torch.bfloat16))
    assert y.dtype == torch.bfloat16
    assert gated(norm, normal(2, 3, 8), normal(2, 24, dtype=torch.bfloat16)).dtype == torch.float32


def test_second_derivatives_are_those_of_the_formulas():
    norm, conv = RMSNorm(4).to(DEVICE), CausalConv(12, 3).to(DEVICE)
    norm64, conv64 = RMSNorm(4).to(DEVICE).double(), CausalConv(12, 3).to(DEVICE).double()
    conv64.load_state_dict(conv.state_dict())
    x = normal(2, 5, 12)
    (x64,) = wide(x)

    def penalty(norm, conv, x):
        y, _ = conv(x)
        q, k, v = silu_parts(y.unflatten(-1, (3, 4)), 3, 2)
        out = gated(norm, q * k + v, y[..., :4])
        (first,) = torch.autograd.grad(out.sin().sum(), x, create_graph=True)
        return first.square().sum()

    (found,) = torch.autograd.grad(penalty(norm, conv, x), x)
    (expected,) = torch.autograd.grad(penalty(norm64, conv64, x64), x64)
    close([found], [expected], 1e-4)


@pytest.mark.parametrize("unit_values", [False, True])
@pytest.mark.parametrize("conv_size", [0, 4])
def test_a_layer_on_kernels_equals_one_without(monkeypatch, conv_size, unit_values):
    torch.manual_seed(0)
    layer = NeuralMemory(24, 2, chunk_size=8, conv_size=conv_size, unit_values=unit_values, backend="chunk").to(DEVICE)
    x = normal(2, 21, 24)
    first, state = layer(x[:, :10])
    second, end = layer(x[:, 10:], state)
    found = [first, second, layer.retrieve(x, end)]
    grads = gradients(found, (x, *layer.parameters()))
    layer = layer.double()
    (x64,) = wide(x)
    whole, end = layer(x64)
    expected = [whole[:, :10], whole[:, 10:], layer.retrieve(x64, end)]
    close(found, expected, 1e-5)
    close(grads, gradients(expected, (x64, *layer.parameters())), 1e-4)


def test_kernels_run_only_where_triton_can():
    x = torch.zeros(2, device=DEVICE)
    assert eager.on_kernels(x) == (DEVICE == "cuda")
    assert not eager.on_kernels(x.double())
    assert not eager.on_kernels(x[:0])
    seen = []
    torch.func.vmap(lambda a: seen.append(eager.on_kernels(a)) or a)(x)
    assert seen == [False]


COMPILE = """
import json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from titans_core.nn.triton import convolution, rows

COUNTS = ("T", "C", "blocks", "total", "count", "heads", "d")

def check(kernel, token, warps=rows.WARPS, **constants):
    signature = {
        name: "constexpr" if name in constants else "i32" if name in COUNTS
        else "fp32" if name in ("least", "eps") else "*fp32" if name == "sums" else token
        for name in kernel.arg_names
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    found = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    assert len(found.asm["cubin"]) > 0
    return [kernel.__name__, token, found.metadata.shared]

found = []
for token in ("*bf16", "*fp16", "*fp32"):
    sizes = {"warps": convolution.WARPS, "SIZE": 4, "BLOCK_T": convolution.BLOCK_T, "BLOCK_C": convolution.BLOCK_C}
    found.append(check(convolution._forward_kernel, token, **sizes))
    found.append(check(convolution._backward_kernel, token, **sizes))
    for kernel in (rows._silu_forward_kernel, rows._silu_backward_kernel):
        found.append(check(kernel, token, PARTS=3, UNIT=2, ROWS=32, WIDTH=64))
    for kernel in (rows._gated_forward_kernel, rows._gated_backward_kernel):
        found.append(check(kernel, token, ROWS=32, WIDTH=64))
print(json.dumps(found))
"""


def test_the_kernels_compile_for_hopper_without_a_gpu():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert len(found) == 18
    assert all(shared < 48 * 1024 for *_, shared in found), found  # as much as any GPU gives unasked
