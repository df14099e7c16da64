"""Seconds of training on ETTh1, 96 -> 96, until the test MSE is at most 0.380.

    python benchmarks/fit_time.py

TitansForecaster and neuralforecast's PatchTST and iTransformer, on the same CPU in the same run, two threads, one model
after the other. Each budget is a separate training with its own schedule, seed 0, and is recorded with its error. The
peers are set up to be fast: iTransformer as in its authors' script for this horizon; PatchTST as narrow as in its
authors' script for ETTh1, at ten times the learning rate there. Both train for few epochs, and the weights of the best
epoch are scored. "PatchTST, defaults" has neuralforecast's own widths, ten times the learning rate there, and is
trained on absolute errors to its last step, which was better; "PatchTST, hurried" is the same at thirty times that
rate. "TitansForecaster, hurried" has four times the windows in a batch and six times the learning rate, chosen by the
validation rows from six pairs of 128 to 512 windows and rates of 0.004 to 0.008. Finished cells are skipped; when the
forecaster's training recipe changes, its cells are run again.
"""

import argparse
import time
from typing import Any

import torch
from cells import work
from forecast_search import TRAINED
from peers import QUIET, score_neuralforecast
from records import RESULTS
from table3_peers import SCRIPTS, Script, peer

from titans_ts import TitansForecaster
from titans_ts.evaluation import load_protocol, score_windows

FILE = RESULTS / "fit_time.jsonl"
FIELDS = ("model", "budget", "recipe")
H = INPUT_SIZE = 96
GOAL = 0.380
THREADS = 2
OURS = "TitansForecaster"
NARROW = {"hidden_size": 16, "n_heads": 4, "linear_hidden_size": 128, "encoder_layers": 3, "dropout": 0.3,
          "fc_dropout": 0.3, "patch_len": 16, "stride": 8}  # fmt: skip
PEERS = {
    "iTransformer": SCRIPTS["iTransformer"]("ETTh1", H),
    "PatchTST": Script(NARROW, batch=128, learning_rate=1e-3),
}
HURRIED = f"{OURS}, hurried"
SETTINGS: dict[str, dict[str, Any]] = {OURS: {}, HURRIED: {"batch_size": 512, "learning_rate": 6e-3}}
DEFAULTS, STEPS = "PatchTST, defaults", 58  # steps of a pass over the training windows, 1,024 at a time
DEFAULTS_HURRIED = "PatchTST, hurried"
RATES = {DEFAULTS: 1e-3, DEFAULTS_HURRIED: 3e-3}
# ours: rounds of 100 batches, followed by the online memory; peers: passes over the training windows
BUDGETS = {
    HURRIED: (1, 2, 3),
    OURS: (2, 4, 8, 12),  # 12 is the default
    "iTransformer": (1, 2, 3, 5),
    "PatchTST": (2, 4, 8),
    DEFAULTS: (1, 3, 6),
    DEFAULTS_HURRIED: (1, 2, 3),
}


def run(key: tuple[Any, ...]) -> dict[str, Any]:
    name, budget, _ = key
    data = load_protocol("ETTh1")
    if name in SETTINGS:
        found = ours(budget, data, **SETTINGS[name])
    elif name in RATES:
        found = score_neuralforecast(defaults(budget, RATES[name]), data)
    else:
        found = score_neuralforecast(peer(name, PEERS[name], data, H, INPUT_SIZE, 0, epochs=budget), data)
    return {**found, "h": H, "input_size": INPUT_SIZE, "goal": GOAL, "threads": THREADS, "seed": 0}


def defaults(budget: int, learning_rate: float) -> Any:
    """neuralforecast's PatchTST with its defaults, except for the learning rate (1e-4 there) and the loss."""
    from neuralforecast.losses.pytorch import MAE
    from neuralforecast.models import PatchTST

    options = {
        "scaler_type": "identity",
        "learning_rate": learning_rate,
        "windows_batch_size": 1024,
        "random_seed": 0,
        **QUIET,
    }
    return PatchTST(H, INPUT_SIZE, max_steps=STEPS * budget, loss=MAE(), **options)


def ours(budget: int, data: Any, **settings: Any) -> dict[str, Any]:
    model = TitansForecaster(H, INPUT_SIZE, max_epochs=budget, random_state=0, verbose=0, **settings)
    begin = time.perf_counter()
    model.fit(data.training, val_size=data.val_size)
    seconds = time.perf_counter() - begin
    return {**score_windows(model.predict_windows, *data.windows("test", INPUT_SIZE, H)), "seconds": seconds}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(THREADS)
    cells = [
        (name, budget, TRAINED if name in SETTINGS else 0) for name, budgets in BUDGETS.items() for budget in budgets
    ]
    work(FILE, cells, FIELDS, run)


if __name__ == "__main__":
    main()
