"""When hand-written code may run in place of PyTorch's own operators.

Under ``torch.compile``, ``torch.export`` and ``torch.func``, PyTorch's operators are used.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from titans_core.ops.memory.dispatch import why_no_kernels
from titans_core.ops.memory.gradient import batched, transformed


def eager_on_cpu(x: Tensor) -> bool:
    """Whether ``x`` is on CPU and is neither compiled nor transformed by ``torch.func``."""
    return x.device.type == "cpu" and _eager()


def on_kernels(x: Tensor) -> bool:
    """Whether the Triton kernels of :mod:`titans_core.nn.triton` run on ``x``: on CUDA, where Triton can.

    Where it cannot, the memory warns once, with the reason.
    """
    return x.is_cuda and x.numel() > 0 and x.dtype != torch.float64 and _eager() and _launches(x.device)


@functools.cache
def _launches(device: torch.device) -> bool:
    if why_no_kernels(device) is not None:
        return False
    from titans_core.ops.memory.triton.room import is_older

    return not is_older(device)


def by_hand() -> bool:
    """Whether a backward pass may be hand-written: no second derivative, and one gradient instead of a batch."""
    return not torch.is_grad_enabled() and not batched()


def by_autograd(
    y: Callable[..., Tensor], inputs: Sequence[Tensor], dy: Tensor, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """Gradients of ``y(*inputs)``, None where not wanted, for a backward pass that must not be hand-written."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # copies: one input may have been computed from another
        inputs = [x.clone() for x in inputs]
        chosen = [x for x, needed in zip(inputs, wanted, strict=False) if needed]
        # none if a bias, which the caller adds, is all that needs one
        found = iter(torch.autograd.grad(y(*inputs), chosen, dy, create_graph=again) if chosen else ())
    return [next(found) if needed else None for _, needed in zip(inputs, wanted, strict=False)]


def untouched(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module runs the forward of ``kind`` and nothing else: no replacement, subclass, patch or hooks."""
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    return type(module) is kind and not any(hooks) and "forward" not in vars(module)


def _eager() -> bool:
    return not torch.compiler.is_compiling() and not transformed()
