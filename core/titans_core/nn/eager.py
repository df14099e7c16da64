"""When hand-written code may run in place of PyTorch's own operators.

Under ``torch.compile``, ``torch.export`` and ``torch.func``, PyTorch's operators are used.
"""

import functools

import torch
from torch import Tensor, nn

from titans_core.ops.memory.dispatch import why_no_kernels
from titans_core.ops.memory.gradient import transformed


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


def untouched(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module runs the forward of ``kind`` and nothing else: no replacement, subclass, patch or hooks."""
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    return type(module) is kind and not any(hooks) and "forward" not in vars(module)


def _eager() -> bool:
    return not torch.compiler.is_compiling() and not transformed()
