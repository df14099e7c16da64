"""Limits on one CPU thread: very long lookbacks, many series, and data with the shapes of ECL and Traffic.

    python benchmarks/forecast_limits.py [--again] [--case long_lookback]

Each case runs in its own process (``--case``, which prints its row), which gives its peak memory. Cases in the result
file are skipped, or with ``--again`` measured again; the newest row counts. ECL and Traffic are generated data of their
exact shapes, in files of the published layout, and run through all steps from the loader to the errors. The real sets,
if they are in the data home, are scored by ``forecast_table3.py --sets ECL traffic``.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from forecast_search import alone
from generated import in_place_of, waves
from records import RESULTS, append, read, resident_mib

FILE = RESULTS / "forecast_limits.jsonl"


def long_lookback() -> dict[str, Any]:
    """A lookback of 50,000 steps of ETTm1, with the defaults: training on one batch of 84 windows, and a forecast."""
    from titans_datasets import load
    from titans_ts import TitansForecaster

    frame = load("ETTm1").iloc[: 50_000 + 96 + 11 + 96]
    model = TitansForecaster(input_size=50_000, max_epochs=1, random_state=0, verbose=0).fit(frame, val_size=96)
    begin = time.perf_counter()
    found = model.predict(frame)
    return {"windows": 12 * frame.shape[1], "fit_seconds": model.seconds_,
            "predict_seconds": time.perf_counter() - begin,
            "finite": bool(np.isfinite(found.to_numpy()).all())}  # fmt: skip


def many_series() -> dict[str, Any]:
    """10,000 series of 40 to 79 months in one long frame: two epochs of training, and forecasts with intervals."""
    from titans_ts import TitansForecaster

    rng = np.random.default_rng(0)
    lengths = rng.integers(40, 80, 10_000)
    ids = np.repeat(np.arange(10_000), lengths)
    position = np.concatenate([np.arange(80 - n, 80) for n in lengths])
    y = np.sin(position / 12 * 2 * np.pi + ids % 12) * (1 + ids % 7) + 0.3 * rng.normal(size=len(ids)) + ids % 100
    ds = pd.date_range("2018-01-31", periods=80, freq="ME")[position]
    frame = pd.DataFrame({"unique_id": np.char.add("s", ids.astype(str)), "ds": ds, "y": y})
    model = TitansForecaster(h=6, input_size=18, patch_size=6, dim=16, max_epochs=2, random_state=0, verbose=0)
    model.fit(frame, val_size=12)
    begin = time.perf_counter()
    found = model.predict(frame, level=[80])
    return {"rows": len(frame), "fit_seconds": model.seconds_, "predict_seconds": time.perf_counter() - begin,
            "forecasts": len(found)}  # fmt: skip


def _epoch(name: str, rows: int, series: int) -> dict[str, Any]:
    """One epoch of the forecaster by the protocol, with separate series, scored on all test windows; and one epoch with
    mixed series, not scored."""
    from titans_ts.estimator.training_length import EPOCH
    from titans_ts.evaluation import load_protocol, naive_predictor, score_windows

    options = {"max_epochs": 1, "exogenous": {"calendar": "auto"}}
    with tempfile.TemporaryDirectory() as folder, in_place_of(name, Path(folder), waves(rows, series)):
        begin = time.perf_counter()
        data = load_protocol(name)
        load_seconds = time.perf_counter() - begin
        times: list[float] = []
        begin = time.perf_counter()
        model = alone(**options, random_state=0)
        model.fit(data.training, val_size=data.val_size, on_epoch=lambda *_: times.append(time.perf_counter() - begin))
        errors = score_windows(
            model.predict_windows, *data.windows("test", 96, 96), batch_size=64, origins=data.origins("test", 96, 96)
        )
        test_seconds = time.perf_counter() - begin - model.seconds_
        naive = score_windows(naive_predictor("seasonal-naive", 96, 24), *data.windows("test", 96, 96), batch_size=64)
        begin = time.perf_counter()
        mixed = alone(**options, multivariate=True, random_state=0)
        mixed.fit(data.training, val_size=data.val_size, on_epoch=lambda *_: times.append(time.perf_counter() - begin))
    windows = (data.split.train.stop - 96 - 96 + 1) * series
    return {"rows": rows, "series": series, "load_seconds": load_seconds, "epoch_seconds_with_validation": times[0],
            "mixed_epoch_seconds_with_validation": times[1], "epoch_windows": EPOCH * model.batch_size,
            "all_windows": windows, "test_seconds": test_seconds, "mse": errors["mse"], "mse_of_naive": naive["mse"],
            "test_windows": errors["n_windows"] * series}  # fmt: skip


def ecl_shape() -> dict[str, Any]:
    """26304 x 321: one epoch (100 batches of windows) with validation."""
    return _epoch("ECL", 26_304, 321)


def traffic_shape() -> dict[str, Any]:
    """17544 x 862: one epoch (100 batches of windows) with validation."""
    return _epoch("traffic", 17_544, 862)


CASES = {f.__name__: f for f in (long_lookback, many_series, ecl_shape, traffic_shape)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, help="run only this case, and print its row")
    parser.add_argument("--again", action="store_true", help="also measure cases that are in the result file")
    args = parser.parse_args()
    if args.case:
        torch.set_num_threads(1)
        row = CASES[args.case]()
        print(json.dumps({**row, "peak_mb": resident_mib("VmHWM")}))
        return
    done = set() if args.again else {row["case"] for row in read(FILE)}
    for name in CASES:
        if name not in done:
            command = [sys.executable, "-W", "ignore", __file__, "--case", name]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            row = json.loads(out.splitlines()[-1])
            append(FILE, {"case": name, **{k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()}})
            print(name, row, flush=True)


if __name__ == "__main__":
    main()
