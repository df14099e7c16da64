"""The error of all rolling forecasts in a panel."""

import torch

from titans_ts.model import Model
from titans_ts.panel import Panel
from titans_ts.rolling import beginnings
from titans_ts.scaling import tensor

# forecast values held at once
_AT_ONCE = 1 << 24


def rolling_error(model: Model, panel: Panel, missing: str) -> float:
    """The mean absolute error over all windows at stride 1, in standard deviations of each series in ``fit``.

    ``panel`` is not filled. Unknown values are skipped, and with "interpolate" also forecasts from inside a gap.

    Raises:
        FloatingPointError: a forecast is not finite.
        ValueError: there is no known value after any lookback.
    """
    config = model.network.config
    model.scaling.warn_of(panel)
    whole, unit = model.scaling.table(panel.filled(missing)), tensor(model.scaling.units.error_unit)
    (T, N), together = panel.values.shape, config.together
    total = count = 0.0
    origins, steps = torch.arange(config.input_size, T - config.h + 1), torch.arange(config.h)[:, None]
    # few series at many origins, since the memory reads a series again for each part of the origins
    side_by_side = N if together else max(1, min(N, _AT_ONCE // (config.h * max(1, len(origins)))))
    for series in torch.arange(N).split(side_by_side):
        table = whole.of_series(series)
        for part in origins.split(max(1, _AT_ONCE // (config.h * side_by_side))):
            truth = table.truth.after(part[:, None, None], steps, torch.arange(len(series)), together)
            point = model.rolling(table, part).point
            begun = beginnings(model.network, table.values) <= part[:, None] - config.input_size
            error = (point - truth).abs() * unit[series]
            known = truth.isfinite() & begun[:, None]
            if not error[known].isfinite().all():
                raise FloatingPointError("some forecasts are not finite and cannot be scored: fit the model again.")
            total, count = total + float(error[known].double().sum()), count + float(known.sum())
    if not count:
        raise ValueError("there is nothing to score: df has no known value after any lookback of input_size rows.")
    return total / count
