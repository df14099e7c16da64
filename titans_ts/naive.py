"""Beside a backtest, what needs no model: each step as it was a season ago."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from titans_core.checks import at_least
from titans_ts.frame import Freq, read_frame
from titans_ts.libraries import from_pandas, to_pandas
from titans_ts.panel import Panel
from titans_ts.reading import of_values
from titans_ts.seasons import Clock, Season, has_days, nearer_season, newest, season_of, seasons_back

COLUMN = "SeasonalNaive"


def with_naive(found: Any, df: Any, *, freq: Freq | None = None, season_length: int | None = None) -> Any:
    """A backtest with a column more, ``SeasonalNaive``: the values of a season ago, which a model is to beat.

    Where nothing was measured then, those of the season before; NaN where there is none. In a time zone a day ago is so
    by the clock on the wall, the day of its change too.

    Args:
        found: of ``cross_validation`` or ``predict_insample``; or another frame ``unique_id, ds, cutoff``.
        df: the frame that it was made of.
        freq: step of the time axis of ``df``; None infers it.
        season_length: rows in a season; None: those of :func:`season_of_frame`.

    Raises:
        ValueError: a bad frame, or a backtest of other series or times than it has.
    """
    return naive_beside(found, df, freq=freq, season_length=season_length)[0]


def season_of_frame(df: Any, freq: Freq | None = None, found: Any = None) -> int:
    """Rows in a season of a frame: what :func:`with_naive` takes by default.

    Of steps that divide a day those of a day or of a week, whichever was nearer to what came before the first cutoff of
    ``found``, as far ahead as it forecasts; without ``found``, or with too few rows there, those of a day. Of days and
    of business days those of a week, of weeks, months and quarters those of a year, and of all else 1, which repeats
    the last value.
    """
    panel = read_frame(of_values(df), freq, missing="mask")
    return season_of(panel.index, panel.freq) if found is None else _season(panel, _Places.of(found, panel)).rows


def naive_beside(
    found: Any, df: Any, *, freq: Freq | None = None, season_length: int | None = None
) -> tuple[Any, Season]:
    """As :func:`with_naive`, and the season that was taken."""
    panel = read_frame(of_values(df), freq, missing="mask")
    places = _Places.of(found, panel)
    season = _season(panel, places) if season_length is None else Season(season_length)
    m = season.rows
    at_least("season_length", m)
    clock = Clock.of(panel.index, panel.freq, m)
    then = clock.hour[places.rows] - seasons_back(places.leads(clock), m)
    values = np.where(then < 0, np.nan, newest(panel.values[clock.row], m)[np.maximum(then, 0), places.series])
    given = to_pandas(found).assign(**{COLUMN: values})
    return from_pandas(given, "pandas" if isinstance(found, pd.DataFrame) else "polars"), season


class _Places(NamedTuple):
    """Where the forecasts of a backtest stand in a panel: by series, last known row, and row, ``[K]`` each."""

    series: np.ndarray
    cutoffs: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, found: Any, panel: Panel) -> "_Places":
        given = to_pandas(found)
        series = pd.Index(panel.ids).get_indexer(pd.Index(given["unique_id"]))
        places = cls(series, *(panel.index.get_indexer(pd.Index(given[name])) for name in ("cutoff", "ds")))
        if min(x.min(initial=0) for x in places) < 0:
            raise ValueError("found has series or times that df does not have. Give the frame that it was made of.")
        return places

    def leads(self, clock: Clock) -> np.ndarray:
        """How many steps ahead each is; at least 1, where an hour comes twice too."""
        return np.maximum(1, clock.hour[self.rows] - clock.hour[self.cutoffs])


def _season(panel: Panel, places: _Places) -> Season:
    m = season_of(panel.index, panel.freq)
    if not has_days(panel.freq) or not len(places.rows):
        return Season(m)
    clock = Clock.of(panel.index, panel.freq, m)
    known = panel.values[clock.row[: clock.hour[places.cutoffs].min() + 1]]
    return nearer_season(known, places.leads(clock), m)
