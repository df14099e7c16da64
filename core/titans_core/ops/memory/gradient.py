"""How the hand-written gradients are run."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor


def transformed() -> bool:
    """Whether ``torch.func`` transforms what runs: ``grad``, ``vmap``, ``jvp`` and what is made of them."""
    active: bool = torch._C._are_functorch_transforms_active()
    return active


def refuse_transforms(backend: str) -> None:
    """Raises a RuntimeError where ``torch.func`` transforms a backend whose gradient is written by hand."""
    if backend != "naive" and transformed() and not torch.compiler.is_compiling():
        raise RuntimeError(
            f"torch.func (grad, vmap, jvp) cannot transform backend {backend!r}, whose gradient is written by hand; it "
            "can transform backend='naive'. torch.autograd takes both, with torch.func.functional_call too."
        )


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a ``backward`` keep to the precision of its tensors, also under autocast, and refuse a second derivative.

    ``once_differentiable`` would not do: it drops a second derivative silently where another path leads around it.
    """

    @wraps(backward)
    def run(ctx: Any, *grads: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "backends 'chunk' and 'triton' have no second derivative (create_graph=True was asked for); "
                "backend='naive' has one."
            )
        with torch.autocast(grads[0].device.type, enabled=False):
            return backward(ctx, *grads)

    return run
