"""The online memory over a whole test span, in one streaming pass.

    python benchmarks/forecast_online.py [--seeds 0 1 2]

For each set, lookback, horizon and seed, one model is scored on every test window in three ways: the network alone;
with the memory as it was at the end of the validation rows, read but not written any more; and with the memory still
learning. ETT follows its protocol. "ecl_sample" has 1,000 hours of 203 customers of ECL (``ts/ecl_sample.csv.gz`` in
the data home, which is not downloaded): 700 train, 100 validation and 200 test rows. The forecaster has its defaults,
except for the calendar where it is named. Cells of an earlier training recipe stay in the file and are run again.
"""

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd
import torch
from cells import work
from forecast_search import TRAINED
from records import RESULTS

FILE = RESULTS / "forecast_online.jsonl"
FIELDS = ("dataset", "input_size", "h", "calendar", "seed", "recipe")
# set, lookback, horizon, calendar columns
CASES = (
    ("ETTh1", 96, 96, False),
    ("ETTm1", 96, 96, False),
    ("ecl_sample", 24, 24, False),
    ("ecl_sample", 48, 24, False),
    ("ecl_sample", 96, 24, False),
    ("ecl_sample", 24, 24, True),
    ("ETTh1", 24, 24, False),
    ("ETTh2", 24, 24, False),
    ("ETTm1", 24, 24, False),
)


def run(key: tuple[Any, ...]) -> dict[str, Any]:
    from titans_ts import TitansForecaster
    from titans_ts.estimator.reading import read_known
    from titans_ts.network import online
    from titans_ts.network.rolling import corrections, forecast_rows

    dataset, input_size, h, calendar, seed, _ = key
    frame, val_size, test = rows_of(dataset)
    exogenous = {"calendar": "auto"} if calendar else None
    model = TitansForecaster(h=h, input_size=input_size, exogenous=exogenous, random_state=seed, verbose=0)
    model.fit(frame.iloc[:test], val_size=val_size)
    memory, report = model.memory_, model.memory_report_
    about = {"seconds": round(model.seconds_, 1), "kept": report.kept, "val_without": report.without,
             "val_with": report.with_memory}  # fmt: skip

    panel = read_known(model, frame)
    table = model.scaling_.table(panel)
    origins = torch.arange(test, len(frame) - h + 1)
    truth = table.values[origins[:, None] + torch.arange(model.h)]
    alone = forecast_rows(model.network_, model.model_.objective, table, origins).point
    about["alone"] = _errors(alone, truth)
    if memory is not None:
        begin = time.perf_counter()
        about["online"] = _errors(alone + corrections(memory, table, origins), truth)
        about["pass_seconds"] = round(time.perf_counter() - begin, 1)
        streams = model.position_.streams
        frozen = torch.zeros_like(alone)
        with torch.no_grad():
            for i, origin in enumerate(origins.tolist()):
                for stream in streams:
                    values = table.values[origin - memory.span : origin]
                    frozen[i][:, stream.series] = online.recall(memory, stream, values)
        about["frozen"] = _errors(alone + frozen, truth)

    rows = frame.iloc[test:]
    seconds = []
    for i in range(200):
        begin = time.perf_counter()
        model.update(rows.iloc[i : i + 1])
        seconds.append(time.perf_counter() - begin)
    about["update_ms"] = round(1e3 * float(np.median(seconds)), 2)
    return about


def _errors(found: torch.Tensor, truth: torch.Tensor) -> dict[str, float]:
    error = (found - truth).double()
    return {"mse": float(error.square().mean()), "mae": float(error.abs().mean()), "n_windows": len(error)}


def rows_of(dataset: str) -> tuple[pd.DataFrame, int, int]:
    """Train, validation and test rows together, the number of validation rows, and the first test row."""
    from titans_datasets.cache import data_home
    from titans_ts.evaluation import load_protocol

    if dataset == "ecl_sample":
        path = data_home() / "ts" / "ecl_sample.csv.gz"
        frame = pd.read_csv(path, index_col=0, parse_dates=True).rename_axis("ds")
        return frame, 100, 800
    data = load_protocol(dataset)
    return data.frame.iloc[: data.split.test.stop], data.val_size, data.split.test.start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds:
        work(FILE, [(*case, seed, TRAINED) for case in CASES], FIELDS, run)


if __name__ == "__main__":
    main()
