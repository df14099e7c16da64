"""Forecasts at many origins of a table: the network's, corrected by the online memory where there is one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import torch
from torch import Tensor

from titans_ts import online
from titans_ts.objective import Objective
from titans_ts.simba import Simba
from titans_ts.windows import Table, Windows, first_rows, stale_parts

LANES, FLOATS = 2048, 1 << 21  # of one call of the network
KEPT = 1 << 25  # numbers that KeptForecasts keeps at most


@dataclass(frozen=True)
class Forecasts:
    """Forecasts in standardised units; NaN for a series whose lookback is not whole.

    Attributes:
        point: ``[K, h, N]``.
        quantiles: ``[K, h, N, Q]``, where they were asked for.
        spread: deviation of the lookbacks, ``[K, N]``.
        stale: part of the lookbacks that lies behind their newest measured value, ``[K, N]``; None for 0.
    """

    point: Tensor
    quantiles: Tensor | None
    spread: Tensor
    stale: Tensor | None = None

    def at(self, i: int) -> "Forecasts":
        """Those of one origin, K = 1."""
        one = slice(i, i + 1)
        quantiles, stale = (None if x is None else x[one] for x in (self.quantiles, self.stale))
        return Forecasts(self.point[one], quantiles, self.spread[one], stale)

    def side_by_side(self, K: int) -> "Forecasts":
        """Of K origins, from those of one series each, ``[K * N, h, 1]``, origin by origin."""
        point = self.point.squeeze(-1).unflatten(0, (K, -1)).transpose(1, 2)
        quantiles = self.quantiles
        if quantiles is not None:
            quantiles = quantiles.squeeze(2).unflatten(0, (K, -1)).transpose(1, 2)
        return Forecasts(point, quantiles, self.spread.squeeze(-1).unflatten(0, (K, -1)))

    def moved(self, by: Tensor) -> "Forecasts":
        """With ``by`` ``[K, h, N]`` added."""
        quantiles = None if self.quantiles is None else self.quantiles + by.unsqueeze(-1)
        return replace(self, point=self.point + by, quantiles=quantiles)

    def widened(self, stale: Tensor | None, probabilities: Sequence[float]) -> "Forecasts":
        """Where nothing new was measured for long, quantiles are more and more those of the series as a whole."""
        if stale is None or self.quantiles is None:
            return replace(self, stale=stale)
        part, point = stale[:, None, :, None], self.point.unsqueeze(-1)
        whole = point + self.point.new_tensor([NormalDist().inv_cdf(p) for p in probabilities])
        return replace(self, quantiles=torch.lerp(self.quantiles, whole, part), stale=stale)


@torch.no_grad()
def forecast_windows(
    network: Simba, objective: Objective, windows: Windows, probabilities: Sequence[float] = ()
) -> Forecasts:
    """Of each of K windows of M series, in order: point ``[K, h, M]``."""
    lanes = windows.table.values.shape[1] if windows.series is None else 1
    size = max(1, min(LANES, FLOATS // (windows.input_size + windows.h)) // lanes)
    points, quantiles, spreads = [], [], []
    for index in torch.arange(len(windows)).split(size):
        batch = windows[index]
        raw, center, scale = network.normalised(batch.x, batch.hist, batch.futr, batch.stat)
        points.append(objective.point(raw) * scale + center)
        spreads.append(scale[:, 0])
        if probabilities:
            found = objective.quantiles(raw, probabilities)
            quantiles.append(found * scale.unsqueeze(-1) + center.unsqueeze(-1))
    return Forecasts(torch.cat(points), torch.cat(quantiles) if quantiles else None, torch.cat(spreads))


class KeptForecasts:
    """The network's forecasts of windows that are asked for again and again: each is made once.

    Those of a table that has too many of them, more than ``KEPT`` numbers, are made each time.
    """

    def __init__(self, network: Simba, objective: Objective, table: Table) -> None:
        self.network, self.objective, self.table = network, objective, table
        rows, series = table.values.shape
        self.apart = network.config.num_series is None
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
    probabilities: Sequence[float] = (),
    begun: bool = False,
) -> Forecasts:
    """The network's forecasts of all series of a table at each of K origins: point ``[K, h, N]``.

    A series whose lookback is not whole, as it begins in it, has NaN; with ``begun`` all began before the table.
    """
    config, N = network.config, table.values.shape[1]
    K = len(origins)
    if config.num_series is not None:
        found = forecast_windows(network, objective, _windows(network, table, origins, None), probabilities)
    else:
        series = torch.arange(N).repeat(K)
        windows = _windows(network, table, origins.repeat_interleave(N), series)
        found = forecast_windows(network, objective, windows, probabilities).side_by_side(K)
    found = found.widened(stale_parts(table, origins, config.input_size), probabilities)
    if begun:
        return found
    # a masked network answers also where a series has not begun
    early = first_rows(table.values) > (origins[:, None] - config.input_size)
    return replace(found, point=found.point.masked_fill(early[:, None], float("nan")))


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
