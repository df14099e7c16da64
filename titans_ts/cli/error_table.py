"""The error table of a backtest: errors per series, those of the seasonal naive forecast, and interval coverage."""

from typing import Any

import pandas as pd

from titans_ts.frames.frame import Freq
from titans_ts.frames.seasons import Season
from titans_ts.intervals import level_text
from titans_ts.naive import COLUMN, naive_beside

TOTAL = "(all)"  # the last row, if there are several series


def error_table(found: pd.DataFrame, df: Any, freq: Freq | None, levels: list[float]) -> tuple[pd.DataFrame, Season]:
    """For each series: MAE, RMSE, the MAE of :func:`~titans_ts.naive.with_naive`, and the coverage of each level in
    percent. Where the naive forecast lacks values, there is also the MAE of the rows that it has. Also returns the
    season of the naive forecast.

    ``found`` is the result of ``cross_validation(df)``.
    """
    both, season = naive_beside(found, df, freq=freq)
    error, naive = (both["y"] - both[model] for model in ("Titans", COLUMN))
    table = pd.DataFrame(
        {"unique_id": found["unique_id"], "MAE": error.abs(), "RMSE": error**2, "naive MAE": naive.abs()}
    )
    if naive.notna().any() and (error.notna() & naive.isna()).any():  # some are too near to the beginning
        table.insert(3, "MAE where naive", error.abs().where(naive.notna()))
    table = table.groupby("unique_id", sort=False).mean()
    known = found[found["y"].notna()]
    for level in map(level_text, levels):
        inside = known["y"].between(known[f"Titans-lo-{level}"], known[f"Titans-hi-{level}"])
        table[f"inside {level} %"] = 100 * inside.groupby(known["unique_id"], sort=False).mean()
    if len(table) > 1:
        total = table.mean().to_frame(TOTAL).T.rename_axis(table.index.name)
        table = pd.concat((table, total))  # a series may have this name too
    table["RMSE"] = table["RMSE"] ** 0.5  # after the mean over all series, which is one of squares
    return table, season
