"""Windows over a table of values: what a network sees, and what it should have said."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from titans_ts.holes import Holes


class Batch(NamedTuple):
    """Windows of M series each: of one when series are apart, of all when they are mixed.

    Attributes:
        x: lookbacks ``[B, input_size, M]``.
        y: what came next, ``[B, h, M]``.
        hist: ``[B, input_size, M, X]``, or None where there is none.
        futr: ``[B, input_size + h, M, F]``; M is 1 for columns that all series share.
        stat: ``[B, M, S]``.
        unit: ``[B, 1, M]``, what errors are multiplied by; None for 1.
    """

    x: Tensor
    y: Tensor
    hist: Tensor | None = None
    futr: Tensor | None = None
    stat: Tensor | None = None
    unit: Tensor | None = None


@dataclass(frozen=True)
class Truth:
    """What forecasts are judged by: what was measured, and no lines through holes.

    Attributes:
        values: ``[T, N]``; NaN where nothing was measured.
        foretold: as of :func:`in_holes`, or None where there are no lines: what a lookback that ends there says of what
            came is a line to it.
    """

    values: Tensor
    foretold: Tensor | None

    def behind(self, origins: Tensor, steps: Tensor, series: Tensor, together: bool = False) -> Tensor:
        """What came in these steps behind these origins, and NaN where that does not count; shapes that broadcast.

        ``together``: a line to what came of any of the series, along the last dimension, is one for all of them.
        """
        came = self.values[origins + steps, series]
        if self.foretold is None:
            return came
        led = self.foretold[origins - 1, series]
        return came.masked_fill(led.any(dim=-1, keepdim=True) if together else led, float("nan"))


@dataclass(frozen=True)
class Table:
    """The standardised numbers of a panel.

    Attributes:
        values: ``[T, N]``; NaN before a series begins, and where it is not known.
        hist: ``[T, N, X]``, or None where there is none.
        futr: ``[T, N or 1, F]``.
        stat: ``[N, S]``.
        drawn: bool ``[T, N, 1 + X]``, where the values and those of ``hist`` are lines through a hole and no
            measurements; None where none is.
        unit: ``[N]``, what errors of windows of this table are multiplied by; None for 1.
    """

    values: Tensor
    hist: Tensor | None = None
    futr: Tensor | None = None
    stat: Tensor | None = None
    drawn: Tensor | None = None
    unit: Tensor | None = None

    @cached_property
    def truth(self) -> Truth:
        """What forecasts of it are judged by."""
        if self.drawn is None:
            return Truth(self.values, None)
        return Truth(self.values.masked_fill(self.drawn[..., 0], float("nan")), in_holes(self.drawn))

    def of_series(self, series: Tensor) -> "Table":
        """The table of some of the series, by number."""
        futr = self.futr if self.futr is None or self.futr.shape[1] == 1 else self.futr[:, series]
        hist = None if self.hist is None else self.hist[:, series]
        drawn = None if self.drawn is None else self.drawn[:, series]
        stat, unit = (None if x is None else x[series] for x in (self.stat, self.unit))
        return Table(self.values[:, series], hist, futr, stat, drawn, unit)

    def extended(self, futr: Tensor | None, h: int) -> "Table":
        """With h rows more, of which only the future columns ``[h, N or 1, F]`` are known."""
        values = torch.cat((self.values, self.values.new_full((h, self.values.shape[1]), float("nan"))))
        hist = None if self.hist is None else torch.cat((self.hist, self.hist.new_zeros(h, *self.hist.shape[1:])))
        both = None if self.futr is None or futr is None else torch.cat((self.futr, futr))
        drawn = None if self.drawn is None else torch.cat((self.drawn, self.drawn.new_zeros(h, *self.drawn.shape[1:])))
        return replace(self, values=values, hist=hist, futr=both, drawn=drawn)


class Windows(Dataset):
    """Windows of ``input_size + h`` rows of a table, each named by its origin: the first row of its horizon.

    Args:
        table: the numbers.
        input_size: lookback, in rows.
        h: horizon, in rows.
        origins: ``[K]``, the origin of each window.
        series: ``[K]``, the series of each; None for windows of all series together.
        holes: hidden in the lookbacks, or None.
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
        """With holes made up in the lookbacks."""
        series = self.table.values.shape[1] if self.series is None else 1
        holes = Holes.at_random(len(self), series, self.input_size, seed)
        return Windows(self.table, self.input_size, self.h, self.origins, self.series, holes)

    def __getitem__(self, index: list[int]) -> Batch:
        """A batch at once."""
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
            self.table.truth.behind(origins, torch.arange(self.h)[:, None], series),
            columns(self.table.hist, past),
            columns(self.table.futr, rows),
            stat,
            None if self.table.unit is None else self.table.unit[series].expand(len(chosen), 1, -1),
        )


def all_windows_of(
    table: Table, input_size: int, h: int, start: int, stop: int, together: bool, step: int = 1
) -> Windows:
    """Every window whose horizon lies in the rows from ``start`` to ``stop``, series after series.

    A series that begins later has windows from where its lookback is whole. With ``together`` each window has all
    series; else those whose lookback ends in a line to what came are left out.
    """
    begins, end = (first_rows(table.values) + input_size).clamp(min=start).tolist(), stop - h + 1
    if together:
        begin = max(begins)
        return Windows(table, input_size, h, torch.arange(begin, max(begin, end), step))
    origins = [torch.arange(begin, max(begin, end), dtype=torch.int32) for begin in begins]
    foretold = table.truth.foretold
    if foretold is not None:
        origins = [own[~foretold[own.long() - 1, n]] for n, own in enumerate(origins)]
    origins = [own[::step] for own in origins]
    counts = torch.tensor([len(o) for o in origins])
    series = torch.arange(len(begins), dtype=torch.int32).repeat_interleave(counts)
    return Windows(table, input_size, h, torch.cat(origins), series)


def first_rows(values: Tensor) -> Tensor:
    """The first known row of each series of ``[T, N]``; T for one without any."""
    known = values.isfinite()
    first = known.to(torch.uint8).argmax(dim=0)
    return first.where(known.any(dim=0), torch.tensor(len(values)))


def stale_parts(table: Table, origins: Tensor, input_size: int) -> Tensor | None:
    """How much of each lookback lies behind the newest value that was measured, ``[K, N]``, from 0 to 1.

    None where every newest value was.
    """
    start, stop = max(0, int(origins.min()) - input_size), int(origins.max())
    hidden = _unmeasured(table, start, stop)
    at = origins - 1 - start
    if not hidden[at].any():
        return None
    rows = torch.arange(start, stop, dtype=torch.int32)[:, None]
    newest = rows.where(~hidden, start - input_size).cummax(dim=0).values[at]
    return ((origins[:, None] - 1 - newest) / input_size).clamp(max=1)


def _unmeasured(table: Table, start: int, stop: int) -> Tensor:
    """What is not known in these rows, or only by a line, ``[stop - start, N]``."""
    hidden = table.values[start:stop].isnan()
    return hidden if table.drawn is None else hidden | table.drawn[start:stop, :, 0]


def unknown_parts(table: Table, origins: Tensor, input_size: int, stale: Tensor | None) -> Tensor | None:
    """How much of each lookback was not measured, ``[K, N]``, from 0 to 1, but for what lies behind its newest value,
    which is ``stale`` (:func:`stale_parts`). None where all was."""
    start, stop = max(0, int(origins.min()) - input_size), int(origins.max())
    hidden = _unmeasured(table, start, stop)
    if not hidden.any():
        return None
    before = F.pad(hidden.cumsum(dim=0, dtype=torch.int32), (0, 0, 1, 0))
    count = before[origins - start] - before[(origins - start - input_size).clamp(min=0)]
    early = (input_size - origins).clamp(min=0)[:, None]  # rows before the first of the table
    part = (count + early) / input_size
    return part if stale is None else (part - stale).clamp(min=0)


def all_windows(values: np.ndarray, input_size: int, h: int) -> tuple[np.ndarray, np.ndarray]:
    """Every window of ``values`` ``[T, N]``, uncopied: inputs ``[W, input_size, N]`` and targets ``[W, h, N]``."""
    both = np.lib.stride_tricks.sliding_window_view(values, input_size + h, axis=0).transpose(0, 2, 1)
    return both[:, :input_size], both[:, input_size:]


def in_holes(hidden: Tensor) -> Tensor:
    """Which rows lie inside a hole that came to an end, ``[T, N]``: its line was drawn to what came later.

    Behind the end of a series, or of a column, nothing came.

    Args:
        hidden: what lines were drawn through, of the series and of each of its columns, ``[T, N, 1 + X]``.
    """
    came_later = (~hidden).flip(0).cummax(0).values.flip(0)
    return (hidden & came_later).any(dim=-1)
