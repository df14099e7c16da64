"""How far it goes on one CPU thread: very long lookbacks, many series, and data of the shape of ECL and Traffic.

    python benchmarks/forecast_limits.py [--case long_lookback]

Each case runs in a process of its own (``--case``, and prints its row), so that its peak memory is its own. ECL and
Traffic are generated data of their exact shape; where the real sets are in the data home,
``forecast_table3.py --sets ECL traffic`` scores them.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pandas as pd
import torch
from records import RESULTS, append, read

FILE = RESULTS / "forecast_limits.jsonl"


def _waves(rows: int, series: int, freq: str = "h") -> pd.DataFrame:
    rng = np.random.default_rng(0)
    t = np.arange(rows)[:, None]
    phase, size = rng.uniform(0, 24, series), rng.lognormal(size=series)
    values = size * (2 + np.sin((t + phase) * 2 * np.pi / 24) + 0.3 * np.sin(t * 2 * np.pi / 168))
    values += 0.2 * size * rng.normal(size=values.shape)
    index = pd.date_range("2015-01-01", periods=rows, freq=freq, name="ds")
    return pd.DataFrame(values, index=index, columns=[f"s{i}" for i in range(series)])


def long_lookback() -> dict[str, Any]:
    """50,000 steps of context: fitted for one epoch, and forecast."""
    from titans_ts import TitansForecaster

    frame = _waves(52_000, 1)
    model = TitansForecaster(
        input_size=50_000, patch_size=64, chunk_size=64, batch_size=2, max_epochs=1, random_state=0, verbose=0
    ).fit(frame.iloc[:50_300], val_size=100)
    begin = time.perf_counter()
    found = model.predict(frame)
    return {"fit_seconds": model.seconds_, "predict_seconds": time.perf_counter() - begin,
            "finite": bool(np.isfinite(found.to_numpy()).all())}  # fmt: skip


def many_series() -> dict[str, Any]:
    """10,000 series of 40 to 79 months in one long frame: read, fitted for two epochs, forecast, saved."""
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


def _epoch(frame: pd.DataFrame, train: int, val: int) -> dict[str, Any]:
    from titans_ts import TitansForecaster
    from titans_ts.training_rows import EPOCH

    times: list[float] = []
    model = TitansForecaster(max_epochs=1, exogenous={"calendar": "auto"}, random_state=0, verbose=0)
    begin = time.perf_counter()
    model.fit(frame.iloc[: train + val], val_size=val, on_epoch=lambda *_: times.append(time.perf_counter() - begin))
    windows = (train - 96 - 96 + 1) * frame.shape[1]
    return {"rows": train + val, "series": frame.shape[1], "epoch_seconds_with_validation": times[0],
            "epoch_windows": EPOCH * model.batch_size, "all_windows": windows,
            "fit_seconds": model.seconds_}  # fmt: skip


def ecl_shape() -> dict[str, Any]:
    """26304 x 321: one epoch (100 batches of windows) and its validation."""
    return _epoch(_waves(26_304, 321), 18_412, 2632)


def traffic_shape() -> dict[str, Any]:
    """17544 x 862: one epoch (100 batches of windows) and its validation."""
    return _epoch(_waves(17_544, 862), 12_280, 1756)


CASES = {f.__name__: f for f in (long_lookback, many_series, ecl_shape, traffic_shape)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, help="this one, and print its row")
    case = parser.parse_args().case
    if case:
        torch.set_num_threads(1)
        row = CASES[case]()
        print(json.dumps({**row, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
        return
    done = {row["case"] for row in read(FILE)}
    for name in CASES:
        if name not in done:
            command = [sys.executable, "-W", "ignore", __file__, "--case", name]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            row = json.loads(out.splitlines()[-1])
            append(FILE, {"case": name, **{k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()}})
            print(name, row, flush=True)


if __name__ == "__main__":
    main()
