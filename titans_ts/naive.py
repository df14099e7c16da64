"""Seasonal naive forecasts as a baseline for backtests."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from titans_core.checks import at_least
from titans_ts.frames.frame import Freq, read_frame
from titans_ts.frames.kinds import of_values
from titans_ts.frames.libraries import from_pandas, library_of, need_columns, to_pandas
from titans_ts.frames.panel import Panel
from titans_ts.frames.seasons import Clock, Season, has_days, nearer_season, newest, season_of, seasons_back

COLUMN = "SeasonalNaive"


def with_naive(found: Any, df: Any, *, freq: Freq | None = None, season_length: int | None = None) -> Any:
    """Add the baseline ``SeasonalNaive`` to a backtest: the values one season earlier.

    If such a value is unknown, the one a season before it is used; NaN if there is none. With a time zone, seasons
    follow local time, also when daylight saving time changes.

    Args:
        found: result of ``cross_validation`` or ``predict_insample``, or another frame ``unique_id, ds, cutoff``.
        df: the data of the backtest.
        freq: step of the time axis of ``df``; None infers it.
        season_length: rows in a season; None: as in :func:`season_of_frame`.

    Raises:
        ValueError: a bad frame, or a backtest without these columns, or with series or times that are not in ``df``.
    """
    return naive_beside(found, df, freq=freq, season_length=season_length)[0]


def season_of_frame(df: Any, freq: Freq | None = None, found: Any = None) -> int:
    """The default season length of :func:`with_naive`, in rows.

    For steps that divide a day: a day or a week, whichever has the smaller naive error before the first cutoff of
    ``found``; a day without ``found`` or with too few rows there. For other steps of up to half a day: a day, in whole
    rows. For days and business days: a week. For weeks (one, two or four), months and quarters: a year. Otherwise 1,
    which repeats the last value.
    """
    panel = read_frame(of_values(df), freq, missing="mask")
    return season_of(panel.index, panel.freq) if found is None else _season(panel, _Places.of(found, panel)).rows


def naive_beside(
    found: Any, df: Any, *, freq: Freq | None = None, season_length: int | None = None
) -> tuple[Any, Season]:
    """As :func:`with_naive`, and the season that was used."""
    panel = read_frame(of_values(df), freq, missing="mask")
    places = _Places.of(found, panel)
    season = _season(panel, places) if season_length is None else Season(season_length)
    m = season.rows
    at_least("season_length", m)
    clock = Clock.of(panel.index, panel.freq, m)
    then = clock.hour[places.rows] - seasons_back(places.leads(clock), m)
    values = np.where(then < 0, np.nan, newest(panel.values[clock.row], m)[np.maximum(then, 0), places.series])
    return from_pandas(to_pandas(found).assign(**{COLUMN: values}), library_of(found)), season


class _Places(NamedTuple):
    """The positions of backtest forecasts in a panel: series, last known row and forecast row, ``[K]`` each."""

    series: np.ndarray
    cutoffs: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, found: Any, panel: Panel) -> "_Places":
        given = need_columns(found, ("unique_id", "ds", "cutoff"), "found")
        series = pd.Index(panel.ids).get_indexer(pd.Index(given["unique_id"]))
        places = cls(series, *(panel.index.get_indexer(pd.Index(given[name])) for name in ("cutoff", "ds")))
        if min(x.min(initial=0) for x in places) < 0:
            raise ValueError("found has series or times that are not in df. Pass the df that it was computed from.")
        return places

    def leads(self, clock: Clock) -> np.ndarray:
        """The number of steps that each looks ahead; at least 1, also in a repeated hour."""
        return np.maximum(1, clock.hour[self.rows] - clock.hour[self.cutoffs])


def _season(panel: Panel, places: _Places) -> Season:
    m = season_of(panel.index, panel.freq)
    if not has_days(panel.freq) or not len(places.rows):
        return Season(m)
    clock = Clock.of(panel.index, panel.freq, m)
    known = panel.values[clock.row[: clock.hour[places.cutoffs].min() + 1]]
    return nearer_season(known, places.leads(clock), m)
