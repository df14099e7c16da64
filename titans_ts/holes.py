"""Holes made up in lookbacks: for a network to learn to forecast across those that come later, and to find out how much
farther off it is then."""

from dataclasses import dataclass

import torch
from torch import Tensor

HOLED = 0.5  # of the lookbacks have one


@dataclass(frozen=True)
class Holes:
    """A run of steps in each of K lookbacks of M series that is hidden.

    Attributes:
        start: its first step, ``[K, M]``.
        stop: the step behind its last; ``start`` where nothing is hidden.
    """

    start: Tensor
    stop: Tensor

    @classmethod
    def at_random(cls, count: int, series: int, input_size: int, seed: int) -> "Holes":
        """In :data:`HOLED` of the lookbacks; short ones are as likely as long ones, each by its order of magnitude.
        They lie anywhere, and reach beyond either end as often as they would in a longer series."""
        rng = torch.Generator().manual_seed(seed)
        length = (input_size ** torch.rand(count, series, generator=rng)).round()
        begin = torch.rand(count, series, generator=rng) * (input_size + length) - length
        length = length.masked_fill(torch.rand(count, series, generator=rng) >= HOLED, 0)
        start, stop = (x.ceil().clamp(0, input_size).int() for x in (begin, begin + length))
        return cls(start, stop)

    def hide(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Lookbacks ``[B, input_size, M]``, those numbered ``chosen`` ``[B]``, with NaN in their holes."""
        step = torch.arange(x.shape[1])[:, None]
        start, stop = self.start[chosen, None], self.stop[chosen, None]
        return x.masked_fill((step >= start) & (step < stop), float("nan"))


class Lines(Holes):
    """Holes that lines are drawn through, from the step before one to that behind it, which are in the lookback."""

    def hide(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Lookbacks ``[B, input_size, M]``, those numbered ``chosen`` ``[B]``, with lines in their holes."""
        start, stop = (end[chosen, None].long().expand(len(x), 1, x.shape[2]) for end in (self.start, self.stop))
        part = (torch.arange(x.shape[1])[:, None] - start + 1) / (stop - start + 1)
        line = torch.lerp(x.gather(1, start - 1), x.gather(1, stop), part)
        return torch.where(super().hide(x, chosen).isnan(), line, x)
