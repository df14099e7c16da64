"""Table 3: five benchmark sets, four horizons, three seeds, by the standard protocol.

    python benchmarks/forecast_table3.py [--searched] [--models titans DLinear] [--seeds 0 1 2] [--sets ETTh1]

The lookback is 96. With ``--searched``, for our models only, it is the one that ``forecast_search.py --lookbacks``
chooses. The forecaster has the settings that ``forecast_search.py`` chooses on validation rows and in a rehearsal;
cells of that search that are missing are run first. Models:

- "titans": the forecaster.
- "ensemble": the mean of two forecasters, with and without a profile of the day.
- "lookbacks", with ``--searched``: the mean of such a pair at each of several lookbacks.
- Peers: models of neuralforecast with the settings of public scripts (``table3_peers.py``), one seed.
- "last-value": repeats the last value.

``--sets ECL traffic`` runs the forecaster on the large sets, where they can be loaded. Finished cells are skipped, and
several processes share the work.
"""

import argparse
import json
from typing import Any

import numpy as np
import torch
from cells import work
from forecast_search import (
    LARGE,
    LOOKBACKS,
    MIXED,
    SETS,
    chosen,
    chosen_lookback,
    ensemble,
    ensemble_of_lookbacks,
    forecaster,
    of_both,
    of_lookbacks,
    search,
)
from records import RESULTS
from table3_peers import HORIZONS, SCRIPTS, run_peer
from table3_peers import settings as settings_of_peer

FILE = RESULTS / "forecast_table3.jsonl"
FIELDS = ("model", "dataset", "input_size", "h", "seed", "settings")
LAST_VALUE, MIXTURE = "last-value", "lookbacks"
OURS = {  # functions for the settings of a set, and for the model
    "titans": (chosen, forecaster),
    "ensemble": (of_both, ensemble),
    MIXTURE: (of_lookbacks, ensemble_of_lookbacks),
}
MODELS = (*OURS, LAST_VALUE, *SCRIPTS)
AT_96 = tuple(model for model in MODELS if model != MIXTURE)


def run(key: tuple[Any, ...]) -> dict[str, Any]:
    from titans_ts.evaluation import evaluate_protocol

    model, dataset, input_size, h, seed, text = key
    settings = json.loads(text)
    if model == LAST_VALUE:
        return _last_value(dataset, input_size, h)
    if model not in OURS:
        return run_peer(model, dataset, input_size, h, seed, settings)
    made = OURS[model][1](**settings)
    own = input_size if model != MIXTURE else None  # its members have lookbacks of their own
    found = evaluate_protocol(made, dataset, input_size=own, h=h, seed=seed)
    return {**{k: v for k, v in found.items() if k not in FIELDS}, "settings": settings}


def _last_value(dataset: str, input_size: int, h: int) -> dict[str, Any]:
    from titans_ts.evaluation import load_protocol, score_windows

    windows = load_protocol(dataset).windows("test", input_size, h)
    return {**score_windows(lambda past: np.repeat(past[:, -1:], h, axis=1), *windows), "settings": {}}


def settings_of(model: str, dataset: str, h: int) -> dict[str, Any] | None:
    """The settings of a cell; None while the search has not chosen them."""
    if model in OURS:
        return OURS[model][0](dataset)
    return {} if model == LAST_VALUE else settings_of_peer(model, dataset, h)


def lookback_of(model: str, dataset: str, searched: bool) -> int | None:
    """The lookback of a cell, of a mixture the longest; None while the search has not chosen it."""
    if model == MIXTURE:
        return max(MIXED)
    return chosen_lookback(dataset) if searched else LOOKBACKS[0]


def _key(model: str, dataset: str, input_size: int, h: int, seed: int) -> tuple[Any, ...]:
    return (model, dataset, input_size, h, seed, json.dumps(settings_of(model, dataset, h), sort_keys=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searched", action="store_true", help="search the lookback too (our models only)")
    parser.add_argument("--models", nargs="+", choices=MODELS)
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument("--sets", nargs="+", choices=(*SETS, *LARGE), default=SETS)
    args = parser.parse_args()
    models = args.models or (OURS if args.searched else AT_96)
    if args.searched and (peers := [model for model in models if model not in OURS]):
        parser.error(f"--searched is for {', '.join(OURS)} only: leave out {', '.join(peers)}")
    if MIXTURE in models and not args.searched:
        parser.error(f"{MIXTURE} has other lookbacks than 96: give --searched")
    torch.set_num_threads(1)
    for model in models:
        for seed in args.seeds if model in OURS else (0,):
            for dataset in args.sets:
                if model in SCRIPTS and dataset in LARGE:
                    print(f"{dataset}: there are no settings of {model} for it")
                    continue
                if model in OURS:
                    search([dataset], args.searched)
                lookback = lookback_of(model, dataset, args.searched)
                if lookback is None or settings_of(model, dataset, HORIZONS[0]) is None:
                    print(f"{dataset}: another process is still searching for its settings")
                    continue
                work(FILE, [_key(model, dataset, lookback, h, seed) for h in HORIZONS], FIELDS, run)


if __name__ == "__main__":
    main()
