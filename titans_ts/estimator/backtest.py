"""Backtests: forecasts at rolling origins in a frame, with or without retraining."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone

from titans_core.checks import at_least
from titans_ts.estimator.cut import Cut, warn_of_skipped
from titans_ts.estimator.reading import read_given
from titans_ts.frames.exogenous import read_columns
from titans_ts.frames.libraries import from_pandas
from titans_ts.frames.panel import Panel, beyond
from titans_ts.frames.spikes import without_wrong
from titans_ts.intervals import NO_SCORES, Calibration, check_levels, column_names
from titans_ts.network.objective import objective_of
from titans_ts.network.rolling import Forecasts, with_lookback
from titans_ts.network.windows import Table, in_holes
from titans_ts.units.scaling import tensor

if TYPE_CHECKING:
    from titans_ts.forecaster import TitansForecaster


def backtest(
    forecaster: "TitansForecaster",
    df: Any,
    n_windows: int,
    step_size: int | None,
    refit: bool | int,
    val_size: int | None,
    level: list[float] | None,
    static_df: Any,
) -> Any:
    """See :meth:`titans_ts.TitansForecaster.cross_validation`."""
    levels = check_levels(level)
    forecaster._check_params()
    h = forecaster.h
    step = h if step_size is None else step_size
    for name, value in (("n_windows", n_windows), ("step_size", step)):
        at_least(name, value)
    if not isinstance(refit, (bool, np.bool_, int, np.integer)) or refit < 0:
        raise ValueError(f"refit must be False, True or a number of windows, got {refit!r}.")
    columns = read_columns(forecaster.exogenous)
    whole = read_given(forecaster, df, columns, static_df, fill=False)
    T = len(whole.values)
    cutoffs = [T - h - i * step for i in reversed(range(n_windows))]
    cut = Cut.of(forecaster, val_size)
    if cutoffs[0] < cut.least:
        raise ValueError(
            f"{n_windows} windows of h={h} at step_size={step} leave {max(0, cutoffs[0])} rows before the first, but "
            f"training needs input_size + h = {cut.least}. Lower n_windows or step_size, or give a longer frame."
        )
    every = int(refit) or len(cutoffs)
    frames = []
    _check_levels(forecaster.loss, levels, validated=cut.border(cutoffs[0]) < cutoffs[0])
    _warn_of_skipped(whole, cut, cutoffs[::every])
    for begin in range(0, len(cutoffs), every):
        group = cutoffs[begin : begin + every]
        before, known = _known(whole, cut, group[0], forecaster.missing)
        model = clone(forecaster)
        model._take(*model._learned(before, columns, val_size), left_out=[], seconds=None)
        known = known.rows(None, group[-1] + h)  # later rows are forecast by later trainings
        frames.append(backtest_frame(model, known, group, levels, fitted=len(before.values), library="pandas"))
    return from_pandas(pd.concat(frames, ignore_index=True), whole.library)


def _check_levels(loss: str, levels: list[float], validated: bool) -> None:
    """Reject levels that the models could not provide, before any training.

    Raises:
        ValueError: there are no validation rows, and the loss does not provide these levels itself.
    """
    if not levels or validated:
        return
    objective = objective_of(loss)
    if not objective.probabilistic:
        raise ValueError(NO_SCORES)
    objective.nominal(torch.zeros(1, objective.outputs), levels[-1], 1)


def _warn_of_skipped(whole: Panel, cut: Cut, cutoffs: list[int]) -> None:
    """Warn once about series that are too short for the trainings before these cutoffs; they get fewer over time."""
    first, *later = (whole.rows(None, cutoff) for cutoff in cutoffs)
    skipped = beyond(first.ids, cut.long_enough(first).ids)
    if skipped:
        still = sum(len(cut.long_enough(panel).ids) < len(panel.ids) for panel in later)
        more = f"Some are also skipped in {still} of the {len(later)} later trainings." if still else ""
        if later and not still:
            more = "Later trainings include them."
        warn_of_skipped(skipped, whole.index[cutoffs[0]], cut.advice(first.named(skipped)) + more)


def _known(whole: Panel, cut: Cut, cutoff: int, missing: str) -> tuple[Panel, Panel]:
    """The filled training panel before a cutoff, of the series that are long enough, and all rows of these series.

    Values that training clips as wrong are clipped in the lookbacks too.
    """
    before = cut.long_enough(whole.rows(None, cutoff))
    rows = len(before.values)
    trained = without_wrong(before.filled(missing), cut.border(rows))
    known = whole.named(before.ids)
    measured = np.where(np.isnan(before.values), np.nan, trained.values)
    return trained, replace(known, values=np.concatenate((measured, known.values[rows:])))


def backtest_frame(
    model: "TitansForecaster",
    panel: Panel,
    origins: list[int],
    levels: list[float],
    fitted: int | None = None,
    library: str | None = None,
) -> Any:
    """Forecasts of a fitted model at rows of a panel, with the actual values, as a long frame.

    The panel is not filled: each origin fills only what was known before it, and unknown actual values stay NaN. With
    ``fitted``, the number of rows that ``fit`` saw, intervals also use the errors that became known after these rows.
    """
    h, T = model._fitted().h, len(panel.values)
    model.scaling_.warn_of(panel, since=fitted or 0)  # fit has warned of the rows before
    given, panel = panel, panel.filled(model.missing)
    begun = np.arange(T)[:, None, None] >= given.first_rows[:, None]
    at = torch.tensor(origins)
    there = with_lookback(model.network_, tensor(given.values), at).numpy()
    inside = in_holes(torch.from_numpy(given.unknown() & begun))[at - 1]
    ahead = in_holes(torch.from_numpy(np.isnan(given.futr) & ~np.isnan(panel.futr)))
    inside |= ahead[at - 1] | ahead[at + h - 1]
    table = model.scaling_.table(panel)
    found = model.model_.rolling(table, at, bool(levels))
    rolling = _RollingCalibration(model, table, fitted if levels else None)
    values = np.empty((len(origins), h, len(panel.ids), 1 + 2 * len(levels)))
    for i, origin in enumerate(origins):
        forecast = found.at(i)
        if model.missing == "interpolate" and inside[i].any():
            # these gaps were filled with the help of values that were not known at the origin
            forecast = forecast.replaced(*_filled_then(model, given, inside[i], origin, bool(levels)))
        bounds = model.model_.bounded(forecast, levels, rolling.known_by(origin))[0]
        values[i] = model.scaling_.units.restored(bounds, panel.index[origin : origin + h])
    of, series = there.nonzero()  # one frame of all: pandas takes longer to make one per origin than the forecasts
    cutoffs = at.numpy()[of] - 1
    rows = 1 + cutoffs[:, None] + np.arange(h)
    columns = {
        "unique_id": pd.Index(panel.ids)[series].repeat(h),
        "ds": panel.index[rows.flatten()],
        "cutoff": panel.index[cutoffs].repeat(h),
        "y": given.values[rows, series[:, None]].flatten(),
    }
    columns |= {name: values[of, :, series, i].flatten() for i, name in enumerate(column_names(levels))}
    return from_pandas(pd.DataFrame(columns), library or panel.library)


def _filled_then(
    model: "TitansForecaster", given: Panel, inside: torch.Tensor, origin: int, whole: bool
) -> tuple[list[int], Forecasts]:
    """The series ``inside`` ``[N]`` (all if they are mixed), and their forecasts at an origin from what was known
    there. Only these are read anew: with many series, one of them nearly always has a gap."""
    config = model._fitted()
    series = list(range(len(inside))) if config.together else inside.nonzero().flatten().tolist()
    then = given.of_series(series).rows(None, origin + config.h).interpolated_at(origin, config.h)
    table = model.scaling_.of_series(series).table(then)
    return series, model.model_.rolling(table, torch.tensor([origin]), whole)


class _RollingCalibration:
    """The calibration of ``fit``, extended by the errors of later rows as :meth:`update` does."""

    def __init__(self, model: "TitansForecaster", table: Table, fitted: int | None) -> None:
        self.calibration, self.h = model.calibration_, model._fitted().h
        self.later: np.ndarray | None = None
        self.known, self.current = 0, self.calibration
        if fitted is None or self.calibration is None:
            return
        self.origins = self.calibration.origins(fitted - self.h + 1, len(table.values) - self.h + 1)
        if len(self.origins):
            self.later = model.model_.scores(table, torch.from_numpy(self.origins))

    def known_by(self, origin: int) -> Calibration | None:
        if self.calibration is None or self.later is None:
            return self.calibration
        known = int(np.searchsorted(self.origins, origin - self.h, side="right"))
        if known == self.known:  # no new errors: keep the cached ranks
            return self.current
        self.known, self.current = known, self.calibration.joined(self.later[:known])
        return self.current
