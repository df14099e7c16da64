"""Frames in and out: long and wide pandas frames, and plain matrices, to one table of values and back."""

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

Layout = Literal["long", "wide", "matrix"]
Freq = str | int | pd.offsets.BaseOffset

LONG_COLUMNS = ("unique_id", "ds", "y")


@dataclass(frozen=True)
class Panel:
    """Series side by side on one time axis.

    Attributes:
        values: ``[T, N]`` float64. A series that starts later than others has NaN before its start, and nowhere else.
        ids: names of the N series.
        index: the T time stamps, regular: a DatetimeIndex, or integers.
        freq: step of the index: a pandas offset, or an integer.
        layout: what the caller gave, and gets back.
    """

    values: np.ndarray
    ids: list[Any]
    index: pd.Index
    freq: pd.offsets.BaseOffset | int
    layout: Layout

    def rows(self, start: int | None, stop: int | None = None) -> "Panel":
        """The panel of a part of the rows."""
        part = slice(start, stop)
        return replace(self, values=self.values[part], index=self.index[part])

    def future(self, h: int) -> pd.Index:
        """The h time stamps after the last."""
        last = self.index[-1]
        if isinstance(self.freq, int):
            return pd.RangeIndex(last + self.freq, last + (h + 1) * self.freq, self.freq, name="ds")
        return pd.date_range(last, periods=h + 1, freq=self.freq, name="ds")[1:]

    def output(self, index: pd.Index, values: np.ndarray, column: str) -> pd.DataFrame | np.ndarray:
        """Values ``[len(index), N]`` in the caller's layout; ``column`` names them in a long frame."""
        if self.layout == "matrix":
            return values
        if self.layout == "wide":
            return pd.DataFrame(values, index=index, columns=pd.Index(self.ids))
        return pd.DataFrame(
            {
                "unique_id": np.repeat(np.asarray(self.ids, dtype=object), len(index)) if self.ids else [],
                "ds": np.tile(index.to_numpy(), len(self.ids)),
                column: values.T.reshape(-1),
            }
        ).astype({"unique_id": pd.Series(self.ids).dtype})


def read_frame(df: Any, freq: Freq | None = None) -> Panel:
    """A checked :class:`Panel` from what a user has.

    Args:
        df: a long frame with columns ``unique_id``, ``ds``, ``y``; or a wide frame, one column a series, with a
            DatetimeIndex (or an integer index); or a matrix ``[T, N]``.
        freq: step of the time axis, such as "h", "15min", "MS" or an integer; None infers it.

    Raises:
        TypeError: not a frame or matrix.
        ValueError: missing columns; NaN or infinite values; unsorted, duplicate or irregular time stamps; series that
            do not end together; a frequency that is unknown or does not fit. The message says where, and what to do.
    """
    panel = _panel(df, freq)
    # one layout in memory: sums, and so last digits, depend on it
    return replace(panel, values=np.ascontiguousarray(panel.values))


def _panel(df: Any, freq: Freq | None) -> Panel:
    if isinstance(df, np.ndarray):
        return _from_matrix(df)
    if not isinstance(df, pd.DataFrame):
        hint = " Convert it with .to_pandas()." if hasattr(df, "to_pandas") else ""
        raise TypeError(f"df must be a pandas DataFrame or a numpy matrix, got {type(df).__name__}.{hint}")
    if len(df) == 0:
        raise ValueError("df has no rows.")
    if "unique_id" in df.columns or "ds" in df.columns:
        return _from_long(df, freq)
    if isinstance(df.index, pd.DatetimeIndex) or pd.api.types.is_integer_dtype(df.index):
        return _from_wide(df, freq)
    raise ValueError(
        f"df is neither long nor wide: a long frame has the columns {', '.join(LONG_COLUMNS)}, a wide frame one column "
        f"a series and a DatetimeIndex. Got columns {list(df.columns)[:8]} and an index of {df.index.dtype}."
    )


def _from_matrix(X: np.ndarray) -> Panel:
    if X.ndim != 2:
        raise ValueError(f"a matrix must be [T, N] (rows are time, columns are series), got shape {X.shape}.")
    ids = list(range(X.shape[1]))
    values = X.astype(np.float64)
    _check_finite(values, ids, pd.RangeIndex(len(X)))
    return Panel(values, ids, pd.RangeIndex(len(X), name="ds"), 1, "matrix")


def _from_wide(df: pd.DataFrame, freq: Freq | None) -> Panel:
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
    _check_order(df.index, "df")
    step = _step(df.index, freq, "df")
    values = df.to_numpy(dtype=np.float64)
    _check_finite(values, list(df.columns), df.index)
    return Panel(values, list(df.columns), df.index.rename("ds"), step, "wide")


def _from_long(df: pd.DataFrame, freq: Freq | None) -> Panel:
    missing = [c for c in LONG_COLUMNS if c not in df.columns]
    if missing:
        raise ValueError(
            f"df lacks the columns {missing}: a long frame has {', '.join(LONG_COLUMNS)}. Got {list(df.columns)[:8]}."
        )
    ignored = [c for c in df.columns if c not in LONG_COLUMNS]
    if ignored:
        warnings.warn(
            f"columns {ignored} of the long frame are ignored: only {', '.join(LONG_COLUMNS)} are read. Drop them to "
            "silence this.",
            stacklevel=5,
        )
    if not pd.api.types.is_numeric_dtype(df["y"]):
        raise ValueError(f"column 'y' must be numeric, got {df['y'].dtype}.")
    if not (pd.api.types.is_datetime64_any_dtype(df["ds"]) or pd.api.types.is_integer_dtype(df["ds"])):
        raise ValueError(
            f"column 'ds' must hold time stamps or integers, got {df['ds'].dtype}. Convert it with pd.to_datetime."
        )
    for name in ("unique_id", "ds"):
        if df[name].isna().any():
            raise ValueError(
                f"column {name!r} has {int(df[name].isna().sum())} missing values. Drop or fill those rows."
            )

    series = {key: group for key, group in df.groupby("unique_id", sort=False, observed=True)}
    for key, group in series.items():
        _check_order(pd.Index(group["ds"]), f"series {key!r}")
    longest = max(series.values(), key=len)
    step = _step(pd.Index(longest["ds"]), freq, f"series {longest['unique_id'].iloc[0]!r}")
    ends = {key: group["ds"].iloc[-1] for key, group in series.items()}
    if len(set(ends.values())) > 1:
        first, last = min(ends, key=ends.__getitem__), max(ends, key=ends.__getitem__)
        raise ValueError(
            f"all series must end at the same time: {first!r} ends at {ends[first]}, {last!r} at {ends[last]}. "
            "Cut the longer ones, or fit the groups apart."
        )
    axis = pd.Index(longest["ds"], name="ds")
    columns = []
    for key, group in series.items():
        index = pd.Index(group["ds"])
        _step(index, step, f"series {key!r}")
        y = group["y"].to_numpy(dtype=np.float64)
        _check_finite(y[:, None], [key], index)
        columns.append(np.concatenate((np.full(len(axis) - len(y), np.nan), y)))
    return Panel(np.stack(columns, axis=1), list(series), axis, step, "long")


def _check_order(index: pd.Index, where: str) -> None:
    if index.is_monotonic_increasing and index.is_unique:
        return
    if index.has_duplicates:
        again = index[index.duplicated()]
        raise ValueError(
            f"{where} has {len(again)} duplicate time stamps, first: {again[0]}. Aggregate or drop them first."
        )
    position = int(np.flatnonzero(index[1:] < index[:-1])[0]) + 1
    raise ValueError(
        f"{where} is not sorted by time: {index[position]} comes after {index[position - 1]}. Sort it first."
    )


def _step(index: pd.Index, freq: Freq | None, where: str) -> pd.offsets.BaseOffset | int:
    """The step of a sorted index; an error if it has none, or another than ``freq``."""
    is_integer = not isinstance(index, pd.DatetimeIndex)
    if freq is None:
        freq = _guess(index, is_integer, where)
    if is_integer:
        if not isinstance(freq, (int, np.integer)) or freq < 1:
            raise ValueError(f"freq must be a positive integer for integer time stamps, got {freq!r}.")
        step: pd.offsets.BaseOffset | int = int(freq)
        expected: pd.Index = pd.RangeIndex(index[0], index[0] + len(index) * int(freq), int(freq))
    else:
        try:
            step = pd.tseries.frequencies.to_offset(freq)  # type: ignore[arg-type]
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"unknown freq {freq!r}: use a pandas frequency such as 'h', '15min', 'D', 'MS'."
            ) from error
        expected = pd.date_range(index[0], periods=len(index), freq=step)
    wrong = np.flatnonzero(expected.to_numpy() != index.to_numpy())
    if len(wrong):
        i = int(wrong[0])
        after = f" after {index[i - 1]}" if i else ""
        raise ValueError(
            f"{where} has irregular time stamps for freq {_name(step)!r}: "
            f"expected {expected[i]}{after}, got {index[i]}. "
            "Fill the gap (for instance df.resample), or pass the freq that the data has."
        )
    return step


def _guess(index: pd.Index, is_integer: bool, where: str) -> Freq:
    if len(index) < 3:
        raise ValueError(
            f"freq cannot be inferred from {len(index)} time stamps of {where}. Pass freq, such as freq='h'."
        )
    steps = np.diff(index.to_numpy())
    if is_integer:
        return int(np.median(steps))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas announces another type of the result, and either will do
        inferred = pd.infer_freq(pd.DatetimeIndex(index))
    if inferred is not None:
        return inferred
    # not regular: judge it by its commonest step, so that the error can name the first gap
    values, counts = np.unique(steps, return_counts=True)
    if counts.max() * 2 > len(steps):
        return pd.tseries.frequencies.to_offset(pd.Timedelta(values[counts.argmax()]))
    raise ValueError(
        f"freq cannot be inferred: the time stamps of {where} have {len(values)} different steps, "
        f"from {pd.Timedelta(values[0])} to {pd.Timedelta(values[-1])}. "
        "Make them regular (for instance df.resample), or pass freq."
    )


def _name(step: pd.offsets.BaseOffset | int) -> str | int:
    return step if isinstance(step, int) else step.freqstr


def _check_finite(values: np.ndarray, ids: list[Any], index: pd.Index) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        kind = "NaN" if np.isnan(values[row, column]) else "infinite"
        raise ValueError(
            f"the data has {int(bad.sum())} values that are NaN or infinite, first: {kind} in series {ids[column]!r} "
            f"at {index[row]}. Fill them (for instance df.interpolate()) or cut them off."
        )
