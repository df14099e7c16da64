"""The error of all rolling forecasts in a panel."""

import torch

from titans_ts.model import Model
from titans_ts.panel import Panel
from titans_ts.scaling import tensor

# values of forecasts held at a time
_AT_ONCE = 1 << 24


def rolling_error(model: Model, panel: Panel, missing: str) -> float:
    """The mean absolute error over every window at stride 1, each series in units of its standard deviation in ``fit``.

    ``panel`` is not filled. What is not known is left out, and with "interpolate" a forecast from inside a hole too.

    Raises:
        ValueError: no value is known behind any window.
    """
    config = model.network.config
    table, told = model.scaling.table(panel.filled(missing)), tensor(model.scaling.units.told)
    steps, series = torch.arange(config.h)[:, None], torch.arange(panel.values.shape[1])
    total = count = 0.0
    origins = torch.arange(config.input_size, len(panel.values) - config.h + 1)
    for part in origins.split(max(1, min(4096, _AT_ONCE // (config.h * panel.values.shape[1])))):
        truth = table.truth.behind(part[:, None, None], steps, series, config.num_series is not None)
        error = (model.rolling(table, part).point - truth).abs() * told
        known = error.isfinite()
        total, count = total + float(error[known].double().sum()), count + float(known.sum())
    if not count:
        raise ValueError("there is nothing to score: no value is known behind any window of input_size rows.")
    return total / count
