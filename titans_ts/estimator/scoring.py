"""The error of all rolling forecasts in a table."""

from collections.abc import Sequence

import torch
from torch import Tensor

from titans_ts.estimator.model import Model
from titans_ts.network.rolling import with_lookback
from titans_ts.network.windows import Table
from titans_ts.units.scaling import tensor

# forecast values held at once
_AT_ONCE = 1 << 24


def rolling_error(members: Sequence[tuple[Model, Table]]) -> float:
    """The mean absolute error over all windows at stride 1, in standard deviations of each series in ``fit``.

    The forecast is the mean of that of all members: models with the same ``h``, each with its own table of the same
    rows. The windows have the longest lookback of the members. Unknown values are skipped, and with filled values also
    forecasts from inside a gap; what is unknown for one member is skipped for all.

    Raises:
        FloatingPointError: a forecast is not finite.
        ValueError: there is no known value after any lookback.
    """
    models = [model for model, _ in members]
    h, longest = models[0].h, max(model.input_size for model in models)
    T, N = members[0][1].values.shape
    deviation = models[0].scaling.units.deviation
    units = [tensor(model.scaling.units.scale / deviation) for model in models]
    total = count = 0.0
    origins = torch.arange(longest, T - h + 1)
    # few series at many origins, since the memory reads a series again for each part of the origins
    side_by_side = max(1, min(N, _AT_ONCE // (h * max(1, len(origins)))))
    if any(model.network.config.together for model in models):
        side_by_side = N
    for series in torch.arange(N).split(side_by_side):
        parts = [(model, table.of_series(series)) for model, table in members]
        for some in origins.split(max(1, _AT_ONCE // (h * side_by_side))):
            errors = [_errors(*part, some) * unit[series] for part, unit in zip(parts, units, strict=True)]
            error = torch.stack(errors).mean(dim=0).abs()
            known = error.isfinite()
            total, count = total + float(error[known].double().sum()), count + float(known.sum())
    if not count:
        raise ValueError("there is nothing to score: df has no known value after any lookback of input_size rows.")
    return total / count


def _errors(model: Model, table: Table, origins: Tensor) -> Tensor:
    """Errors of the forecasts at K origins in units of the network, ``[K, h, N]``; NaN for those that do not count."""
    config, series = model.network.config, torch.arange(table.values.shape[1])
    truth = table.truth.after(origins[:, None, None], torch.arange(config.h)[:, None], series, config.together)
    known = truth.isfinite() & with_lookback(model.network, table.values, origins)[:, None]
    error = (model.rolling(table, origins).point - truth).masked_fill(~known, float("nan"))
    if not error[known].isfinite().all():
        raise FloatingPointError("some forecasts are not finite and cannot be scored: fit the model again.")
    return error
