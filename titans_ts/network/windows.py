"""Windows over a table of values: inputs and targets of the network."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from titans_ts.network.holes import Holes


class Batch(NamedTuple):
    """A batch of windows of M series: all series if they are mixed, else one.

    Attributes:
        x: lookbacks, ``[B, input_size, M]``.
        y: targets, ``[B, h, M]``.
        hist: historical columns, ``[B, input_size, M, X]``, or None.
        futr: future columns, ``[B, input_size + h, M, F]``, or None; M is 1 for columns that all series share.
        stat: static columns, ``[B, M, S]``, or None.
        unit: factor of errors, ``[B, 1, M]``; None for 1.
    """

    x: Tensor
    y: Tensor
    hist: Tensor | None = None
    futr: Tensor | None = None
    stat: Tensor | None = None
    unit: Tensor | None = None


@dataclass(frozen=True)
class Truth:
    """The actual values that forecasts are compared with, without filled ones.

    Attributes:
        values: ``[T, N]``; NaN for unknown values.
        uses_later: result of :func:`in_holes`, or None if nothing was filled. A lookback that ends in such a row was
            filled with the help of later values.
    """

    values: Tensor
    uses_later: Tensor | None

    def after(self, origins: Tensor, steps: Tensor, series: Tensor, together: bool = False) -> Tensor:
        """The values at these steps after these origins, NaN where they do not count; arguments broadcast.

        ``together``: a lookback filled with later values in one series excludes all series (the last dimension).
        """
        actual = self.values[origins + steps, series]
        if self.uses_later is None:
            return actual
        return actual.masked_fill(self._excluded(self.uses_later[origins - 1, series], together), float("nan"))

    def any_after(self, origins: Tensor, h: int, together: bool = False) -> Tensor:
        """Whether any value in the h steps after each of K origins counts, ``[K]``."""
        count = F.pad(self.values.isfinite().cumsum(dim=0), (0, 0, 1, 0))  # of the known values before each row
        known = count[origins + h] > count[origins]
        if self.uses_later is not None:
            known &= ~self._excluded(self.uses_later[origins - 1], together)
        return known.any(dim=-1)

    @staticmethod
    def _excluded(filled: Tensor, together: bool) -> Tensor:
        """Which series do not count, for lookbacks that were ``filled`` with later values or not ``[..., N]``."""
        return filled.any(dim=-1, keepdim=True) if together else filled


@dataclass(frozen=True)
class Table:
    """A panel as standardised tensors.

    Attributes:
        values: ``[T, N]``; NaN before the start of a series and for unknown values.
        hist: historical columns, ``[T, N, X]``, or None.
        futr: future columns, ``[T, N or 1, F]``, or None.
        stat: static columns, ``[N, S]``, or None.
        imputed: bool ``[T, N, 1 + X]``, where the values and those of ``hist`` were filled; None if nowhere.
        unit: factor of errors of windows of this table, ``[N]``; None for 1.
    """

    values: Tensor
    hist: Tensor | None = None
    futr: Tensor | None = None
    stat: Tensor | None = None
    imputed: Tensor | None = None
    unit: Tensor | None = None

    @cached_property
    def truth(self) -> Truth:
        """The actual values to compare forecasts with."""
        if self.imputed is None:
            return Truth(self.values, None)
        return Truth(self.values.masked_fill(self.imputed[..., 0], float("nan")), in_holes(self.imputed))

    def of_series(self, series: Tensor) -> "Table":
        """Select series by position."""
        futr = self.futr if self.futr is None or self.futr.shape[1] == 1 else self.futr[:, series]
        hist = None if self.hist is None else self.hist[:, series]
        imputed = None if self.imputed is None else self.imputed[:, series]
        stat, unit = (None if x is None else x[series] for x in (self.stat, self.unit))
        return Table(self.values[:, series], hist, futr, stat, imputed, unit)

    def extended(self, futr: Tensor | None, h: int) -> "Table":
        """Append h rows in which only the future columns ``[h, N or 1, F]`` are known."""

        def longer(table: Tensor | None, value: float) -> Tensor | None:
            return None if table is None else torch.cat((table, table.new_full((h, *table.shape[1:]), value)))

        both = None if self.futr is None or futr is None else torch.cat((self.futr, futr))
        values = torch.cat((self.values, self.values.new_full((h, self.values.shape[1]), float("nan"))))
        return replace(self, values=values, hist=longer(self.hist, 0.0), futr=both, imputed=longer(self.imputed, False))


class Windows(Dataset):
    """Windows of ``input_size + h`` rows of a table. The origin of a window is the first row of its horizon.

    Args:
        table: the data.
        input_size: lookback, in rows.
        h: horizon, in rows.
        origins: the origin of each window, ``[K]``.
        series: the series of each window, ``[K]``; None for windows of all series together.
        holes: artificial gaps in the lookbacks, or None.
    """

    def __init__(
        self,
        table: Table,
        input_size: int,
        h: int,
        origins: Tensor,
        series: Tensor | None = None,
        holes: Holes | None = None,
    ) -> None:
        self.table, self.input_size, self.h, self.origins, self.series = table, input_size, h, origins, series
        self.holes = holes

    def __len__(self) -> int:
        return len(self.origins)

    def holed(self, seed: int) -> "Windows":
        """The windows with artificial gaps in their lookbacks."""
        series = self.table.values.shape[1] if self.series is None else 1
        holes = Holes.at_random(len(self), series, self.input_size, seed)
        return Windows(self.table, self.input_size, self.h, self.origins, self.series, holes)

    def __getitem__(self, index: list[int] | Tensor) -> Batch:
        """A whole batch."""
        chosen = torch.as_tensor(index)
        origins = self.origins[chosen].long()[:, None, None]
        rows = origins + torch.arange(-self.input_size, self.h)[:, None]
        N = self.table.values.shape[1]
        series = torch.arange(N) if self.series is None else self.series[chosen].long()[:, None, None]
        past = rows[:, : self.input_size]

        def columns(table: Tensor | None, rows: Tensor) -> Tensor | None:
            if table is None:
                return None
            return table[rows, 0 if table.shape[1] == 1 else series]

        stat = self.table.stat
        if stat is not None:
            stat = stat.expand(len(chosen), -1, -1) if self.series is None else stat[series[:, 0, 0]][:, None]
        x = self.table.values[past, series]
        return Batch(
            x if self.holes is None else self.holes.hide(x, chosen),
            self.table.truth.after(origins, torch.arange(self.h)[:, None], series, together=self.series is None),
            columns(self.table.hist, past),
            columns(self.table.futr, rows),
            stat,
            None if self.table.unit is None else self.table.unit[series].expand(len(chosen), 1, -1),
        )


def all_windows_of(
    table: Table, input_size: int, h: int, start: int, stop: int, together: bool, step: int = 1
) -> Windows:
    """All windows with a horizon in ``[start, stop)``, series after series.

    Windows start once the lookback of a series is complete, and are skipped if its end was filled with later values.
    With ``together`` each window has all series, and is skipped if this holds for one of them: no target counts there.
    """
    begins, end = (first_rows(table.values) + input_size).clamp(min=start).tolist(), stop - h + 1
    uses_later = table.truth.uses_later
    if together:
        begin = max(begins)
        every = torch.arange(begin, max(begin, end))
        if uses_later is not None:
            every = every[~uses_later[every - 1].any(dim=-1)]
        return Windows(table, input_size, h, every[::step])
    origins = [torch.arange(begin, max(begin, end), dtype=torch.int32) for begin in begins]
    if uses_later is not None:
        origins = [own[~uses_later[own.long() - 1, n]] for n, own in enumerate(origins)]
    origins = [own[::step] for own in origins]
    counts = torch.tensor([len(o) for o in origins])
    series = torch.arange(len(begins), dtype=torch.int32).repeat_interleave(counts)
    return Windows(table, input_size, h, torch.cat(origins), series)


def first_rows(values: Tensor) -> Tensor:
    """The first known row of each series of ``[T, N]``; T if there is none."""
    known = values.isfinite()
    first = known.to(torch.uint8).argmax(dim=0)
    return first.where(known.any(dim=0), torch.tensor(len(values)))


def stale_parts(table: Table, origins: Tensor, input_size: int) -> Tensor | None:
    """The share of each lookback after its newest known value, ``[K, N]``; None if all are 0."""
    start, stop = max(0, int(origins.min()) - input_size), int(origins.max())
    hidden = _unmeasured(table, start, stop)
    at = origins - 1 - start
    if not hidden[at].any():
        return None
    rows = torch.arange(start, stop, dtype=torch.int32)[:, None]
    newest = rows.where(~hidden, start - input_size).cummax(dim=0).values[at]
    return ((origins[:, None] - 1 - newest).to(table.values) / input_size).clamp(max=1)


def _unmeasured(table: Table, start: int, stop: int) -> Tensor:
    """Which values in these rows are unknown or filled, ``[stop - start, N]``."""
    hidden = table.values[start:stop].isnan()
    return hidden if table.imputed is None else hidden | table.imputed[start:stop, :, 0]


def unknown_parts(table: Table, origins: Tensor, input_size: int, stale: Tensor | None) -> Tensor | None:
    """The share of each lookback that is unknown, without its ``stale`` part (:func:`stale_parts`), ``[K, N]``.

    None if all values are known.
    """
    start, stop = max(0, int(origins.min()) - input_size), int(origins.max())
    hidden = _unmeasured(table, start, stop)
    if not hidden.any():
        return None
    before = F.pad(hidden.cumsum(dim=0, dtype=torch.int32), (0, 0, 1, 0))
    count = before[origins - start] - before[(origins - start - input_size).clamp(min=0)]
    early = (input_size - origins).clamp(min=0)[:, None]  # rows before the first of the table
    part = (count + early).to(table.values) / input_size
    return part if stale is None else (part - stale).clamp(min=0)


def in_holes(hidden: Tensor) -> Tensor:
    """Which rows lie in a gap that has an end, ``[T, N]``: filling it uses later values.

    Rows after the last value of a series or column are not in such a gap.

    Args:
        hidden: the filled values of the series and of each of its columns, ``[T, N, 1 + X]``.
    """
    came_later = (~hidden).flip(0).cummax(0).values.flip(0)
    return (hidden & came_later).any(dim=-1)
