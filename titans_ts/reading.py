"""Panels for an estimator: of what it is given before ``fit``, of rows that follow, and with static columns."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from titans_ts.exogenous import Columns, read_columns, read_static
from titans_ts.frame import Panel, read_frame
from titans_ts.stamps import following

if TYPE_CHECKING:
    from titans_ts.forecaster import TitansForecaster


def is_frame(df: Any) -> bool:
    """Whether it is a frame, of any library, and not a matrix."""
    return hasattr(df, "columns")


def read_for(forecaster: "TitansForecaster", df: Any) -> Panel:
    """The panel of a frame as an unfitted forecaster reads it."""
    if not is_frame(df):
        df = np.asarray(df, dtype=np.float64)
    return read_frame(df, forecaster.freq, of_frame(read_columns(forecaster.exogenous)), forecaster.missing)


def in_zone_of(panel: Panel, known: Panel) -> Panel:
    """The panel with its time stamps in the time zone of those that ``fit`` knew: a profile goes by the clock there.

    Raises:
        ValueError: stamps with a time zone where those had none, or the other way round.
    """
    if not (isinstance(panel.index, pd.DatetimeIndex) and isinstance(known.index, pd.DatetimeIndex)):
        return panel
    theirs, ours = known.index.tz, panel.index.tz
    if (theirs is None) != (ours is None):
        raise ValueError(
            f"the time stamps have {'no time zone' if ours is None else f'the time zone {ours}'}, those of fit "
            f"{'none' if theirs is None else f'had {theirs}'}. Use tz_localize or tz_convert on them."
        )
    return panel if str(theirs) == str(ours) else replace(panel, index=panel.index.tz_convert(theirs))


def read_newer(context: Panel, new_df: Any, columns: Columns, missing: str) -> Panel:
    """The rows that follow those of ``context``, a single one too; a matrix goes on counting where the last ended.

    Lines of "interpolate" begin at the last row of the context."""
    if is_frame(new_df):
        panel = in_zone_of(read_frame(new_df, context.freq, of_frame(columns), missing, fill=False), context)
    else:
        panel = read_frame(np.atleast_2d(np.asarray(new_df, dtype=np.float64)), missing=missing, fill=False)
        index = following(context.index[-1], context.freq, len(panel.values))
        panel = replace(panel, index=index, ids=context.ids if len(panel.ids) == len(context.ids) else panel.ids)
    if missing != "interpolate":
        return panel
    return context.rows(-1).joined(panel).filled(missing).rows(1)


def with_static(panel: Panel, names: tuple[str, ...], static_df: Any, known: Panel | None) -> Panel:
    """The panel with its static columns: from ``static_df``, or without one those of the same series in ``known``.

    Raises:
        ValueError: no frame, and series that are not known; or a bad frame.
    """
    if not names:
        return panel
    if static_df is None and known is not None:
        rows = {name: i for i, name in enumerate(known.ids)}
        new = [name for name in panel.ids if name not in rows]
        if new:
            raise ValueError(f"series {new[:8]} are new: give their static columns in static_df.")
        return replace(panel, stat=known.stat[[rows[name] for name in panel.ids]])
    return replace(panel, stat=read_static(static_df, panel.ids, names))


def of_frame(columns: Columns) -> Columns:
    """Those that stand in the frame itself."""
    return Columns(columns.hist, columns.futr)
