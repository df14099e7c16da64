"""Inputs, and one way to compare two runs of the memory: outputs, final state and every gradient."""

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch

from titans_core import MemoryState, neural_memory


@dataclass(frozen=True)
class Inputs:
    """The arguments of ``neural_memory``; all tensors are leaves that require a gradient."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    alpha: torch.Tensor | None
    eta: torch.Tensor | None
    theta: torch.Tensor
    weights: tuple[torch.Tensor, ...]

    def run(self, state=None, **options):
        return neural_memory(
            self.q, self.k, self.v, self.alpha, self.eta, self.theta, self.weights, state=state, **options
        )

    def map(self, fn, names=("q", "k", "v", "alpha", "eta", "theta")):
        """The same inputs with ``fn`` applied to those named that are there."""
        return replace(self, **{n: fn(getattr(self, n)) for n in names if getattr(self, n) is not None})

    def tokens(self, start, stop):
        return self.map(lambda x: x[:, start:stop])

    def leaves(self):
        named = {name: getattr(self, name) for name in ("q", "k", "v", "alpha", "eta", "theta")}
        named |= {f"weights[{i}]": w for i, w in enumerate(self.weights)}
        return {name: x for name, x in named.items() if x is not None}

    def everything(self, cuts=(), state=None, backend="chunk", **options):
        """Outputs, final state and gradients of one call, or of several that continue each other at ``cuts``.

        ``backend`` may be one name, or one for each piece. ``state`` is where the first piece continues.
        """
        bounds = [0, *cuts, self.q.shape[1]]
        backends = [backend] * (len(bounds) - 1) if isinstance(backend, str) else backend
        outputs, carried = [], state
        for (start, stop), name in zip(pairwise(bounds), backends, strict=True):
            out, carried = self.tokens(start, stop).run(carried, backend=name, **options)
            outputs.append(out)
        return self.summary(torch.cat(outputs, dim=1), carried, state)

    def summary(self, out, end, state=None):
        """What a run computed, by name, with the gradients of a loss in which all of it has its own weight."""
        results = {"out": out, **_state_tensors(end)}
        generator = torch.Generator().manual_seed(1)
        # float64 first, so that the loss is the same whatever the precision of the run
        factors = (torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x) for x in results.values())
        loss = sum((x * factor).sum() for x, factor in zip(results.values(), factors, strict=True))
        leaves = self.leaves() | ({} if state is None else {f"state.{n}": x for n, x in _state_tensors(state).items()})
        leaves = {n: x for n, x in leaves.items() if x.requires_grad}
        grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        grads = {
            f"gradient of {n}": torch.zeros_like(x) if g is None else g
            for (n, x), g in zip(leaves.items(), grads, strict=True)
        }
        return {n: x.detach() for n, x in results.items()} | grads | {"offset": torch.tensor(float(end.offset))}


def _state_tensors(state):
    parts = {"weights": state.weights, "momentum": state.momentum, "anchor": state.anchor}
    return {f"{name}[{i}]": x for name, part in parts.items() for i, x in enumerate(part)}


def _make_inputs(
    B=2,
    T=13,
    H=2,
    K=3,
    V=4,
    hidden=5,
    depth=2,
    *,
    forget=True,
    momentum=True,
    extreme=True,
    rate=0.3,
    seed=0,
    dtype=torch.float64,
):
    """Random inputs with unit keys and a small theta, so that no memory diverges.

    ``extreme`` sets gates of 0 and 1, exactly, at random tokens. alpha = 1 is rare: it leaves so little of a deep
    memory that the tokens behind it would test nothing.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def gate(low, high, exact):
        x = low + (high - low) * torch.rand(B, T, H, generator=generator, dtype=torch.float64)
        chance = torch.rand(B, T, H, generator=generator)
        for value, (start, stop) in exact.items():
            x = torch.where((chance >= start) & (chance < stop), value, x) if extreme else x
        return x

    dims = [K, *[hidden] * (depth - 1), V]
    inputs = Inputs(
        q=normal(B, T, H, K),
        k=torch.nn.functional.normalize(normal(B, T, H, K), dim=-1),
        v=normal(B, T, H, V),
        alpha=gate(0.01, 0.3, {0.0: (0, 0.15), 1.0: (0.15, 0.18)}) if forget else None,
        eta=gate(0.1, 0.8, {0.0: (0, 0.15), 1.0: (0.15, 0.3)}) if momentum else None,
        theta=gate(0.1 * rate, rate, {0.0: (0, 0.1)}),
        weights=tuple(normal(H, d_in, d_out) / d_in**0.5 for d_in, d_out in pairwise(dims)),
    )

    def leaf(x):
        return x.to(dtype).requires_grad_()

    return replace(inputs.map(leaf), weights=tuple(leaf(w) for w in inputs.weights))


def _make_state(inputs, offset=0, seed=2):
    """A state that an earlier call might have left: running weights, momentum and anchor all different."""
    generator = torch.Generator().manual_seed(seed)
    B = inputs.q.shape[0]

    def like(w, scale):
        x = torch.randn((B, *w.shape), generator=generator, dtype=w.dtype)
        return (scale * x / w.shape[1] ** 0.5).requires_grad_()

    parts = ((like(w, scale) for w in inputs.weights) for scale in (1.0, 0.1, 1.0))
    return MemoryState(*(tuple(part) for part in parts), offset)


def _assert_same(actual, expected, rtol=1e-9):
    """Every tensor of ``actual`` agrees with ``expected`` to ``rtol``, relative to the tensor's largest entry."""
    assert actual.keys() == expected.keys()
    wrong = {}
    for name, truth in expected.items():
        assert actual[name].shape == truth.shape, name
        error, scale = (actual[name] - truth).abs().max().item(), truth.abs().max().item()
        if not error <= rtol * scale:  # a NaN is an error too
            wrong[name] = f"error {error:.2e}, largest entry {scale:.2e}"
    assert not wrong, wrong


@pytest.fixture(scope="session")
def make_inputs():
    return _make_inputs


@pytest.fixture(scope="session")
def make_state():
    return _make_state


@pytest.fixture(scope="session")
def assert_same():
    return _assert_same
