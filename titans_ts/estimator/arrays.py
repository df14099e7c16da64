"""Forecasts for windows given as an array."""

import numpy as np
import pandas as pd
import torch

from titans_ts.estimator.model import Model
from titans_ts.frames.libraries import unusable
from titans_ts.frames.panel import Panel
from titans_ts.frames.stamps import around, in_zone
from titans_ts.network.rolling import windows_at_once
from titans_ts.units.scaling import FARTHEST, tensor


def forecast_arrays(
    model: Model, context: Panel, windows: np.ndarray, origins: pd.DatetimeIndex | None = None
) -> np.ndarray:
    """See :meth:`titans_ts.TitansForecaster.predict_windows`; ``context`` has the newest rows of the series of fit."""
    config, columns, units = model.network.config, model.scaling.columns, model.scaling.units
    expected = (config.input_size, len(units.mean))
    windows = np.asarray(windows)
    if windows.ndim != 3 or windows.shape[1:] != expected:
        raise ValueError(f"windows must be [W, {expected[0]}, {expected[1]}], got shape {windows.shape}.")
    bad = unusable(windows, gaps=config.masked)
    if bad.any():
        raise ValueError(f"windows has {int(bad.sum())} values that are NaN, infinite or beyond float32.")
    if columns.hist or columns.futr:
        raise ValueError("predict_windows does not support exogenous columns: use predict or cross_validation.")
    if not len(windows):
        return np.empty((0, config.h, expected[1]))
    futr, shape = None, np.zeros((1, config.input_size + config.h, 1))
    if columns.calendar or columns.profile:
        if origins is None or len(origins) != len(windows):
            raise ValueError(
                "a model with a calendar or a profile needs origins: the time stamp of each window's first forecast "
                "step."
            )
        step = context.freq
        assert not isinstance(step, int)  # a calendar needs time stamps
        stamps = pd.DatetimeIndex(in_zone(pd.DatetimeIndex(origins), context.index))
        index, rows = around(stamps, step, config.input_size, config.h)
        waves = model.scaling.future(index, np.empty((len(index), 1, 0)))
        futr = None if waves is None else waves[torch.from_numpy(rows)]
        if columns.profile:
            shape = units.shape(index)[rows]
    standardised = (windows - shape[:, : config.input_size] - units.mean) / units.scale
    x = tensor(standardised.clip(-FARTHEST, FARTHEST))
    stat = model.scaling.columns_of("stat", context.stat)
    found = []
    for part in torch.arange(len(x)).split(windows_at_once(config.input_size + config.h, len(units.mean))):
        still = None if stat is None else stat.expand(len(part), -1, -1)
        with torch.no_grad():
            raw, center, scale = model.network.normalised(x[part], None, None if futr is None else futr[part], still)
        found.append(model.objective.point(raw) * scale + center)
    return torch.cat(found).double().numpy() * units.scale + units.mean + shape[:, config.input_size :]
