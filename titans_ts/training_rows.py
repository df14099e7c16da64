"""The choice of series, training rows, validation rows and training length."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from titans_core.checks import at_least
from titans_datasets.warn import warn_caller
from titans_ts.panel import Panel, beyond

if TYPE_CHECKING:
    from titans_ts.forecaster import TitansForecaster

# maximum number of batches in an epoch; minimum and maximum in a default training
EPOCH, LEAST, MOST = 100, 1200, 2000
# a default training sees one window in PART, since neighbouring windows share most of their rows
PART = 3
SEVERAL = 10  # rows from which on a regular spacing in a series is no coincidence
# with mixed series, at least TOGETHER windows in a batch, as far as they hold at most APART windows of single series
TOGETHER, APART = 16, 1024


def check_length(panel: Panel, least: int, what: str) -> None:
    rows = len(panel.values)
    if rows < least:
        raise ValueError(
            f"the frame has {rows} rows (n_samples={rows}), but {what} = {least} are needed. "
            "Give a longer frame, or lower input_size or h."
        )


def border_of(panel: Panel, input_size: int, h: int, val_size: int | None) -> int:
    """The first validation row. By default a fifth of the rows beyond ``input_size + h``, at least ``h``, are for
    validation; none, with a warning, if there are too few.

    Raises:
        ValueError: too few rows for training or validation, in total or in one series.
    """
    T, least = len(panel.values), input_size + h
    border = border_row(T, least, h, val_size)
    if val_size is None and border == T:
        warn_caller(
            f"{T} rows are too few to keep h={h} of them for validation: training uses all rows, without early "
            "stopping, and a point loss cannot provide intervals. Give more rows, or set val_size=0 to silence this "
            "warning."
        )
    val_size = T - border
    if val_size and not np.isfinite(panel.measured[border:]).any():
        raise ValueError(
            f"the last val_size={val_size} rows, which are for validation, have no known value. Cut them off, or set "
            "val_size=0."
        )
    rows = _rows_before(panel, border)
    if rows.min() < least:
        short = [panel.ids[i] for i in np.flatnonzero(rows < least)]
        which = f"series {short[0]!r} has" if len(short) == 1 else f"{len(short)} series have, first {short[:8]!r},"
        raise ValueError(
            f"{which} {rows.min()} rows for training (before the last {val_size}, which are for validation), but "
            f"input_size + h = {least} are needed. {smaller_validation(panel, least, h)}Give more history, "
            "drop such series, or lower input_size or h."
        )
    return border


def older(panel: Panel, least: int, border: Callable[[int], int]) -> Panel:
    """Select the series with at least ``least`` training rows, and cut the panel at their last value.

    If no series has so many, the panel is unchanged, and training raises the error.

    Args:
        panel: the panel; rows of a series count from its first value.
        least: required rows before validation.
        border: function from the number of rows to the first validation row.
    """
    rows = len(panel.values)
    old = np.flatnonzero(_rows_before(panel, border(rows)) >= least).tolist()
    if len(old) in (0, len(panel.ids)):
        return panel
    panel = _selected(panel, old)
    # the cut can make further series too short
    return panel if len(panel.values) in (rows, *range(least)) else older(panel, least, border)


def warn_of_young(ids: list[Any], before: Any = None, then: str = "") -> None:
    """Warn about series that are skipped in a training on the rows before a time (None: all rows)."""
    when, there = ("", "") if before is None else (f" before {before}", " there")
    warn_caller(f"{len(ids)} series begin too late to train on{when} and are skipped{there}: {ids[:8]}. {then}".strip())


def needs_all(panel: Panel, forecaster: "TitansForecaster") -> bool:
    """Whether no series may be skipped: if they are mixed, and in a matrix, which identifies series by position."""
    return forecaster.multivariate or panel.layout == "matrix"


def without_young(panel: Panel, forecaster: "TitansForecaster", val_size: int | None) -> Panel:
    """The panel that ``fit`` trains on (:func:`trained_on`), with a warning about skipped series."""
    found = trained_on(panel, forecaster, val_size)
    if young := beyond(panel.ids, found.ids):
        enough = smaller_validation(panel.named(young), forecaster.input_size + forecaster.h, forecaster.h)
        warn_of_young(young, then=f"{enough}predict(df) forecasts them, given their rows.")
    return found


def trained_on(panel: Panel, forecaster: "TitansForecaster", val_size: int | None) -> Panel:
    """The panel of ``fit`` without series that begin too late; unchanged if it :func:`needs_all` series."""
    h, least = forecaster.h, forecaster.input_size + forecaster.h
    check_length(panel, least, "input_size + h")
    return panel if needs_all(panel, forecaster) else old_enough(panel, least, h, val_size)


def old_enough(panel: Panel, least: int, h: int, val_size: int | None) -> Panel:
    """The panel of the series that are long enough for ``fit`` with this ``val_size`` (:func:`older`)."""
    found = older(panel, least, lambda rows: border_row(rows, least, h, val_size))
    check_length(found, least, "input_size + h")
    return found


def _selected(panel: Panel, series: list[int]) -> Panel:
    """Select series, and cut the panel at their last value."""
    panel = panel.of_series(series)
    return panel.rows(None, 1 + int(np.flatnonzero(np.isfinite(panel.measured).any(axis=1))[-1]))


def border_row(T: int, least: int, h: int, val_size: int | None) -> int:
    """As :func:`border_of`, for ``T`` rows without regard to single series."""
    if val_size is None:
        val_size = max(h, (T - least) // 5)
        val_size = val_size if T - least >= val_size else 0
    at_least("val_size", val_size, 0)
    border = T - val_size
    if border < least or 0 < val_size < h:
        raise ValueError(
            f"val_size={val_size} of {T} rows: validation needs at least h={h} rows, and training at least "
            f"input_size + h = {least}. Use val_size=0 to train on all rows."
        )
    return border


def smaller_validation(panel: Panel, least: int, h: int) -> str:
    """Advice on a ``val_size`` that leaves ``least`` training rows for each series; empty if there is none."""
    rows = len(panel.values) - int(panel.first_rows.max()) - least
    return f"With val_size={rows if rows >= h else 0} there are enough rows. " if rows >= 0 else ""


def _rows_before(panel: Panel, border: int) -> np.ndarray:
    """The number of rows of each series before the border, from its first value on."""
    return border - panel.rows(None, border).first_rows


def warn_of_sparse(panel: Panel) -> None:
    """Warn about series with values only at every second, third, ... step, since errors between them stay unknown."""
    found = {}
    for name, there in zip(panel.ids, np.isfinite(panel.measured).T, strict=True):
        rows = np.flatnonzero(there)
        apart = 1 if there.all() or len(rows) < SEVERAL else int(np.gcd.reduce(np.diff(rows)))
        if apart > 1:
            found[name] = apart
    if found:
        first = next(iter(found.values()))
        names = [name for name, apart in found.items() if apart == first]
        warn_caller(
            f"series {names[:8]} have a value only once in {first} steps: forecasts and intervals for the other steps "
            "are unreliable. Fit such series in a separate model, with only the rows that have values."
        )


def windows_in_batch(batch_size: int, series: int) -> int:
    """Windows per batch if each holds all series; ``batch_size`` counts windows of single series."""
    return max(1, batch_size // series, min(TOGETHER, APART // series))


def default_epochs(batches: int, together: bool) -> int:
    """The default number of epochs, of at most :data:`EPOCH` batches each.

    ``batches`` is one pass over all windows. A training has a third of a pass, or a full one with mixed series, whose
    batches cover fewer points in time; but :data:`LEAST` to :data:`MOST` batches, and at most 200 epochs.
    """
    wanted = batches if together else batches // PART
    return min(200, -(-min(MOST, max(LEAST, wanted)) // min(EPOCH, batches)))
