"""The error of all rolling forecasts in a panel."""

import torch

from titans_ts.model import Model
from titans_ts.panel import Panel
from titans_ts.rolling import beginnings
from titans_ts.scaling import tensor

# values of forecasts held at a time
_AT_ONCE = 1 << 24


def rolling_error(model: Model, panel: Panel, missing: str) -> float:
    """The mean absolute error over every window at stride 1, each series in units of its standard deviation in ``fit``.

    ``panel`` is not filled. What is not known is left out, and with "interpolate" a forecast from inside a hole too.

    Raises:
        FloatingPointError: a forecast is not finite.
        ValueError: no value is known behind any window.
    """
    config = model.network.config
    model.scaling.warn_of(panel)
    whole, unit = model.scaling.table(panel.filled(missing)), tensor(model.scaling.units.error_unit)
    (T, N), together = panel.values.shape, config.together
    total = count = 0.0
    origins, steps = torch.arange(config.input_size, T - config.h + 1), torch.arange(config.h)[:, None]
    # rather few series at many origins than the other way round: the memory reads a series anew for each part of them
    side_by_side = N if together else max(1, min(N, _AT_ONCE // (config.h * max(1, len(origins)))))
    for series in torch.arange(N).split(side_by_side):
        table = whole.of_series(series)
        for part in origins.split(max(1, _AT_ONCE // (config.h * side_by_side))):
            truth = table.truth.behind(part[:, None, None], steps, torch.arange(len(series)), together)
            point = model.rolling(table, part).point
            begun = beginnings(model.network, table.values) <= part[:, None] - config.input_size
            error = (point - truth).abs() * unit[series]
            known = truth.isfinite() & begun[:, None]
            if not error[known].isfinite().all():
                raise FloatingPointError("some forecasts are not finite, and have no error: fit the model again.")
            total, count = total + float(error[known].double().sum()), count + float(known.sum())
    if not count:
        raise ValueError("there is nothing to score: no value is known behind any window of input_size rows.")
    return total / count
