"""What a memory carries from one token to the next."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class MemoryState:
    """The memory after some tokens, enough to continue at the next one, in mid-chunk or not.

    Attributes:
        weights: ``M``, one tensor ``[B, H, d_in, d_out]`` per layer: what a query reads now.
        momentum: ``S``, past surprise, same shapes.
        anchor: the weights with which the current chunk started, same shapes: where its gradients are taken (Eq. 16).
        offset: tokens of the current chunk already read; 0 at the start of a chunk, where ``anchor`` is ``weights``.
    """

    weights: tuple[Tensor, ...]
    momentum: tuple[Tensor, ...]
    anchor: tuple[Tensor, ...]
    offset: int = 0

    @classmethod
    def initial(cls, weights: tuple[Tensor, ...], batch_size: int) -> "MemoryState":
        """``M_0`` for every sequence of the batch (``weights``: ``[H, d_in, d_out]`` per layer), and ``S_0 = 0``."""
        start = tuple(w.expand(batch_size, *w.shape) for w in weights)
        return cls(start, tuple(torch.zeros_like(w) for w in start), start, 0)

    def detach(self) -> "MemoryState":
        """The same state, cut from the graph: for truncated back-propagation through time."""
        return self._map(lambda t: t.detach())

    def to(self, device: torch.device | str) -> "MemoryState":
        """The same state on another device."""
        return self._map(lambda t: t.to(device))

    def _map(self, fn) -> "MemoryState":  # type: ignore[no-untyped-def]
        return MemoryState(
            tuple(fn(w) for w in self.weights),
            tuple(fn(s) for s in self.momentum),
            tuple(fn(w) for w in self.anchor),
            self.offset,
        )
