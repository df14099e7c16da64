"""The trained model, and its position in the series."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from titans_core.warn import warn_caller
from titans_ts.frames.panel import Panel, beyond
from titans_ts.intervals import NO_SCORES, Calibration, scoring_step, with_score
from titans_ts.network import online
from titans_ts.network.objective import Objective, normal_end
from titans_ts.network.rolling import Forecasts, corrections, forecast_rows
from titans_ts.network.simba import FLOOR, Simba
from titans_ts.network.widening import widened
from titans_ts.network.windows import Table, first_rows
from titans_ts.units.scaling import Scaling

AT_ONCE = 1 << 23  # network outputs held at once for scoring


@dataclass(frozen=True)
class Model:
    """The result of training; it does not change afterwards.

    Attributes:
        network: the network, in evaluation mode.
        objective: interpretation of its outputs.
        scaling: units of series and columns.
        memory: the online memory, or None.
        widening: growth of errors with the unknown share of a lookback
            (:func:`~titans_ts.network.widening.widening_of`), for point losses if ``missing`` is not "error"; else
            None.
    """

    network: Simba
    objective: Objective
    scaling: Scaling
    memory: online.OnlineMemory | None
    widening: Tensor | None = None

    @property
    def h(self) -> int:
        return self.network.config.h

    @property
    def input_size(self) -> int:
        return self.network.config.input_size

    @property
    def context_rows(self) -> int:
        """Rows to keep as context for later forecasts and updates."""
        return self.input_size + self.h + (0 if self.memory is None else 2 * self.memory.stride)

    def rolling(self, table: Table, origins: Tensor, whole: bool = False) -> Forecasts:
        """Standardised forecasts at many origins of a table, which the memory reads from its first row. ``whole`` keeps
        the raw outputs for intervals."""
        found = forecast_rows(self.network, self.objective, table, origins, whole)
        return found if self.memory is None else found.corrected(corrections(self.memory, table, origins))

    def read_through(self, table: Table) -> list[online.Stream]:
        """The state of the online memory at the end of a table."""
        if self.memory is None:
            return []
        values = table.values
        return [online.advance(self.memory, s, values, len(values) - b) for b, s in online.streams_of(values)]

    def surprises(self, values: Tensor, unknown: Tensor, step: int) -> list[tuple[Tensor, Tensor, Tensor]]:
        """The surprise of the online memory for values ``[T, N]``, arguments as in :func:`online.surprises`. For each
        group of series that begin together: their numbers ``[n]``, numbers of rows read ``[R]``, surprise
        ``[R, n]``."""
        if self.memory is None:
            return []
        found = []
        for begin, stream in online.streams_of(values):
            own, holes = (x[begin:, stream.series] for x in (values, unknown))
            rows, surprise = online.surprises(self.memory, own, holes, step)
            found.append((stream.series, begin + rows, surprise))
        return found

    def recalled(self, streams: list[online.Stream], values: Tensor) -> Tensor:
        """Corrections of the memory for the forecasts after the rows ``values`` ``[T, N]``: ``[h, N]``."""
        by = values.new_zeros(self.h, values.shape[1])
        if self.memory is not None:
            for stream in streams:
                by[:, stream.series] = online.recall(self.memory, stream, values)
        return by

    def forecast(
        self, panel: Panel, futr: np.ndarray, levels: Sequence[float], position: "Position", from_start: bool
    ) -> np.ndarray:
        """Forecasts of the h steps after a panel, with the bounds of each level (:meth:`bounded`), in units of the
        data.

        Args:
            panel: at least ``input_size`` rows.
            futr: future columns in the h steps, ``[h, N, F]``.
            levels: levels of the intervals, in percent.
            position: the position of the model in the series of ``fit``.
            from_start: True if the memory reads the panel from its first row; False if the panel is the context of
                ``position``, whose memory state is used.

        Raises:
            ValueError: a series that begins too late for a lookback; or as in :meth:`bounded`.
        """
        masked = self.network.config.masked
        scaling, steps = self.scaling.of_panel(panel, position.context), panel.future(self.h)
        if from_start:
            scaling.warn_of(panel, stat=True)
        scaling.warn_beyond(steps, panel.ids, futr=futr)
        table = scaling.table(panel)
        ahead = table.extended(scaling.future(steps, futr), self.h)
        # the check is only for frames: series of the context began long before it, and NaN at its start is just a gap
        late = first_rows(table.values) > len(panel.values) - (1 if masked else self.input_size)
        if from_start and late.any():
            short = panel.ids[int(late.to(torch.uint8).argmax())]
            why = "has no value" if masked else f"is shorter than input_size={self.input_size}"
            raise ValueError(f"series {short!r} {why}. Give more of its history.")
        if from_start:
            _warn_of_part(panel, position.context.ids, self.input_size)
        if from_start and levels:
            _warn_of_short(panel, position.context.ids, self.input_size)
        origin, begun = torch.tensor([len(panel.values)]), masked or not from_start
        found = forecast_rows(self.network, self.objective, ahead, origin, bool(levels), begun)
        if self.memory is not None:
            streams = self.read_through(table) if from_start else position.streams
            found = found.corrected(self.recalled(streams, table.values)[None])
        values = self.bounded(found, levels, position.calibration, position.context.places(panel.ids))[0]
        return scaling.units.restored(values, steps)

    def bounded(
        self,
        found: Forecasts,
        levels: Sequence[float],
        calibration: Calibration | None,
        series: Sequence[int | None] | None = None,
    ) -> np.ndarray:
        """Points, lower bounds (widest first) and upper bounds, standardised: ``[K, h, N, 1 + 2 * len(levels)]``.

        Args:
            found: forecasts.
            levels: levels of the intervals, in percent.
            calibration: errors of past forecasts.
            series: numbers of the series in the calibration (:meth:`Calibration.reached`).

        Raises:
            ValueError: no calibration, and a point loss or a level that the network does not predict.
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
        scale = self._scale(found)
        score, enough = self._reached(level, calibration, series)
        whole = normal_end(level)  # half the width if only the deviation of the series is known

        def bound(side: int) -> Tensor:
            if score is None:
                error = objective.nominal(raw, level, side)
            else:
                error = objective.offset(raw, score.to(point), scale, side)
                if not enough.all():  # too few scores: the network's interval, unless the scores show it is too narrow
                    own = objective.nominal(raw, level, side)
                    error = torch.where(enough, error, side * (side * error).fmax(side * own))
            error = error * scale
            if found.stale is not None:  # the lookback tells less, the older its newest known value is
                error = torch.lerp(error, torch.full_like(error, side * whole), found.stale[:, None])
            return point + error

        return bound(-1), bound(1)

    def _reached(
        self, level: float, calibration: Calibration | None, series: Sequence[int | None] | None
    ) -> tuple[Tensor | None, Tensor]:
        """The score at which intervals end, ``[h, N]``, and where there are enough scores to rely on it alone."""
        if calibration is None:
            return None, torch.tensor(False)
        score, enough = calibration.ranked(level, series)
        if level <= self.objective.widest:
            return torch.from_numpy(score), torch.from_numpy(enough)
        score = calibration.reached(level, series)
        if self.objective.probabilistic:  # at least the network's widest interval
            score = np.where(enough, score, np.maximum(score, 1))
        return torch.from_numpy(score), torch.tensor(True)

    def scores(self, table: Table, origins: Tensor) -> np.ndarray:
        """Scores of the forecasts at these origins, ``[K, h, N]``. NaN for unknown actual values, and for origins
        inside a gap that was filled with later values."""
        by = None if self.memory is None else corrections(self.memory, table, origins)
        return self.scored_by(table, origins, by)

    def scored_by(self, table: Table, origins: Tensor, by: Tensor | None, begun: bool = False) -> np.ndarray:
        """As :meth:`scores`, with given corrections ``by`` ``[K, h, N]`` of the memory."""
        each = self.h * table.values.shape[1] * self.objective.outputs
        parts = []
        for some in torch.arange(len(origins)).split(int(max(1, AT_ONCE // each))):
            found = forecast_rows(self.network, self.objective, table, origins[some], whole=True, begun=begun)
            parts.append(self._scored(found if by is None else found.corrected(by[some]), table, origins[some]))
        return torch.cat(parts).numpy().astype(np.float32)

    def _scale(self, found: Forecasts) -> Tensor:
        """The unit of errors, ``[K, 1, N]``."""
        scale = found.spread.clamp(min=FLOOR)
        if self.widening is not None and found.unknown is not None:
            scale = scale * widened(self.widening, found.unknown)
        return scale[:, None]

    def _scored(self, found: Forecasts, table: Table, origins: Tensor) -> Tensor:
        steps, series = torch.arange(self.h)[:, None], torch.arange(table.values.shape[1])
        together = self.network.config.together
        scale = self._scale(found)
        error = (table.truth.after(origins[:, None, None], steps, series, together) - found.point) / scale
        raw = error.unsqueeze(-1) if found.raw is None else found.raw
        return self.objective.score(raw, error, scale).masked_fill(error.isnan(), float("nan"))


def _warn_of_part(panel: Panel, known: list[Any], input_size: int) -> None:
    """Warn about series of ``fit`` of which a frame has only the newest rows."""
    late = [panel.ids[i] for i in np.flatnonzero(panel.first_rows > len(panel.values) - input_size)]
    part = beyond(late, beyond(late, known))
    if part:
        warn_caller(
            f"series of fit with fewer than input_size={input_size} rows in df: {part[:8]}. Their forecasts see no "
            "earlier rows. To add new rows to those of fit, call update."
        )


def _warn_of_short(panel: Panel, known: list[Any], input_size: int) -> None:
    count = np.isfinite(panel.values).sum(axis=0)
    short = beyond([panel.ids[i] for i in np.flatnonzero(count < input_size)], known)
    if short:
        warn_caller(
            f"new series with fewer than input_size={input_size} rows: {short[:8]}. Their variability is estimated "
            "from the series of fit, and their intervals may be too narrow."
        )


@dataclass(frozen=True)
class Position:
    """The position of a model in its series: everything that :meth:`TitansForecaster.update` changes.

    Attributes:
        context: the newest rows.
        rows: total number of rows.
        streams: state of the online memory.
        calibration: errors of past forecasts, or None without validation rows.
        pending: corrections of the memory ``[h, N]`` by row, for origins whose horizon is not yet known.
    """

    context: Panel
    rows: int
    streams: list[online.Stream]
    calibration: Calibration | None
    pending: dict[int, Tensor]

    @classmethod
    def after(cls, model: Model, panel: Panel, table: Table, border: int) -> "Position":
        """The position after the rows of ``fit``; validation rows start at ``border``."""
        T = len(table.values)
        calibration, pending = None, {}
        if border < T:
            step = scoring_step(T - model.h + 1 - border, model.h, table.values.shape[1])
            origins = torch.arange(border, T + 1, step)
            known, ahead = origins[origins <= T - model.h], origins[origins > T - model.h]
            by = None
            if model.memory is not None:
                by, later = corrections(model.memory, table, origins).split([len(known), len(ahead)])
                pending = dict(zip(ahead.tolist(), later.clone(), strict=True))
            scores = model.scored_by(table, known, by)
            there = with_score(scores)
            calibration = Calibration(scores[there] if there.any() else scores, step, border % step)
        context = panel.newest(model.context_rows)
        return cls(context, T, model.read_through(table), calibration, pending)

    def after_rows(self, model: Model, newer: Panel) -> "Position":
        """The position after the rows of ``newer``.

        Raises:
            ValueError: other series, or rows that do not directly follow.
        """
        joined = self.context.joined(newer)
        model.scaling.warn_of(joined, since=len(self.context.values))
        table = model.scaling.table(joined)
        offset = self.rows + len(newer.values) - len(table.values)  # rows are counted from the first of fit
        end = self.rows + len(newer.values)
        scored = ahead = np.empty(0, dtype=int)
        if self.calibration is not None:
            first = max(self.rows - model.h + 1, offset + model.input_size)
            known = torch.from_numpy(self.calibration.origins(first, end - model.h + 1))
            known = known[table.truth.any_after(known - offset, model.h, model.network.config.together)]
            scored = known.numpy()[-self.calibration.most :]  # older ones would be dropped again
            ahead = self.calibration.origins(max(self.rows, end - model.h) + 1, end + 1)
        streams, pending, at = self.streams, dict(self.pending), self.rows
        if model.memory is not None:
            needed = {*scored[scored > at].tolist(), *ahead.tolist()}
            for stop in sorted({*needed, end}):
                rows = table.values[: stop - offset]
                streams = [online.advance(model.memory, s, rows, stop - at) for s in streams]
                if stop in needed:
                    pending[stop] = model.recalled(streams, rows)
                at = stop
        calibration = self.calibration
        if calibration is not None and len(scored):
            by = None
            if model.memory is not None:
                silent = table.values.new_zeros(model.h, table.values.shape[1])
                by = torch.stack([pending.get(t, silent) for t in scored.tolist()])
            calibration = calibration.joined(model.scored_by(table, torch.from_numpy(scored - offset), by, begun=True))
        pending = {t: by for t, by in pending.items() if t + model.h > end}
        return Position(joined.newest(model.context_rows), end, streams, calibration, pending)
