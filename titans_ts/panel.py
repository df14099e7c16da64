"""Series side by side on one time axis: one table of values, and frames made from it."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from titans_ts.libraries import from_pandas
from titans_ts.stamps import Step, between, following, name_of, preceding

Layout = Literal["long", "wide", "matrix"]


def beyond(names: list[Any], known: list[Any]) -> list[Any]:
    """Those of the names that are not known."""
    there = set(known)
    return [name for name in names if name not in there]


def differing(given: list[Any], known: list[Any]) -> str:
    """By which names two lists of series differ, for a message: long ones begin alike."""
    ways = (("without", beyond(known, given)), ("with the new", beyond(given, known)))
    found = [f"{how} {names[:8]}" for how, names in ways if names]
    return f" ({', '.join(found)})" if found else ""


_NOTHING = np.empty((0, 0, 0))  # stands for a table without columns


def _nothing() -> np.ndarray:
    return _NOTHING


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
        drawn: what :meth:`filled` put there, no measurement: of the series and of ``hist``, ``[T, N, 1 + X]``.
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
    drawn: np.ndarray = field(default_factory=_nothing)

    def __post_init__(self) -> None:
        T, N = self.values.shape
        tables = (("hist", (T, N), float), ("futr", (T, N), float), ("stat", (N,), float), ("drawn", (T, N), bool))
        for name, shape, kind in tables:
            table = getattr(self, name)
            width = 1 + self.hist.shape[-1] if name == "drawn" else 0
            if table is _NOTHING:
                object.__setattr__(self, name, np.zeros((*shape, width), dtype=kind))
            elif table.shape[:-1] != shape or (width and table.shape[-1] != width):
                raise ValueError(f"{name} {table.shape} does not go with values {self.values.shape}.")

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
        if self.ids == ids or len(ids) != len(self.ids) or None in self.places(ids):
            return self
        return self.named(ids)

    def named(self, ids: list[Any]) -> "Panel":
        """The panel of the series of these names that it has, in their order."""
        return self.of_series([place for place in self.places(ids) if place is not None])

    def with_silent(self, ids: list[Any]) -> "Panel":
        """The panel, and behind its series those of ``ids`` that it lacks, as NaN."""
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
            drawn=widened(self.drawn, 1, False),
        )

    def from_the_end_of(self, earlier: "Panel") -> "Panel":
        """The panel, and before it the rows that were left out behind the last of ``earlier``, as NaN."""
        return self._preceded_by(between(earlier.index[-1], self.index[0], self.freq))

    def padded_to(self, rows: int) -> "Panel":
        """The panel, and before it as many rows of NaN as it lacks."""
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
            drawn=begun(self.drawn, False),
        )

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
        values, hist, futr = map(interpolated, (self.values, self.hist, self.futr))
        whole = replace(self, values=values, hist=hist, futr=futr)
        return replace(whole, drawn=self.drawn | (self.unknown() & ~whole.unknown()))

    def unknown(self) -> np.ndarray:
        """What only time makes known and is NaN: of the series and of ``hist``, ``[T, N, 1 + X]``."""
        return np.isnan(np.concatenate((self.values[..., None], self.hist), axis=-1))

    @property
    def measured(self) -> np.ndarray:
        """The values, NaN where they are lines through holes, ``[T, N]``; of a series that has no others, these."""
        drawn = self.drawn[..., 0]
        return np.where(drawn & ~drawn.all(axis=0), np.nan, self.values)

    @property
    def first_rows(self) -> np.ndarray:
        """The first known row of each series, ``[N]``; T for one without any."""
        known = np.isfinite(self.values)
        return np.where(known.any(axis=0), known.argmax(axis=0) if len(known) else 0, len(known))

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
            way = (
                "Leave new ones out here: predict(df) forecasts them, given their rows, and another fit learns them."
                if beyond(newer.ids, self.ids)
                else "A series that ended can be left out with missing='mask' or 'interpolate'."
            )
            raise ValueError(
                f"the new rows must be of the series {self.ids[:8]}, got {newer.ids[:8]}"
                f"{differing(newer.ids, self.ids)}. {way}"
            )
        expected = following(self.index[-1], self.freq, 1)[0]
        if newer.index[0] != expected:
            raise ValueError(
                f"the new rows must begin where the known ones end, at {expected}, got {newer.index[0]}. "
                "Give each row once, in order; rows may be left out with missing='mask' or 'interpolate'."
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


def interpolated(values: np.ndarray) -> np.ndarray:
    """NaN in a straight line between neighbours in time, behind the last known value as that value."""
    if not np.isnan(values).any():
        return values
    flat = pd.DataFrame(values.reshape(len(values), -1))
    return flat.interpolate(method="linear", limit_direction="forward").to_numpy().reshape(values.shape)
