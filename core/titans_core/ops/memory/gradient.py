"""How the hand-written gradients run."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import torch
from torch import Tensor


def transformed() -> bool:
    """Whether a ``torch.func`` transform (``grad``, ``vmap``, ``jvp`` or one built on them) is active."""
    active: bool = torch._C._are_functorch_transforms_active()
    return active


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Switch autocast off for the device of ``x``. "meta", which has shapes only, knows none."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


def refuse_transforms(backend: str) -> None:
    """Raise a RuntimeError if ``torch.func`` transforms a backend with a hand-written gradient."""
    if backend != "naive" and transformed() and not torch.compiler.is_compiling():
        raise RuntimeError(
            f"torch.func (grad, vmap, jvp) cannot transform backend {backend!r}, whose gradient is hand-written. Use "
            "backend='naive', or torch.autograd, which also works with torch.func.functional_call."
        )


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Make a ``backward`` ignore autocast and raise an error for a second derivative.

    ``once_differentiable`` is not enough: it drops a second derivative silently if another path to it exists.
    """

    @wraps(backward)
    def run(ctx: Any, *grads: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "backends 'chunk' and 'triton' have no second derivative, but create_graph=True asks for one: use "
                "backend='naive'."
            )
        with without_autocast(grads[0]):
            return backward(ctx, *grads)

    return run
