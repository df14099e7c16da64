"""Numbers of tokens, which a compiled graph may leave open."""

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
from torch import Tensor

# torch before 2.8 says neither why a graph ends nor which of its lengths are open
TOLD = "reason" in signature(torch.compiler.disable).parameters


def at_most(bound: int, length: int) -> int:
    """``min(bound, length)`` by a branch: a graph that is compiled holds one of the two.

    ``min`` itself stays in it as an expression, which all that is cut by it inherits; a compiler that has to reason
    about expressions of expressions takes minutes where it took seconds.
    """
    return bound if bound <= length else length


def is_of_many_lengths(x: Tensor) -> bool:
    """Whether ``torch.compile`` makes a graph that leaves the length of ``x [B, T, ...]`` open, as it does when it has
    met a second one. ``torch.export`` has no other graphs to call, so there it is never, as where torch cannot tell."""
    if not TOLD or torch.compiler.is_exporting() or not torch.compiler.is_compiling():
        return False
    from torch.fx.experimental.symbolic_shapes import has_static_value  # is there where torch compiles, and takes long

    return not has_static_value(x.shape[1])


def between_graphs(fn: Callable[..., Any], reason: str) -> Callable[..., Any]:
    """A function that ``torch.compile`` leaves out of its graphs, and of which it compiles what it calls."""
    why = {"reason": reason} if TOLD else {}
    found: Callable[..., Any] = torch.compiler.disable(fn, recursive=False, **why)
    return found
