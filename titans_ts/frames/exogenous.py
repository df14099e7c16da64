"""Exogenous columns: their declaration, calendar features, and the static and future tables."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd

from titans_core.warn import warn_caller
from titans_ts.frames.libraries import LARGEST, holds_numbers, need_columns, to_pandas, unusable
from titans_ts.frames.stamps import check_kind, in_zone, stamps_of

# harmonics of each calendar cycle: daily curves have sharp changes, yearly ones are smooth
CYCLES = {"day": 3, "week": 2, "year": 2}
CYCLIC = ("calendar", "profile")
_SECONDS = {"day": 86_400.0, "week": 7 * 86_400.0, "year": 365.2425 * 86_400.0}


@dataclass(frozen=True)
class Columns:
    """Names of the exogenous columns.

    Attributes:
        hist: columns known only up to the present.
        futr: columns known in the horizon too; ``predict`` needs them in ``futr_df``.
        stat: columns that are constant for a series; in ``static_df``.
        calendar: cycles of the time stamps for time features: "day", "week", "year". ("auto",) selects those that the
            data spans at least twice.
        profile: likewise, cycles whose mean shape is subtracted from each series, given to the network as a column of
            that series, and added to its forecasts.
    """

    hist: tuple[str, ...] = ()
    futr: tuple[str, ...] = ()
    stat: tuple[str, ...] = ()
    calendar: tuple[str, ...] = ()
    profile: tuple[str, ...] = ()

    def with_cycles_of(self, index: pd.Index) -> "Columns":
        """Replace "auto" by the cycles that suit a time axis."""
        definite = {kind: _cycles_of(kind, getattr(self, kind), index) for kind in CYCLIC}
        return replace(self, **definite)


def _cycles_of(kind: str, cycles: tuple[str, ...], index: pd.Index) -> tuple[str, ...]:
    if cycles != ("auto",):
        if cycles and not isinstance(index, pd.DatetimeIndex):
            raise ValueError(f"exogenous {kind}={list(cycles)} needs datetime time stamps, got {index.dtype}.")
        return cycles
    if not isinstance(index, pd.DatetimeIndex):
        warn_caller(
            f"exogenous {kind}='auto' has no effect: it needs datetime time stamps, got {index.dtype}. Convert them "
            "with pd.to_datetime, or omit it."
        )
        return ()
    return tuple(spanned_twice(index, tuple(CYCLES)))


def spanned_twice(index: pd.DatetimeIndex, cycles: tuple[str, ...]) -> dict[str, float]:
    """The cycles that the time stamps span at least twice, with at least two steps in each, and how often."""
    if len(index) < 2:
        return {}
    span = (index[-1] - index[0]).total_seconds()
    step = span / (len(index) - 1)
    return {c: span / _SECONDS[c] for c in cycles if 2 * step <= _SECONDS[c] <= span / 2}


def read_columns(exogenous: Mapping[str, Any] | None) -> Columns:
    """The constructor's ``exogenous`` as :class:`Columns`.

    Raises:
        ValueError: unknown kinds or cycles, or invalid or repeated names.
        TypeError: not a mapping from kind to names.
    """
    if exogenous is None:
        return Columns()
    kinds = [f.name for f in fields(Columns)]
    if not isinstance(exogenous, Mapping):
        raise TypeError(f"exogenous must be a dict with keys among {kinds}, got {exogenous!r}.")
    unknown = [k for k in exogenous if k not in kinds]
    if unknown:
        raise ValueError(f"exogenous has unknown keys {unknown}; use {kinds}.")
    named: dict[str, tuple[str, ...]] = {}
    for kind, names in exogenous.items():
        if isinstance(names, str):
            names = [names]
        listed = isinstance(names, Collection) and not isinstance(names, set | frozenset)  # sets have no fixed order
        if not listed or not all(isinstance(n, str) for n in names):
            raise TypeError(f"exogenous[{kind!r}] must be a list of names, got {names!r}.")
        named[kind] = tuple(str(n) for n in names)  # numpy strings too
    columns = Columns(**named)
    every = [*columns.hist, *columns.futr, *columns.stat]
    twice = sorted({n for n in every if every.count(n) > 1})
    if twice:
        raise ValueError(f"exogenous columns {twice} are declared twice; name each once, under one kind.")
    wrong = [n for n in every if n in ("unique_id", "ds", "y")]
    if wrong:
        raise ValueError(f"exogenous must not name {wrong}: these columns are always read.")
    for kind in CYCLIC:
        cycles = getattr(columns, kind)
        if cycles != ("auto",) and any(c not in CYCLES for c in cycles):
            raise ValueError(f"exogenous {kind} must be 'auto' or a list of {list(CYCLES)}, got {list(cycles)}.")
    return columns


def calendar_features(index: pd.Index, cycles: tuple[str, ...], finer: int = 1) -> np.ndarray:
    """Sines and cosines of the position of each time stamp in its day, week and year, ``[T, 2 * harmonics]``.

    ``finer`` multiplies the number of harmonics.
    """
    if not cycles:
        return np.empty((len(index), 0))
    if not isinstance(index, pd.DatetimeIndex):
        raise ValueError(
            f"the model has a calendar or a profile ({', '.join(cycles)}), which needs datetime time stamps, got "
            f"{index.dtype}."
        )
    # local time, in which daily patterns repeat
    wall = index.tz_localize(None).as_unit("s").asi8.astype(np.float64)
    waves = []
    for cycle in cycles:
        # 1970-01-01 was a Thursday
        position = (wall + 3 * 86_400 if cycle == "week" else wall) / _SECONDS[cycle] * 2 * np.pi
        waves += [f(k * position) for k in range(1, finer * CYCLES[cycle] + 1) for f in (np.sin, np.cos)]
    return np.stack(waves, axis=1)


def read_static(static_df: Any, ids: list[Any], names: tuple[str, ...], gaps: bool = False) -> np.ndarray:
    """The static columns of each series, ``[N, S]``; with ``gaps`` NaN is allowed.

    Raises:
        ValueError: a frame without declared columns, or the reverse; missing columns or series, or values that are not
            numbers.
    """
    if not names and static_df is not None:
        raise ValueError("static_df is given, but exogenous declares no static columns: add {'stat': [...]}.")
    if not names:
        return np.empty((len(ids), 0))
    if static_df is None:
        raise ValueError(f"exogenous declares the static columns {list(names)}: pass them in static_df.")
    static_df = to_pandas(static_df)
    if getattr(getattr(static_df, "index", None), "name", None) == "unique_id":
        static_df = static_df.reset_index()
    need_columns(static_df, ("unique_id", *names), "static_df")
    if static_df["unique_id"].duplicated().any():
        again = static_df["unique_id"][static_df["unique_id"].duplicated()].tolist()[0]
        raise ValueError(f"static_df has several rows for series {again!r}; keep one.")
    table = static_df.set_index("unique_id")
    missing = [i for i in ids if i not in table.index]
    if missing:
        raise ValueError(
            f"static_df lacks {len(missing)} series of the data, first: {missing[0]!r}; it has "
            f"{table.index.tolist()[:8]}. Add their rows, with the same names."
        )
    values = _numbers(table[list(names)].reindex(ids), "static_df", gaps)
    bad = unusable(values, gaps)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"static_df has no finite {names[column]!r} for series {ids[row]!r}." + _advice(values[row, column])
        )
    return values


def read_future(
    futr_df: Any, ids: list[Any], index: pd.Index, names: tuple[str, ...], missing: str = "error"
) -> np.ndarray:
    """The future columns of each series at each time stamp of the horizon, ``[h, N, F]``.

    Unless ``missing`` is "error", unknown values and missing rows are NaN. Without a column ``unique_id``, rows hold
    for all series.

    Raises:
        ValueError: a frame without declared columns, or the reverse; missing columns, series, time stamps or values;
            time stamps of another type than those of the horizon.
    """
    gaps = missing != "error"
    if not names and futr_df is not None:
        raise ValueError("futr_df is given, but exogenous declares no future columns: add {'futr': [...]}.")
    if not names:
        return np.empty((len(index), len(ids), 0))
    if futr_df is None:
        raise ValueError(
            f"exogenous declares the future columns {list(names)}: pass their next {len(index)} values for each series "
            f"in futr_df, from {index[0]} to {index[-1]}."
        )
    futr_df = need_columns(futr_df, ("ds", *names), "futr_df")
    shared = "unique_id" not in (*futr_df.columns, *futr_df.index.names)
    if shared:
        futr_df = _of_each(futr_df, ids)
    need_columns(futr_df, ("unique_id",), "futr_df")
    if futr_df.duplicated(["unique_id", "ds"]).any():
        raise ValueError("futr_df has duplicate rows of (unique_id, ds). Drop the duplicates.")
    check_kind(futr_df["ds"], "futr_df")
    ds = in_zone(stamps_of(pd.Index(futr_df["ds"])), index, "the time stamps of futr_df")
    there = pd.MultiIndex.from_arrays([futr_df["unique_id"], ds])
    wanted = pd.MultiIndex.from_product([ids, index], names=["unique_id", "ds"])
    given = _numbers(futr_df[list(names)], "futr_df", gaps)
    values = pd.DataFrame(given, there).reindex(wanted).to_numpy()
    empty = ~wanted.isin(there).reshape(len(ids), len(index)).any(axis=1)  # series without any row
    bad = unusable(values, gaps) | np.repeat(empty, len(index))[:, None]
    if bad.any():
        row, column = np.argwhere(bad)[0]
        series, stamp = ids[row // len(index)], index[row % len(index)]
        known = futr_df["unique_id"].unique().tolist()
        if series not in known:
            more = "" if len(known) <= 8 else f" and {len(known) - 8} more"
            silent = " Or add at least one row for each other series, which may be NaN." if gaps else ""
            raise ValueError(
                f"futr_df has no rows for series {series!r}: its series are {known[:8]}{more}. To forecast only these, "
                f"call predict(df) with their rows alone.{silent}"
            )
        lacks = f"finite {names[column]!r}" if wanted[row] in there else "row"
        whose, of_each = ("", "") if shared else (f" for series {series!r}", " for each series")
        ds = ds if shared else ds[futr_df["unique_id"].to_numpy() == series]
        raise ValueError(
            f"futr_df has no {lacks}{whose} at {stamp}: it needs the {len(index)} steps from {index[0]} to {index[-1]}"
            f"{of_each}, but covers {ds.min()} to {ds.max()}." + ("" if empty.any() else _advice(values[row, column]))
        )
    left_out = int((~wanted.isin(there)).sum())
    if left_out:
        each = len(ids) if shared else 1
        then = "are interpolated" if missing == "interpolate" else "count as unknown"
        warn_caller(
            f"futr_df lacks {left_out // each} of the {len(wanted) // each} rows of the horizon from {index[0]} to "
            f"{index[-1]}; it covers {ds.min()} to {ds.max()}. In these rows {list(names)} {then}."
        )
    return values.reshape(len(ids), len(index), len(names)).transpose(1, 0, 2)


def _of_each(futr_df: pd.DataFrame, ids: list[Any]) -> pd.DataFrame:
    """Repeat rows that hold for all series, such as weather, for each series."""
    if futr_df["ds"].duplicated().any():
        raise ValueError(
            "futr_df has duplicate time stamps in ds and no column unique_id. Drop the duplicates, or add unique_id."
        )
    return futr_df.merge(pd.DataFrame({"unique_id": pd.Series(ids)}), how="cross")


def _advice(value: float) -> str:
    """Advice for a value that is unknown or too large for float32."""
    if np.isfinite(value):
        return f" {value:.3g} is beyond {LARGEST:.2g}, the largest float32 number: use a larger unit."
    return " It may be NaN if the model is fitted with missing='interpolate' or 'mask'." if np.isnan(value) else ""


def _numbers(table: pd.DataFrame, where: str, gaps: bool) -> np.ndarray:
    for name in table.columns:
        if not holds_numbers(table[name]) and not (gaps and table[name].isna().all()):
            raise ValueError(
                f"column {name!r} of {where} must be numeric, got {table[name].dtype}. Convert it with pd.to_numeric. "
                "Encode categories, for instance with pd.get_dummies."
            )
    return table.to_numpy(dtype=np.float64, na_value=np.nan)
