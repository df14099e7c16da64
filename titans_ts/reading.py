"""Panels for an estimator: of rows that follow, and with static columns."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from titans_datasets.warn import warn_caller
from titans_ts.exogenous import Columns, read_future, read_static
from titans_ts.frame import LONG_COLUMNS, read_frame
from titans_ts.panel import Panel, beyond, filled
from titans_ts.stamps import following

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


def read_newer(context: Panel, new_df: Any, columns: Columns, missing: str, left_out: list[Any]) -> Panel:
    """The rows that follow those of ``context``, a single one too; a matrix goes on counting where the last ended.

    Rows may be left out between them where ``missing`` says what that means. Lines of "interpolate" begin at the last
    row of the context. Series that ``fit`` left out are left out here, too."""
    if isinstance(new_df, pd.Series) and context.layout != "matrix":
        new_df = _frame_of(new_df, context)
    if is_frame(new_df):
        panel = read_frame(new_df, context.freq, columns, missing, fill=False, known=context.index)
        panel = without(panel, left_out)
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


def read_ahead(panel: Panel, futr_df: Any, h: int, names: tuple[str, ...], missing: str) -> np.ndarray:
    """The future columns in the h steps behind a panel, ``[h, N, F]``.

    Lines of "interpolate" begin at its last row.
    """
    futr = read_future(futr_df, panel.ids, panel.future(h), names, gaps=missing != "error")
    return filled(np.concatenate((panel.futr[-1:], futr)))[1:] if missing == "interpolate" else futr


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
