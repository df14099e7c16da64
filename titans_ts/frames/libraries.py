"""Conversion between pandas and polars frames, and checks of column types and values."""

import re
from datetime import date
from typing import Any

import numpy as np
import pandas as pd

LARGEST = float(np.finfo(np.float32).max)
_DATE = re.compile(r"\s*\d{1,4}([-/.])\d{1,2}\1\d{1,4}(\D|$)")


def to_pandas(df: Any) -> Any:
    """Convert a polars frame to pandas; anything else is returned unchanged."""
    if not _is_polars(df):
        return df
    columns = {}
    for column in df.get_columns():
        if column.dtype.is_decimal() or (str(column.dtype) == "Boolean" and column.null_count()):
            column = column.cast(float)
        # a pandas column cannot have two dimensions, as structs and arrays would
        values = column.to_list() if column.dtype.is_nested() else column.to_numpy()
        zone = getattr(column.dtype, "time_zone", None)
        columns[column.name] = pd.Series(values).dt.tz_localize("UTC").dt.tz_convert(zone) if zone else values
    return pd.DataFrame(columns)


def _is_polars(df: Any) -> bool:
    return type(df).__module__.partition(".")[0] == "polars" and hasattr(df, "get_columns")


def library_of(df: Any) -> str:
    """The name of a frame's library, "pandas" or "polars"; to the latter the type of ``unique_id`` is added if it is
    one of integers or categories, since polars joins and concatenates only columns of the same type."""
    if not _is_polars(df):
        return "pandas"
    import polars

    kind = df.schema.get("unique_id", polars.String).base_type()
    return f"polars {kind}" if kind.is_integer() or kind == polars.Categorical else "polars"


def need_columns(df: Any, names: tuple[str, ...], where: str) -> pd.DataFrame:
    """Convert a frame to pandas, and reject what is no frame with these columns; ``where`` is its name in messages."""
    df = to_pandas(df)
    if not isinstance(df, pd.DataFrame):
        raise TypeError(f"{where} must be a pandas or polars DataFrame, got {type(df).__name__}.")
    twice = [n for n in names if list(df.columns).count(n) > 1]
    if twice:
        raise ValueError(f"{where} has more than one column named {twice}. Drop or rename all but one.")
    missing = [n for n in names if n not in df.columns]
    if missing:
        indexed = f" They are in the index: {where}.reset_index()." if set(missing) & set(df.index.names) else ""
        raise ValueError(f"{where} lacks the columns {missing}. Got {list(df.columns)[:8]}.{indexed}")
    return df


def holds_numbers(column: pd.Series) -> bool:
    """Whether a column holds real numbers or booleans."""
    # booleans of pyarrow too, which pandas does not count as numbers
    if column.dtype.kind == "b" or numbers_as_objects(column):
        return True
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column)


def numbers_as_objects(column: pd.Series) -> bool:
    """Whether a column holds decimals, or booleans beside missing values, which pandas reads as objects."""
    return column.dtype == object and pd.api.types.infer_dtype(column) in ("decimal", "boolean")


def is_stamps(values: pd.Series | pd.Index) -> bool:
    """Whether values are time stamps, those of pyarrow included, which pandas 2 knows by their type alone."""
    return pd.api.types.is_datetime64_any_dtype(values.dtype)


def is_time(column: pd.Series) -> bool:
    """Whether a column holds time stamps, dates, or text such as 2024-05-01 or 1.5.2024."""
    if is_stamps(column):
        return True
    first = column.dropna().head(8)
    return len(first) > 0 and all(isinstance(x, date) or (isinstance(x, str) and _DATE.match(x)) for x in first)


def unusable(values: np.ndarray, gaps: bool) -> np.ndarray:
    """Which values are infinite or beyond float32, or NaN unless ``gaps``."""
    return (np.abs(values) > LARGEST) | (False if gaps else np.isnan(values))


def from_pandas(frame: pd.DataFrame, library: str) -> Any:
    """Convert a pandas frame to ``library``, as :func:`library_of` names it; for polars, a time index becomes the
    column ``ds``, and NaN null, which its means leave out."""
    if library == "pandas":
        return frame
    import polars

    _, _, kind = library.partition(" ")
    if frame.index.name == "ds":
        frame = frame.reset_index()
    columns = {}
    for name in frame.columns:
        column = frame[name]
        zone = getattr(column.dt, "tz", None) if is_stamps(column) else None
        plain = column.dt.tz_convert("UTC").dt.tz_localize(None) if zone else column
        if column.dtype == "datetime64[s]":  # polars has no time in seconds: it came from dates
            plain = plain.dt.as_unit("us")
            whole_days = bool((plain == plain.dt.normalize()).all())
            series = polars.Series(str(name), plain.to_numpy())
            columns[str(name)] = series.cast(polars.Date) if whole_days else series
            continue
        values = plain.to_numpy() if column.dtype.kind != "O" else plain.tolist()
        series = polars.Series(str(name), values, nan_to_null=True)
        if name == "unique_id" and kind:
            series = series.cast(getattr(polars, kind))
        columns[str(name)] = series.dt.replace_time_zone("UTC").dt.convert_time_zone(str(zone)) if zone else series
    return polars.DataFrame(columns)
