"""How much forecast errors grow if a part of the lookback is unknown."""

import torch
from torch import Tensor

from titans_ts.network.holes import Holes, Lines
from titans_ts.network.objective import Objective
from titans_ts.network.rolling import forecast_windows
from titans_ts.network.simba import FLOOR, Simba
from titans_ts.network.windows import Table, Windows, all_windows_of

SHARES = (0.0, 1 / 16, 1 / 4, 1 / 2, 3 / 4, 7 / 8, 15 / 16)  # hidden shares of a lookback in the measurement
AT_MOST = 1024  # maximum number of windows, counted for single series


def widening_of(network: Simba, objective: Objective, table: Table, border: int, seed: int) -> Tensor | None:
    """Factors of the mean error, in deviations of the lookback, if these shares of it are hidden, ``[len(SHARES)]``.

    The first is 1. Measured on the rows from ``border`` on. The shares are masked, or filled linearly for a network
    without masks. None if these rows have no known value, or if the objective predicts the spread itself.
    """
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
    truth = table.truth.after(origins[:, None, None].long(), torch.arange(config.h)[:, None], of, together)
    errors = []
    for share in SHARES:
        shape = (len(some), lanes)
        length = torch.full(shape, min(config.input_size - 1, round(share * config.input_size)))
        # the newest step stays known; every second gap starts at the first step, as in a series that has just begun
        start = (torch.rand(shape, generator=rng, dtype=torch.float32) * (config.input_size - length)).int()
        start[::2] = 0
        stop, kind = start + length.int(), Holes if config.masked else Lines
        if not config.masked:  # a line needs both ends
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
    """The factors for any shares, interpolated linearly between the measured ones."""
    at = widening.new_tensor(SHARES)
    right = torch.searchsorted(at, unknown.contiguous()).clamp(1, len(at) - 1)
    part = ((unknown - at[right - 1]) / (at[right] - at[right - 1])).clamp(0, 1)
    return torch.lerp(widening[right - 1], widening[right], part)
