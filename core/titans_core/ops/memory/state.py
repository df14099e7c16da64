"""State that a memory carries from one token to the next."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from typing_extensions import Self

State = TypeVar("State")


def exportable(kind: type[State]) -> type[State]:
    """Register a dataclass with ``torch.export``, also for saved programs, and as safe for ``torch.load``."""
    torch.export.register_dataclass(kind, serialized_type_name=f"titans_core.{kind.__name__}")
    torch.serialization.add_safe_globals([kind])
    return kind


class Movable:
    """A state that can be detached and moved."""

    def detach(self) -> Self:
        """Return the state detached from the graph, for truncated back-propagation through time."""
        return map_state(Tensor.detach, self)

    def to(self, device: torch.device | str) -> Self:
        """Return the state on another device."""
        return map_state(lambda t: t.to(device), self)


@exportable
@dataclass(frozen=True)
class MemoryState(Movable):
    """The memory after some tokens: everything needed to continue at the next one, also in mid-chunk.

    Attributes:
        weights: ``M``, one tensor ``[B, H, d_in, d_out]`` per layer, which a query reads.
        momentum: ``S``, past surprise, same shapes.
        anchor: the weights at the start of the current chunk, same shapes, at which its gradients are taken (Eq. 16).
        offset: number of tokens already read in the current chunk. At 0, a chunk starts and ``anchor`` is ``weights``.
        chunk_size: chunk size of the call that returned the state; later calls must use the same. None: unknown, as for
            a memory that has read nothing.
    """

    weights: tuple[Tensor, ...]
    momentum: tuple[Tensor, ...]
    anchor: tuple[Tensor, ...]
    offset: int = 0
    chunk_size: int | None = None

    @classmethod
    def initial(cls, weights: tuple[Tensor, ...], batch_size: int, chunk_size: int | None = None) -> "MemoryState":
        """``M_0`` for every sequence of the batch (``weights``: ``[H, d_in, d_out]`` per layer), and ``S_0 = 0``."""
        # clone: the state must not change when the parameters are updated
        start = tuple(w.clone().expand(batch_size, *w.shape) for w in weights)
        return cls(start, tuple(torch.zeros_like(w) for w in start), start, 0, chunk_size)


def map_state(fn: Callable[[Tensor], Tensor], state: State) -> State:
    """Apply ``fn`` to every tensor of a state, through nested dataclasses and tuples.

    A tensor that occurs several times is transformed once and stays shared.
    """
    return _mapped(fn, state, {})


def _mapped(fn: Callable[[Tensor], Tensor], x: Any, done: dict[int, Tensor]) -> Any:
    # not an inner function: one that calls itself is a reference cycle, which would keep the tensors alive
    if isinstance(x, Tensor):
        if id(x) not in done:
            done[id(x)] = fn(x)
        return done[id(x)]
    if isinstance(x, tuple):
        return tuple(_mapped(fn, part, done) for part in x)
    if is_dataclass(x) and not isinstance(x, type):
        return type(x)(**{f.name: _mapped(fn, getattr(x, f.name), done) for f in fields(x)})
    return x
