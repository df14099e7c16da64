"""Artificial gaps in lookbacks, to train a network on gaps and to measure how much they increase its errors."""

from dataclasses import dataclass

import torch
from torch import Tensor

HOLED = 0.5  # share of lookbacks with a gap


@dataclass(frozen=True)
class Holes:
    """One run of hidden steps in each of K lookbacks of M series.

    Attributes:
        start: first hidden step, ``[K, M]``.
        stop: the step after the last hidden one; equals ``start`` if nothing is hidden.
    """

    start: Tensor
    stop: Tensor

    @classmethod
    def at_random(cls, count: int, series: int, input_size: int, seed: int) -> "Holes":
        """Random gaps in :data:`HOLED` of the lookbacks, with log-uniform length.

        Positions are uniform, so a gap may extend beyond either end, as it would in a longer series.
        """
        rng = torch.Generator().manual_seed(seed)
        size, begin, which = (torch.rand(count, series, generator=rng, dtype=torch.float32) for _ in range(3))
        length = (input_size**size).round()
        begin = begin * (input_size + length) - length
        length = length.masked_fill(which >= HOLED, 0)
        start, stop = (x.ceil().clamp(0, input_size).int() for x in (begin, begin + length))
        return cls(start, stop)

    def hide(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Replace the gaps by NaN in lookbacks ``[B, input_size, M]`` with numbers ``chosen`` ``[B]``."""
        step = torch.arange(x.shape[1])[:, None]
        start, stop = self.start[chosen, None], self.stop[chosen, None]
        return x.masked_fill((step >= start) & (step < stop), float("nan"))


class Lines(Holes):
    """Gaps filled linearly between the steps before and after them, which must lie in the lookback."""

    def hide(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Fill the gaps linearly in lookbacks ``[B, input_size, M]`` with numbers ``chosen`` ``[B]``."""
        start, stop = (end[chosen, None].long().expand(len(x), 1, x.shape[2]) for end in (self.start, self.stop))
        part = (torch.arange(x.shape[1])[:, None] - start + 1).to(x) / (stop - start + 1)
        line = torch.lerp(x.gather(1, start - 1), x.gather(1, stop), part)
        return torch.where(super().hide(x, chosen).isnan(), line, x)
