"""Which rows of a panel train, which validate, and for how long."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from titans_core.checks import at_least
from titans_datasets.warn import warn_caller
from titans_ts.panel import Panel, beyond

if TYPE_CHECKING:
    from titans_ts.forecaster import TitansForecaster

# batches in an epoch, at most; and in a training by default, at least and at most
EPOCH, LEAST, MOST = 100, 1200, 2000
# of a pass over all windows of single series: neighbours share most of their rows
PART = 3
SEVERAL = 10  # rows of a series that lie so many steps apart are no chance
# windows of all series together in a batch, at least, where that is not more than so many of one series
TOGETHER, APART = 16, 1024


def check_length(panel: Panel, least: int, what: str) -> None:
    rows = len(panel.values)
    if rows < least:
        raise ValueError(
            f"the frame has {rows} rows (n_samples={rows}), but {what} = {least} are needed. "
            "Give a longer frame, or lower input_size or h."
        )


def border_of(panel: Panel, input_size: int, h: int, val_size: int | None) -> int:
    """The row before which a panel trains: the last ``val_size`` are kept for validation, by default a fifth of those
    beyond ``input_size + h``, at least ``h``, and none, with a warning, where there are too few.

    Raises:
        ValueError: too few rows for either, or a series that has too few to train on.
    """
    T, least = len(panel.values), input_size + h
    border = border_row(T, least, h, val_size)
    if val_size is None and border == T:
        warn_caller(
            f"{T} rows are too few to keep h={h} of them for validation: training runs on all, for max_epochs, and "
            "intervals of a point loss have no errors to go by. Give more rows, or val_size=0 to silence this."
        )
    val_size = T - border
    if val_size and not np.isfinite(panel.measured[border:]).any():
        raise ValueError(
            f"the last val_size={val_size} rows, which are for validation, have no value: a training cannot be judged "
            "by them. Cut them off, or set val_size=0."
        )
    rows = _rows_before(panel, border)
    if rows.min() < least:
        short = [panel.ids[i] for i in np.flatnonzero(rows < least)]
        which = f"series {short[0]!r} has" if len(short) == 1 else f"{len(short)} series have, first {short[:8]!r},"
        raise ValueError(
            f"{which} {rows.min()} rows for training (before the last {val_size}, which are for validation), but "
            f"input_size + h = {least} are needed. {smaller_validation(panel, least, h)}Give more of the "
            "past, leave such series out, or lower input_size or h."
        )
    return border


def older(panel: Panel, least: int, border: Callable[[int], int]) -> Panel:
    """The panel of the series that have ``least`` rows to train on, and no further than they go; all of it where none
    has: training says then what they lack.

    Args:
        panel: whose series are counted from their first values.
        least: rows, from there to the border.
        border: of a panel of so many rows, the row that validation begins at.
    """
    rows = len(panel.values)
    old = np.flatnonzero(_rows_before(panel, border(rows)) >= least).tolist()
    if len(old) in (0, len(panel.ids)):
        return panel
    panel = _of_some(panel, old)
    # of fewer rows more series are young
    return panel if len(panel.values) in (rows, *range(least)) else older(panel, least, border)


def warn_of_young(ids: list[Any], before: Any = None, then: str = "") -> None:
    """Says which series are left out of a training on what was before a time (of all, if None), and what to do then."""
    when, there = ("", "") if before is None else (f" before {before}", " there")
    warn_caller(
        f"{len(ids)} series begin too late to train on{when} and are left out{there}: {ids[:8]}. {then}".strip()
    )


def needs_all(panel: Panel, forecaster: "TitansForecaster") -> bool:
    """Whether no series may be left out: where they are mixed, and of a matrix, which tells them apart by their
    places."""
    return forecaster.multivariate or panel.layout == "matrix"


def without_young(panel: Panel, forecaster: "TitansForecaster", val_size: int | None) -> Panel:
    """What ``fit`` trains on (:func:`trained_on`), with a warning of the series that it leaves out."""
    found = trained_on(panel, forecaster, val_size)
    if young := beyond(panel.ids, found.ids):
        enough = smaller_validation(panel.named(young), forecaster.input_size + forecaster.h, forecaster.h)
        warn_of_young(young, then=f"{enough}predict(df) forecasts them, given their rows.")
    return found


def trained_on(panel: Panel, forecaster: "TitansForecaster", val_size: int | None) -> Panel:
    """The panel of ``fit``, less the series that begin too late to train on; whole where it :func:`needs_all`."""
    h, least = forecaster.h, forecaster.input_size + forecaster.h
    check_length(panel, least, "input_size + h")
    return panel if needs_all(panel, forecaster) else old_enough(panel, least, h, val_size)


def old_enough(panel: Panel, least: int, h: int, val_size: int | None) -> Panel:
    """The panel of the series that begin early enough for ``fit`` with this ``val_size`` (:func:`older`)."""
    found = older(panel, least, lambda rows: border_row(rows, least, h, val_size))
    check_length(found, least, "input_size + h")
    return found


def _of_some(panel: Panel, series: list[int]) -> Panel:
    """The panel of some series, and no further than they go."""
    panel = panel.of_series(series)
    return panel.rows(None, 1 + int(np.flatnonzero(np.isfinite(panel.measured).any(axis=1))[-1]))


def border_row(T: int, least: int, h: int, val_size: int | None) -> int:
    """As :func:`border_of`, of ``T`` rows of any series."""
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
    """What leaves ``least`` rows of each series to train on, in words; nothing where nothing does."""
    rows = len(panel.values) - int(panel.first_rows.max()) - least
    return f"With val_size={rows if rows >= h else 0} there are enough. " if rows >= 0 else ""


def _rows_before(panel: Panel, border: int) -> np.ndarray:
    """Of each series before the border, from its first value on."""
    return border - panel.rows(None, border).first_rows


def warn_of_sparse(panel: Panel) -> None:
    """Say which series are measured at each second, third ... step only: of what lies between nothing is learned, and
    no error tells how wrong it is."""
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
            f"series {names[:8]} are measured once in {first} steps, and never between: forecasts of these steps are "
            "guesses, and their intervals do not hold. Fit such series in a model of their own, on the rows that they "
            "have."
        )


def windows_in_batch(batch_size: int, series: int) -> int:
    """Windows of all series together, where ``batch_size`` is the number of windows of one series."""
    return max(1, batch_size // series, min(TOGETHER, APART // series))


def default_epochs(batches: int, together: bool) -> int:
    """How many rounds of at most :data:`EPOCH` batches a training has, where one pass over its windows is ``batches``
    batches: a third of a pass, or a whole one with series mixed, where a batch has fewer points in time; though from
    :data:`LEAST` to :data:`MOST` batches, and 200 rounds at most."""
    wanted = batches if together else batches // PART
    return min(200, -(-min(MOST, max(LEAST, wanted)) // min(EPOCH, batches)))
