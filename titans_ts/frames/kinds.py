"""What kind of data is given: a frame of any library, a series, a matrix, or a common mistake."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from titans_ts.frames.frame import LONG_COLUMNS

PARQUET = (".parquet", ".pq")
_NOT_DATA: tuple[tuple[Any, str], ...] = (
    (type(None), "Pass the data."),
    ((str, Path), "Read the file first with {}, and convert its time stamps with pd.to_datetime."),
    (Mapping, "Convert it with pd.DataFrame(df), or join frames with pd.concat."),
)


def is_frame(df: Any) -> bool:
    """Whether df is a frame of any library, not a matrix.

    Raises:
        TypeError: a common mistake, such as a path or a dict; the message says what to do.
    """
    for kind, do in _NOT_DATA:
        if isinstance(df, kind) and not hasattr(df, "shape"):  # a sparse matrix may be a mapping
            do = do.format(_reading(df)) if isinstance(df, str | Path) else do
            raise TypeError(f"df must be a pandas or polars DataFrame or a numpy matrix, got {type(df).__name__}. {do}")
    if hasattr(df, "collect"):  # before access to its columns, which would already start a query
        raise TypeError(f"df must be a DataFrame, got {type(df).__name__}: convert it with df.collect().")
    return hasattr(df, "columns")


def _reading(path: str | Path) -> str:
    """The call that reads a file with this name."""
    kind = "parquet" if str(path).lower().endswith(PARQUET) else "csv"
    return f"pd.read_{kind}({str(path)!r})"


def of_values(df: Any, ids: list[Any] | None = None) -> Any:
    """Drop exogenous columns of a long frame. A single column of a wide frame becomes a frame; without a name, it is
    the only one of ``ids``."""
    if isinstance(df, pd.Series) and isinstance(df.index, pd.DatetimeIndex):
        return df.to_frame(ids[0] if df.name is None and ids is not None and len(ids) == 1 else df.name)
    named = is_frame(df) and set(LONG_COLUMNS) <= set(df.columns)
    return df[list(LONG_COLUMNS)] if named else df
