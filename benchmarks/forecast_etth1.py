"""TitansForecaster on ETTh1 by the standard protocol: lookback 96, four horizons, three seeds, default settings.

    python benchmarks/forecast_etth1.py [--jobs 2]

Finished cells are skipped on a second run, so a run that was cut goes on.
"""

import argparse
import os
import subprocess
import sys

import torch
from records import RESULTS, append, read

FILE = RESULTS / "forecast_etth1.jsonl"
HORIZONS = (96, 192, 336, 720)
SEEDS = (0, 1, 2)


def cell(h: int, seed: int, threads: int) -> None:
    from titans_ts import TitansForecaster
    from titans_ts.evaluation import evaluate_protocol

    torch.set_num_threads(threads)
    forecaster = TitansForecaster(verbose=0)
    result = evaluate_protocol(forecaster, "ETTh1", input_size=96, h=h, seed=seed)
    changed = {k: v for k, v in forecaster.get_params().items() if k not in ("h", "input_size", "random_state")}
    append(FILE, {**result, "threads": threads, "params": changed})
    print(f"h={h} seed={seed}: {result['mse']:.4f} / {result['mae']:.4f} in {result['seconds']} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="cells at a time, one thread each")
    parser.add_argument("--cell", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cell:
        cell(*args.cell, threads=1)
        return
    done = {(row["h"], row["seed"]) for row in read(FILE)}
    cells = [(h, s) for s in SEEDS for h in HORIZONS if (h, s) not in done]
    running: list[subprocess.Popen[bytes]] = []
    failed = 0
    while cells or running:
        while cells and len(running) < args.jobs:
            h, seed = cells.pop(0)
            command = [sys.executable, "-W", "ignore", __file__, "--cell", str(h), str(seed)]
            running.append(subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}))
        failed += running.pop(0).wait() != 0
    sys.exit(f"{failed} cells failed" if failed else 0)


if __name__ == "__main__":
    main()
