"""Sequence lengths, which may be dynamic in a compiled graph."""

from inspect import signature

import torch
from torch import Tensor

# torch before 2.8 reports neither the reason for a graph break nor which lengths are dynamic
TOLD = "reason" in signature(torch.compiler.disable).parameters


def at_most(bound: int, length: int) -> int:
    """``min(bound, length)`` as a branch, so that a compiled graph contains only one of the two.

    ``min`` would stay in the graph as an expression, inherited by every slice made with it. Reasoning about nested
    expressions then takes the compiler minutes instead of seconds.
    """
    return bound if bound <= length else length


def is_of_many_lengths(x: Tensor) -> bool:
    """Whether ``torch.compile`` is tracing a graph in which the length of ``x [B, T, ...]`` is dynamic.

    The compiler does that once it has seen a second length. The result is always False under ``torch.export``, which
    cannot call other graphs, and with versions of torch that cannot tell.
    """
    if not TOLD or torch.compiler.is_exporting() or not torch.compiler.is_compiling():
        return False
    from torch.fx.experimental.symbolic_shapes import has_static_value  # slow import, needed only here

    return not has_static_value(x.shape[1])
