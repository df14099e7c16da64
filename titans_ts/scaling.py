"""From a panel to the standardised numbers that the network sees."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from titans_datasets.warn import warn_caller
from titans_ts.column_units import ONCE, ColumnUnits, Moments
from titans_ts.exogenous import Columns, calendar_features
from titans_ts.panel import Panel
from titans_ts.profile import profiles_of, waves_of
from titans_ts.spikes import limits_of, odd_ones, warn_of_far, without_spikes
from titans_ts.windows import Table
from titans_ts.young import Others

ROUNDING = 1e-12  # of a sum of many numbers in double precision, relative to them
FARTHEST = 1e15  # units that a value counts as at most: its square must go into float32
STILL = 1e-3  # unit of a series that does not change, relative to its size, or to its deviation but for its profile


@dataclass(frozen=True, eq=False)
class Units:
    """What is taken from each series before the network sees it, and given back to its forecasts.

    Attributes:
        mean: of each series less its profile, ``[N]``.
        scale: the unit that the network sees, ``[N]``: the deviation of each series less its profile, and not less than
            a thousandth of ``deviation``: where the profile explains a series wholly, what is left is rounding.
        deviation: of each series, profile and all, ``[N]``; a thousandth of its size for one that does not change, and
            for one of zeros the median one of the others in training. In this unit errors are told: it is the same with
            a profile and without.
        profile: the mean shape of a series' days, weeks or years as far as it holds, as weights of the waves of
            ``cycles``: ``[F, N]``.
        limits: the range of each series and as much again to each side, ``[2, N]``.
        cycles: of the time stamps; none for no profile.
    """

    mean: np.ndarray
    scale: np.ndarray
    deviation: np.ndarray
    profile: np.ndarray
    limits: np.ndarray
    cycles: tuple[str, ...] = ()

    @property
    def error_unit(self) -> np.ndarray:
        """What an error in units of the network is multiplied by to be one in units of the deviation, ``[N]``."""
        return self.scale / self.deviation

    @classmethod
    def of(cls, values: np.ndarray, index: pd.Index, cycles: tuple[str, ...], of_zeros: float | None = None) -> "Units":
        """Of the rows ``[T, N]``, NaN left out. ``of_zeros`` is the unit of a series of zeros, by default the median
        one of the others."""
        profile = profiles_of(values, index, cycles) if cycles else np.zeros((0, values.shape[1]))
        rest = values - waves_of(index, cycles) @ profile if cycles else values
        size = size_of(values)
        changes = level_of(values, size, 0.0)[1]
        if of_zeros is None:  # what is nothing but zeros has no size of its own
            others = np.where(changes > 0, changes, STILL * size)[size > 0]
            of_zeros = np.median(others) if len(others) else 1.0
        still = np.where(size > 0, STILL * size, of_zeros)
        deviation = np.where(changes > 0, changes, still)
        least = np.where(changes > 0, STILL * changes, still)
        mean, scale = level_of(rest, size, least)
        scale = np.maximum(scale, least) if cycles else deviation
        return cls(mean, scale, deviation, profile, limits_of(values), cycles)

    def shape(self, index: pd.Index) -> np.ndarray:
        """The profile at these time stamps: ``[T, N]``, or without one ``[1, 1]``, a zero."""
        return waves_of(index, self.cycles) @ self.profile if self.cycles else np.zeros((1, 1))

    def standardised(self, values: np.ndarray, index: pd.Index) -> np.ndarray:
        """Of ``[T, N]`` in the units of the data."""
        return (values - self.shape(index) - self.mean) / self.scale

    def restored(self, values: np.ndarray, index: pd.Index) -> np.ndarray:
        """Of standardised ``[T, N, K]``: in the units of the data."""
        return values * self.scale[:, None] + (self.mean + self.shape(index))[..., None]

    def resized(self, deviation: np.ndarray) -> "Units":
        """With other deviations ``[N]``, where they are not NaN."""
        by = np.where(np.isnan(deviation), 1.0, deviation / self.deviation)
        return replace(self, scale=self.scale * by, deviation=self.deviation * by)

    def of_series(self, columns: list[int]) -> "Units":
        """Of some of the series."""
        return self._of(x[..., columns] for x in self._parts)

    def replaced(self, columns: list[int], other: "Units") -> "Units":
        """With some series as ``other`` has them, in its order."""
        parts = [x.copy() for x in self._parts]
        for part, new in zip(parts, other._parts, strict=True):
            part[..., columns] = new
        return self._of(parts)

    def _of(self, parts: Iterable[np.ndarray]) -> "Units":
        mean, scale, deviation, profile, limits = parts
        return Units(mean, scale, deviation, profile, limits, self.cycles)

    @property
    def _parts(self) -> tuple[np.ndarray, ...]:
        """Tables whose last axis are the series."""
        return self.mean, self.scale, self.deviation, self.profile, self.limits


@dataclass(frozen=True, eq=False)
class Scaling:
    """Units of everything, from the training rows.

    Attributes:
        columns: the exogenous columns, with the calendar made definite.
        units: of the series of ``fit``.
        exogenous: of the columns of "hist", "futr" and "stat"; static ones have those of all series together.
    """

    columns: Columns
    units: Units
    exogenous: dict[str, ColumnUnits]

    @classmethod
    def of(cls, panel: Panel, columns: Columns) -> "Scaling":
        """Of the rows of a panel; of its series what was measured there, not lines through holes."""
        exogenous = {
            # a static column speaks in all rows of a series
            kind: ColumnUnits.of(_moments(kind, table), once=0.0 if kind == "stat" else ONCE)
            for kind, table in _tables(panel).items()
        }
        silent = [
            column
            for kind, units in exogenous.items()
            for column, unit in zip(getattr(columns, kind), units.of_all[1].tolist(), strict=True)
            if unit == np.inf
        ]
        if silent:
            warn_caller(
                f"exogenous: {silent} never change in the training rows, so that nothing can be learned of them; "
                "forecasts are made without them."
            )
        return cls(columns, Units.of(panel.measured, panel.index, columns.profile), exogenous)

    def of_panel(self, panel: Panel, known: Panel) -> "Scaling":
        """For the series of a panel: one of ``known``, which has those of ``fit``, keeps its units, a new one has those
        of what is known of it."""
        if panel.ids == known.ids:
            return self
        places = known.places(panel.ids)
        tables = _tables(panel.of_series([column for column, place in enumerate(places) if place is None]))
        exogenous = {
            kind: own if kind == "stat" else own.of_series(places, _moments(kind, tables[kind]))
            for kind, own in self.exogenous.items()
        }
        return replace(self, units=self.units_of(panel, known), exogenous=exogenous)

    def units_of(self, panel: Panel, known: Panel) -> Units:
        """As of :meth:`of_panel`, of the series themselves; the panel need not have their columns."""
        if panel.ids == known.ids:
            return self.units
        places = known.places(panel.ids)
        new = [column for column, place in enumerate(places) if place is None]
        _warn_of_names([panel.ids[column] for column in new], known.ids)
        units = self.units.of_series([0 if place is None else place for place in places])
        measured = without_spikes(panel.measured[:, new])
        # whatever stands beside them
        own = Units.of(measured, panel.index, self.columns.profile, float(np.median(self.units.deviation)))
        return units.replaced(new, own.resized(self._grown(measured, known)))

    def _grown(self, measured: np.ndarray, known: Panel) -> np.ndarray:
        """Deviations of new series ``[T, N]``; NaN for those that are not younger than what is kept of the known."""
        found = np.full(measured.shape[1], np.nan)
        count = np.isfinite(measured).sum(axis=0)
        young = np.flatnonzero((count > 0) & (count < len(known.values)))
        if len(young):
            others = Others.of(without_spikes(known.measured), self.units.deviation)
            for place in young:
                values = measured[:, place]
                found[place] = others.unit_of(values[np.isfinite(values)]) or np.nan
        return found

    def table(self, panel: Panel) -> Table:
        """A panel, standardised."""
        return Table(
            tensor(self.units.standardised(panel.values, panel.index).clip(-FARTHEST, FARTHEST)),
            self.columns_of("hist", panel.hist),
            self.future(panel.index, panel.futr),
            self.columns_of("stat", panel.stat),
            torch.from_numpy(panel.drawn) if panel.drawn.any() else None,
        )

    def future(self, index: pd.Index, futr: np.ndarray) -> Tensor | None:
        """The columns that are known ahead, ``[T, N or 1, F']``: those of the frame ``[T, N, F]``, the calendar and the
        profile of each series, in its deviations. It is taken from the series whole, and how much of it there is,
        changes with the seasons: a network that is told it can say so by the lookback.
        """
        calendar = tensor(calendar_features(index, self.columns.calendar))[:, None]
        profile = tensor(self.units.shape(index) / self.units.deviation)[..., None] if self.units.cycles else None
        kinds = [self.columns_of("futr", futr), calendar if calendar.shape[-1] else None, profile]
        there = [columns for columns in kinds if columns is not None]
        if not there:
            return None
        series = max(columns.shape[1] for columns in there)
        return torch.cat([columns.expand(-1, series, -1) for columns in there], dim=-1)

    def columns_of(self, kind: str, values: np.ndarray) -> Tensor | None:
        """The exogenous columns of a kind, standardised; None where there is none."""
        if not values.shape[-1]:
            return None
        found = self.exogenous[kind].standardised(_by_series(kind, values)).numpy()
        # what is not known counts as the mean
        return tensor(found[:, 0] if kind == "stat" else found).nan_to_num(0.0)

    def warn_of(self, panel: Panel, since: int = 0, stat: bool = False) -> None:
        """Warn of what in the rows of a panel from ``since`` on, and with ``stat`` in its static columns, is far from
        all that training saw."""
        self._warn_of_spikes(panel, since)
        later = panel.rows(since)
        tables = {"hist": later.hist, "futr": later.futr} | ({"stat": panel.stat} if stat else {})
        self.warn_beyond(later.index, later.ids, **tables)

    def _warn_of_spikes(self, panel: Panel, since: int) -> None:
        """Say which single values of the series, in rows from ``since`` on, are so far from those of training that a
        forecast behind them means little."""
        found = odd_ones(panel.measured, self.units.limits)
        found[:since] = False
        if found.any():
            warn_of_far(panel, found, self.units.limits)

    def warn_beyond(self, index: pd.Index, ids: list[Any], **tables: np.ndarray) -> None:
        """Say which values of the exogenous columns are so far from those of training that they are not believed.

        Args:
            index: the time stamps of the tables.
            ids: the series.
            tables: columns by kind: "hist" or "futr" ``[T, N, X]``, "stat" ``[N, S]``.
        """
        said, more = "", 0
        for kind, given in tables.items():
            if not given.shape[-1]:
                continue
            rows = _by_series(kind, given)
            values, counted = rows.numpy(), self.exogenous[kind].within(rows).numpy()
            beyond = np.argwhere(np.isfinite(values) & (counted != values))
            if len(beyond) and not said:
                row, series, column = at = tuple(beyond[0])
                name = getattr(self.columns, kind)[column]
                who = f"series {ids[row]!r}" if kind == "stat" else f"series {ids[series]!r} at {index[row]}"
                said = f"exogenous {name!r} is {values[at]:.6g} for {who}, and counts as {counted[at]:.6g}"
            more += len(beyond)
        if said:
            others = f"; so it is with {more - 1} other values" if more > 1 else ""
            warn_caller(
                f"{said}: it is further from the range of training than that is wide{others}. Is it in another unit? "
                "If not, fit again on rows that have such values."
            )


def _warn_of_names(new: list[Any], known: list[Any]) -> None:
    """Where a file was read anew, 000 is 0, or 0.0 where there was a hole, and the series another."""
    written = {_as_number(name): name for name in known}
    for name in new:
        same = written.get(_as_number(name), name)
        if same != name:
            kinds = f", a {type(same).__name__}, and this is a {type(name).__name__}"
            warn_caller(
                f"series {name!r} counts as new: fit knows {same!r}{kinds if type(same) is not type(name) else ''}. If "
                "they are the same, name them alike."
            )
            return


def _as_number(name: Any) -> str:
    """A name; of one that is a whole number, the number."""
    whole = re.fullmatch(r"(-?)0*(\d+)(?:\.0*)?", str(name))
    return whole[1] + whole[2] if whole else str(name)


def _tables(panel: Panel) -> dict[str, np.ndarray]:
    return {"hist": panel.hist, "futr": panel.futr, "stat": panel.stat}


def _by_series(kind: str, values: np.ndarray) -> Tensor:
    """``[R, N, X]``: static columns, ``[N, S]``, are rows of one series."""
    rows = torch.from_numpy(np.require(values, requirements=["C", "W"]))
    return rows[:, None] if kind == "stat" else rows


def _moments(kind: str, values: np.ndarray) -> Moments:
    rows = _by_series(kind, values)
    return Moments.of(rows, rows.isfinite())


def size_of(values: np.ndarray) -> np.ndarray:
    """The largest absolute value of each column, NaN left out."""
    return np.abs(np.where(np.isfinite(values), values, 0.0)).max(axis=0, initial=0.0)


def level_of(values: np.ndarray, size: np.ndarray, still: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column, NaN left out.

    Args:
        values: ``[T, N]``.
        size: of the numbers that the values were computed from, ``[N]``.
        still: what stands for the deviation of a column that does not change but for rounding.
    """
    known = np.isfinite(values)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, values, 0.0).sum(axis=0) / count
    deviation = np.sqrt(np.square(np.where(known, values - mean, 0.0)).sum(axis=0) / count)
    return mean, np.where(deviation > ROUNDING * size, deviation, still)


def tensor(values: np.ndarray) -> Tensor:
    """float32, and always laid out alike: the last digits of a forecast depend on the strides of its input."""
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
