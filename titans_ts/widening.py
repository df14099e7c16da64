"""How much farther off forecasts are where a part of the lookback is not known."""

import torch
from torch import Tensor

from titans_ts.holes import Holes, Lines
from titans_ts.objective import Objective
from titans_ts.rolling import forecast_windows
from titans_ts.simba import FLOOR, Simba
from titans_ts.windows import Table, Windows, all_windows_of

SHARES = (0.0, 1 / 16, 1 / 4, 1 / 2, 3 / 4, 7 / 8, 15 / 16)  # of a lookback that are hidden to find out
AT_MOST = 1024  # windows of one series


def widening_of(network: Simba, objective: Objective, table: Table, border: int, seed: int) -> Tensor | None:
    """By how much mean errors, in deviations of the lookback, are multiplied where these shares of it are hidden, or of
    a network that is not told so, lie on a line, ``[len(SHARES)]``, the first 1; measured on the rows from ``border``
    on. None where nothing was measured in them, and of an objective that foretells the spread itself."""
    if objective.probabilistic:
        return None
    config, together = network.config, network.config.together
    lanes = table.values.shape[1] if together else 1
    windows = all_windows_of(table, config.input_size, config.h, border, len(table.values), together)
    if not len(windows):
        return None
    rng = torch.Generator().manual_seed(seed)
    some = torch.randperm(len(windows), generator=rng)[: max(1, AT_MOST // lanes)]
    origins, series = windows.origins[some], None if windows.series is None else windows.series[some]
    of = torch.arange(lanes) if series is None else series[:, None, None].long()
    truth = table.truth.behind(origins[:, None, None].long(), torch.arange(config.h)[:, None], of)
    errors = []
    for share in SHARES:
        shape = (len(some), lanes)
        length = torch.full(shape, min(config.input_size - 1, round(share * config.input_size)))
        # the newest step is known; every other hole lies before a series that has only begun
        start = (torch.rand(shape, generator=rng) * (config.input_size - length)).int()
        start[::2] = 0
        stop, kind = start + length.int(), Holes if config.masked else Lines
        if not config.masked:  # a line needs two ends
            start, stop = start.clamp(min=1), stop.clamp(min=1, max=config.input_size - 1)
        holed = Windows(table, config.input_size, config.h, origins, series, kind(start, stop))
        found = forecast_windows(network, objective, holed)
        error = (truth - found.point).abs() / found.spread.clamp(min=FLOOR)[:, None]
        errors.append(error.nanmean())
    found_by = torch.stack(errors)
    if not found_by.isfinite().all() or found_by[0] <= 0:
        return None
    return (found_by / found_by[0]).cummax(0).values


def widened(widening: Tensor, unknown: Tensor) -> Tensor:
    """The factor at any shares, in straight lines between those that were measured."""
    at = widening.new_tensor(SHARES)
    right = torch.searchsorted(at, unknown.contiguous()).clamp(1, len(at) - 1)
    part = ((unknown - at[right - 1]) / (at[right] - at[right - 1])).clamp(0, 1)
    return torch.lerp(widening[right - 1], widening[right], part)
