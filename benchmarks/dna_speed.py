"""Bases per second of DNA language models on one CPU thread, in training and streaming, by length.

    python benchmarks/dna_speed.py [--hyena standalone_hyenadna.py]

The networks of ``dna_language.py``, with Gated DeltaNet and a Transformer of equal size, untrained: speed does not
depend on the weights. Training: forward, backward and optimiser step on 8,192 bases, in windows of each length; the
models alternate, and the median of five steps counts. Streaming: pieces of 4,096 bases with the state passed on, after
0 and after 262,144 bases. A Transformer and HyenaDNA cannot stream, because they need all earlier bases. HyenaDNA is
only measured if its authors' file is given (see ``hyena.py``), because no package contains it.
"""

import argparse
import functools
import statistics
import time
from pathlib import Path
from typing import Any

import hyena
import torch
from cells import work
from dna_language import BASE, PARAMETERS
from lm_models import FRESH, FRESH_MAG, config_of
from records import RESULTS, read

from titans_core import TitansLM

FILE = RESULTS / "dna_speed.jsonl"
FIELDS = ("what",)
MODELS = ("lmm", FRESH, FRESH_MAG, "gated-deltanet", "transformer")
BASES, LENGTHS, PIECE, FAR, REPEATS = 8192, (1024, 2048, 4096, 8192), 4096, 262_144, 5


def networks(hyena_file: Path | None) -> dict[str, Any]:
    torch.manual_seed(0)
    models: dict[str, Any] = {name: TitansLM(config_of(name, BASE, PARAMETERS)) for name in MODELS}
    if hyena_file is not None:
        models[hyena.NAME] = hyena.hyena(hyena_file, BASE.dim, BASE.num_layers, max(LENGTHS), PARAMETERS)
    return models


def step(network: Any, optimizer: torch.optim.Optimizer, windows: torch.Tensor) -> float:
    begun = time.perf_counter()
    network.loss(windows, windows).backward()
    optimizer.step()
    optimizer.zero_grad()
    return time.perf_counter() - begun


def run(key: tuple[Any, ...], hyena_file: Path | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    models = networks(hyena_file)
    if key == ("training",):
        optimizers = {name: torch.optim.AdamW(model.parameters(), 1e-3) for name, model in models.items()}
        for length in LENGTHS:
            windows = torch.randint(0, 4, (BASES // length, length))
            seconds: dict[str, list[float]] = {name: [] for name in models}
            for _ in range(REPEATS + 1):
                for name, model in models.items():
                    seconds[name].append(step(model, optimizers[name], windows))
            for name, times in seconds.items():
                found[f"{name}_{length}"] = round(BASES / statistics.median(times[1:]))
    else:
        for name, model in models.items():
            if name not in ("transformer", hyena.NAME):
                found |= {f"{name}_{after}": speed for after, speed in streaming(model.eval()).items()}
    return {**found, "parameters": {name: model.num_parameters() for name, model in models.items()}}


@torch.no_grad()
def streaming(model: TitansLM) -> dict[int, int]:
    state = None
    speeds: dict[int, list[float]] = {0: [], FAR: []}
    for begin in range(0, FAR + REPEATS * PIECE, PIECE):
        begun = time.perf_counter()
        _, state = model(torch.randint(0, 4, (1, PIECE)), state)
        for start, each in speeds.items():
            if start <= begin < start + REPEATS * PIECE:
                each.append(PIECE / (time.perf_counter() - begun))
    return {start: round(statistics.median(each)) for start, each in speeds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hyena", type=Path, help="standalone_hyenadna.py of HyenaDNA's authors")
    args = parser.parse_args()
    if args.hyena and any(row["what"] == "training" and hyena.NAME not in row["parameters"] for row in read(FILE)):
        parser.error(f"{FILE} has the training without {hyena.NAME}: remove that row, and all are measured together.")
    torch.set_num_threads(1)
    work(FILE, [("training",), ("streaming",)], FIELDS, functools.partial(run, hyena_file=args.hyena))


if __name__ == "__main__":
    main()
