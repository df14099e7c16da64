"""Choose the training recipe of the forecaster and the memory in its network, one choice for all sets.

    python benchmarks/forecast_recipe.py [--sets ETTh1 ...] [--lengths | --memories]

The forecaster has its defaults except for the recipe, 96 -> 96, seed 0. It is scored on the validation rows and in the
rehearsal of ``forecast_search.py``; test rows are never read. The rule: the lowest geometric mean of the errors
(MSE + MAE), each relative to that of the first recipe. All recipes train for 600 batches. ``--lengths`` measures how
long to train with the default recipe; a rehearsal has fewer rows, and gets fewer rounds for as many passes over them.
``--memories`` compares two kinds of memory in the network, with the settings that ``forecast_search.py`` chose for each
set, at a lookback of 96 and at the chosen one. Finished cells are skipped, and several processes can share the work.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from cells import work
from forecast_search import LOOKBACKS, RECIPE, alone, chosen, chosen_lookback, forecaster, recipe_of
from records import RESULTS, read

FILE = RESULTS / "forecast_recipe.jsonl"
SETS = ("ETTh1", "ETTh2", "ETTm1")
PARTS = ("rehearsal", "val")
FIELDS = ("dataset", "part", "batch_size", "learning_rate", "average", "seed")
# batch size, learning rate, steps of averaging; batches of 448 took three times as long and gained 0.2 % over 256
RECIPES = ((128, 1e-3, 100), (128, 2e-3, 100), (256, 2e-3, 100))
LENGTHS_FILE = RESULTS / "forecast_length.jsonl"
LENGTHS = (6, 12, 20)  # rounds of 100 batches on the rows of the protocol
LENGTH_FIELDS = ("dataset", "part", "rounds", "seed")
MEMORIES_FILE = RESULTS / "forecast_memories.jsonl"
MEMORIES = (
    (2, 4),
    (1, 1),
)  # depth of the memory, and patches that share a gradient point (chunk size); the default first
MEMORY_SETS = (*SETS, "ETTm2", "weather")
MEMORY_FIELDS = ("dataset", "input_size", "part", "memory_depth", "chunk_size", "seed", "settings")


def scored(fields: tuple[str, ...], dataset: str, part: str, seed: int, **options: Any) -> dict[str, Any]:
    """The result of the protocol for a forecaster, without the fields of its key."""
    from titans_ts.evaluation import evaluate_protocol

    found = evaluate_protocol(alone(**options), dataset, input_size=96, h=96, seed=seed, part=part)
    return {k: v for k, v in found.items() if k not in (*fields, "model")}


def run(key: tuple[Any, ...]) -> dict[str, Any]:
    dataset, part, batch_size, learning_rate, average, seed = key
    with mock.patch("titans_ts.estimator.training.AVERAGE", average):
        options = dict(batch_size=batch_size, learning_rate=learning_rate, max_epochs=LENGTHS[0])
        return scored(FIELDS, dataset, part, seed, **options)


def run_length(key: tuple[Any, ...]) -> dict[str, Any]:
    dataset, part, rounds, seed = key
    return scored(LENGTH_FIELDS, dataset, part, seed, max_epochs=rounds if part == "val" else 2 * rounds // 3)


def run_memory(key: tuple[Any, ...]) -> dict[str, Any]:
    from titans_ts.evaluation import evaluate_protocol
    from titans_ts.network.simba import Simba, SimbaConfig

    dataset, input_size, part, memory_depth, chunk_size, seed, text = key
    settings = json.loads(text)
    model = forecaster(**settings, max_epochs=LENGTHS[0])

    class Changed(type(model)):  # type: ignore[misc]
        def _network(self, config: SimbaConfig) -> Simba:
            return Simba(replace(config, memory_depth=memory_depth, chunk_size=chunk_size))

    found = evaluate_protocol(Changed(**model.get_params()), dataset, input_size=input_size, h=96, seed=seed, part=part)
    return {k: v for k, v in found.items() if k not in (*MEMORY_FIELDS, "model")} | {"settings": settings}


def settings_of(dataset: str) -> str:
    """The settings of a set, as JSON."""
    settings = chosen(dataset)
    if settings is None:
        raise SystemExit(f"the settings of {dataset} are not chosen yet: run forecast_search.py --lookbacks")
    return json.dumps({**settings, "recipe": recipe_of(RECIPE, settings["profile"])}, sort_keys=True)


def lookback_of(dataset: str) -> int:
    """The chosen lookback of a set."""
    lookback = chosen_lookback(dataset)
    if lookback is None:
        raise SystemExit(f"the lookback of {dataset} is not chosen yet: run forecast_search.py --lookbacks")
    return lookback


def judged(file: Path, fields: tuple[str, ...], answers: tuple[Any, ...]) -> dict[tuple[Any, ...], tuple[float, int]]:
    """The mean relative error of each answer, over the cells with results for all answers, and the number of these."""
    of = ("batch_size", "learning_rate", "average", "memory_depth", "chunk_size")
    errors: dict[tuple[Any, ...], dict[tuple[Any, ...], float]] = {}
    for row in read(file):
        answer = tuple(row[f] for f in fields if f in of)
        if answer in answers:
            question = tuple(json.dumps(row[f]) for f in fields if f not in of)
            errors.setdefault(answer, {})[question] = row["mse"] + row["mae"]
    first = errors[answers[0]]
    shared = set.intersection(*(set(found) for found in errors.values()))
    return {
        answer: (float(np.exp(np.mean([np.log(found[q] / first[q]) for q in shared]))), len(shared))
        for answer, found in errors.items()
    }


def say(*of: Any) -> None:
    for answer, (error, questions) in sorted(judged(*of).items(), key=lambda item: item[1]):
        print(answer, f"{error:.4f} times the error of the first, mean over {questions} cells")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=MEMORY_SETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=(0,))
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--lengths", action="store_true", help="compare training lengths instead")
    other.add_argument("--memories", action="store_true", help="compare memories instead")
    args = parser.parse_args()
    torch.set_num_threads(1)
    sets = args.sets or (MEMORY_SETS if args.memories else SETS)
    if args.lengths:
        lengths = [(d, part, n, seed) for seed in args.seeds for d in sets for n in LENGTHS for part in PARTS]
        work(LENGTHS_FILE, lengths, LENGTH_FIELDS, run_length)
        return
    if args.memories:
        for seed in args.seeds:
            for lookback in (lambda _: LOOKBACKS[0], lookback_of):
                cells = [
                    (d, lookback(d), part, *kind, seed, settings_of(d))
                    for d in sets
                    for part in PARTS
                    for kind in MEMORIES
                ]
                work(MEMORIES_FILE, cells, MEMORY_FIELDS, run_memory)
        say(MEMORIES_FILE, MEMORY_FIELDS, MEMORIES)
        return
    for seed in args.seeds:
        for dataset in sets:
            cells = [(dataset, part, *recipe, seed) for part in PARTS for recipe in RECIPES]
            work(FILE, cells, FIELDS, run)
    say(FILE, FIELDS, RECIPES)


if __name__ == "__main__":
    main()
