"""Frames in and out: long and wide frames, pandas or polars, and plain matrices, to one table of values and back."""

import warnings
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from titans_ts.exogenous import Columns, to_pandas
from titans_ts.stamps import (
    Freq,
    Step,
    check_order,
    check_regular,
    find_step,
    following,
    in_zone,
    name_of,
    stamps_of,
    ticks,
)

Layout = Literal["long", "wide", "matrix"]

LONG_COLUMNS = ("unique_id", "ds", "y")
POLICIES = ("error", "interpolate", "mask")
NO_COLUMNS = Columns()


def _nothing() -> np.ndarray:
    return np.empty((0, 0, 0))


@dataclass(frozen=True, eq=False)
class Panel:
    """Series side by side on one time axis.

    Attributes:
        values: ``[T, N]`` float64. A series that starts later than others has NaN before its start. With
            ``missing="mask"`` there may be NaN elsewhere, and nowhere else otherwise.
        ids: names of the N series.
        index: the T time stamps, regular: a DatetimeIndex, or integers.
        freq: step of the index: a pandas offset, or an integer.
        layout: what the caller gave, and gets back.
        library: whose frames they are: "pandas" or "polars".
        hist: exogenous columns known up to now, ``[T, N, X]``.
        futr: exogenous columns known ahead, ``[T, N, F]``.
        stat: static columns, ``[N, S]``.
        drawn: what :meth:`filled` put there or has exogenous columns from it: no measurement, ``[T, N]``.
    """

    values: np.ndarray
    ids: list[Any]
    index: pd.Index
    freq: Step
    layout: Layout
    library: str = "pandas"
    hist: np.ndarray = field(default_factory=_nothing)
    futr: np.ndarray = field(default_factory=_nothing)
    stat: np.ndarray = field(default_factory=_nothing)
    drawn: np.ndarray = field(default_factory=lambda: np.empty((0, 0), dtype=bool))

    def __post_init__(self) -> None:
        T, N = self.values.shape
        if self.drawn.shape != (T, N):
            object.__setattr__(self, "drawn", np.zeros((T, N), dtype=bool))
        for name, shape in (("hist", (T, N, 0)), ("futr", (T, N, 0)), ("stat", (N, 0))):
            if getattr(self, name).shape[:-1] != shape[:-1]:
                object.__setattr__(self, name, np.empty(shape))

    def of_series(self, columns: list[int]) -> "Panel":
        """The panel of some series, by their numbers."""
        return replace(
            self,
            values=np.ascontiguousarray(self.values[:, columns]),  # last digits depend on the layout in memory
            ids=[self.ids[i] for i in columns],
            hist=self.hist[:, columns],
            futr=self.futr[:, columns],
            stat=self.stat[columns],
            drawn=self.drawn[:, columns],
        )

    def ordered_as(self, ids: list[Any]) -> "Panel":
        """The panel with its series in the order of ``ids``, if it has just these; else as it is."""
        places = self.places(ids)
        if self.ids == ids or len(ids) != len(self.ids) or None in places:
            return self
        return self.of_series([place for place in places if place is not None])

    def rows(self, start: int | None, stop: int | None = None) -> "Panel":
        """The panel of a part of the rows."""
        part = slice(start, stop)
        return replace(
            self,
            values=self.values[part],
            index=self.index[part],
            hist=self.hist[part],
            futr=self.futr[part],
            drawn=self.drawn[part],
        )

    def filled(self, missing: str) -> "Panel":
        """With "interpolate" straight lines in place of NaN behind the first value of a series, and behind its last
        value that value; else as it is."""
        if missing != "interpolate":
            return self
        whole = replace(self, values=_filled(self.values), hist=_filled(self.hist), futr=_filled(self.futr))
        return replace(whole, drawn=self.drawn | (self.unknown() & ~whole.unknown()))

    def unknown(self) -> np.ndarray:
        """What has a NaN that only time makes known, of the series or of its columns known up to now: ``[T, N]``."""
        return np.isnan(self.values) | np.isnan(self.hist).any(axis=-1)

    @property
    def measured(self) -> np.ndarray:
        """The values, NaN where they are lines through holes, ``[T, N]``; of a series that has no others, these."""
        return np.where(self.drawn & ~self.drawn.all(axis=0), np.nan, self.values)

    def places(self, names: list[Any]) -> list[int | None]:
        """Where the series of these names stand; None for those that are not here."""
        known = {name: i for i, name in enumerate(self.ids)}
        return [known.get(name) for name in names]

    def clock(self) -> list[str]:
        """What time stamps say beside their order: the first one, the step, and the time zone."""
        return [str(self.index[0]), str(name_of(self.freq)), str(getattr(self.index, "tz", None))]

    def known_at(self, row: int) -> "Panel":
        """As it stood before a row: what came from there on is NaN, but for columns that are known ahead."""
        values, hist = self.values.copy(), self.hist.copy()
        values[row:], hist[row:] = np.nan, np.nan
        return replace(self, values=values, hist=hist)

    def future(self, h: int) -> pd.Index:
        """The h time stamps after the last."""
        return following(self.index[-1], self.freq, h)

    def joined(self, newer: "Panel") -> "Panel":
        """This panel, and behind it the rows of ``newer``, which begin one step after its last and have its series.

        Raises:
            ValueError: other series, or rows that do not follow.
        """
        if newer.ids != self.ids:
            raise ValueError(f"the new rows must be of the series {self.ids[:8]}, got {newer.ids[:8]}.")
        expected = following(self.index[-1], self.freq, 1)[0]
        if newer.index[0] != expected:
            raise ValueError(
                f"the new rows must begin where the known ones end, at {expected}, got {newer.index[0]}. "
                "Give each row once, in order."
            )
        return replace(
            self,
            index=self.index.append(newer.index),
            values=np.concatenate((self.values, newer.values)),
            hist=np.concatenate((self.hist, newer.hist)),
            futr=np.concatenate((self.futr, newer.futr)),
            drawn=np.concatenate((self.drawn, newer.drawn)),
        )

    def output(self, index: pd.Index, values: np.ndarray, names: list[str]) -> Any:
        """Values ``[len(index), N, len(names)]`` in the caller's layout.

        Long: a column for each name. Wide: the columns of the first name are called after the series, those of the
        others ``<series><name less the first name>``. Matrix: without names the last axis is dropped.
        """
        if self.layout == "matrix":
            return values[..., 0] if len(names) == 1 else values
        if self.layout == "wide":
            endings = ["", *(name.removeprefix(names[0]) for name in names[1:])]
            columns = [i if not end else f"{i}{end}" for i in self.ids for end in endings]
            if len(set(columns)) < len(columns):
                taken = sorted({str(name) for name in columns if columns.count(name) > 1})
                raise ValueError(f"the bounds of a level have the names of other series, {taken}: rename those.")
            return self._own(pd.DataFrame(values.reshape(len(index), -1), index=index, columns=pd.Index(columns)))
        return self._own(long_frame(self.ids, index, dict(zip(names, np.moveaxis(values, -1, 0), strict=True))))

    def _own(self, frame: pd.DataFrame) -> Any:
        return from_pandas(frame, self.library)


def long_frame(ids: list[Any], index: pd.Index, columns: dict[str, np.ndarray]) -> pd.DataFrame:
    """``unique_id, ds`` and the columns, each given as ``[len(index), N]``."""
    unique_id = pd.Index(ids).repeat(len(index))
    ds = index.append([index] * (len(ids) - 1)) if ids else index[:0]
    flat = {name: values.T.reshape(-1) for name, values in columns.items()}
    return pd.DataFrame({"unique_id": unique_id, "ds": ds, **flat})


def from_pandas(frame: pd.DataFrame, library: str) -> Any:
    """A pandas frame as one of the library that the caller uses; an index becomes the column ``ds``."""
    if library == "pandas":
        return frame
    import polars

    if frame.index.name == "ds":
        frame = frame.reset_index()
    columns = {}
    for name in frame.columns:
        column = frame[name]
        zone = getattr(column.dt, "tz", None) if pd.api.types.is_datetime64_any_dtype(column) else None
        plain = column.dt.tz_convert("UTC").dt.tz_localize(None) if zone else column
        if column.dtype == "datetime64[s]":  # no time of polars has this unit: it came from dates
            plain = plain.dt.as_unit("us")
            whole_days = bool((plain == plain.dt.normalize()).all())
            series = polars.Series(str(name), plain.to_numpy())
            columns[str(name)] = series.cast(polars.Date) if whole_days else series
            continue
        series = polars.Series(str(name), plain.to_numpy() if column.dtype.kind != "O" else plain.tolist())
        columns[str(name)] = series.dt.replace_time_zone("UTC").dt.convert_time_zone(str(zone)) if zone else series
    return polars.DataFrame(columns)


def read_frame(
    df: Any,
    freq: Freq | None = None,
    columns: Columns = NO_COLUMNS,
    missing: str = "error",
    fill: bool = True,
    known: pd.Index | None = None,
) -> Panel:
    """A checked :class:`Panel` from what a user has.

    Args:
        df: a long frame with columns ``unique_id``, ``ds``, ``y``; or a wide frame, one column a series, with a
            DatetimeIndex (or an integer index); or a matrix ``[T, N]``. Frames of pandas or, with the time in a column
            ``ds``, of polars.
        freq: step of the time axis, such as "h", "15min", "MS" or an integer; None infers it.
        columns: the exogenous columns to read; a long frame must have them.
        missing: what NaN and missing rows mean: "error"; "interpolate", in a straight line between neighbours, and
            behind the last as the last; "mask", not known.
        fill: False leaves NaN where "interpolate" would draw lines; :meth:`Panel.filled` draws them.
        known: time stamps into whose time zone those of the frame are brought: a day begins there, and a profile goes
            by the clock there.

    Raises:
        TypeError: not a frame or matrix.
        ValueError: missing columns; NaN or infinite values; unsorted, duplicate or irregular time stamps; series that
            do not end together; a frequency that is unknown or does not fit; a time zone where ``known`` has none, or
            the other way round. The message says where, and what to do.
    """
    plain = to_pandas(df)
    panel = _panel(plain, freq, columns, missing, plain is not df, known)
    if fill:
        panel = panel.filled(missing)
    # one layout in memory: sums, and so last digits, depend on it
    return replace(
        panel,
        values=np.array(panel.values, order="C"),  # a copy: the frame may be changed after fit
        library="pandas" if plain is df else "polars",
    )


def _panel(
    df: Any, freq: Freq | None, columns: Columns, missing: str, was_polars: bool, known: pd.Index | None
) -> Panel:
    if not isinstance(df, (np.ndarray, pd.DataFrame)):
        hint = " Convert it with .to_pandas()." if hasattr(df, "to_pandas") else ""
        raise TypeError(f"df must be a pandas or polars DataFrame or a numpy matrix, got {type(df).__name__}.{hint}")
    if isinstance(df, pd.DataFrame) and len(df) == 0:
        raise ValueError("df has no rows.")
    if isinstance(df, pd.DataFrame) and was_polars and "ds" in df.columns and "unique_id" not in df.columns:
        df = df.set_index("ds")  # polars has no index: a wide frame has its time in a column
    if isinstance(df, pd.DataFrame) and ("unique_id" in df.columns or "ds" in df.columns):
        return _from_long(df, freq, columns, missing, known)
    beside = [*columns.hist, *columns.futr]
    if beside:
        raise ValueError(
            f"exogenous columns {beside} need a long frame (unique_id, ds, y, {', '.join(beside)}); this one is "
            f"{'a matrix' if isinstance(df, np.ndarray) else 'wide'}."
        )
    if isinstance(df, np.ndarray):
        return _from_matrix(df, missing)
    timeless = was_polars and df.index.name != "ds"
    index = stamps_of(df.index)
    if not timeless and (isinstance(index, pd.DatetimeIndex) or pd.api.types.is_integer_dtype(index)):
        return _from_wide(df.set_axis(in_zone(index, known)), freq, missing)
    raise ValueError(
        f"df is neither long nor wide: a long frame has the columns {', '.join(LONG_COLUMNS)}, a wide frame one column "
        f"a series and a DatetimeIndex (of polars: a column ds). "
        f"Got columns {list(df.columns)[:8]} and an index of {df.index.dtype}."
    )


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
            f"df has columns of {df.columns.nlevels} levels; each series needs one name, such as "
            "df.columns = ['/'.join(map(str, names)) for names in df.columns]."
        )
    if df.columns.has_duplicates:
        raise ValueError(
            f"df has duplicate columns: {list(df.columns[df.columns.duplicated()])}. Each series needs its own name."
        )
    for name in df.columns:
        if not pd.api.types.is_numeric_dtype(df[name]):
            raise ValueError(
                f"column {name!r} of a wide frame must be numeric (one column a series), got {df[name].dtype}. "
                "Drop or convert it."
            )
    if len(df.columns) == 0:
        raise ValueError("df has no columns: a wide frame has one column a series.")
    if df.index.hasnans:
        raise ValueError(
            f"the index of df has {int(np.sum(df.index.isna()))} missing time stamps. Drop or fill those rows."
        )
    check_order(df.index, "df")
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


class _Rows(NamedTuple):
    """The rows of a long frame, series after series, each in the frame's order.

    Attributes:
        order: where they stand in the frame, ``[R]``.
        codes: the series of each, by number.
        ids: names of the series.
        ds: time stamps, ``[R]``.
        starts, ends: first and last row of each series, ``[N]``.
    """

    order: np.ndarray
    codes: np.ndarray
    ids: pd.Index
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
        rows = cls(order, codes, ids, ds, np.append(0, ends[:-1] + 1), ends)
        out_of_order = np.flatnonzero((np.diff(codes) == 0) & (np.diff(ds.asi8 if hasattr(ds, "asi8") else ds) <= 0))
        if len(out_of_order):
            check_order(*rows.series(codes[out_of_order[0]]))
        return rows

    def series(self, n: int) -> tuple[pd.Index, str]:
        """The time stamps of a series, and what to call it."""
        return self.ds[self.starts[n] : self.ends[n] + 1], f"series {self.ids[n]!r}"

    @property
    def longest(self) -> tuple[pd.Index, str]:
        """As :meth:`series`, of that with most rows."""
        return self.series(int(np.argmax(self.ends - self.starts)))


def _from_long(df: pd.DataFrame, freq: Freq | None, columns: Columns, missing: str, known: pd.Index | None) -> Panel:
    _check_long_columns(df, (*columns.hist, *columns.futr))
    rows, gaps = _Rows.of(df, known), missing != "error"
    axis, step = _axis_of(rows, freq, gaps)
    at = _places_on(axis, step, rows, gaps)

    def table(name: str) -> np.ndarray:
        found = df[name].iloc[rows.order].to_numpy(dtype=np.float64, na_value=np.nan)
        bad = np.isinf(found) if gaps else ~np.isfinite(found)
        if bad.any():
            _not_finite(found[bad][0], int(bad.sum()), rows.ids[rows.codes[bad][0]], rows.ds[bad][0], name)
        whole = np.full((len(axis), len(rows.ids)), np.nan)
        whole[at, rows.codes] = found
        return whole

    hist, futr = (
        np.stack([table(name) for name in names], axis=-1) if names else _nothing()
        for names in (columns.hist, columns.futr)
    )
    return Panel(table("y"), list(rows.ids), axis.rename("ds"), step, "long", hist=hist, futr=futr)


def _axis_of(rows: _Rows, freq: Freq | None, gaps: bool) -> tuple[pd.Index, Step]:
    """The regular time stamps that all series lie on, and their step, which is found in the longest series."""
    own, name = rows.longest
    step, last = find_step(own, freq, name), rows.ds[rows.ends]
    axis = check_regular(own, step, name, gaps=gaps)
    if gaps:  # from the first stamp of any series to the last of any
        axis = check_regular(pd.Index([rows.ds[rows.starts].min(), last.max()]), step, "the frame", gaps=True)
    if len(last.unique()) > 1:
        early, late = int(np.argmin(last)), int(np.argmax(last))
        raise ValueError(
            f"all series must end at the same time: {rows.ids[early]!r} ends at {last[early]}, {rows.ids[late]!r} at "
            f"{last[late]}. Cut the longer ones, or fit the groups apart."
        )
    return axis, step


def _places_on(axis: pd.Index, step: Step, rows: _Rows, gaps: bool) -> np.ndarray:
    """Where on the axis each row of the frame is, ``[R]``."""
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


def _check_long_columns(df: pd.DataFrame, beside: tuple[str, ...]) -> None:
    twice = [c for c in (*LONG_COLUMNS, *beside) if list(df.columns).count(c) > 1]
    if twice:
        raise ValueError(f"df has more than one column named {twice}. Drop or rename all but one.")
    missing = [c for c in (*LONG_COLUMNS, *beside) if c not in df.columns]
    if missing:
        raise ValueError(
            f"df lacks the columns {missing}: a long frame has {', '.join((*LONG_COLUMNS, *beside))}. "
            f"Got {list(df.columns)[:8]}."
        )
    ignored = [c for c in df.columns if c not in LONG_COLUMNS and c not in beside]
    if ignored:
        warnings.warn(
            f"columns {ignored} of the long frame are ignored: they are not declared in exogenous, and only "
            f"{', '.join(LONG_COLUMNS)} are read without. Drop them to silence this.",
            stacklevel=8,  # who called fit or predict
        )
    for name in ("y", *beside):
        if not pd.api.types.is_numeric_dtype(df[name]):
            raise ValueError(f"column {name!r} must be numeric, got {df[name].dtype}.")
    if not (pd.api.types.is_datetime64_any_dtype(df["ds"]) or pd.api.types.is_integer_dtype(df["ds"])):
        raise ValueError(
            f"column 'ds' must hold time stamps or integers, got {df['ds'].dtype}. Convert it with pd.to_datetime."
        )
    for name in ("unique_id", "ds"):
        if df[name].isna().any():
            raise ValueError(
                f"column {name!r} has {int(df[name].isna().sum())} missing values. Drop or fill those rows."
            )


def _check_values(values: np.ndarray, ids: list[Any], index: pd.Index, missing: str) -> None:
    bad = ~np.isfinite(values) if missing == "error" else np.isinf(values)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        _not_finite(values[row, column], int(bad.sum()), ids[column], index[row], "y")


def _not_finite(value: float, count: int, series: Any, stamp: Any, column: str) -> None:
    kind = "NaN" if np.isnan(value) else "infinite"
    where = "" if column == "y" else f" of column {column!r}"
    raise ValueError(
        f"the data has {count} values{where} that are NaN or infinite, first: {kind} in series {series!r} at {stamp}. "
        "Fill them (for instance df.interpolate()), cut them off, or, where they are NaN, set missing='interpolate', "
        "or before fit missing='mask'."
    )


def _filled(values: np.ndarray) -> np.ndarray:
    """NaN in a straight line between neighbours in time, behind the last known value as that value."""
    if not np.isnan(values).any():
        return values
    flat = pd.DataFrame(values.reshape(len(values), -1))
    return flat.interpolate(method="linear", limit_direction="forward").to_numpy().reshape(values.shape)
