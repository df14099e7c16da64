"""The kernel that decodes, against the definition in float64, one token after the other."""

import os
import subprocess
import sys
from itertools import pairwise

import pytest
import torch

from titans_core import MemoryState, neural_memory

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytest.importorskip("triton")

from titans_core.ops.memory.triton import decode  # noqa: E402

B, H = 2, 2


def make_inputs(dims, T, forget=True, momentum=True, dtype=torch.float32, seed=0):
    """q, k, v and gates of T tokens ``[B, T, H, .]``, and the weights of each sequence's memory ``[B, H, ., .]``."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator)

    def gate(low, high):
        x = low + (high - low) * torch.rand(B, T, H, generator=generator)
        chance = torch.rand(x.shape, generator=generator)
        return torch.where(chance < 0.1, 0.0, torch.where(chance > 0.9, 1.0, x)).to(DEVICE)

    q, k = normal(B, T, H, dims[0]), torch.nn.functional.normalize(normal(B, T, H, dims[0]), dim=-1)
    q, k, v = (x.to(DEVICE, dtype) for x in (q, k, normal(B, T, H, dims[-1])))
    weights = tuple((normal(B, H, *d) / d[0] ** 0.5).to(DEVICE) for d in pairwise(dims))
    alpha = gate(0.01, 0.3) if forget else None
    eta = gate(0.1, 0.8) if momentum else None
    return q, k, v, alpha, eta, gate(0.1, 0.4), weights


def start(weights):
    return MemoryState(weights, tuple(0.1 * w.flip(-1) for w in weights), weights, 0)


def kernel_step(inputs, state, t, chunk_size, activation):
    """One token through the kernel: memories side by side, the anchor and the count of tokens kept here."""
    tokens = (None if x is None else x[:, t].flatten(0, 1) for x in inputs)
    parts = (tuple(w.flatten(0, 1) for w in part) for part in (state.weights, state.momentum, state.anchor))
    y, *new = decode.decode_step(*tokens, *parts, activation)
    weights, momentum = (tuple(w.unflatten(0, (B, H)) for w in part) for part in new)
    offset = (state.offset + 1) % chunk_size
    return y.unflatten(0, (B, H)), MemoryState(weights, momentum, state.anchor if offset else weights, offset)


def definition_step(inputs, shapes, state, t, chunk_size, activation):
    tokens = (None if x is None else x[:, t : t + 1].double() for x in inputs)
    out, state = neural_memory(*tokens, shapes, state, chunk_size, activation, backend="naive")
    return out[:, 0], state


@pytest.fixture
def poisoned(monkeypatch):
    """Fill new memory with NaN, to detect values that a kernel does not write."""
    empty = torch.empty

    def nan(*args, **kwargs):
        x = empty(*args, **kwargs)
        return x.fill_(float("nan")) if x.is_floating_point() else x

    monkeypatch.setattr(decode.torch, "empty", nan)


def close(actual, expected, name, tolerance):
    assert actual.shape == expected.shape, name
    error, scale = (actual.double() - expected).abs().max().item(), expected.abs().max().item()
    assert error <= tolerance * scale, f"{name}: error {error:.2e}, largest entry {scale:.2e}"  # NaN fails too


def check(dims, activation="silu", forget=True, momentum=True, dtype=torch.float32, T=5, chunk_size=3, tolerance=1e-5):
    *inputs, weights = make_inputs(dims, T, forget, momentum, dtype)
    state = start(weights)
    expected = start(tuple(w.double() for w in weights))
    shapes = tuple(w[0] for w in expected.weights)
    for t in range(T):
        y, state = kernel_step(inputs, state, t, chunk_size, activation)
        y_expected, expected = definition_step(inputs, shapes, expected, t, chunk_size, activation)
        assert y.dtype == dtype
        # the interpreter cuts a bfloat16 off where a GPU rounds it
        close(y, y_expected, f"y of token {t}", tolerance if dtype == torch.float32 else 2**-7)
        for name in ("weights", "momentum", "anchor"):
            for l, (x, x_expected) in enumerate(zip(getattr(state, name), getattr(expected, name), strict=True)):
                assert x.dtype == torch.float32
                close(x, x_expected, f"{name} of layer {l} after token {t}", tolerance)
        assert state.offset == expected.offset


SWITCHES = [(True, True), (False, True), (True, False), (False, False)]


@pytest.mark.slow
@pytest.mark.parametrize(("forget", "momentum"), SWITCHES)
@pytest.mark.parametrize("dims", [(16, 16), (64, 32), (5, 70), (1, 1), (512, 16), (3, 512)])
def test_a_linear_memory(poisoned, dims, forget, momentum):
    check(dims, forget=forget, momentum=momentum)


@pytest.mark.parametrize(("forget", "momentum"), SWITCHES)
@pytest.mark.parametrize("activation", ["silu", "gelu", "relu"])
@pytest.mark.parametrize("dims", [(16, 64, 16), (12, 20, 7)])
def test_a_deep_memory(poisoned, dims, activation, forget, momentum):
    check(dims, activation, forget, momentum)


@pytest.mark.slow
@pytest.mark.parametrize("dims", [(64, 256, 64), (64, 200, 32), (1, 1, 1), (512, 24, 16), (16, 512, 24), (16, 24, 512)])
def test_widths_of_a_deep_memory(poisoned, dims):
    check(dims, "gelu", T=3, chunk_size=2)


@pytest.mark.parametrize("dims", [(16, 32), (16, 40, 32)])
def test_bfloat16_in_and_out_with_a_float32_memory(poisoned, dims):
    check(dims, dtype=torch.bfloat16)


def test_what_comes_in_may_be_a_view_and_is_left_as_it_was():
    *inputs, weights = make_inputs((8, 12, 8), 1)
    tokens = [x[:, 0].flatten(0, 1) for x in inputs]
    parts = [tuple(w.flatten(0, 1) for w in part) for part in (weights, weights[::-1], weights)]
    parts[1] = tuple(w.mT for w in parts[1])
    before = [x.clone() for x in (*tokens, *(w for part in parts for w in part))]
    y, *new = decode.decode_step(*tokens, *parts, "silu")
    for x, kept in zip((*tokens, *(w for part in parts for w in part)), before, strict=True):
        assert torch.equal(x, kept)

    views = [torch.stack((x, x + 5), -1)[..., 0] for x in tokens]
    packed = [tuple(w.contiguous() for w in part) for part in parts]
    y_packed, *new_packed = decode.decode_step(*views, *packed, "silu")
    assert torch.equal(y, y_packed)
    for part, part_packed in zip(new, new_packed, strict=True):
        for x, x_packed in zip(part, part_packed, strict=True):
            assert torch.equal(x, x_packed)


def test_one_memory_does_not_see_its_neighbours():
    *inputs, weights = make_inputs((16, 24, 16), 1)
    tokens = [x[:, 0].flatten(0, 1) for x in inputs]
    parts = [tuple(w.flatten(0, 1) for w in part) for part in (weights, weights, weights)]
    y, (w1, w2), _ = decode.decode_step(*tokens, *parts, "silu")
    for x in (*tokens, *(w for part in parts for w in part)):
        x[1] = float("nan")
    y_beside, (w1_beside, w2_beside), _ = decode.decode_step(*tokens, *parts, "silu")
    for x, beside in ((y, y_beside), (w1, w1_beside), (w2, w2_beside)):
        others = [0, 2, 3]
        assert torch.equal(x[others], beside[others])


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from titans_core.ops.memory.triton import decode

TOKEN = ("q", "k", "v", "y")

def check(kernel, missing, token, **constants):
    constants |= {name: None for name in missing}
    signature = {
        name: "constexpr" if name in constants else token if name in TOKEN
        else "i32" if name in ("K", "hidden", "V", "heads") else "*fp32"
        for name in kernel.arg_names
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    target = GPUTarget("cuda", 90, 32)
    compiled = triton.compile(source, target=target, options={"num_warps": decode.WARPS})
    assert compiled.metadata.shared < 227 * 1024, (kernel.__name__, constants, compiled.metadata.shared)
    assert len(compiled.asm["cubin"]) > 0

check(decode._linear_kernel, (), "*bf16", **decode.linear_sizes(64, 64))
check(decode._linear_kernel, ("alpha", "eta", "base"), "*fp32", **decode.linear_sizes(512, 512))
check(decode._deep_kernel, (), "*bf16", **decode.deep_sizes(64, 256, 64), ACTIVATION="silu")
check(decode._deep_kernel, (), "*fp32", **decode.deep_sizes(512, 512, 512), ACTIVATION="gelu")
missing = ("alpha", "eta", "base1", "base2")
check(decode._deep_kernel, missing, "*fp32", **decode.deep_sizes(16, 64, 16), ACTIVATION="relu")
print("compiled")
"""


def test_the_kernels_compile_for_hopper_without_a_gpu():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True)
    assert run.stdout.strip() == "compiled", run.stderr
