"""Forecasts at many origins of a table, by the network and the online memory."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from titans_ts.network import online
from titans_ts.network.objective import Objective
from titans_ts.network.simba import Simba
from titans_ts.network.windows import Table, Windows, first_rows, stale_parts, unknown_parts

LANES, FLOATS = 2048, 1 << 21  # limits for one call of the network
KEPT = 1 << 25  # limit of numbers that KeptForecasts stores


@dataclass(frozen=True)
class Forecasts:
    """Forecasts in standardised units; NaN for a series without a full lookback.

    Attributes:
        point: point forecasts, ``[K, h, N]``.
        raw: raw outputs of the network, ``[K, h, N, outputs]``, if requested and the objective is probabilistic.
        spread: standard deviation of the lookbacks, ``[K, N]``.
        stale: share of each lookback after its newest known value, ``[K, N]``; None for 0.
        unknown: share of unknown values before that, ``[K, N]``; None for 0.
    """

    point: Tensor
    raw: Tensor | None
    spread: Tensor
    stale: Tensor | None = None
    unknown: Tensor | None = None

    def at(self, i: int) -> "Forecasts":
        """The forecasts of one origin, with K = 1."""
        one = slice(i, i + 1)
        raw, stale, unknown = (None if x is None else x[one] for x in (self.raw, self.stale, self.unknown))
        return Forecasts(self.point[one], raw, self.spread[one], stale, unknown)

    def side_by_side(self, K: int) -> "Forecasts":
        """Forecasts of K origins from those of single series, ``[K * N, h, 1]``, ordered by origin."""
        point = self.point.squeeze(-1).unflatten(0, (K, -1)).transpose(1, 2)
        raw = None if self.raw is None else self.raw.squeeze(2).unflatten(0, (K, -1)).transpose(1, 2)
        return Forecasts(point, raw, self.spread.squeeze(-1).unflatten(0, (K, -1)))

    def replaced(self, series: list[int], other: "Forecasts") -> "Forecasts":
        """Replace the forecasts of these series by those of ``other``, in its order, with no more unknown values than
        here."""

        def of(own: Tensor, new: Tensor | None) -> Tensor:
            new = torch.zeros_like(other.spread) if new is None else new
            return own.index_copy(min(2, own.dim() - 1), torch.tensor(series), new)

        pairs = (self.raw, other.raw), (self.stale, other.stale), (self.unknown, other.unknown)
        raw, stale, unknown = (None if own is None else of(own, new) for own, new in pairs)
        return Forecasts(of(self.point, other.point), raw, of(self.spread, other.spread), stale, unknown)

    def corrected(self, by: Tensor) -> "Forecasts":
        """Add ``by`` ``[K, h, N]`` to the point forecasts."""
        return replace(self, point=self.point + by)


def windows_at_once(rows: int, lanes: int) -> int:
    """Number of windows of ``rows`` rows and ``lanes`` series for one call of the network."""
    return max(1, min(LANES, FLOATS // rows) // lanes)


@torch.no_grad()
def forecast_windows(network: Simba, objective: Objective, windows: Windows, whole: bool = False) -> Forecasts:
    """Forecasts of K windows of M series, in order: point ``[K, h, M]``; ``whole`` also keeps the raw outputs."""
    lanes = windows.table.values.shape[1] if windows.series is None else 1
    size = windows_at_once(windows.input_size + windows.h, lanes)
    points, raws, spreads = [], [], []
    for index in torch.arange(len(windows)).split(size):
        batch = windows[index]
        raw, center, scale = network.normalised(batch.x, batch.hist, batch.futr, batch.stat)
        points.append(objective.point(raw) * scale + center)
        spreads.append(scale[:, 0])
        if whole and objective.probabilistic:
            raws.append(raw)
    return Forecasts(torch.cat(points), torch.cat(raws) if raws else None, torch.cat(spreads))


class KeptForecasts:
    """A cache of the network's forecasts. Tables with more than ``KEPT`` numbers are not cached."""

    def __init__(self, network: Simba, objective: Objective, table: Table) -> None:
        self.network, self.objective, self.table = network, objective, table
        rows, series = table.values.shape
        self.apart = not network.config.together
        self.columns = series if self.apart else 1
        self.found: Tensor | None = None
        if rows * series * network.config.h <= KEPT:
            self.found = table.values.new_empty(rows * self.columns, network.config.h, series // self.columns)
            self.made = torch.zeros(rows * self.columns, dtype=torch.bool)

    def point(self, origins: Tensor, series: Tensor) -> Tensor:
        """Forecasts at K origins for one series each, ``series`` ``[K]``: ``[K, h, 1]``. If series are mixed, for all
        series: ``[K, h, N]``."""
        if self.found is None:
            return self._make(origins, series)
        windows = origins * self.columns + (series if self.apart else 0)
        new = windows[~self.made[windows]].unique()
        if len(new):
            self.found[new] = self._make(new // self.columns, new % self.columns)
            self.made[new] = True
        return self.found[windows]

    def _make(self, origins: Tensor, series: Tensor) -> Tensor:
        windows = _windows(self.network, self.table, origins, series if self.apart else None)
        return forecast_windows(self.network, self.objective, windows).point


def forecast_rows(
    network: Simba,
    objective: Objective,
    table: Table,
    origins: Tensor,
    whole: bool = False,
    begun: bool = False,
) -> Forecasts:
    """The network's forecasts of all series of a table at each of K origins: point ``[K, h, N]``.

    A series that begins within its lookback has NaN; with ``begun``, all series count as begun before the table.
    ``whole`` also keeps the raw outputs.
    """
    config, N = network.config, table.values.shape[1]
    K = len(origins)
    if config.together:
        found = forecast_windows(network, objective, _windows(network, table, origins, None), whole)
    else:
        series = torch.arange(N).repeat(K)
        windows = _windows(network, table, origins.repeat_interleave(N), series)
        found = forecast_windows(network, objective, windows, whole).side_by_side(K)
    stale = stale_parts(table, origins, config.input_size)
    found = replace(found, stale=stale, unknown=unknown_parts(table, origins, config.input_size, stale))
    if begun:
        return found
    # a masked network also gives numbers before the start of a series
    there = with_lookback(network, table.values, origins)
    return replace(found, point=found.point.masked_fill(~there[:, None], float("nan")))


def with_lookback(network: Simba, values: Tensor, origins: Tensor) -> Tensor:
    """Whether each series of ``[T, N]`` has a full lookback at each of K origins, ``[K, N]``.

    Rows of a series count from its first known one; if the network mixes series without masks, from that of the
    youngest series.
    """
    first = first_rows(values)
    if network.config.together and not network.config.masked:
        first = first.amax().expand_as(first)
    return first <= origins[:, None] - network.config.input_size


def corrections(memory: online.OnlineMemory, table: Table, origins: Tensor) -> Tensor:
    """Corrections of the memory at each origin, after reading each series from its beginning: ``[K, h, N]``."""
    found = table.values.new_zeros(len(origins), memory.h, table.values.shape[1])
    for begin, stream in online.streams_of(table.values):
        found[..., stream.series] = online.rolling(memory, table.values[begin:, stream.series], origins - begin)
    return found


def _windows(network: Simba, table: Table, origins: Tensor, series: Tensor | None) -> Windows:
    return Windows(table, network.config.input_size, network.config.h, origins, series)
