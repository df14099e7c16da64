"""How the hand-written gradients run."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


def transformed() -> bool:
    """Whether a ``torch.func`` transform (``grad``, ``vmap``, ``jvp`` or one built on them) is active.

    That includes forward-mode derivatives by ``torch.autograd.forward_ad``, as in ``torch.func.linearize``.
    """
    active: bool = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    return active


def batched() -> bool:
    """Whether a backward pass has a batch of gradients: ``torch.vmap``, ``is_grads_batched`` or ``vectorize``."""
    # the last two are of an older vmap, which is no transform of torch.func
    return transformed() or torch._C._dispatch_tls_is_dispatch_key_included("VmapMode")


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Switch autocast off for the device of ``x``. "meta", which has shapes only, knows none."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


def refuse_transforms(backend: str) -> None:
    """Raise a RuntimeError if ``torch.func`` transforms a backend with a hand-written gradient."""
    if backend != "naive" and transformed() and not torch.compiler.is_compiling():
        raise RuntimeError(
            f"torch.func (grad, vmap, jvp) and torch.autograd.forward_ad cannot transform backend {backend!r}, whose "
            "gradient is hand-written. Use backend='naive', or torch.autograd, which also works with "
            "torch.func.functional_call."
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
        if batched():
            raise RuntimeError(
                "backends 'chunk' and 'triton' take one gradient at a time, not a batch (torch.vmap, is_grads_batched, "
                "or vectorize=True): use a loop, or backend='naive'."
            )
        with without_autocast(grads[0]):
            return backward(ctx, *grads)

    return run
