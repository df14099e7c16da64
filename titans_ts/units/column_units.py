"""Standardisation of exogenous columns, over all series together or for each series."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

WIDEST = 8.0  # maximum range of training values, in units
FAINT = 1 / 8  # share of the column's range: changes of a series with a smaller range would be hard to see
FEW = 10  # if one series in FEW is faint, each series has its own units
YOUNG = 1 / 2  # share of the rows of the longest series: shorter series do not show their full range yet
ONCE = 10.0  # number of rows with the rarer of two values at which its effect is halved
ROUNDING = 1e-12  # relative rounding error in double precision
TWO = 1e-2  # relative tolerance to recognise a column of two values by its variance


class Moments(NamedTuple):
    """Statistics of each column of each series, ``[N, X]`` each.

    Attributes:
        number: number of known values.
        mean, variance: mean and variance of these; 0 without values.
        low, high: smallest and largest value; infinite without values.
    """

    number: Tensor
    mean: Tensor
    variance: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, values: Tensor, known: Tensor) -> "Moments":
        """Statistics of ``[R, N, X]`` where ``known``, a mask that broadcasts to it, is true."""
        known = known.expand_as(values)
        count, zero = known.sum(0), values.new_zeros(())
        rough = values.where(known, zero).sum(0) / count.clamp(min=1)
        away = (values - rough).where(known, zero)
        rest = away.sum(0) / count.clamp(min=1)  # corrects rounding if values are large relative to their deviation
        variance = (away - rest).where(known, zero).square().sum(0) / count.clamp(min=1)
        end = values.new_full((1, *values.shape[1:]), torch.inf)  # amin needs at least one row
        low = torch.cat((values.where(known, end), end)).amin(0)
        return cls(count, rough + rest, variance, low, torch.cat((values.where(known, -end), -end)).amax(0))

    @property
    def size(self) -> Tensor:
        """The root of the mean square."""
        return (self.mean.square() + self.variance).sqrt()

    def pooled(self) -> "Moments":
        """The statistics over the first dimension."""
        count = self.number.sum(0)
        part = self.number / count.clamp(min=1)
        rough = (part * self.mean).sum(0)
        mean = rough + (part * (self.mean - rough)).sum(0)
        variance = (part * (self.variance + (self.mean - mean).square())).sum(0)
        return Moments(count, mean, variance, self.low.amin(0), self.high.amax(0))

    def joined(self, other: "Moments") -> "Moments":
        """The statistics of the values of both."""
        return Moments(*map(torch.stack, zip(self, other, strict=True))).pooled()


@dataclass(frozen=True, eq=False)
class ColumnUnits:
    """Center, unit and limits of exogenous columns.

    A column is normally standardised over all series together. It is standardised per series if at least one series in
    ten has a range below an eighth of the total range, as with prices in several currencies; series in which it is
    constant keep the common units. Series with less than half of the rows of the longest do not count in this decision,
    and their relative range is taken as at least the median one of the other series.

    Attributes:
        of_all: common units, ``[4, X]``: center (the mean), unit (the standard deviation, at least an eighth of the
            range), lower and upper limit (the training range extended by its width on each side). Values beyond the
            limits are clipped, since a network is unreliable far from its training data. For a column of two values the
            unit is their difference, since one may be very rare; it is the larger the fewer rows that one has:
            ``difference * (1 + 10 / rows)``. A column that never changes has an infinite unit, and so no effect.
        of_each: units of each series, ``[4, N, X]``.
        apart: which columns are standardised per series, ``[X]``.
        usual: the median range of a series relative to the size of its values, ``[X]``.
        most: rows of the longest series, ``[X]``.
    """

    of_all: Tensor
    of_each: Tensor
    apart: Tensor
    usual: Tensor
    most: Tensor

    @classmethod
    def of(cls, moments: Moments, rounding: float = ROUNDING, once: float = ONCE) -> "ColumnUnits":
        """Units from the training statistics. Relative changes up to ``rounding`` count as none; the effect of the
        rarer of two values is halved if it has ``once`` rows."""
        whole = moments.pooled()
        (reach, changes), (wide, changed) = (_reach(x, rounding) for x in (moments, whole))
        most = moments.number.amax(0)
        reliable = changes & (moments.number >= YOUNG * most)
        faint = reliable & (reach < FAINT * wide)
        apart = faint.any(0) & (FEW * faint.sum(0) >= reliable.sum(0))
        usual = (reach / moments.size).where(reliable, torch.nan).nanmedian(0).values.nan_to_num(0.0)
        reach = torch.maximum(reach, usual * moments.size).where(~reliable, reach)
        # only with two values is the variance given by mean and range; two currencies can look like two values
        above, below = whole.mean - whole.low, whole.high - whole.mean
        two = changed & ~apart & (above * below - whole.variance <= TWO * whole.variance)
        # at least a row: in single precision, the mean may be rounded to one of the two values
        rarer = (whole.number * torch.minimum(above, below) / wide).clamp(min=1)
        of_all = _units(whole, wide, changed)
        of_all[1] = torch.where(two, wide * (1 + once / rarer), of_all[1])
        of_each = _units(moments, reach, changes).where(changes & apart, of_all[:, None])
        return cls(of_all, of_each, apart, usual, most)

    def of_series(self, places: list[int | None], new: Moments) -> "ColumnUnits":
        """Units for other series: those with a place keep theirs; ``new`` has the statistics of the rest, in order."""
        reach, changes = _reach(new, ROUNDING)
        reach = torch.maximum(reach, self.usual * new.size).where(new.number < YOUNG * self.most, reach)
        made = _units(new, reach, changes).where(changes & self.apart, self.of_all[:, None])
        of_each = self.of_each[:, [0 if place is None else place for place in places]]
        of_each[:, [i for i, place in enumerate(places) if place is None]] = made
        return replace(self, of_each=of_each)

    def within(self, values: Tensor) -> Tensor:
        """Clip values ``[..., N, X]`` to the limits."""
        return values.clamp(self.of_each[2], self.of_each[3])

    def standardised(self, values: Tensor) -> Tensor:
        """Values ``[..., N, X]`` in these units; NaN stays."""
        return (self.within(values) - self.of_each[0]) / self.of_each[1]


def _reach(moments: Moments, rounding: float) -> tuple[Tensor, Tensor]:
    """The range of values, and whether they change."""
    reach = (moments.high - moments.low).clamp(min=0)
    return reach, reach > rounding * torch.maximum(moments.low.abs(), moments.high.abs())


def _units(moments: Moments, reach: Tensor, changes: Tensor) -> Tensor:
    unit = torch.maximum(moments.variance.sqrt(), reach / WIDEST).where(changes, torch.inf)
    least, most = (moments.low - reach).where(changes, -torch.inf), (moments.high + reach).where(changes, torch.inf)
    return torch.stack((moments.mean, unit, least, most))
