"""The surprise of the online memory as a frame."""

from typing import Any

import numpy as np
import pandas as pd
import torch

from titans_core.warn import warn_caller
from titans_ts.estimator.model import Model
from titans_ts.frames.libraries import from_pandas
from titans_ts.frames.panel import Panel, beyond, long_frame
from titans_ts.units.scaling import tensor


def surprise_frame(model: Model, panel: Panel, known: Panel, step: int) -> Any:
    """``unique_id, ds, surprise`` for a panel, every ``step`` rows; ``known`` has the series of ``fit``."""
    units = model.scaling.units_of(panel, known)
    values = tensor(units.standardised(panel.values, panel.index))
    frames = []
    for series, rows, found in model.surprises(values, torch.from_numpy(np.isnan(panel.measured)), step):
        ids = [panel.ids[i] for i in series.tolist()]
        frames.append(long_frame(ids, panel.index[rows.numpy() - 1], {"surprise": found.double().numpy()}))
    if not frames:
        raise ValueError("df has no known value, so there is no surprise to compute.")
    frame = pd.concat(frames)
    places = pd.Index(panel.ids).get_indexer(pd.Index(frame["unique_id"]))
    frame = frame.iloc[np.argsort(places, kind="stable")].reset_index(drop=True)
    _warn_of_none(panel.ids, frame, model)
    return from_pandas(frame, panel.library)


def _warn_of_none(ids: list[Any], frame: pd.DataFrame, model: Model) -> None:
    """Warn about series without any surprise value."""
    silent = beyond(ids, frame.loc[frame["surprise"].notna(), "unique_id"].unique().tolist())
    if model.memory is not None and silent:
        warn_caller(
            f"series {silent[:8]} have no surprise: it needs {model.memory.span + model.memory.stride} consecutive "
            "rows without NaN. Fill short gaps first, such as with y.interpolate(limit=2)."
        )
