"""Read the data that a forecaster is given in ``fit``, ``predict``, ``update`` and ``score``."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_array, validate_data

from titans_core.warn import warn_caller
from titans_ts.frames.exogenous import Columns, read_future, read_static
from titans_ts.frames.frame import read_frame
from titans_ts.frames.kinds import is_frame, of_values
from titans_ts.frames.panel import Panel, beyond, continued
from titans_ts.frames.stamps import following

if TYPE_CHECKING:
    from titans_ts.forecaster import TitansForecaster


def check_no_y(y: Any) -> None:
    """Reject a frame in place of scikit-learn's y, and warn about any other y, which searches and pipelines pass.

    Raises:
        TypeError: a frame.
    """
    if hasattr(y, "columns"):
        raise TypeError("fit takes no frame as y: the target is in df. Pass static columns as fit(df, static_df=...).")
    if y is not None:
        warn_caller(
            "y is ignored: the target is in df, in its column y or, in a wide frame, in each column. "
            "In a scikit-learn search, omit y and scoring to use the score of the forecaster."
        )


def check_names(panel: Panel) -> None:
    """Reject names of series that a model could not be saved with, before it is trained.

    Raises:
        ValueError: a name that is neither text nor a number.
    """
    for name in panel.ids:
        if not isinstance(name, str | int | float | np.generic):
            wide = panel.layout == "wide"
            renamed = "df.columns = df.columns.map(str)" if wide else "df['unique_id'] = df['unique_id'].map(str)"
            raise ValueError(
                f"the series name {name!r} is a {type(name).__name__}, but only strings and numbers can be saved with "
                f"a model. Rename the series, for instance with {renamed}."
            )


def read_given(
    forecaster: "TitansForecaster", df: Any, columns: Columns, static_df: Any = None, fill: bool = True
) -> Panel:
    """The data of ``fit``, read by the arguments of the constructor. ``fill``: fill gaps for "interpolate"."""
    missing = forecaster.missing
    if is_frame(df):
        panel = read_frame(df, forecaster.freq, columns, missing, fill=fill)
    else:  # sklearn's own checks and messages for matrices
        _check_dimensions(df)
        # NaN is checked as in a frame
        given = check_array(df, dtype=np.float64, ensure_all_finite="allow-nan", estimator=forecaster, input_name="X")
        panel = read_frame(given, columns=columns, missing=missing, fill=fill)
    first = int(panel.first_rows.min(initial=len(panel.values)))
    if first == len(panel.values):
        raise ValueError("df has no values: all are NaN.")
    if first > 0:  # rows before the first value of any series would count as history
        panel = panel.rows(first)
    warn_of_empty_end(panel)
    return with_static(panel, columns.stat, static_df, None, missing)


def read_known(
    forecaster: "TitansForecaster",
    df: Any,
    columns: Columns | None = None,
    static_df: Any = None,
    fill: bool = True,
    missing: str | None = None,
) -> Panel:
    """The data for a fitted forecaster, on the time axis of ``fit``. ``columns``, ``missing``: None for its own.

    Mixed series are ordered as in ``fit``. Without ``static_df``, series keep their static columns of ``fit``.
    """
    context, missing = forecaster.context_, missing or forecaster.missing
    columns = forecaster.scaling_.columns if columns is None else columns
    panel = _on_axis_of_fit(forecaster, df, columns, fill, missing)
    panel = with_static(panel, columns.stat, static_df, context, missing)
    return panel.ordered_as(context.ids) if forecaster._fitted().together else panel


def _on_axis_of_fit(forecaster: "TitansForecaster", df: Any, columns: Columns, fill: bool, missing: str) -> Panel:
    """The data for a fitted forecaster, without static columns."""
    check_policy(forecaster)
    context = forecaster.context_
    if is_frame(df):
        timed = context.layout != "matrix"  # a matrix has no time stamps
        freq, stamps = (context.freq, context.index) if timed else (forecaster.freq, None)
        panel = read_frame(df, freq, columns, missing, fill=fill, known=stamps)
    else:
        _check_dimensions(df)
        given = validate_data(forecaster, df, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        panel = read_frame(given, columns=columns, missing=missing, fill=fill)
        panel = replace(panel, ids=context.ids)  # a matrix has no series names, but as many series as that of fit
    return panel


def read_scored(forecaster: "TitansForecaster", df: Any, what: str, then: str = "") -> Panel:
    """A frame of the series of ``fit`` for scoring, not filled; ``what`` and ``then`` are for the message.

    Series that ended before it are added as NaN, if the model can handle unknown values.

    Raises:
        ValueError: a bad frame, or other series.
    """
    config, context, columns = forecaster._fitted(), forecaster.context_, forecaster.scaling_.columns
    missing = forecaster.missing
    panel = without(_on_axis_of_fit(forecaster, df, columns, False, missing), forecaster.left_out_)
    gaps = missing != "error" and (config.masked or not config.together)
    if gaps and set(panel.ids) < set(context.ids):
        panel = panel.with_silent(context.ids)
    panel = panel.ordered_as(context.ids)
    forecaster._check_series(panel, what, then)
    return with_static(panel, columns.stat, None, context, missing)


def read_actual(forecaster: "TitansForecaster", actual: Any, past: Panel) -> Panel:
    """Actual values after a past, some of which may be unknown; the rows of a matrix directly follow it."""
    actual = of_values(actual, past.ids)
    panel = read_known(forecaster, actual, Columns(), missing="mask")
    return panel if is_frame(actual) else replace(panel, index=past.future(len(panel.values)))


def warn_of_empty_end(panel: Panel) -> None:
    """Warn if a panel ends in rows without any value, as a table that was prepared for later values does."""
    known = np.flatnonzero(np.isfinite(panel.measured).any(axis=1))
    empty = len(panel.values) - 1 - int(known[-1]) if len(known) else 0
    if empty:
        warn_caller(
            f"the last {empty} rows of df, from {panel.index[-empty]} on, have no value in any series. Forecasts begin "
            "after them; if they are still to come, cut them off."
        )


def check_policy(forecaster: "TitansForecaster") -> None:
    """Reject ``missing="mask"`` if it was set after ``fit`` and the network was not trained for gaps."""
    if not forecaster._fitted().masked and forecaster.missing == "mask":
        raise ValueError(
            "this model was not fitted with missing='mask', so its network cannot handle gaps. Fit again with it, or "
            "set missing='interpolate'."
        )


def _check_dimensions(X: Any) -> None:
    if np.ndim(X) == 1:
        raise ValueError(
            "df has one dimension. Reshape your data to [T, N], with time in rows: a Series with series.to_frame(), "
            "an array with x.reshape(-1, 1). (To pass levels, use the keyword: level=[80].)"
        )


def read_newer(forecaster: "TitansForecaster", new_df: Any) -> Panel:
    """New rows for ``update``, also a single one; the rows of a matrix directly follow the known ones.

    Rows between may be missing unless ``missing`` is "error". "interpolate" starts from the last row of the context.
    Series that ``fit`` skipped are skipped here too.
    """
    check_policy(forecaster)
    context, columns, missing = forecaster.context_, forecaster.scaling_.columns, forecaster.missing
    if isinstance(new_df, pd.Series) and context.layout != "matrix":
        new_df = _frame_of(new_df, context)
    if is_frame(new_df):
        panel = read_frame(new_df, context.freq, columns, missing, fill=False, known=context.index)
        panel = without(panel, forecaster.left_out_)
    else:
        panel = read_frame(np.atleast_2d(np.asarray(new_df, dtype=np.float64)), missing=missing, fill=False)
        index = following(context.index[-1], context.freq, len(panel.values))
        panel = replace(panel, index=index, ids=context.ids if len(panel.ids) == len(context.ids) else panel.ids)
    if missing != "error" and panel.layout != "matrix":
        begin, rows = panel.index[0], len(panel.values)
        panel = panel.with_silent(context.ids).from_the_end_of(context)
        left_out = len(panel.values) - rows
        if left_out > forecaster._fitted().input_size:
            warn_caller(
                f"new_df begins at {begin}, but the known rows end at {context.index[-1]}: the {left_out} rows between "
                "count as missing. If this is wrong, load the forecaster from where it was saved before."
            )
    return context.rows(-1).joined(panel.ordered_as(context.ids)).filled(missing).rows(1)


def without(panel: Panel, left_out: list[Any]) -> Panel:
    """Drop the series that ``fit`` skipped, with a warning, unless the panel has no others."""
    kept = beyond(panel.ids, left_out)
    if len(kept) in (0, len(panel.ids)):
        return panel
    young = beyond(panel.ids, kept)
    warn_caller(f"series {young[:8]} began too late for fit and are skipped here too: only predict(df) accepts them.")
    return panel.named(kept)


def _frame_of(series: pd.Series, context: Panel) -> pd.DataFrame:
    """A row or column of a frame as a frame. The name of a row is its time; without a name, it is the next time."""
    if isinstance(series.index, pd.DatetimeIndex):
        return series.to_frame()
    if series.name is None:
        series = series.rename(following(context.index[-1], context.freq, 1)[0])
    return series.to_frame().T.infer_objects()


def ahead_of(panel: Panel, futr_df: Any, h: int, names: tuple[str, ...], missing: str) -> np.ndarray:
    """The future columns in the h steps after a panel, ``[h, N, F]``; "interpolate" starts from its last row."""
    futr = read_future(futr_df, panel.ids, panel.future(h), names, missing)
    return continued(panel.futr, futr) if missing == "interpolate" else futr


def with_static(panel: Panel, names: tuple[str, ...], static_df: Any, known: Panel | None, missing: str) -> Panel:
    """Add static columns to a panel: from ``static_df``, or else those of the same series in ``known``.

    If ``missing`` is not "error", unknown values are NaN.

    Raises:
        ValueError: unknown series without ``static_df``, or a bad frame.
    """
    if not names and static_df is None:
        return panel
    if static_df is None and known is not None:
        rows = known.places(panel.ids)
        new = [name for name, row in zip(panel.ids, rows, strict=True) if row is None]
        if new:
            raise ValueError(f"series {new[:8]} are new: pass their static columns in static_df.")
        return replace(panel, stat=known.stat[np.array(rows, dtype=int)])
    return replace(panel, stat=read_static(static_df, panel.ids, names, missing != "error"))
