"""Coverage of prediction intervals for each loss, on the ETT sets by their protocol and on a sample of ECL.

    python benchmarks/forecast_coverage.py [--sets ETTh1] [--losses mae quantile] [--seeds 0]

For each set, loss and seed, one model with the defaults forecasts intervals of 80 and 95 percent at every 23rd origin
of the test span (ECL's is short: every fifth), so that they begin at all hours, in three ways: as its network learned
them ("own", probabilistic losses only); calibrated by the errors on the validation rows ("fit"); and calibrated also
by errors that became known later ("moving", as after ``update``). Recorded are the share of the values inside, the
mean width, and the mean interval score of Gneiting & Raftery (2007), in standard deviations of each series: the width
plus ``2 / (1 - level)`` times the distance of a value outside. Of two methods with equal coverage, the one with the
lower score is better.
"""

import argparse
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from cells import work
from forecast_online import rows_of
from forecast_search import TRAINED
from records import RESULTS

FILE = RESULTS / "forecast_coverage.jsonl"
FIELDS = ("dataset", "input_size", "h", "every", "loss", "seed", "recipe")
CASES = (("ETTh1", 96, 96, 23), ("ETTm1", 96, 96, 23), ("ETTh2", 96, 96, 23), ("ETTm2", 96, 96, 23),
         ("ETTm1", 24, 24, 23), ("ecl_sample", 96, 24, 5))  # fmt: skip
LOSSES = ("mae", "quantile", "normal", "laplace", "student_t")
LEVELS = (80, 95)


def run(key: tuple[Any, ...]) -> dict[str, Any]:
    from titans_ts import TitansForecaster
    from titans_ts.estimator.backtest import backtest_frame
    from titans_ts.estimator.reading import read_known

    dataset, input_size, h, every, loss, seed, _ = key
    frame, val_size, test = rows_of(dataset)
    model = TitansForecaster(h=h, input_size=input_size, loss=loss, random_state=seed, verbose=0)
    model.fit(frame.iloc[:test], val_size=val_size)
    panel = read_known(model, frame)
    origins = list(range(test, len(frame) - h + 1, every))
    about: dict[str, Any] = {"seconds": round(model.seconds_, 1), "origins": len(origins)}
    scale = dict(zip(model.context_.ids, model.scale_, strict=True))
    for name, fitted in (("fit", None), ("moving", test), ("own", None)):
        if name == "own":
            if not model.model_.objective.probabilistic:
                continue
            model.position_ = replace(model.position_, calibration=None)
        found = backtest_frame(model, panel, origins, list(LEVELS), fitted=fitted)
        about[name] = {str(level): _judged(found, level, found["unique_id"].map(scale)) for level in LEVELS}
    return about


def _judged(found: pd.DataFrame, level: int, scale: pd.Series) -> dict[str, float]:
    """The share inside, and the mean width and interval score in standard deviations."""
    low, high, y = (found[name] for name in (f"Titans-lo-{level}", f"Titans-hi-{level}", "y"))
    outside = (low - y).clip(lower=0) + (y - high).clip(lower=0)
    width = (high - low) / scale
    score = width + 2 / (1 - level / 100) * outside / scale
    return {"inside": float(y.between(low, high).mean()), "width": float(width.mean()), "score": float(score.mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=sorted({case[0] for case in CASES}))
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=LOSSES)
    parser.add_argument("--seeds", nargs="+", type=int, default=(0,))
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds:
        for case in CASES:
            if args.sets is None or case[0] in args.sets:
                work(FILE, [(*case, loss, seed, TRAINED) for loss in args.losses], FIELDS, run)


if __name__ == "__main__":
    main()
