"""Read long and wide frames (pandas or polars) and matrices, check them, and convert them to a panel."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from titans_core.warn import warn_caller
from titans_ts.frames.exogenous import Columns
from titans_ts.frames.libraries import LARGEST, holds_numbers, is_time, library_of, to_pandas, unusable
from titans_ts.frames.panel import Panel
from titans_ts.frames.stamps import (
    MOST_LEFT_OUT,
    Freq,
    Step,
    check_kind,
    check_order,
    check_regular,
    check_span,
    find_step,
    in_zone,
    stamps_of,
    ticks,
)

LONG_COLUMNS = ("unique_id", "ds", "y")
POLICIES = ("error", "interpolate", "mask")
NO_COLUMNS = Columns()
_OF_STAMPS = ("quarter", "month", "day", "day_of_week", "day_of_year", "hour", "minute")
_ENOUGH = 20  # rows that do not agree by chance
_FEW = 0.05  # part of the rows of a wide frame that may repeat a time stamp, which is then named as the fault


def read_frame(
    df: Any,
    freq: Freq | None = None,
    columns: Columns = NO_COLUMNS,
    missing: str = "error",
    fill: bool = True,
    known: pd.Index | None = None,
) -> Panel:
    """Check the data and convert it to a :class:`Panel`.

    Args:
        df: a long frame with columns ``unique_id``, ``ds``, ``y``; or a wide frame, one column per series, with a
            DatetimeIndex, an integer index or a column ``ds``; or a matrix ``[T, N]``. Frames of pandas or polars.
        freq: step of the time axis, such as "h", "15min", "MS" or an integer; None infers it.
        columns: exogenous columns; a long frame must have those of kind "hist" and "futr".
        missing: how to treat NaN and missing rows: "error" rejects them; "interpolate" fills them linearly and repeats
            the last value after the end of a series; "mask" keeps them as unknown.
        fill: False leaves NaN for "interpolate"; :meth:`Panel.filled` fills them later.
        known: time stamps whose time zone those of the frame are converted to, so that days and profiles follow it.

    Raises:
        TypeError: not a frame or matrix.
        ValueError: missing columns; NaN or infinite values; unsorted, duplicate or irregular time stamps; series that
            end at different times, with "error"; an unknown or unsuitable frequency; a time zone where ``known``
            has none, or the reverse. The message says where, and what to do.
    """
    plain = to_pandas(df)
    panel = _panel(plain, freq, columns, missing, plain is not df, known)
    if fill:
        panel = panel.filled(missing)
    # a fixed memory layout, since the rounding of sums depends on it
    return replace(
        panel,
        values=np.array(panel.values, order="C"),  # a copy: the frame may be changed after fit
        library=library_of(df),
    )


def _panel(
    df: Any, freq: Freq | None, columns: Columns, missing: str, was_polars: bool, known: pd.Index | None
) -> Panel:
    if not isinstance(df, (np.ndarray, pd.DataFrame)):
        ways = [way for way in ("to_pandas", "to_dataframe") if hasattr(df, way)]  # the latter of darts
        hint = f" Convert it with .{ways[0]}()." if ways else ""
        raise TypeError(f"df must be a pandas or polars DataFrame or a numpy matrix, got {type(df).__name__}.{hint}")
    if isinstance(df, pd.DataFrame) and len(df) == 0:
        raise ValueError("df has no rows.")
    if isinstance(df, pd.DataFrame) and _is_wide_with_time(df, was_polars):
        check_kind(df["ds"])
        df = df.set_index("ds")
    if isinstance(df, pd.DataFrame) and ("unique_id" in df.columns or "ds" in df.columns):
        return _from_long(df, freq, columns, missing, known)
    extra = [*columns.hist, *columns.futr]
    if extra:
        raise ValueError(
            f"exogenous columns {extra} need a long frame (unique_id, ds, y, {', '.join(extra)}), but df is "
            f"{'a matrix' if isinstance(df, np.ndarray) else 'a wide frame'}."
        )
    if isinstance(df, np.ndarray):
        return _from_matrix(df, missing)
    timeless = was_polars and df.index.name != "ds"
    index = stamps_of(df.index)
    if not timeless and (isinstance(index, pd.DatetimeIndex) or pd.api.types.is_integer_dtype(index)):
        return _from_wide(df.set_axis(in_zone(index, known)), freq, missing)
    raise ValueError(
        f"df is neither long nor wide: a long frame has the columns {', '.join(LONG_COLUMNS)}, a wide frame one column "
        f"per series and a DatetimeIndex or a column ds. "
        f"Got columns {list(df.columns)[:8]} and an index of {df.index.dtype}.{_index_hint(df.index)}"
    )


def _is_wide_with_time(df: pd.DataFrame, was_polars: bool) -> bool:
    """Whether df is wide with its time in a column. Many repeated stamps hint at a long pandas frame without unique_id,
    a few at an hour in autumn."""
    if "unique_id" in (*df.columns, *df.index.names) or list(df.columns).count("ds") != 1:
        return False
    alone = "y" not in df.columns or df.shape[1] == 2  # y and other columns: a long frame
    return was_polars or (alone and float(df["ds"].duplicated().mean()) < _FEW)


def _index_hint(index: pd.Index) -> str:
    if isinstance(index, pd.PeriodIndex):
        return " Convert periods with df.to_timestamp()."
    if isinstance(index, pd.MultiIndex) or "unique_id" in index.names:
        return " Move names from the index to columns with df.reset_index()."
    return " Convert text with df.set_index(pd.to_datetime(df.index))." if pd.api.types.is_string_dtype(index) else ""


def _from_matrix(X: np.ndarray, missing: str) -> Panel:
    if X.ndim != 2:
        raise ValueError(f"a matrix must be [T, N] (rows are time, columns are series), got shape {X.shape}.")
    ids = list(range(X.shape[1]))
    if len(X) == 0:
        raise ValueError("the matrix has no rows.")
    values = X.astype(np.float64)
    _check_values(values, ids, pd.RangeIndex(len(X)), missing)
    return Panel(values, ids, pd.RangeIndex(len(X), name="ds"), 1, "matrix")


def _from_wide(df: pd.DataFrame, freq: Freq | None, missing: str) -> Panel:
    if df.columns.nlevels > 1:
        raise ValueError(
            f"df has columns of {df.columns.nlevels} levels, but each series needs one name. Join them, for instance "
            "with df.columns = ['/'.join(map(str, names)) for names in df.columns]."
        )
    if df.columns.has_duplicates:
        raise ValueError(
            f"df has duplicate columns: {list(df.columns[df.columns.duplicated()])}. Each series needs its own name."
        )
    for name in df.columns:
        if not holds_numbers(df[name]):
            if is_time(df[name]):
                raise ValueError(
                    f"column {name!r} of a wide frame holds times, not a series: make it the index (df.set_index, "
                    "after pd.to_datetime), or rename it to 'ds'."
                )
            raise ValueError(
                f"column {name!r} of a wide frame must be numeric (one column per series), got {df[name].dtype}. "
                "Drop or convert it; or, if this is a long frame, rename its columns: df.rename(columns={...: "
                "'unique_id', ...: 'ds', ...: 'y'})."
            )
    if len(df.columns) == 0:
        raise ValueError("df has no columns: a wide frame has one column per series.")
    if df.index.hasnans:
        raise ValueError(
            f"the index of df has {int(np.sum(df.index.isna()))} missing time stamps. Drop or fill those rows."
        )
    check_order(df.index, "df")
    _warn_of_calendar(df)
    step = find_step(df.index, freq, "df")
    axis = check_regular(df.index, step, "df", gaps=missing != "error").rename("ds")
    values = df.to_numpy(dtype=np.float64, na_value=np.nan)
    _check_values(values, list(df.columns), df.index, missing)
    if len(axis) != len(values):
        whole = np.full((len(axis), values.shape[1]), np.nan)
        whole[axis.get_indexer(df.index)] = values
        values = whole
    else:
        axis = df.index.rename("ds")
    return Panel(values, list(df.columns), axis, step, "wide")


def _warn_of_calendar(df: pd.DataFrame) -> None:
    """Warn about columns of a wide frame that only repeat parts of its time stamps, such as the year."""
    if not isinstance(df.index, pd.DatetimeIndex) or len(df) < _ENOUGH:
        return
    parts = [getattr(df.index, part).to_numpy() for part in _OF_STAMPS]
    parts = [df.index.year.to_numpy(), *(part for part in parts if part.min() < part.max())]
    whole = [name for name in df.columns if pd.api.types.is_integer_dtype(df[name])]
    repeats = [name for name in whole if any(np.array_equal(df[name].to_numpy(), part) for part in parts)]
    if repeats:
        warn_caller(
            f"columns {repeats} of the wide frame only repeat parts of its time stamps, but are treated as series to "
            "forecast. Drop them; exogenous={'calendar': 'auto'} provides the time of day, week and year."
        )


class _Rows(NamedTuple):
    """The rows of a long frame grouped by series, in the frame's order within each.

    Attributes:
        order: positions of the rows in the frame, ``[R]``.
        codes: the series of each row, by number.
        ids: names of the series; numbers are Python numbers, for readable messages.
        ds: time stamps, ``[R]``.
        starts, ends: first and last row of each series, ``[N]``.
    """

    order: np.ndarray
    codes: np.ndarray
    ids: list[Any]
    ds: pd.Index
    starts: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, df: pd.DataFrame, known: pd.Index | None) -> "_Rows":
        codes, ids = pd.factorize(df["unique_id"])
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
        ds = in_zone(stamps_of(pd.Index(df["ds"].iloc[order])), known)
        ends = np.append(np.flatnonzero(np.diff(codes)), len(codes) - 1)
        rows = cls(order, codes, list(ids), ds, np.append(0, ends[:-1] + 1), ends)
        out_of_order = np.flatnonzero((np.diff(codes) == 0) & (np.diff(ds.asi8 if hasattr(ds, "asi8") else ds) <= 0))
        if len(out_of_order):
            check_order(*rows.series(codes[out_of_order[0]]))
        return rows

    def series(self, n: int) -> tuple[pd.Index, str]:
        """The time stamps of a series, and its name in messages."""
        return self.ds[self.starts[n] : self.ends[n] + 1], f"series {self.ids[n]!r}"

    @property
    def longest(self) -> tuple[pd.Index, str]:
        """:meth:`series` of the series with most rows."""
        return self.series(int(np.argmax(self.ends - self.starts)))


def _from_long(df: pd.DataFrame, freq: Freq | None, columns: Columns, missing: str, known: pd.Index | None) -> Panel:
    _check_long_columns(df, (*columns.hist, *columns.futr))
    rows, gaps = _Rows.of(df, known), missing != "error"
    axis, step = _axis_of(rows, freq, gaps)
    at = _places_on(axis, step, rows, gaps)

    def table(name: str) -> np.ndarray:
        found = df[name].iloc[rows.order].to_numpy(dtype=np.float64, na_value=np.nan)
        bad = unusable(found, gaps)
        if bad.any():
            _not_finite(found[bad][0], int(bad.sum()), rows.ids[rows.codes[bad][0]], rows.ds[bad][0], name)
        whole = np.full((len(axis), len(rows.ids)), np.nan)
        whole[at, rows.codes] = found
        return whole

    declared = {"hist": columns.hist, "futr": columns.futr}
    extra: dict[str, Any] = {
        kind: np.stack([table(name) for name in names], axis=-1) for kind, names in declared.items() if names
    }
    return Panel(table("y"), rows.ids, axis.rename("ds"), step, "long", **extra)


def _axis_of(rows: _Rows, freq: Freq | None, gaps: bool) -> tuple[pd.Index, Step]:
    """The regular time axis of all series, and its step, which is inferred from the longest series."""
    own, name = rows.longest
    step, last = find_step(own, freq, name), rows.ds[rows.ends]
    axis = check_regular(own, step, name, gaps=gaps)
    if gaps:  # from the first stamp of any series to the last
        stamps = rows.ds.unique().sort_values()
        check_span(stamps, step, "the frame")
        axis = check_regular(stamps[[0, -1]], step, "the frame", gaps=True)
        _warn_of_apart(rows, stamps, axis)
    if not gaps and len(last.unique()) > 1:
        early, late = int(np.argmin(last)), int(np.argmax(last))
        raise ValueError(
            f"all series must end at the same time: {rows.ids[early]!r} ends at {last[early]}, {rows.ids[late]!r} at "
            f"{last[late]}. Cut the longer ones, fit the groups separately, or set missing='interpolate' or 'mask'."
        )
    return axis, step


def _warn_of_apart(rows: _Rows, stamps: pd.Index, axis: pd.Index) -> None:
    """Warn about a long time without rows of any series, such as after a wrong year in one of them."""
    places = axis.get_indexer(stamps)
    left_out = np.diff(places, append=len(axis)) - 1
    widest = int(left_out.argmax())
    if (places < 0).any() or left_out[widest] <= max(_ENOUGH, len(axis) * MOST_LEFT_OUT):
        return
    before, after = stamps[widest], stamps[widest + 1]
    own, _ = rows.longest
    if own[0] <= before and own[-1] >= after:
        return  # a gap in the longest series, of which its own check has warned
    early, late = np.flatnonzero(rows.ds[rows.starts] <= before), np.flatnonzero(rows.ds[rows.ends] >= after)
    few, side = (early, f"until {before}") if len(early) < len(late) else (late, f"from {after} on")
    warn_caller(
        f"no series has rows between {before} and {after}: {left_out[widest]} rows are missing there. Only "
        f"{len(few)} series have rows {side}: {[rows.ids[i] for i in few][:8]}. If a time stamp is wrong, correct it."
    )


def _places_on(axis: pd.Index, step: Step, rows: _Rows, gaps: bool) -> np.ndarray:
    """The position of each row on the axis, ``[R]``."""
    if gaps:
        at = axis.get_indexer(rows.ds)
        wrong = at < 0
    else:  # each series ends at the end of the axis
        at = np.arange(len(rows.codes)) - rows.ends[rows.codes] + len(axis) - 1
        wrong = ticks(axis)[at] != ticks(rows.ds)
    if wrong.any():
        stamps, name = rows.series(rows.codes[np.flatnonzero(wrong)[0]])
        check_regular(stamps, step, name, gaps=gaps)
        raise ValueError(f"{name} has time stamps that do not fit those of {rows.longest[1]}.")
    return at


def _check_long_columns(df: pd.DataFrame, extra: tuple[str, ...]) -> None:
    twice = [c for c in (*LONG_COLUMNS, *extra) if list(df.columns).count(c) > 1]
    if twice:
        raise ValueError(f"df has more than one column named {twice}. Drop or rename all but one.")
    missing = [c for c in (*LONG_COLUMNS, *extra) if c not in df.columns]
    if missing:
        raise ValueError(
            f"df lacks the columns {missing}: a long frame has {', '.join((*LONG_COLUMNS, *extra))}. "
            f"Got {list(df.columns)[:8]}."
            + (" They are in the index: df.reset_index()." if set(missing) & set(df.index.names) else "")
        )
    ignored = [c for c in df.columns if c not in LONG_COLUMNS and c not in extra]
    if ignored:
        warn_caller(
            f"columns {ignored} of the long frame are ignored: they are not declared in exogenous. Drop them to "
            "silence this warning."
        )
    for name in ("y", *extra):
        if not holds_numbers(df[name]):
            encode = "" if name == "y" else " Encode categories, for instance with pd.get_dummies."
            raise ValueError(
                f"column {name!r} must be numeric, got {df[name].dtype}. Convert it with pd.to_numeric.{encode}"
            )
    check_kind(df["ds"])
    for name in ("unique_id", "ds"):
        if df[name].isna().any():
            raise ValueError(
                f"column {name!r} has {int(df[name].isna().sum())} missing values. Drop or fill those rows."
            )


def _check_values(values: np.ndarray, ids: list[Any], index: pd.Index, missing: str) -> None:
    bad = unusable(values, missing != "error")
    if bad.any():
        row, column = np.argwhere(bad)[0]
        _not_finite(values[row, column], int(bad.sum()), ids[column], index[row], "y")


def _not_finite(value: float, count: int, series: Any, stamp: Any, column: str) -> None:
    where = "" if column == "y" else f" of column {column!r}"
    if np.isfinite(value):
        raise ValueError(
            f"the data has {count} values{where} beyond {LARGEST:.2g}, the largest float32 number, first: "
            f"{value:.3g} in series {series!r} at {stamp}. Use a larger unit, or logarithms."
        )
    kind = "NaN" if np.isnan(value) else "infinite"
    raise ValueError(
        f"the data has {count} values{where} that are NaN or infinite, first: {kind} in series {series!r} at {stamp}. "
        "Fill them (for instance with df.interpolate()) or cut them off. For NaN you can also set "
        "missing='interpolate', or before fit missing='mask'."
    )
