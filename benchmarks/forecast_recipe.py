"""How the forecaster is trained, and what memory is in its network: one answer for all sets.

    python benchmarks/forecast_recipe.py [--sets ETTh1 ...] [--lengths | --memories]

One recipe for all sets, so all are asked together: the forecaster's defaults but for the recipe, 96 -> 96, seed 0,
scored on the validation rows and in the rehearsal of ``forecast_search.py``. The rule: least geometric mean of the
errors (MSE + MAE), each relative to that of the first recipe; test rows are never read. All train for 600 batches. With
``--lengths`` the first recipe is asked for longer; a rehearsal, which has fewer rows, has fewer rounds, for as many
passes over them. With ``--memories`` they are two kinds of memory in the network, each set with its settings and at its
lookback of ``forecast_search.py``, and at 96. Cells that are done are skipped, and several processes share the work.
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
# batch size, learning rate, steps of the average; batches of 448 took three times as long and won .2 % over 256
RECIPES = ((128, 1e-3, 100), (128, 2e-3, 100), (256, 2e-3, 100))
LENGTHS_FILE = RESULTS / "forecast_length.jsonl"
LENGTHS = (6, 12, 20)  # rounds of 100 batches on the rows of the protocol
LENGTH_FIELDS = ("dataset", "part", "rounds", "seed")
MEMORIES_FILE = RESULTS / "forecast_memories.jsonl"
MEMORIES = ((2, 4), (1, 1))  # layers of the memory, and patches that share a gradient point; the default first
MEMORY_SETS = (*SETS, "ETTm2", "weather")
MEMORY_FIELDS = ("dataset", "input_size", "part", "memory_depth", "chunk_size", "seed", "settings")


def scored(fields: tuple[str, ...], dataset: str, part: str, seed: int, **options: Any) -> dict[str, Any]:
    """What the protocol says of a forecaster, without the fields of its key."""
    from titans_ts.evaluation import evaluate_protocol

    found = evaluate_protocol(alone(**options), dataset, input_size=96, h=96, seed=seed, part=part)
    return {k: v for k, v in found.items() if k not in (*fields, "model")}


def run(key: tuple[Any, ...]) -> dict[str, Any]:
    dataset, part, batch_size, learning_rate, average, seed = key
    with mock.patch("titans_ts.training.AVERAGE", average):
        options = dict(batch_size=batch_size, learning_rate=learning_rate, max_epochs=LENGTHS[0])
        return scored(FIELDS, dataset, part, seed, **options)


def run_length(key: tuple[Any, ...]) -> dict[str, Any]:
    dataset, part, rounds, seed = key
    return scored(LENGTH_FIELDS, dataset, part, seed, max_epochs=rounds if part == "val" else 2 * rounds // 3)


def run_memory(key: tuple[Any, ...]) -> dict[str, Any]:
    from titans_ts.evaluation import evaluate_protocol
    from titans_ts.simba import Simba, SimbaConfig

    dataset, input_size, part, memory_depth, chunk_size, seed, text = key
    settings = json.loads(text)
    model = forecaster(**settings, max_epochs=LENGTHS[0])

    class Changed(type(model)):  # type: ignore[misc]
        def _network(self, config: SimbaConfig) -> Simba:
            return Simba(replace(config, memory_depth=memory_depth, chunk_size=chunk_size))

    found = evaluate_protocol(Changed(**model.get_params()), dataset, input_size=input_size, h=96, seed=seed, part=part)
    return {k: v for k, v in found.items() if k not in (*MEMORY_FIELDS, "model")} | {"settings": settings}


def settings_of(dataset: str) -> str:
    """As JSON."""
    settings = chosen(dataset)
    if settings is None:
        raise SystemExit(f"the settings of {dataset} are not chosen yet: run forecast_search.py --lookbacks")
    return json.dumps({**settings, "recipe": recipe_of(RECIPE, settings["profile"])}, sort_keys=True)


def judged(file: Path, fields: tuple[str, ...], answers: tuple[Any, ...]) -> dict[tuple[Any, ...], tuple[float, int]]:
    """Of each answer the mean relative error, and over how many questions that all have an answer to."""
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
        print(answer, f"{error:.4f} of the first one's error, over {questions} questions")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=MEMORY_SETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=(0,))
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--lengths", action="store_true", help="ask how long, instead")
    other.add_argument("--memories", action="store_true", help="ask which memory, instead")
    args = parser.parse_args()
    torch.set_num_threads(1)
    sets = args.sets or (MEMORY_SETS if args.memories else SETS)
    if args.lengths:
        lengths = [(d, part, n, seed) for seed in args.seeds for d in sets for n in LENGTHS for part in PARTS]
        work(LENGTHS_FILE, lengths, LENGTH_FIELDS, run_length)
        return
    if args.memories:
        for seed in args.seeds:
            for lookback_of in (lambda _: LOOKBACKS[0], chosen_lookback):
                cells = [
                    (d, lookback_of(d), part, *kind, seed, settings_of(d))
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
