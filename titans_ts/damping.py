"""How far forecasts are drawn towards the newest value of their window.

Patterns change after the training rows, and a network then departs too far from what it has just seen. How far is
measured on the validation rows: the damped trend of exponential smoothing, for a network.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from titans_ts.objective import Objective, step_weights
from titans_ts.simba import Simba
from titans_ts.windows import Batch

SHARES = tuple(1 - i / 25 for i in range(16))  # of the distance from the newest value that may be kept, 1 first
LEAST_HORIZONS = 20  # disjoint ones, of all series together, from which a share is measured


def damped(point: Tensor, x: Tensor, share: float) -> Tensor:
    """Forecasts ``[B, h, M]`` at ``share`` of their distance from the newest known value of their windows
    ``[B, input_size, M]``. A window without a known value keeps its forecast."""
    if share == 1:
        return point
    newest = newest_known(x)
    return torch.where(newest.isnan(), point, torch.lerp(newest, point, share))


def newest_known(x: Tensor) -> Tensor:
    """The newest value of each window ``[B, input_size, M]`` that is not NaN, ``[B, 1, M]``; NaN if there is none."""
    rows = torch.arange(x.shape[1], device=x.device)[:, None]
    newest = rows.where(~x.isnan(), -1).amax(dim=1, keepdim=True)
    return x.gather(1, newest.clamp(min=0))


@torch.no_grad()
def damping_of(network: Simba, objective: Objective, batches: Iterable[Batch]) -> float:
    """The share to keep, found on validation windows: the mean of 1 and of the share with the lowest error there.

    Half way, as these windows are of one short period, and a share that fits it does not fit the next one as well.

    Args:
        network: trained, in evaluation mode.
        objective: how it is read, and what an error costs.
        batches: the validation windows.
    """
    costs = torch.zeros(len(SHARES), dtype=torch.float64)
    for batch in batches:
        raw, center, scale = network.normalised(batch.x, batch.hist, batch.futr, batch.stat)
        point = objective.point(raw) * scale + center
        weight = step_weights(point.shape[1])[:, None]
        for i, share in enumerate(SHARES):
            error = damped(point, batch.x, share) - batch.y
            cost = objective.cost(error if batch.unit is None else error * batch.unit)
            costs[i] += (cost * weight).nansum()
    return (1 + SHARES[int(costs.argmin())]) / 2
