"""A trained network with all that reads it, and where it stands in its series."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from titans_ts import online
from titans_ts.intervals import NO_SCORES, Calibration, scored_origins, scored_series, scoring_step
from titans_ts.objective import Objective
from titans_ts.panel import Panel
from titans_ts.rolling import Forecasts, corrections, forecast_rows
from titans_ts.scaling import Scaling
from titans_ts.simba import FLOOR, Simba
from titans_ts.windows import Table, first_rows, inside_holes


@dataclass(frozen=True)
class Model:
    """What ``fit`` learned. Nothing of it changes afterwards.

    Attributes:
        network: the network, in evaluation mode.
        objective: how its outputs are read.
        scaling: units.
        memory: the online memory, or None.
    """

    network: Simba
    objective: Objective
    scaling: Scaling
    memory: online.OnlineMemory | None

    @property
    def h(self) -> int:
        return self.network.config.h

    @property
    def input_size(self) -> int:
        return self.network.config.input_size

    @property
    def context_rows(self) -> int:
        """Rows that must be kept to go on from."""
        return self.input_size + self.h + (0 if self.memory is None else 2 * self.memory.stride)

    def rolling(self, table: Table, origins: Tensor, whole: bool = False) -> Forecasts:
        """Forecasts at many origins of a table, standardised; the memory reads it from its first row. ``whole`` keeps
        what their intervals take."""
        found = forecast_rows(self.network, self.objective, table, origins, whole)
        return found if self.memory is None else found.moved(corrections(self.memory, table, origins))

    def read_through(self, table: Table) -> list[online.Stream]:
        """The online memory at the end of a table."""
        if self.memory is None:
            return []
        first, T = first_rows(table.values), len(table.values)
        streams = online.streams_of(first, T)
        return [online.advance(self.memory, s, table.values, T - int(first[s.series[0]])) for s in streams]

    def recalled(self, streams: list[online.Stream], values: Tensor) -> Tensor:
        """What the memory adds to the forecasts behind the rows ``values`` ``[T, N]``: ``[h, N]``."""
        by = values.new_zeros(self.h, values.shape[1])
        if self.memory is not None:
            for stream in streams:
                by[:, stream.series] = online.recall(self.memory, stream, values)
        return by

    def bounded(
        self,
        found: Forecasts,
        levels: Sequence[float],
        calibration: Calibration | None,
        series: Sequence[int | None] | None = None,
    ) -> np.ndarray:
        """Points, lower bounds from wide to narrow, and upper ones, standardised: ``[K, h, N, 1 + 2 * len(levels)]``.

        Args:
            found: forecasts.
            levels: of the intervals, in percent.
            calibration: errors of past forecasts.
            series: whose those are (:meth:`Calibration.reached`).

        Raises:
            ValueError: a point forecast without a calibration, or a level that the network cannot say without one.
        """
        bounds = [self._interval(found, level, calibration, series) for level in levels]
        low, high = [low for low, _ in reversed(bounds)], [high for _, high in bounds]
        return torch.stack((found.point, *low, *high), dim=-1).double().numpy()

    def _interval(
        self, found: Forecasts, level: float, calibration: Calibration | None, series: Sequence[int | None] | None
    ) -> tuple[Tensor, Tensor]:
        """The bounds of one level, ``[K, h, N]``."""
        objective, point = self.objective, found.point
        raw = point.unsqueeze(-1) if found.raw is None else found.raw
        if calibration is None and not objective.probabilistic:
            raise ValueError(NO_SCORES)
        if calibration is None:
            score = objective.nominal(raw, level)
        elif objective.probabilistic:
            score, enough = (torch.from_numpy(x) for x in calibration.ranked(level, series))
            if not enough.all():  # the network is believed, unless it is proved wrong
                score = score.where(enough, score.fmax(objective.nominal(raw, level)))
        else:
            score = torch.from_numpy(calibration.reached(level, series))
        score = score.to(point)
        spread = found.spread.clamp(min=FLOOR)[:, None]
        whole = NormalDist().inv_cdf((1 + level / 100) / 2)  # of the series, around the forecast
        stale = None if found.stale is None else found.stale[:, None]

        def bound(side: int) -> Tensor:
            error = objective.offset(raw, score, side) * spread
            # the longer nothing was measured, the less the lookback says
            error = error if stale is None else torch.lerp(error, torch.full_like(error, side * whole), stale)
            return point + error

        return bound(-1), bound(1)

    def scores(self, table: Table, origins: Tensor, step: int) -> Calibration:
        """Errors of the forecasts at these origins, NaN where nothing was measured: inside a hole that was filled, and
        from an origin in one, behind which the line was drawn to what came later."""
        chosen = scored_series(table.values.shape[1])
        if len(chosen) == table.values.shape[1] or self.network.config.num_series is not None:
            return self._scored(self.rolling(table, origins, True), table, origins, step)
        # of many series only those are forecast whose scores are kept
        few = table.of_series(torch.from_numpy(chosen))
        return self._scored(self.rolling(few, origins, True), few, origins, step).shared()

    def _scored(self, found: Forecasts, table: Table, origins: Tensor, step: int) -> Calibration:
        horizon = origins[:, None] + torch.arange(self.h)
        error = (table.values[horizon] - found.point) / found.spread.clamp(min=FLOOR)[:, None]
        scores = self.objective.score(error.unsqueeze(-1) if found.raw is None else found.raw, error)
        if table.drawn is not None:
            begins = inside_holes(table.drawn, origins, self.network.config.num_series is not None)
            scores = scores.masked_fill(table.drawn[..., 0][horizon] | begins[:, None], float("nan"))
        return Calibration.of(scores.masked_fill(error.isnan(), float("nan")).numpy(), step)


@dataclass(frozen=True)
class Position:
    """Where a model stands in its series: all that new rows move.

    Attributes:
        context: the newest rows.
        rows: how many there were in all.
        streams: what the online memory holds.
        calibration: errors of past forecasts, or None where none were kept.
        pending: by row, what the memory said at origins whose horizon is not yet known, ``[h, N]``.
    """

    context: Panel
    rows: int
    streams: list[online.Stream]
    calibration: Calibration | None
    pending: dict[int, Tensor]

    @classmethod
    def after(cls, model: Model, panel: Panel, table: Table, border: int) -> "Position":
        """At the end of the rows of ``fit``, of which those from ``border`` were kept from training."""
        T = len(table.values)
        calibration, pending = None, {}
        if border < T:
            each = model.h * table.values.shape[1] * model.objective.outputs
            step = scoring_step(T - model.h + 1 - border, each)
            known = scored_origins(border, T - model.h + 1, step)
            if len(known):
                calibration = model.scores(table, torch.from_numpy(known), step)
            if calibration is not None and model.memory is not None:
                ahead = scored_origins(max(1, T - model.h + 1), T + 1, step)
                said = corrections(model.memory, table, torch.from_numpy(ahead))
                pending = dict(zip(ahead.tolist(), said, strict=True))
        context = panel.rows(-min(T, model.context_rows))
        return cls(context, T, model.read_through(table), calibration, pending)

    def moved(self, model: Model, newer: Panel) -> "Position":
        """Behind the rows of ``newer``.

        Raises:
            ValueError: other series, or rows that do not follow.
        """
        joined = self.context.joined(newer)
        table = model.scaling.table(joined)
        offset = self.rows + len(newer.values) - len(table.values)  # rows are counted from the first of fit
        end = self.rows + len(newer.values)
        step, scored = end, np.empty(0, dtype=int)
        if self.calibration is not None:
            step, first = self.calibration.step, max(self.rows - model.h + 1, offset + model.input_size)
            scored = scored_origins(first, end - model.h + 1, step)[-self.calibration.most :]  # the rest would be lost
        streams, pending, at = self.streams, dict(self.pending), self.rows
        if model.memory is not None:
            begin = max(at + 1, int(scored[0])) if len(scored) else at + 1
            for stop in (*scored_origins(begin, end, step).tolist(), end):
                known = table.values[: stop - offset]
                streams = [online.advance(model.memory, s, known, stop - at) for s in streams]
                if stop % step == 0:
                    pending[stop] = model.recalled(streams, known)
                at = stop
        calibration = self.calibration
        if calibration is not None and len(scored):
            rows = torch.from_numpy(scored - offset)
            found = forecast_rows(model.network, model.objective, table, rows, whole=True, begun=True)
            silent = table.values.new_zeros(model.h, table.values.shape[1])
            found = found.moved(torch.stack([pending.get(t, silent) for t in scored.tolist()]))
            calibration = calibration.joined(model._scored(found, table, rows, step))
        pending = {t: by for t, by in pending.items() if t + model.h > end}
        return Position(joined.rows(-min(len(joined.values), model.context_rows)), end, streams, calibration, pending)
