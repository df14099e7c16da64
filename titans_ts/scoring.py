"""The error of all rolling forecasts in a panel."""

import torch

from titans_ts.model import Model
from titans_ts.panel import Panel
from titans_ts.scaling import tensor
from titans_ts.windows import inside_holes

# values of forecasts held at a time
_AT_ONCE = 1 << 24


def rolling_error(model: Model, panel: Panel, missing: str) -> float:
    """The mean absolute error over every window at stride 1, each series in units of its standard deviation in ``fit``.

    ``panel`` is not filled. What is not known is left out, and with "interpolate" a forecast from inside a hole too.

    Raises:
        ValueError: no value is known behind any window.
    """
    config = model.network.config
    came = model.scaling.table(panel).values
    filled = panel.filled(missing)
    table, told = model.scaling.table(filled), tensor(model.scaling.units.told)
    drawn = torch.from_numpy(filled.drawn)
    total = count = 0.0
    origins = torch.arange(config.input_size, len(panel.values) - config.h + 1)
    for part in origins.split(max(1, min(4096, _AT_ONCE // (config.h * panel.values.shape[1])))):
        truth = came[part[:, None] + torch.arange(config.h)]
        error = (model.rolling(table, part).point - truth).abs() * told
        known = error.isfinite()
        if missing == "interpolate":
            known &= ~inside_holes(drawn, part, config.num_series is not None)[:, None]
        total, count = total + float(error[known].double().sum()), count + float(known.sum())
    if not count:
        raise ValueError("there is nothing to score: no value is known behind any window of input_size rows.")
    return total / count
