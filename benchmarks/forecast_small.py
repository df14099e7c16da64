"""Small data: the forecaster with its defaults, with and without mirror images, beside the seasonal naive forecast.

    python benchmarks/forecast_small.py [--sets AirPassengers ...] [--seeds 0 1 2]

The sets are AirPassengers (144 months), the daily means of ETTh1, ETTh2 and weather (one or two years), and 60 days of
hours of ETTh1. Each is backtested over its last eight horizons (AirPassengers: four), after one fit on the rows before.
Errors are means over the series of MAE and MSE, each relative to that of the seasonal naive forecast
(:func:`titans_ts.naive.with_naive`) of the same series. "mirrored": whether the mirror images of the training windows
are trained on too (``titans_ts/network/mirror.py``), which is the default for fewer windows than ``FEW`` there.
Finished cells are skipped, and several processes can share the work.
"""

import argparse
from typing import Any
from unittest import mock

import pandas as pd
import torch
from cells import work
from records import RESULTS

FILE = RESULTS / "forecast_small.jsonl"
FIELDS = ("dataset", "h", "input_size", "mirrored", "seed")
HOURS = slice(6000, 7440)
CASES = {  # horizon, lookback, and horizons to score
    "AirPassengers": (12, 24, 4),
    "ETTh1 daily": (14, 56, 8),
    "ETTh2 daily": (14, 56, 8),
    "weather daily": (14, 56, 8),
    "ETTh1 60 days": (24, 96, 8),
}


def frame_of(name: str) -> pd.DataFrame:
    from titans_datasets import load

    name, _, part = name.partition(" ")
    frame = load(name)
    if part == "daily":
        return frame.resample("D").mean().dropna()
    return frame.iloc[HOURS] if part else frame


def run(key: tuple[Any, ...]) -> dict[str, Any]:
    from titans_ts import TitansForecaster
    from titans_ts.estimator.cut import Cut
    from titans_ts.naive import COLUMN, with_naive

    dataset, h, input_size, mirrored, seed = key
    frame = frame_of(dataset)
    forecaster = TitansForecaster(h=h, input_size=input_size, random_state=seed, verbose=0)
    with mock.patch("titans_ts.estimator.training.FEW", float("inf") if mirrored else 0):
        found = with_naive(forecaster.cross_validation(frame, n_windows=CASES[dataset][2]), frame)
    errors = {}
    for name, power in (("mae", 1), ("mse", 2)):
        of = [
            (found["y"] - found[model]).abs().pow(power).groupby(found["unique_id"]).mean()
            for model in ("Titans", COLUMN)
        ]
        errors[name] = float((of[0] / of[1]).mean())
    rows = Cut(input_size, h).border(len(frame) - h * CASES[dataset][2]) - input_size - h + 1
    return {**errors, "windows": rows * found["unique_id"].nunique()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds:
        for name in args.sets:
            h, input_size, _ = CASES[name]
            work(FILE, [(name, h, input_size, mirrored, seed) for mirrored in (False, True)], FIELDS, run)


if __name__ == "__main__":
    main()
