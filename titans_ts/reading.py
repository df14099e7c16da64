"""Panels for a forecaster, of what it is fitted on, asked for, updated with and scored by."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_array, validate_data

from titans_datasets.warn import warn_caller
from titans_ts.exogenous import Columns, read_future, read_static
from titans_ts.frame import LONG_COLUMNS, read_frame
from titans_ts.panel import Panel, beyond, interpolated
from titans_ts.stamps import following

if TYPE_CHECKING:
    from titans_ts.forecaster import TitansForecaster

_NOT_DATA: tuple[tuple[Any, str], ...] = (
    (type(None), "Give the rows."),
    ((str, Path), "Read the file first: pd.read_csv({!r}), and make its time stamps such by pd.to_datetime."),
    (Mapping, "Make one of it: pd.DataFrame(df), and pd.concat of frames."),
)


def is_frame(df: Any) -> bool:
    """Whether it is a frame, of any library, and not a matrix.

    Raises:
        TypeError: what is often given in the place of either; the message says what to do.
    """
    for kind, do in _NOT_DATA:
        if isinstance(df, kind) and not hasattr(df, "shape"):  # a sparse matrix may be a mapping
            raise TypeError(
                f"df must be a pandas or polars DataFrame or a numpy matrix, got {type(df).__name__}. {do.format(df)}"
            )
    if hasattr(df, "collect"):  # asking it for its columns would already make it work
        raise TypeError(f"df must be a DataFrame, got {type(df).__name__}, which is yet to be read: df.collect().")
    return hasattr(df, "columns")


def check_no_y(y: Any) -> None:
    """Refuses a frame in the place of scikit-learn's y, and warns of any other y, which searches and pipelines pass on.

    Raises:
        TypeError: a frame.
    """
    if hasattr(y, "columns"):
        raise TypeError("fit takes no y, which is a column of df. For static columns: fit(df, static_df=...).")
    if y is not None:
        warn_caller(
            "y is ignored: what is forecast stands in df, in its column y or, of a wide frame, in each column. "
            "In a search of scikit-learn leave out y and scoring, and the forecaster's own score counts."
        )


def read_given(
    forecaster: "TitansForecaster", df: Any, columns: Columns, static_df: Any = None, fill: bool = True
) -> Panel:
    """What a forecaster is to be fitted on, by the arguments of its constructor. ``fill``: draw lines through holes."""
    missing = forecaster.missing
    if is_frame(df):
        panel = read_frame(df, forecaster.freq, columns, missing, fill=fill)
    else:  # sklearn's own checks and messages for matrices
        _check_dimensions(df)
        given = check_array(
            df, dtype=np.float64, ensure_all_finite=_finite(missing), estimator=forecaster, input_name="X"
        )
        panel = read_frame(given, columns=columns, missing=missing, fill=fill)
    return with_static(panel, columns.stat, static_df, None, missing)


def read_known(
    forecaster: "TitansForecaster", df: Any, columns: Columns | None = None, static_df: Any = None, fill: bool = True
) -> Panel:
    """What a fitted forecaster is asked about, on the time axis of ``fit``. ``columns``: None for those of ``fit``.

    Series that are mixed take their places of ``fit``, and without ``static_df`` keep their static columns.
    """
    check_policy(forecaster)
    context, missing = forecaster.context_, forecaster.missing
    columns = forecaster.scaling_.columns if columns is None else columns
    if is_frame(df):
        timed = context.layout != "matrix"  # whose rows are at no time
        freq, stamps = (context.freq, context.index) if timed else (forecaster.freq, None)
        panel = read_frame(df, freq, columns, missing, fill=fill, known=stamps)
    else:
        _check_dimensions(df)
        given = validate_data(forecaster, df, reset=False, dtype=np.float64, ensure_all_finite=_finite(missing))
        panel = read_frame(given, columns=columns, missing=missing, fill=fill)
        if len(panel.ids) == len(context.ids):  # a matrix names no series: those of fit
            panel = replace(panel, ids=context.ids)
    panel = with_static(panel, columns.stat, static_df, context, missing)
    return panel.ordered_as(context.ids) if forecaster._fitted().together else panel


def read_scored(forecaster: "TitansForecaster", df: Any) -> Panel:
    """A frame of the series of ``fit``, not filled. Those that ended before it are there without a value, where the
    model is told, or need not be told, what is not known."""
    config, context, columns = forecaster._fitted(), forecaster.context_, forecaster.scaling_.columns
    panel = without(read_known(forecaster, df, fill=False), forecaster.left_out_)
    gaps = forecaster.missing != "error" and (config.masked or not config.together)
    if gaps and set(panel.ids) < set(context.ids):
        panel = with_static(panel.with_silent(context.ids), columns.stat, None, context, forecaster.missing)
    return panel.ordered_as(context.ids)


def read_actual(forecaster: "TitansForecaster", actual: Any, past: Panel) -> Panel:
    """The values that came behind a past; a matrix is of the rows that follow it."""
    actual = of_values(actual, past.ids)
    panel = read_known(forecaster, actual, Columns())
    return panel if is_frame(actual) else replace(panel, index=past.future(len(panel.values)))


def check_policy(forecaster: "TitansForecaster") -> None:
    """Refuses ``missing="mask"``, set since ``fit``, where the network knows no gaps."""
    if not forecaster._fitted().masked and forecaster.missing == "mask":
        raise ValueError(
            "this model was not fitted with missing='mask': its network knows no gaps. Fit again with it, or set "
            "missing='interpolate'."
        )


def _check_dimensions(X: Any) -> None:
    if np.ndim(X) == 1:
        raise ValueError(
            "df has one dimension. Reshape your data to [T, N], rows of time: a Series by series.to_frame(), "
            "an array by x.reshape(-1, 1). (Levels are named: level=[80].)"
        )


def _finite(missing: str) -> bool | Literal["allow-nan"]:
    return True if missing == "error" else "allow-nan"


def read_newer(forecaster: "TitansForecaster", new_df: Any) -> Panel:
    """The rows that follow those a forecaster knows, a single one too; a matrix goes on counting where the last ended.

    Rows may be left out between them where ``missing`` says what that means. Lines of "interpolate" begin at the last
    row of the context. Series that ``fit`` left out are left out here, too."""
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
        panel = panel.with_silent(context.ids).from_the_end_of(context)
    panel = panel.ordered_as(context.ids)
    if missing != "interpolate":
        return panel
    return context.rows(-1).joined(panel).filled(missing).rows(1)


def without(panel: Panel, left_out: list[Any]) -> Panel:
    """The panel less the series that ``fit`` left out, with a warning where it has others."""
    kept = beyond(panel.ids, left_out)
    if len(kept) in (0, len(panel.ids)):
        return panel
    young = beyond(panel.ids, kept)
    warn_caller(f"series {young[:8]} began too late for fit, and are left out here, too: only predict(df) takes them.")
    return panel.named(kept)


def _frame_of(series: pd.Series, context: Panel) -> pd.DataFrame:
    """A row or a column of a frame, as a frame: a row has the names of its columns, and its time as its own name; the
    next one, if it has none."""
    if isinstance(series.index, pd.DatetimeIndex):
        return series.to_frame()
    if series.name is None:
        series = series.rename(following(context.index[-1], context.freq, 1)[0])
    return series.to_frame().T.infer_objects()


def ahead_of(panel: Panel, futr_df: Any, h: int, names: tuple[str, ...], missing: str) -> np.ndarray:
    """The future columns in the h steps behind a panel, ``[h, N, F]``.

    Lines of "interpolate" begin at its last row.
    """
    futr = read_future(futr_df, panel.ids, panel.future(h), names, gaps=missing != "error")
    return interpolated(np.concatenate((panel.futr[-1:], futr)))[1:] if missing == "interpolate" else futr


def with_static(panel: Panel, names: tuple[str, ...], static_df: Any, known: Panel | None, missing: str) -> Panel:
    """The panel with its static columns: from ``static_df``, or without one those of the same series in ``known``.

    Where ``missing`` is not "error", they are NaN where they are not known.

    Raises:
        ValueError: no frame, and series that are not known; or a bad frame.
    """
    if not names and static_df is None:
        return panel
    if static_df is None and known is not None:
        rows = known.places(panel.ids)
        new = [name for name, row in zip(panel.ids, rows, strict=True) if row is None]
        if new:
            raise ValueError(f"series {new[:8]} are new: give their static columns in static_df.")
        return replace(panel, stat=known.stat[np.array(rows, dtype=int)])
    return replace(panel, stat=read_static(static_df, panel.ids, names, missing != "error"))


def of_values(df: Any, ids: list[Any] | None = None) -> Any:
    """Of a long frame the values only; of any other, all of it; of one column of a wide frame, a frame of it. Where it
    has no name, it is the one of ``ids``."""
    if isinstance(df, pd.Series) and isinstance(df.index, pd.DatetimeIndex):
        return df.to_frame(ids[0] if df.name is None and ids is not None and len(ids) == 1 else df.name)
    named = is_frame(df) and set(LONG_COLUMNS) <= set(df.columns)
    return df[list(LONG_COLUMNS)] if named else df
