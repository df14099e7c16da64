"""The units that the network sees exogenous columns in: of all series together, or of each."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

WIDEST = 8.0  # units that the values of training spread over, at most
FAINT = 1 / 8  # of the range of a column: of a series whose values spread less, hardly a change would be seen
FEW = 10  # where one series in so many is faint, each has units of its own
YOUNG = 1 / 2  # of the rows of the longest series: one with fewer has not shown yet how far its values go
ONCE = 10.0  # rows with the rarer of two values by which half of what it says is believed
ROUNDING = 1e-12  # of a value in double precision, relative to it
TWO = 1e-2  # of a variance: by how much that of a column of two values may differ from what it is by their mean


class Moments(NamedTuple):
    """What units are made of, of each column of each series, ``[N, X]`` each.

    Attributes:
        number: of values that are known.
        mean, variance: of them; 0 where there is none.
        low, high: the least and the largest; where there is none, infinite.
    """

    number: Tensor
    mean: Tensor
    variance: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, values: Tensor, known: Tensor) -> "Moments":
        """Of ``[R, N, X]``, where ``known``, a mask that broadcasts to it, is true."""
        known = known.expand_as(values)
        count, zero = known.sum(0), values.new_zeros(())
        rough = values.where(known, zero).sum(0) / count.clamp(min=1)
        away = (values - rough).where(known, zero)
        rest = away.sum(0) / count.clamp(min=1)  # rounding, of values that are large beside their deviation
        variance = (away - rest).where(known, zero).square().sum(0) / count.clamp(min=1)
        end = values.new_full((1, *values.shape[1:]), torch.inf)  # a table without rows has no least
        low = torch.cat((values.where(known, end), end)).amin(0)
        return cls(count, rough + rest, variance, low, torch.cat((values.where(known, -end), -end)).amax(0))

    @property
    def size(self) -> Tensor:
        """The root of the mean square."""
        return (self.mean.square() + self.variance).sqrt()

    def pooled(self) -> "Moments":
        """Of all along the first dimension together."""
        count = self.number.sum(0)
        part = self.number / count.clamp(min=1)
        rough = (part * self.mean).sum(0)
        mean = rough + (part * (self.mean - rough)).sum(0)
        variance = (part * (self.variance + (self.mean - mean).square())).sum(0)
        return Moments(count, mean, variance, self.low.amin(0), self.high.amax(0))

    def joined(self, other: "Moments") -> "Moments":
        """Of the values of both."""
        return Moments(*map(torch.stack, zip(self, other, strict=True))).pooled()


@dataclass(frozen=True, eq=False)
class ColumnUnits:
    """Where columns begin to count, in what units, and where they end.

    A column has the units of all series together. It has those of each where the values of one series in ten spread
    over less than an eighth of the range of all, as prices in several currencies do; of a series in which it does not
    change it has those of all even then. A series with less than half of the rows of the longest is not asked, and its
    range counts as no narrower, for the size of its values, than that of half of the others.

    Attributes:
        of_all: units of all series together, ``[4, X]``: what counts as 0, the mean; what counts as 1, the deviation,
            and not less than an eighth of the range; and the least and the largest value, the range of training and as
            much again to each side. What lies beyond counts as these: a network answers at random to what is far from
            all it saw. The unit of a column of two values, one of which may come once in thousands of rows, is their
            difference, or more where that is in fewer than some ten rows, of which little is learned.
            The unit of a column that never changes is infinite: nothing is learned of it, and it has nothing to say
            later either.
        of_each: of each series, ``[4, N, X]``.
        apart: which columns have units of each series, ``[X]``.
        usual: the range of half of the series, for the size of their values, ``[X]``.
        most: rows of the longest series, ``[X]``.
    """

    of_all: Tensor
    of_each: Tensor
    apart: Tensor
    usual: Tensor
    most: Tensor

    @classmethod
    def of(cls, moments: Moments, rounding: float = ROUNDING, once: float = ONCE) -> "ColumnUnits":
        """Of what training saw. A column changes if by more than ``rounding`` of its values; of two values the rarer
        one is believed by half where it is in ``once`` rows."""
        whole = moments.pooled()
        (reach, changes), (wide, changed) = (_reach(x, rounding) for x in (moments, whole))
        most = moments.number.amax(0)
        asked = changes & (moments.number >= YOUNG * most)
        faint = asked & (reach < FAINT * wide)
        apart = faint.any(0) & (FEW * faint.sum(0) >= asked.sum(0))
        usual = (reach / moments.size).where(asked, torch.nan).nanmedian(0).values.nan_to_num(0.0)
        reach = torch.maximum(reach, usual * moments.size).where(~asked, reach)
        # as of no other column, the variance is what it is by mean and range; but two currencies look like two values
        above, below = whole.mean - whole.low, whole.high - whole.mean
        two = changed & ~apart & (above * below - whole.variance <= TWO * whole.variance)
        rarer = whole.number * torch.minimum(above, below) / wide
        of_all = _units(whole, wide, changed)
        of_all[1] = torch.where(two, wide * (1 + once / rarer), of_all[1])
        of_each = _units(moments, reach, changes).where(changes & apart, of_all[:, None])
        return cls(of_all, of_each, apart, usual, most)

    def of_series(self, places: list[int | None], new: Moments) -> "ColumnUnits":
        """Of other series: one that has a place keeps its units; ``new`` has the moments of the rest, in order."""
        reach, changes = _reach(new, ROUNDING)
        reach = torch.maximum(reach, self.usual * new.size).where(new.number < YOUNG * self.most, reach)
        made = _units(new, reach, changes).where(changes & self.apart, self.of_all[:, None])
        of_each = self.of_each[:, [0 if place is None else place for place in places]]
        of_each[:, [i for i, place in enumerate(places) if place is None]] = made
        return replace(self, of_each=of_each)

    def within(self, values: Tensor) -> Tensor:
        """``[..., N, X]``, no further than columns go."""
        return values.clamp(self.of_each[2], self.of_each[3])

    def standardised(self, values: Tensor) -> Tensor:
        """``[..., N, X]`` in these units; NaN stays."""
        return (self.within(values) - self.of_each[0]) / self.of_each[1]


def _reach(moments: Moments, rounding: float) -> tuple[Tensor, Tensor]:
    """The range of values, and whether there is one."""
    reach = (moments.high - moments.low).clamp(min=0)
    return reach, reach > rounding * torch.maximum(moments.low.abs(), moments.high.abs())


def _units(moments: Moments, reach: Tensor, changes: Tensor) -> Tensor:
    unit = torch.maximum(moments.variance.sqrt(), reach / WIDEST).where(changes, torch.inf)
    least, most = (moments.low - reach).where(changes, -torch.inf), (moments.high + reach).where(changes, torch.inf)
    return torch.stack((moments.mean, unit, least, most))
