"""Standardisation of a panel for the network."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from titans_core.warn import warn_caller
from titans_ts.frames.exogenous import Columns, calendar_features
from titans_ts.frames.panel import Panel
from titans_ts.frames.spikes import limits_of, odd_ones, spikes_of, warn_of_far, without_spikes
from titans_ts.network.windows import Table
from titans_ts.units.column_units import ONCE, ColumnUnits, Moments
from titans_ts.units.profile import profiles_of, waves_of
from titans_ts.units.young import Others

ROUNDING = 1e-12  # relative rounding error of a sum of many numbers in double precision
FARTHEST = 1e15  # limit of standardised values: their squares must fit in float32
STILL = 1e-3  # smallest unit, relative to the size of a constant series or to the deviation with profile


@dataclass(frozen=True, eq=False)
class Units:
    """Standardisation of the series before the network, and its inverse for forecasts.

    Attributes:
        mean: mean of each series without its profile, ``[N]``.
        scale: unit of the network, ``[N]``: the standard deviation of each series without its profile, but at least a
            thousandth of ``deviation``, since a profile may explain a series except for rounding.
        deviation: standard deviation of each series with its profile, ``[N]``; a thousandth of its size for a constant
            series, and the median of the other series for a series of zeros. Errors are reported in this unit, so that
            they are comparable with and without a profile.
        profile: the stable mean shape of each series in the ``cycles``, as weights of their waves, ``[F, N]``.
        limits: the range of each series, extended by its width on each side, ``[2, N]``.
        cycles: cycles of the profile; empty without one.
    """

    mean: np.ndarray
    scale: np.ndarray
    deviation: np.ndarray
    profile: np.ndarray
    limits: np.ndarray
    cycles: tuple[str, ...] = ()

    @property
    def error_unit(self) -> np.ndarray:
        """Factor from errors in units of the network to errors in units of the deviation, ``[N]``."""
        return self.scale / self.deviation

    @classmethod
    def of(cls, values: np.ndarray, index: pd.Index, cycles: tuple[str, ...], of_zeros: float | None = None) -> "Units":
        """Units of the rows ``[T, N]``, without NaN. ``of_zeros`` is the unit for a series of zeros, by default the
        median of the other series."""
        profile = profiles_of(values, index, cycles) if cycles else np.zeros((0, values.shape[1]))
        rest = values - waves_of(index, cycles) @ profile if cycles else values
        size = size_of(values)
        changes = level_of(values, size, 0.0)[1]
        if of_zeros is None:  # a series of zeros has no size of its own
            others = np.where(changes > 0, changes, STILL * size)[size > 0]
            of_zeros = np.median(others) if len(others) else 1.0
        still = np.where(size > 0, STILL * size, of_zeros)
        deviation = np.where(changes > 0, changes, still)
        least = np.where(changes > 0, STILL * changes, still)
        mean, scale = level_of(rest, size, least)
        scale = np.maximum(scale, least) if cycles else deviation
        return cls(mean, scale, deviation, profile, limits_of(values), cycles)

    def shape(self, index: pd.Index) -> np.ndarray:
        """The profile at these time stamps, ``[T, N]``; without one a zero ``[1, 1]``."""
        return waves_of(index, self.cycles) @ self.profile if self.cycles else np.zeros((1, 1))

    def standardised(self, values: np.ndarray, index: pd.Index) -> np.ndarray:
        """Standardise values ``[T, N]``."""
        return (values - self.shape(index) - self.mean) / self.scale

    def restored(self, values: np.ndarray, index: pd.Index) -> np.ndarray:
        """Convert standardised values ``[T, N, K]`` to units of the data."""
        return values * self.scale[:, None] + (self.mean + self.shape(index))[..., None]

    def resized(self, deviation: np.ndarray) -> "Units":
        """Units with other deviations ``[N]``, where these are not NaN."""
        by = np.where(np.isnan(deviation), 1.0, deviation / self.deviation)
        return replace(self, scale=self.scale * by, deviation=self.deviation * by)

    def of_series(self, columns: list[int]) -> "Units":
        """Select series by position."""
        return self._of(x[..., columns] for x in self._parts)

    def replaced(self, columns: list[int], other: "Units") -> "Units":
        """Replace the units of some series by those of ``other``, in its order."""
        parts = [x.copy() for x in self._parts]
        for part, new in zip(parts, other._parts, strict=True):
            part[..., columns] = new
        return self._of(parts)

    def _of(self, parts: Iterable[np.ndarray]) -> "Units":
        mean, scale, deviation, profile, limits = parts
        return Units(mean, scale, deviation, profile, limits, self.cycles)

    @property
    def _parts(self) -> tuple[np.ndarray, ...]:
        """The tables; their last axis is the series."""
        return self.mean, self.scale, self.deviation, self.profile, self.limits


@dataclass(frozen=True, eq=False)
class Scaling:
    """Standardisation of all data, computed from the training rows.

    Attributes:
        columns: the exogenous columns, with "auto" cycles resolved.
        units: units of the series of ``fit``.
        exogenous: units of the columns of "hist", "futr" and "stat"; static columns have common units for all series.
    """

    columns: Columns
    units: Units
    exogenous: dict[str, ColumnUnits]

    @classmethod
    def of(cls, panel: Panel, columns: Columns) -> "Scaling":
        """Units from the rows of a panel; filled values of its series are ignored."""
        exogenous = {
            # a value of a static column holds in all rows of a series
            kind: ColumnUnits.of(_moments(_usual(_by_series(kind, table))), once=0.0 if kind == "stat" else ONCE)
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
                f"exogenous columns {silent} are constant in the training rows: nothing can be learned from them, and "
                "forecasts do not use them."
            )
        found = cls(columns, Units.of(panel.measured, panel.index, columns.profile), exogenous)
        found.warn_beyond(panel.index, panel.ids, **_tables(panel))
        return found

    def of_series(self, columns: list[int]) -> "Scaling":
        """Select series by position."""
        exogenous = {
            kind: own if kind == "stat" else replace(own, of_each=own.of_each[:, columns])
            for kind, own in self.exogenous.items()
        }
        return replace(self, units=self.units.of_series(columns), exogenous=exogenous)

    def of_panel(self, panel: Panel, known: Panel) -> "Scaling":
        """Units for the series of a panel: those in ``known`` (the series of ``fit``) keep theirs; the units of new
        series are estimated from the panel."""
        if panel.ids == known.ids:
            return self
        places = known.places(panel.ids)
        tables = _tables(panel.of_series([column for column, place in enumerate(places) if place is None]))
        exogenous = {
            kind: own if kind == "stat" else own.of_series(places, _usual_of_new(_by_series(kind, tables[kind]), own))
            for kind, own in self.exogenous.items()
        }
        return replace(self, units=self.units_of(panel, known), exogenous=exogenous)

    def units_of(self, panel: Panel, known: Panel) -> Units:
        """As :meth:`of_panel`, but only for the target; exogenous columns may be missing."""
        if panel.ids == known.ids:
            return self.units
        places = known.places(panel.ids)
        new = [column for column, place in enumerate(places) if place is None]
        _warn_of_names([panel.ids[column] for column in new], known.ids)
        units = self.units.of_series([0 if place is None else place for place in places])
        measured = without_spikes(panel.measured[:, new])
        # the unit for zeros must not depend on the other new series
        own = Units.of(measured, panel.index, self.columns.profile, float(np.median(self.units.deviation)))
        return units.replaced(new, own.resized(self._grown(measured, known)))

    def _grown(self, measured: np.ndarray, known: Panel) -> np.ndarray:
        """Estimated deviations of new series ``[T, N]``; NaN for those with as many values as any in the context of
        ``fit``."""
        found = np.full(measured.shape[1], np.nan)
        count, usual = (np.isfinite(values).sum(axis=0) for values in (measured, known.measured))
        young = np.flatnonzero((count > 0) & (count < usual.max()))
        if len(young):
            others = Others.of(without_spikes(known.measured), self.units.deviation)
            for place in young:
                values = measured[:, place]
                found[place] = others.unit_of(values[np.isfinite(values)]) or np.nan
        return found

    def table(self, panel: Panel) -> Table:
        """Standardise a panel."""
        return Table(
            tensor(self.units.standardised(panel.values, panel.index).clip(-FARTHEST, FARTHEST)),
            self.columns_of("hist", panel.hist),
            self.future(panel.index, panel.futr),
            self.columns_of("stat", panel.stat),
            torch.from_numpy(panel.imputed) if panel.imputed.any() else None,
        )

    def future(self, index: pd.Index, futr: np.ndarray) -> Tensor | None:
        """The columns known ahead, ``[T, N or 1, F']``: those of the frame ``[T, N, F]``, the calendar, and the profile
        of each series in units of its deviation.

        The full profile is subtracted from a series, but its true strength varies over time. With the profile as a
        column, the network can correct for this.
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
        """The standardised exogenous columns of a kind, or None."""
        if not values.shape[-1]:
            return None
        found = self.exogenous[kind].standardised(_by_series(kind, values)).numpy()
        # unknown values count as the mean
        return tensor(found[:, 0] if kind == "stat" else found).nan_to_num(0.0)

    def warn_of(self, panel: Panel, since: int = 0, stat: bool = False) -> None:
        """Warn about values far outside of the training range, in the rows from ``since`` on and with ``stat`` in the
        static columns."""
        self._warn_of_spikes(panel, since)
        later = panel.rows(since)
        tables = {"hist": later.hist, "futr": later.futr} | ({"stat": panel.stat} if stat else {})
        self.warn_beyond(later.index, later.ids, **tables)

    def _warn_of_spikes(self, panel: Panel, since: int) -> None:
        """Warn about single values of the series, from row ``since`` on, that make forecasts after them unreliable."""
        found = odd_ones(panel.measured, self.units.limits)
        found[:since] = False
        if found.any():
            warn_of_far(panel, found, self.units.limits)

    def warn_beyond(self, index: pd.Index, ids: list[Any], **tables: np.ndarray) -> None:
        """Warn about values of exogenous columns that are clipped, since they are far outside of the training range.

        Args:
            index: time stamps of the tables.
            ids: names of the series.
            tables: columns by kind: "hist" or "futr" ``[T, N, X]``, "stat" ``[N, S]``.
        """
        first, more = "", 0
        for kind, given in tables.items():
            if not given.shape[-1]:
                continue
            rows = _by_series(kind, given)
            values, counted = rows.numpy(), self.exogenous[kind].within(rows).numpy()
            beyond = np.argwhere(np.isfinite(values) & (counted != values))
            if len(beyond) and not first:
                row, series, column = at = tuple(beyond[0])
                name = getattr(self.columns, kind)[column]
                who = f"series {ids[row]!r}" if kind == "stat" else f"series {ids[series]!r} at {index[row]}"
                first = f"exogenous column {name!r} is {values[at]:.6g} for {who} and is clipped to {counted[at]:.6g}"
            more += len(beyond)
        if first:
            others = f" (and {more - 1} more)" if more > 1 else ""
            warn_caller(
                f"{first}: it is farther from the training range than the width of that range{others}. Check its unit; "
                "if it means no value, make it NaN and set missing='mask' or 'interpolate'. If it is correct, fit on "
                "data with more such values."
            )


def _warn_of_names(new: list[Any], known: list[Any]) -> None:
    """Warn about new series whose names differ only by format: read from a file again, "000" may become 0 or 0.0."""
    written = {_as_number(name): name for name in known}
    for name in new:
        same = written.get(_as_number(name), name)
        if same != name:
            kinds = f" ({type(same).__name__} instead of {type(name).__name__})"
            warn_caller(
                f"series {name!r} counts as new, but fit had {same!r}{kinds if type(same) is not type(name) else ''}. "
                "If they are the same series, use the same name."
            )
            return


def _as_number(name: Any) -> str:
    """The name as text, in a common format for whole numbers."""
    whole = re.fullmatch(r"(-?)0*(\d+)(?:\.0*)?", str(name))
    return whole[1] + whole[2] if whole else str(name)


def _tables(panel: Panel) -> dict[str, np.ndarray]:
    return {"hist": panel.hist, "futr": panel.futr, "stat": panel.stat}


def _by_series(kind: str, values: np.ndarray) -> Tensor:
    """Tensor ``[R, N, X]``; static columns ``[N, S]`` become N rows of one series."""
    rows = torch.from_numpy(np.require(values, requirements=["C", "W"]))
    return rows[:, None] if kind == "stat" else rows


def _moments(rows: Tensor) -> Moments:
    return Moments.of(rows, rows.isfinite())


def _usual(rows: Tensor) -> Tensor:
    """Columns ``[R, N, X]`` with NaN in place of spikes, such as a code for no value, whose range would be the unit.

    A spike is one in its series, since few series may vary more than others, and also among all series, each relative
    to its size, since each may have a few promotions.
    """
    alone, rest = _spikes_alone(rows)
    among_all = torch.from_numpy(spikes_of((rows / rest.size).flatten(0, 1).numpy())).view_as(rows)
    return rows.masked_fill(alone & among_all, torch.nan)


def _usual_of_new(rows: Tensor, units: ColumnUnits) -> Moments:
    """Statistics of the columns ``[R, N, X]`` of new series without spikes.

    A spike is one in its series, and farther from the rest than the values of a series of ``fit`` usually are from
    each other, which have promotions too. Other new series do not count: forecasts must not depend on them.
    """
    alone, rest = _spikes_alone(rows)
    far = (rows - rest.mean).abs() > 2 * units.usual * rest.size
    return _moments(rows.masked_fill(alone & far, torch.nan))


def _spikes_alone(rows: Tensor) -> tuple[Tensor, Moments]:
    """Which values of ``[R, N, X]`` are spikes in their series, and the statistics of the other values."""
    found = torch.from_numpy(spikes_of(rows.flatten(1).numpy())).view_as(rows)
    return found, _moments(rows.masked_fill(found, torch.nan))


def size_of(values: np.ndarray) -> np.ndarray:
    """The largest absolute value of each column, ignoring NaN."""
    return np.abs(np.where(np.isfinite(values), values, 0.0)).max(axis=0, initial=0.0)


def level_of(values: np.ndarray, size: np.ndarray, still: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column, ignoring NaN.

    Args:
        values: ``[T, N]``.
        size: size of the numbers from which the values were computed, ``[N]``.
        still: the deviation to use for columns that are constant except for rounding.
    """
    known = np.isfinite(values)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, values, 0.0).sum(axis=0) / count
    deviation = np.sqrt(np.square(np.where(known, values - mean, 0.0)).sum(axis=0) / count)
    return mean, np.where(deviation > ROUNDING * size, deviation, still)


def tensor(values: np.ndarray) -> Tensor:
    """A contiguous float32 tensor; the rounding of a forecast depends on the strides of its input."""
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
