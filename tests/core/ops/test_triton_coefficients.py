"""The coefficients' kernels against products written out token by token in float64, and autograd of those."""

import os
import subprocess
import sys

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytest.importorskip("triton")

from titans_core.ops.memory.triton import coefficients as kernels  # noqa: E402
from titans_core.ops.memory.triton.engine import Kernels  # noqa: E402

NAMES = ("G", "read", "write", "carry")
GATES = ("alpha", "eta", "theta")
LENGTHS = (1, 7, 8, 9, 16, 33, 64, 128)
SWITCHES = [(True, True), (False, True), (True, False), (False, False)]
CASES = [(C, *switches) for C in LENGTHS for switches in SWITCHES]
CASES += [(126, True, True), (126, False, False), (127, True, False), (127, False, True)]  # rows become twice as wide


def make_gates(N, P, C, forget=True, momentum=True, seed=0):
    """Gates ``[N, P, C]`` with exact zeros and ones among them; views, not packed."""
    generator = torch.Generator().manual_seed(seed)

    def gate(low, high, zeros, ones):
        x = low + (high - low) * torch.rand(P, N * C + 3, generator=generator)
        chance = torch.rand(x.shape, generator=generator)
        x = torch.where(chance < zeros, 0.0, torch.where(chance > 1 - ones, 1.0, x)).to(DEVICE)
        return x[:, 2 : 2 + N * C].unflatten(1, (N, C)).transpose(0, 1)

    alpha = gate(0.0, 0.3, 0.15, 0.05) if forget else None
    eta = gate(0.1, 1.0, 0.1, 0.3) if momentum else None
    return alpha, eta, gate(0.0, 1.0, 0.1, 0.0)


def reference(alpha, eta, theta):
    """Coefficients of gates ``[..., C]``: sums and products as the paper's recurrences have them, one row at a time."""
    C = theta.shape[-1]
    unit = torch.eye(C, dtype=theta.dtype, device=theta.device)
    keep = torch.ones_like(theta) if alpha is None else 1 - alpha
    a = e = torch.ones_like(theta[..., :1])
    b = torch.zeros_like(a)
    E = R = torch.zeros_like(theta)
    G, read = [], []
    for t in range(C):
        keep_t = keep[..., t, None]
        if eta is None:
            E, e = unit[t].expand_as(theta), torch.zeros_like(e)
        else:
            E, e = eta[..., t, None] * E + unit[t], eta[..., t, None] * e
        R, a, b = keep_t * R + E, keep_t * a, keep_t * b + e
        G.append(R * theta)
        read.append(a if eta is None else torch.cat((a, b), -1))
    write = [R * theta] if eta is None else [R * theta, E * theta]
    carry = [a] if eta is None else [a, b, e]
    return torch.stack(G, -2), torch.stack(read, -2), torch.stack(write, -1), torch.cat(carry, -1)


def expected_results(gates, cotangents):
    """Coefficients ``[N, P, ...]`` in float64, and the gradients by autograd for the cotangents."""
    gates = [None if x is None else x.double().requires_grad_() for x in gates]
    outputs = reference(*gates)
    loss = sum((x * dx.double()).sum() for x, dx in zip(outputs, cotangents, strict=True))
    grads = iter(torch.autograd.grad(loss, [x for x in gates if x is not None]))
    return [x.detach() for x in outputs], [None if x is None else next(grads) for x in gates]


def make_cotangents(gates, seed=1):
    """The gradient of some loss with respect to each coefficient."""
    generator = torch.Generator().manual_seed(seed)
    N, P, C = gates[2].shape
    n = 1 if gates[1] is None else 2
    shapes = ((C, C), (C, n), (C, n), (2 * n - 1,))
    return [torch.randn(N, P, *shape, generator=generator).to(DEVICE) for shape in shapes]


@pytest.fixture
def poisoned(monkeypatch):
    """Fill new memory with NaN, to detect values that a kernel does not write."""
    empty = torch.empty

    def nan(*args, **kwargs):
        x = empty(*args, **kwargs)
        return x.fill_(float("nan")) if x.is_floating_point() else x

    monkeypatch.setattr(kernels.torch, "empty", nan)


def close(actual, expected, name, tolerance=1e-5):
    assert actual.shape == expected.shape, name
    error, scale = (actual.double() - expected).abs().max().item(), expected.abs().max().item()
    assert error <= tolerance * scale, f"{name}: error {error:.2e}, largest entry {scale:.2e}"  # NaN fails too


@pytest.mark.slow
@pytest.mark.parametrize(("C", "forget", "momentum"), CASES)
def test_the_kernels_agree_with_the_recurrences_and_their_autograd(poisoned, C, forget, momentum):
    gates = make_gates(*((2, 2) if C < 33 else (1, 1)), C, forget, momentum, seed=C)
    cotangents = make_cotangents(gates)
    outputs, grads = expected_results(gates, cotangents)

    for name, x, y in zip(NAMES, kernels.coefficients_forward(*gates), outputs, strict=True):
        close(x, y, name)

    above = torch.ones(C, C, dtype=torch.bool, device=DEVICE).triu(1)
    cotangents[0].masked_fill_(above, float("nan"))
    for name, x, y in zip(GATES, kernels.coefficients_backward(*gates, *cotangents), grads, strict=True):
        if y is None:
            assert x is None
        else:
            close(x, y, f"gradient of {name}")


@pytest.mark.parametrize(("forget", "momentum"), SWITCHES)
def test_gates_of_whole_pieces_are_those_of_all_their_tokens(poisoned, forget, momentum):
    gates = make_gates(2, 4, 1, forget, momentum)
    each = [None if g is None else g.expand(2, 4, 9) for g in gates]
    cotangents = make_cotangents(each)
    outputs, grads = expected_results(each, cotangents)
    for name, x, y in zip(NAMES, Kernels.coefficients(*gates, 9), outputs, strict=True):
        close(x, y, name)
    for name, x, y in zip(GATES, Kernels.coefficients_gradient(*gates, 9, *cotangents), grads, strict=True):
        if y is None:
            assert x is None
        else:
            close(x, y.sum(-1, keepdim=True), f"gradient of {name}")


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_gates_that_are_all_zero_or_all_one(poisoned, alpha, eta):
    theta = make_gates(1, 2, 20)[2]
    gates = torch.full_like(theta, alpha), torch.full_like(theta, eta), theta
    cotangents = make_cotangents(gates)
    outputs, grads = expected_results(gates, cotangents)
    for name, x, y in zip(NAMES, kernels.coefficients_forward(*gates), outputs, strict=True):
        assert (x.double() - y).abs().max() <= 1e-5 * y.abs().max(), name
    for name, x, y in zip(GATES, kernels.coefficients_backward(*gates, *cotangents), grads, strict=True):
        assert (x.double() - y).abs().max() <= 1e-5 * y.abs().max(), f"gradient of {name}"


@pytest.mark.slow
def test_gates_of_any_strides_give_the_same_numbers():
    gates = make_gates(2, 2, 9)
    cotangents = make_cotangents(gates)
    every_other = [torch.stack((x, x + 5), -1)[..., 0] for x in gates]
    one_rate = gates[2][..., :1].expand_as(gates[2])  # stride 0
    for strided in (every_other, [*gates[:2], one_rate]):
        packed = [x.contiguous() for x in strided]
        for run in (kernels.coefficients_forward, lambda *g: kernels.coefficients_backward(*g, *cotangents)):
            for x, y in zip(run(*strided), run(*packed), strict=True):
                assert torch.equal(x, y)


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from titans_core.ops.memory.triton import coefficients as kernels

POINTERS = ("alpha", "eta", "theta", "G", "read", "write", "carry", "dG", "dread", "dwrite", "dcarry",
            "dalpha", "deta", "dtheta")

def check(kernel, length, missing=(), **ones):
    launch = kernels._launch(length)
    warps = launch.pop("num_warps")
    constants = {"n": 1 if "eta" in missing else 2, "ROWS": kernels.ROWS, **launch, **ones}
    constants |= {name: None for x in missing for name in (x, "d" + x)}
    constants = {name: x for name, x in constants.items() if name in kernel.arg_names}
    signature = {
        name: "constexpr" if name in constants else "*fp32" if name in POINTERS
        else "i32"
        for name in kernel.arg_names
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    assert compiled.metadata.shared < 227 * 1024, (kernel.__name__, length, compiled.metadata.shared)
    assert len(compiled.asm["cubin"]) > 0

for kernel in (kernels._forward_kernel, kernels._backward_kernel):
    check(kernel, 64)
    check(kernel, 128)
    check(kernel, 64, missing=("alpha", "eta"))
    check(kernel, 1, C=1)  # an argument of 1 is compiled in
print("compiled")
"""


@pytest.mark.slow
def test_the_kernels_compile_for_hopper_without_a_gpu():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True)
    assert run.stdout.strip() == "compiled", run.stderr
