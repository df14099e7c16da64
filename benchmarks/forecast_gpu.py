"""Time of a training epoch of the forecaster on a GPU and on the same machine's CPU, for data with the sets' shapes.

    python benchmarks/forecast_gpu.py [--minutes 1] [--smoke | --warm]

An epoch is 100 batches of training windows, followed by validation. The first epoch, which includes warm-up, does not
count. ``--warm`` compiles the kernels and measures nothing. ``--smoke`` runs tiny shapes on any device and records
nothing.
"""

import argparse
import statistics
import time
from itertools import pairwise
from typing import Any

import pandas as pd
import torch
from forecast_search import alone
from generated import waves
from records import COMMIT, RESULTS, append, read

FILE = RESULTS / "forecast_gpu.jsonl"
# rows of train and validation together, validation rows, number of series, whether series are mixed
SHAPES = {
    "ETTh1": (11_520, 2880, 7, False),
    "ECL": (21_044, 2632, 321, False),
    "traffic": (14_036, 1756, 862, False),
    "ECL, mixed": (21_044, 2632, 321, True),
}
SMOKE = {"smoke": (600, 150, 3, False)}
WARM = [(1500, 400, 7, mixed) for mixed in (False, True)]  # the kernels do not depend on the number of rows
EPOCHS = 3


def run(shape: tuple[int, int, int, bool], device: str, epochs: int = EPOCHS) -> dict[str, Any]:
    rows, val_size, series, mixed = shape
    frame = pd.DataFrame(waves(rows, series), index=pd.date_range("2016-07-01", periods=rows, freq="h", name="ds"))
    ends: list[float] = []
    model = alone(max_epochs=epochs, multivariate=mixed, device=device, random_state=0)
    model.fit(frame.rename(columns=str), val_size=val_size, on_epoch=lambda *_: ends.append(time.perf_counter()))
    taken = [after - before for before, after in pairwise(ends)]
    return {"epoch_seconds": round(statistics.median(taken), 3), "epochs": len(taken), "fit_seconds": model.seconds_}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5, help="start no new case after this time")
    parser.add_argument(
        "--smoke", action="store_true", help="run tiny shapes on any device; print rows without recording them"
    )
    parser.add_argument("--warm", action="store_true", help="only compile the kernels")
    args = parser.parse_args()
    there = torch.cuda.is_available()
    if not there and not args.smoke:
        parser.error("there is no CUDA device; --smoke runs tiny shapes without one.")
    if args.warm:
        for shape in WARM:
            run(shape, "cuda", epochs=2)
        return
    end = time.monotonic() + 60 * args.minutes
    done = [(row["set"], row["device"], row["commit"]) for row in read(FILE)]
    for device in ("cuda", "cpu") if there else ("cpu",):
        name = torch.cuda.get_device_name() if device == "cuda" else f"cpu, {torch.get_num_threads()} threads"
        for case, shape in (SMOKE if args.smoke else SHAPES).items():
            if (case, name, COMMIT) in done or time.monotonic() > end:
                continue
            row = {"set": case, "device": name, **run(shape, device), "seed": 0}
            print(row, flush=True)
            if not args.smoke:
                append(FILE, row)


if __name__ == "__main__":
    main()
