"""Beside a backtest, what needs no model: each step as it was a season ago."""

from typing import Any

import numpy as np
import pandas as pd

from titans_core.checks import at_least
from titans_ts.frame import Freq, read_frame
from titans_ts.libraries import from_pandas, to_pandas
from titans_ts.reading import of_values
from titans_ts.stamps import Step

COLUMN = "SeasonalNaive"
_DAY = pd.Timedelta(days=1)
# days in a step from and to, and steps of it in a week or a year
_LONGER = ((1, 1, 7), (7, 7, 52), (14, 14, 26), (28, 31, 12), (89, 92, 4))


def with_naive(found: Any, df: Any, *, freq: Freq | None = None, season_length: int | None = None) -> Any:
    """A backtest with a column more, ``SeasonalNaive``: the values of a season ago, which a model is to beat.

    Where nothing was measured then, those of the season before; NaN where there is none.

    Args:
        found: of ``cross_validation`` or ``predict_insample``; or another frame ``unique_id, ds, cutoff``.
        df: the frame that it was made of.
        freq: step of the time axis of ``df``; None infers it.
        season_length: rows in a season; None: those of a day, of days and of business days those of a week, of weeks,
            months and quarters those of a year, and of all else 1, which repeats the last value.

    Raises:
        ValueError: a bad frame, or a backtest of other series or times than it has.
    """
    given = to_pandas(found)
    panel = read_frame(of_values(df), freq, missing="mask")
    m = season_of(panel.index, panel.freq) if season_length is None else season_length
    at_least("season_length", m)
    series = pd.Index(panel.ids).get_indexer(pd.Index(given["unique_id"]))
    cutoffs, rows = (panel.index.get_indexer(pd.Index(given[name])) for name in ("cutoff", "ds"))
    if min(x.min(initial=0) for x in (series, cutoffs, rows)) < 0:
        raise ValueError("found has series or times that df does not have. Give the frame that it was made of.")
    then = rows - -(-(rows - cutoffs) // m) * m  # whole seasons before, at the cutoff or earlier
    values = np.where(then < 0, np.nan, _newest(panel.values, m)[then, series])
    return from_pandas(given.assign(**{COLUMN: values}), "pandas" if given is found else "polars")


def season_of_frame(df: Any, freq: Freq | None = None) -> int:
    """Rows in a season of a frame: what :func:`with_naive` takes by default."""
    panel = read_frame(of_values(df), freq, missing="mask")
    return season_of(panel.index, panel.freq)


def season_of(index: pd.Index, freq: Step) -> int:
    """Rows in a season of a time axis."""
    if not isinstance(index, pd.DatetimeIndex) or len(index) < 2:
        return 1
    if isinstance(freq, pd.offsets.BusinessDay) and freq.n == 1:
        return int(freq.calendar.weekmask.sum()) if isinstance(freq, pd.offsets.CustomBusinessDay) else 5
    step = (index[-1] - index[0]) / (len(index) - 1) / _DAY
    if step <= 0.5:
        return round(1 / step)
    return next((m for low, high, m in _LONGER if low * 0.99 <= step <= high * 1.01), 1)


def _newest(values: np.ndarray, m: int) -> np.ndarray:
    """``[T, N]``: each value, or where it is NaN that of one, two ... times m rows before."""
    T, N = values.shape
    whole = np.concatenate((values, np.full((-T % m, N), np.nan))).reshape(-1, m * N)
    return pd.DataFrame(whole).ffill().to_numpy().reshape(-1, N)[:T]
