"""The choice of training and validation rows, and of the series that are long enough to train on."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from titans_core.checks import at_least
from titans_core.warn import warn_caller
from titans_ts.frames.panel import Panel, beyond

if TYPE_CHECKING:
    from titans_ts.forecaster import TitansForecaster


@dataclass(frozen=True)
class Cut:
    """How a training cuts the rows of a panel: training rows first, validation rows at the end.

    Attributes:
        input_size: lookback.
        h: horizon.
        val_size: validation rows. None: a fifth of the rows beyond ``input_size + h``, at least ``h``; 0 if there are
            too few.
    """

    input_size: int
    h: int
    val_size: int | None = None

    @classmethod
    def of(cls, forecaster: "TitansForecaster", val_size: int | None) -> "Cut":
        """The cut of ``forecaster.fit(df, val_size=val_size)``."""
        return cls(forecaster.input_size, forecaster.h, val_size)

    @property
    def least(self) -> int:
        """Required training rows."""
        return self.input_size + self.h

    def border(self, rows: int) -> int:
        """The first validation row of so many rows; ``rows`` if there is none.

        Raises:
            ValueError: too few rows for this ``val_size``.
        """
        val_size = self.val_size
        if val_size is None:
            val_size = max(self.h, (rows - self.least) // 5)
            val_size = val_size if rows - self.least >= val_size else 0
        at_least("val_size", val_size, 0)
        if rows - val_size < self.least or 0 < val_size < self.h:
            raise ValueError(
                f"val_size={val_size} of {rows} rows: validation needs at least h={self.h} rows, and training at least "
                f"input_size + h = {self.least}. With val_size=0, fit trains on all rows."
            )
        return rows - val_size

    def checked_border(self, panel: Panel) -> int:
        """The first validation row of a panel to train on, with a warning if the default gives none.

        Raises:
            ValueError: too few rows for training or validation, in total or in one series.
        """
        T = len(panel.values)
        border = self.border(T)
        if self.val_size is None and border == T:
            warn_caller(
                f"{T} rows are too few to keep h={self.h} of them for validation: training uses all rows, without "
                "early stopping, and a point loss cannot provide intervals. Give more rows, or set val_size=0 to "
                "silence this warning."
            )
        if border < T and not np.isfinite(panel.measured[border:]).any():
            raise ValueError(
                f"the last val_size={T - border} rows, which are for validation, have no known value. Cut them off, or "
                "set val_size=0."
            )
        rows = rows_before(panel, border)
        if rows.min() < self.least:
            short = [panel.ids[i] for i in np.flatnonzero(rows < self.least)]
            which = f"series {short[0]!r} has" if len(short) == 1 else f"{len(short)} series have, first {short[:8]!r},"
            advice = self.advice(panel) if (T - panel.first_rows >= self.least).all() else ""
            raise ValueError(
                f"{which} {rows.min()} rows for training (before the last {T - border}, which are for validation), but "
                f"input_size + h = {self.least} are needed. {advice}Give more history, drop such series, or lower "
                "input_size or h."
            )
        return border

    def long_enough(self, panel: Panel) -> Panel:
        """The series with enough training rows, and the panel cut at their last value.

        If no series has enough, or only such as ended early, the panel is unchanged, and training raises the error.

        Raises:
            ValueError: too few rows in total.
        """
        rows = len(panel.values)
        check_length(panel, self.least, "input_size + h")
        chosen = np.flatnonzero(rows_before(panel, self.border(rows)) >= self.least).tolist()
        if len(chosen) in (0, len(panel.ids)):
            return panel
        kept = panel.of_series(chosen)
        kept = kept.rows(None, 1 + int(np.flatnonzero(np.isfinite(kept.measured).any(axis=1))[-1]))
        if len(kept.values) < self.least:  # only series that ended early, without one whole window
            return panel
        # with fewer rows, the border is earlier, and further series can be too short
        return kept if len(kept.values) == rows else self.long_enough(kept)

    def advice(self, panel: Panel) -> str:
        """Advice on a ``val_size`` that leaves enough training rows for each series that can have them; or empty."""
        rows = len(panel.values) - panel.first_rows - self.least
        able = [name for name, count in zip(panel.ids, rows, strict=True) if count >= 0]
        if not able:
            return ""
        least = int(rows.min(where=rows >= 0, initial=rows.max()))
        of_some = f" of {able[:8]}" if (rows < 0).any() and len(panel.ids) > 1 else ""
        return f"With val_size={least if least >= self.h else 0} there are enough rows{of_some}. "


def rows_before(panel: Panel, border: int) -> np.ndarray:
    """The number of rows of each series before the border, from its first value on."""
    return border - panel.rows(None, border).first_rows


def check_length(panel: Panel, least: int, what: str) -> None:
    rows = len(panel.values)
    if rows < least:
        raise ValueError(
            f"the frame has {rows} rows from its first value on (n_samples={rows}), but {what} = {least} are needed. "
            "Give a longer frame, or lower input_size or h."
        )


def needs_all(panel: Panel, forecaster: "TitansForecaster") -> bool:
    """Whether no series may be skipped: if they are mixed, and in a matrix, which identifies series by position."""
    return forecaster.multivariate or panel.layout == "matrix"


def trained_on(panel: Panel, forecaster: "TitansForecaster", val_size: int | None) -> Panel:
    """The part of a panel that ``fit`` trains on."""
    cut = Cut.of(forecaster, val_size)
    check_length(panel, cut.least, "input_size + h")
    return panel if needs_all(panel, forecaster) else cut.long_enough(panel)


def without_skipped(panel: Panel, forecaster: "TitansForecaster", val_size: int | None) -> Panel:
    """As :func:`trained_on`, with a warning about skipped series."""
    found = trained_on(panel, forecaster, val_size)
    left_out = panel.named(beyond(panel.ids, found.ids))
    empty = [left_out.ids[i] for i in np.flatnonzero(left_out.first_rows == len(panel.values))]
    if empty:
        warn_caller(f"{len(empty)} series have no value and are skipped: {empty[:8]}.")
    if skipped := beyond(left_out.ids, empty):
        advice = Cut.of(forecaster, val_size).advice(panel.named(skipped))
        if len(found.values) < len(panel.values):
            advice += f"The others end at {found.index[-1]}, and forecasts begin there. "
        warn_of_skipped(skipped, then=advice + _way_out(panel.named(skipped), forecaster))
    return found


def _way_out(skipped: Panel, forecaster: "TitansForecaster") -> str:
    """Which of the skipped series ``predict`` can forecast."""
    least = 1 if forecaster.missing == "mask" else forecaster.input_size
    able = len(skipped.values) - skipped.first_rows >= least
    if able.all():
        return "predict(df) forecasts them, given their rows."
    return f"predict(df) forecasts those with input_size={least} rows or more." if able.any() and least > 1 else ""


def warn_of_skipped(ids: list[Any], before: Any = None, then: str = "") -> None:
    """Warn about series that are skipped in a training on the rows before a time (None: all rows)."""
    when, there = ("", "") if before is None else (f" before {before}", " there")
    warn_caller(f"{len(ids)} series begin too late to train on{when} and are skipped{there}: {ids[:8]}. {then}".strip())
