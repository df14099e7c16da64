"""Forecasts at many origins of a table: the network's, corrected by the online memory where there is one."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from titans_ts import online
from titans_ts.objective import Objective
from titans_ts.simba import Simba
from titans_ts.windows import Table, Windows, first_rows, stale_parts, unknown_parts

LANES, FLOATS = 2048, 1 << 21  # of one call of the network
KEPT = 1 << 25  # numbers that KeptForecasts keeps at most


@dataclass(frozen=True)
class Forecasts:
    """Forecasts in standardised units; NaN for a series whose lookback is not whole.

    Attributes:
        point: ``[K, h, N]``.
        raw: what the network says of each, ``[K, h, N, outputs]``, where the objective is probabilistic and it was
            asked for.
        spread: deviation of the lookbacks, ``[K, N]``.
        stale: part of the lookbacks that lies behind their newest measured value, ``[K, N]``; None for 0.
        unknown: part that was not measured before that, ``[K, N]``; None for 0.
    """

    point: Tensor
    raw: Tensor | None
    spread: Tensor
    stale: Tensor | None = None
    unknown: Tensor | None = None

    def at(self, i: int) -> "Forecasts":
        """Those of one origin, K = 1."""
        one = slice(i, i + 1)
        raw, stale, unknown = (None if x is None else x[one] for x in (self.raw, self.stale, self.unknown))
        return Forecasts(self.point[one], raw, self.spread[one], stale, unknown)

    def side_by_side(self, K: int) -> "Forecasts":
        """Of K origins, from those of one series each, ``[K * N, h, 1]``, origin by origin."""
        point = self.point.squeeze(-1).unflatten(0, (K, -1)).transpose(1, 2)
        raw = None if self.raw is None else self.raw.squeeze(2).unflatten(0, (K, -1)).transpose(1, 2)
        return Forecasts(point, raw, self.spread.squeeze(-1).unflatten(0, (K, -1)))

    def moved(self, by: Tensor) -> "Forecasts":
        """With ``by`` ``[K, h, N]`` added."""
        return replace(self, point=self.point + by)


def windows_at_once(rows: int, lanes: int) -> int:
    """How many windows of ``rows`` rows, of ``lanes`` series each, a call of the network takes."""
    return max(1, min(LANES, FLOATS // rows) // lanes)


@torch.no_grad()
def forecast_windows(network: Simba, objective: Objective, windows: Windows, whole: bool = False) -> Forecasts:
    """Of each of K windows of M series, in order: point ``[K, h, M]``; ``whole`` keeps all that the network says."""
    lanes = windows.table.values.shape[1] if windows.series is None else 1
    size = windows_at_once(windows.input_size + windows.h, lanes)
    points, said, spreads = [], [], []
    for index in torch.arange(len(windows)).split(size):
        batch = windows[index]
        raw, center, scale = network.normalised(batch.x, batch.hist, batch.futr, batch.stat)
        points.append(objective.point(raw) * scale + center)
        spreads.append(scale[:, 0])
        if whole and objective.probabilistic:
            said.append(raw)
    return Forecasts(torch.cat(points), torch.cat(said) if said else None, torch.cat(spreads))


class KeptForecasts:
    """The network's forecasts of windows that are asked for again and again: each is made once.

    Those of a table that has too many of them, more than ``KEPT`` numbers, are made each time.
    """

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
        """At each of K origins, of the series ``[K]`` given, ``[K, h, 1]``; of all of them, whichever are given, where
        series are mixed, ``[K, h, N]``."""
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

    A series whose lookback is not whole, as it begins in it, has NaN; with ``begun`` all began before the table.
    ``whole`` keeps all that the network says.
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
    # a masked network answers also where a series has not begun
    early = beginnings(network, table.values) > (origins[:, None] - config.input_size)
    return replace(found, point=found.point.masked_fill(early[:, None], float("nan")))


def beginnings(network: Simba, values: Tensor) -> Tensor:
    """The row of ``[T, N]`` from which on each series is forecast once it is a lookback old, ``[N]``: its first known
    one; or that of the youngest, where a network mixes them and is not told what is not known."""
    first = first_rows(values)
    alike = network.config.together and not network.config.masked
    return first.amax().expand_as(first) if alike else first


def corrections(memory: online.OnlineMemory, table: Table, origins: Tensor) -> Tensor:
    """What the memory adds at each origin, having read each series from its beginning: ``[K, h, N]``."""
    found = table.values.new_zeros(len(origins), memory.h, table.values.shape[1])
    first = first_rows(table.values)
    for stream in online.streams_of(first, len(table.values)):
        begin = int(first[stream.series[0]])
        there = torch.nonzero(origins - begin >= memory.span).squeeze(1)
        if len(there):
            values = table.values[begin:, stream.series]
            found[there[:, None, None], torch.arange(memory.h)[:, None], stream.series] = online.rolling(
                memory, values, origins[there] - begin
            )
    return found


def _windows(network: Simba, table: Table, origins: Tensor, series: Tensor | None) -> Windows:
    return Windows(table, network.config.input_size, network.config.h, origins, series)
