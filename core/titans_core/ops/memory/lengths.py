"""Numbers of tokens, which a compiled graph may leave open."""

import torch
from torch import Tensor


def at_most(bound: int, length: int) -> int:
    """``min(bound, length)`` by a branch: a graph that is compiled holds one of the two.

    ``min`` itself stays in it as an expression, which all that is cut by it inherits; a compiler that has to reason
    about expressions of expressions takes minutes where it took seconds.
    """
    return bound if bound <= length else length


def is_of_many_lengths(x: Tensor) -> bool:
    """Whether ``torch.compile`` makes a graph that leaves the length of ``x [B, T, ...]`` open, as it does when it has
    met a second one. ``torch.export`` has no other graphs to call, so there it is never."""
    if torch.compiler.is_exporting() or not torch.compiler.is_compiling():
        return False
    from torch.fx.experimental.symbolic_shapes import has_static_value  # is there where torch compiles, and takes long

    return not has_static_value(x.shape[1])
