"""The internal table of series on one time axis, and its conversion to frames."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from titans_ts.frames.libraries import from_pandas
from titans_ts.frames.stamps import Step, between, following, name_of, preceding

Layout = Literal["long", "wide", "matrix"]


def beyond(names: list[Any], known: list[Any]) -> list[Any]:
    """The names that are not in ``known``."""
    there = set(known)
    return [name for name in names if name not in there]


def differing(given: list[Any], known: list[Any]) -> str:
    """The names by which two lists of series differ, for a message, since long lists begin alike."""
    ways = (("missing:", beyond(known, given)), ("new:", beyond(given, known)))
    found = [f"{how} {names[:8]}" for how, names in ways if names]
    return f" ({', '.join(found)})" if found else ""


_NOTHING = np.empty((0, 0, 0))  # placeholder for a table without columns


def _nothing() -> np.ndarray:
    return _NOTHING


@dataclass(frozen=True, eq=False)
class Panel:
    """Series on one time axis.

    Attributes:
        values: ``[T, N]`` float64, NaN before the start of a series. Other NaN are unknown values, which are filled
            unless ``missing="mask"``.
        ids: names of the N series.
        index: the T regular time stamps: a DatetimeIndex, or integers.
        freq: step of the index: a pandas offset, or an integer.
        layout: layout of the input and of the output.
        library: library of the frame, as :func:`titans_ts.frames.libraries.library_of` names it.
        hist: exogenous columns known up to the present, ``[T, N, X]``.
        futr: exogenous columns known ahead, ``[T, N, F]``.
        stat: static columns, ``[N, S]``.
        imputed: where the values and ``hist`` were filled by :meth:`filled`, ``[T, N, 1 + X]``.
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
    imputed: np.ndarray = field(default_factory=_nothing)

    def __post_init__(self) -> None:
        T, N = self.values.shape
        tables = (("hist", (T, N), float), ("futr", (T, N), float), ("stat", (N,), float), ("imputed", (T, N), bool))
        for name, shape, kind in tables:
            table = getattr(self, name)
            width = 1 + self.hist.shape[-1] if name == "imputed" else 0
            if table is _NOTHING:
                object.__setattr__(self, name, np.zeros((*shape, width), dtype=kind))
            elif table.shape[:-1] != shape or (width and table.shape[-1] != width):
                raise ValueError(f"the shape {table.shape} of {name} does not match values {self.values.shape}.")

    def of_series(self, columns: list[int]) -> "Panel":
        """Select series by position."""
        return replace(
            self,
            values=np.ascontiguousarray(self.values[:, columns]),  # rounding depends on the memory layout
            ids=[self.ids[i] for i in columns],
            hist=self.hist[:, columns],
            futr=self.futr[:, columns],
            stat=self.stat[columns],
            imputed=self.imputed[:, columns],
        )

    def ordered_as(self, ids: list[Any]) -> "Panel":
        """The panel with its series in the order of ``ids``, if it has exactly these; else unchanged."""
        if self.ids == ids or len(ids) != len(self.ids) or None in self.places(ids):
            return self
        return self.named(ids)

    def named(self, ids: list[Any]) -> "Panel":
        """Select series by name, in this order; unknown names are ignored."""
        return self.of_series([place for place in self.places(ids) if place is not None])

    def with_silent(self, ids: list[Any]) -> "Panel":
        """Append the series of ``ids`` that the panel lacks, as NaN."""
        silent = beyond(ids, self.ids)

        def widened(table: np.ndarray, axis: int, value: Any = np.nan) -> np.ndarray:
            shape = (*table.shape[:axis], len(silent), *table.shape[axis + 1 :])
            return np.concatenate((table, np.full(shape, value)), axis=axis)

        return replace(
            self,
            values=widened(self.values, 1),
            ids=[*self.ids, *silent],
            hist=widened(self.hist, 1),
            futr=widened(self.futr, 1),
            stat=widened(self.stat, 0),
            imputed=widened(self.imputed, 1, False),
        )

    def from_the_end_of(self, earlier: "Panel") -> "Panel":
        """Prepend the missing rows after the end of ``earlier``, as NaN."""
        return self._preceded_by(between(earlier.index[-1], self.index[0], self.freq))

    def padded_to(self, rows: int) -> "Panel":
        """Prepend rows of NaN up to this number of rows."""
        return self._preceded_by(preceding(self.index[0], self.freq, max(0, rows - len(self.values))))

    def _preceded_by(self, nothing: pd.Index) -> "Panel":
        if not len(nothing):
            return self

        def begun(table: np.ndarray, value: Any = np.nan) -> np.ndarray:
            return np.concatenate((np.full((len(nothing), *table.shape[1:]), value), table))

        return replace(
            self,
            index=nothing.append(self.index).rename(self.index.name),
            values=begun(self.values),
            hist=begun(self.hist),
            futr=begun(self.futr),
            imputed=begun(self.imputed, False),
        )

    def rows(self, start: int | None, stop: int | None = None) -> "Panel":
        """Select a range of rows."""
        part = slice(start, stop)
        return replace(
            self,
            values=self.values[part],
            index=self.index[part],
            hist=self.hist[part],
            futr=self.futr[part],
            imputed=self.imputed[part],
        )

    def newest(self, rows: int) -> "Panel":
        """The last rows, or all if there are fewer, as copies: a range of rows would keep all rows in memory."""
        found = self.rows(-min(rows, len(self.values)))
        tables = {name: getattr(found, name).copy() for name in ("values", "hist", "futr", "imputed")}
        return replace(found, index=found.index.copy(deep=True), **tables)

    def filled(self, missing: str) -> "Panel":
        """With "interpolate", fill NaN after the first value of each series linearly, and after its last value with
        that value; else unchanged."""
        if missing != "interpolate":
            return self
        values, hist, futr = map(interpolated, (self.values, self.hist, self.futr))
        whole = replace(self, values=values, hist=hist, futr=futr)
        return replace(whole, imputed=self.imputed | (self.unknown() & ~whole.unknown()))

    def unknown(self) -> np.ndarray:
        """Where the series and ``hist`` are NaN, ``[T, N, 1 + X]``."""
        return np.isnan(np.concatenate((self.values[..., None], self.hist), axis=-1))

    @property
    def measured(self) -> np.ndarray:
        """The values with NaN where they were filled, ``[T, N]``; a series that was filled entirely keeps them."""
        imputed = self.imputed[..., 0]
        return np.where(imputed & ~imputed.all(axis=0), np.nan, self.values)

    @property
    def first_rows(self) -> np.ndarray:
        """The first known row of each series, ``[N]``; T if there is none."""
        known = np.isfinite(self.values)
        return np.where(known.any(axis=0), known.argmax(axis=0) if len(known) else 0, len(known))

    def places(self, names: list[Any]) -> list[int | None]:
        """The positions of series by name; None for unknown names."""
        known = {name: i for i, name in enumerate(self.ids)}
        return [known.get(name) for name in names]

    def clock(self) -> list[str]:
        """First time stamp, step and time zone."""
        return [str(self.index[0]), str(name_of(self.freq)), str(getattr(self.index, "tz", None))]

    def interpolated_at(self, row: int, h: int) -> "Panel":
        """The panel as a forecast of the h steps from a row on sees it: filled as by :meth:`filled` from the rows
        before; later values are NaN, except for the columns known ahead in the h steps (:func:`continued`)."""
        values, hist, futr = self.values.copy(), self.hist.copy(), self.futr.copy()
        values[row:], hist[row:] = np.nan, np.nan
        futr[:row] = interpolated(futr[:row])
        futr[row : row + h] = continued(futr[:row], futr[row : row + h])
        return replace(self, values=values, hist=hist, futr=futr).filled("interpolate")

    def future(self, h: int) -> pd.Index:
        """The h time stamps after the last."""
        return following(self.index[-1], self.freq, h)

    def joined(self, newer: "Panel") -> "Panel":
        """Append the rows of ``newer``, which must start one step after the last row and have the same series.

        Raises:
            ValueError: other series, or rows that do not directly follow.
        """
        if newer.ids != self.ids:
            way = (
                "Leave out new series here: predict(df) forecasts them, given their rows, and a new fit learns them."
                if beyond(newer.ids, self.ids)
                else "A series that ended may be missing with missing='mask' or 'interpolate'."
            )
            raise ValueError(
                f"the new rows must be of the series {self.ids[:8]}, got {newer.ids[:8]}"
                f"{differing(newer.ids, self.ids)}. {way}"
            )
        expected = following(self.index[-1], self.freq, 1)[0]
        if newer.index[0] != expected:
            raise ValueError(
                f"the new rows must start after the known ones, at {expected}, got {newer.index[0]}. "
                "Give each row once, in order; rows may be missing with missing='mask' or 'interpolate'."
            )
        return replace(
            self,
            index=self.index.append(newer.index),
            values=np.concatenate((self.values, newer.values)),
            hist=np.concatenate((self.hist, newer.hist)),
            futr=np.concatenate((self.futr, newer.futr)),
            imputed=np.concatenate((self.imputed, newer.imputed)),
        )

    def output(self, index: pd.Index, values: np.ndarray, names: list[str]) -> Any:
        """Values ``[len(index), N, len(names)]`` in the layout of the caller.

        Long: one column for each name. Wide: for the first name, columns are called like the series; for the others,
        ``<series><name without the first name>``. Matrix: with a single name, the last axis is dropped.
        """
        if self.layout == "matrix":
            return values[..., 0] if len(names) == 1 else values
        if self.layout == "wide":
            endings = ["", *(name.removeprefix(names[0]) for name in names[1:])]
            columns = [i if not end else f"{i}{end}" for i in self.ids for end in endings]
            if len(set(columns)) < len(columns):
                taken = sorted({str(name) for name in columns if columns.count(name) > 1})
                raise ValueError(f"the interval columns {taken} have the names of other series: rename those series.")
            return self._own(pd.DataFrame(values.reshape(len(index), -1), index=index, columns=pd.Index(columns)))
        return self._own(long_frame(self.ids, index, dict(zip(names, np.moveaxis(values, -1, 0), strict=True))))

    def _own(self, frame: pd.DataFrame) -> Any:
        return from_pandas(frame, self.library)


def long_frame(ids: list[Any], index: pd.Index, columns: dict[str, np.ndarray]) -> pd.DataFrame:
    """A long frame of ``unique_id``, ``ds`` and the columns, each given as ``[len(index), N]``."""
    unique_id = pd.Index(ids).repeat(len(index))
    ds = index.append([index] * (len(ids) - 1)) if ids else index[:0]
    flat = {name: values.T.reshape(-1) for name, values in columns.items()}
    return pd.DataFrame({"unique_id": unique_id, "ds": ds, **flat})


def continued(past: np.ndarray, later: np.ndarray) -> np.ndarray:
    """Fill the rows ``later``, which follow the filled rows ``past``, as :func:`interpolated` does from the last of
    these on."""
    return interpolated(np.concatenate((past[-1:], later)))[len(past[-1:]) :]


def interpolated(values: np.ndarray) -> np.ndarray:
    """Fill NaN linearly between neighbours in time, and after the last known value with that value."""
    if not np.isnan(values).any():
        return values
    flat = pd.DataFrame(values.reshape(len(values), -1))
    return flat.interpolate(method="linear", limit_direction="forward").to_numpy().reshape(values.shape)
