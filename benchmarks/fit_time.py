"""What a user feels: seconds of training on ETTh1, 96 -> 96, until the test error is at most .380.

    python benchmarks/fit_time.py

TitansForecaster beside neuralforecast's PatchTST and iTransformer, on the same CPU in the same run, two threads, one
model after the other. Each budget is a training of its own with its own schedule, seed 0; every one is recorded with
its error. Finished cells are skipped on a second run; when the forecaster's recipe of training changes, its own are run
anew.
"""

import time
from typing import Any

import torch
from forecast_search import RECIPE
from peers import QUIET, score_neuralforecast
from records import RESULTS, append, read

from titans_ts import TitansForecaster
from titans_ts.evaluation import load_protocol, score_windows

FILE = RESULTS / "fit_time.jsonl"
H = INPUT_SIZE = 96
GOAL = 0.380
THREADS = 2
# epochs of ours, 100 batches each, and the online memory behind them; steps of theirs, an epoch of which is 58
# (PatchTST, 1024 windows) and 264 (iTransformer, 32)
BUDGETS = {"TitansForecaster": (2, 4, 6, 8, 12), "iTransformer": (264, 792, 1584), "PatchTST": (58, 174, 348, 696)}


def ours(budget: int, data: Any) -> dict[str, Any]:
    model = TitansForecaster(H, INPUT_SIZE, max_epochs=budget, random_state=0, verbose=0)
    begin = time.perf_counter()
    model.fit(data.training, val_size=data.val_size)
    seconds = time.perf_counter() - begin
    return {**score_windows(model.predict_windows, *data.windows("test", INPUT_SIZE, H)), "seconds": seconds}


def theirs(name: str, budget: int, data: Any) -> dict[str, Any]:
    from neuralforecast.losses.pytorch import MAE
    from neuralforecast.models import PatchTST, iTransformer

    common = {"h": H, "input_size": INPUT_SIZE, "max_steps": budget, "loss": MAE(), "scaler_type": "identity"}
    common |= {"learning_rate": 1e-3 if name == "PatchTST" else 5e-4, "random_seed": 0, **QUIET}
    if name == "PatchTST":
        model = PatchTST(**common, windows_batch_size=1024)
    else:
        model = iTransformer(**common, n_series=data.values.shape[1], batch_size=32, windows_batch_size=32)
    return score_neuralforecast(model, data)


def main() -> None:
    torch.set_num_threads(THREADS)
    data = load_protocol("ETTh1")
    done = {(row["model"], row["budget"], row["recipe"]): row for row in read(FILE)}
    for name, budgets in BUDGETS.items():
        recipe = RECIPE if name == "TitansForecaster" else None
        for budget in budgets:
            row = done.get((name, budget, recipe))
            if row is None:
                torch.manual_seed(0)
                found = ours(budget, data) if name == "TitansForecaster" else theirs(name, budget, data)
                row = {
                    "model": name,
                    "budget": budget,
                    "recipe": recipe,
                    "h": H,
                    "input_size": INPUT_SIZE,
                    "goal": GOAL,
                    **found,
                }
                append(FILE, {**row, "threads": THREADS, "seed": 0})
            reached = "reached" if row["mse"] <= GOAL else "not reached"
            print(f"{name}, budget {budget}: {row['seconds']:.0f} s, test MSE {row['mse']:.4f}, {reached}", flush=True)
            if row["mse"] <= GOAL:
                break


if __name__ == "__main__":
    main()
