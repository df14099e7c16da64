"""What a memory carries from one token to the next."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

State = TypeVar("State")


def exportable(kind: type[State]) -> type[State]:
    """A dataclass that ``torch.export`` takes and returns; also a program that was saved and loaded."""
    torch.export.register_dataclass(kind, serialized_type_name=f"titans_core.{kind.__name__}")
    torch.serialization.add_safe_globals([kind])
    return kind


@exportable
@dataclass(frozen=True)
class MemoryState:
    """The memory after some tokens, enough to continue at the next one, in mid-chunk or not.

    Attributes:
        weights: ``M``, one tensor ``[B, H, d_in, d_out]`` per layer: what a query reads now.
        momentum: ``S``, past surprise, same shapes.
        anchor: the weights with which the current chunk started, same shapes: where its gradients are taken (Eq. 16).
        offset: tokens of the current chunk already read; 0 at the start of a chunk, where ``anchor`` is ``weights``.
        chunk_size: tokens of a chunk, of the call that left the state, which no other goes on with; None: not said, as
            of a memory that has read nothing yet.
    """

    weights: tuple[Tensor, ...]
    momentum: tuple[Tensor, ...]
    anchor: tuple[Tensor, ...]
    offset: int = 0
    chunk_size: int | None = None

    @classmethod
    def initial(cls, weights: tuple[Tensor, ...], batch_size: int, chunk_size: int | None = None) -> "MemoryState":
        """``M_0`` for every sequence of the batch (``weights``: ``[H, d_in, d_out]`` per layer), and ``S_0 = 0``."""
        # of its own: a state does not change when the parameters learn
        start = tuple(w.clone().expand(batch_size, *w.shape) for w in weights)
        return cls(start, tuple(torch.zeros_like(w) for w in start), start, 0, chunk_size)

    def detach(self) -> "MemoryState":
        """The same state, cut from the graph: for truncated back-propagation through time."""
        return map_state(Tensor.detach, self)

    def to(self, device: torch.device | str) -> "MemoryState":
        """The same state on another device."""
        return map_state(lambda t: t.to(device), self)


def map_state(fn: Callable[[Tensor], Tensor], state: State) -> State:
    """The same state with ``fn`` applied to each of its tensors: through dataclasses and tuples, to the leaves.

    A tensor that stands in several places is asked once, and stands in them again.
    """
    done: dict[int, Tensor] = {}

    def visit(x: Any) -> Any:
        if isinstance(x, Tensor):
            if id(x) not in done:
                done[id(x)] = fn(x)
            return done[id(x)]
        if isinstance(x, tuple):
            return tuple(map(visit, x))
        if is_dataclass(x) and not isinstance(x, type):
            return type(x)(**{f.name: visit(getattr(x, f.name)) for f in fields(x)})
        return x

    return visit(state)
