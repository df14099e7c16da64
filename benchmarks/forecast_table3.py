"""Table 3: five benchmark sets, four horizons, three seeds, by the standard protocol.

    python benchmarks/forecast_table3.py [--searched] [--models titans DLinear] [--seeds 0 1 2] [--sets ETTh1]

The lookback is 96; with ``--searched``, of the forecaster, the one that ``forecast_search.py --lookbacks`` chose.
Settings of the forecaster are those that ``forecast_search.py`` chose in a rehearsal; peers, models of
neuralforecast, have the published ones of their papers' scripts (``table3_peers.py``) and one seed. Cells that are done
are skipped, and several processes share the work.
"""

import argparse
import json
from typing import Any

import torch
from cells import work
from forecast_search import LOOKBACKS, SETS, chosen, chosen_lookback, forecaster
from records import RESULTS
from table3_peers import PEERS, run_peer

FILE = RESULTS / "forecast_table3.jsonl"
FIELDS = ("model", "dataset", "input_size", "h", "seed", "settings")
HORIZONS = (96, 192, 336, 720)


def run(key: tuple[Any, ...]) -> dict[str, Any]:
    from titans_ts.evaluation import evaluate_protocol

    model, dataset, input_size, h, seed, text = key
    settings = json.loads(text)
    if model != "titans":
        return run_peer(model, dataset, input_size, h, seed, settings)
    found = evaluate_protocol(forecaster(**settings), dataset, input_size=input_size, h=h, seed=seed)
    return {**{k: v for k, v in found.items() if k not in FIELDS}, "settings": settings}


def _key(model: str, dataset: str, input_size: int, h: int, seed: int) -> tuple[Any, ...]:
    settings = chosen(dataset) if model == "titans" else PEERS[model](dataset, h)
    return (model, dataset, input_size, h, seed, json.dumps(settings, sort_keys=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searched", action="store_true", help="the lookback too, of the forecaster")
    parser.add_argument("--models", nargs="+", choices=("titans", *PEERS), default=("titans", *PEERS))
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    args = parser.parse_args()
    if args.searched:
        args.models = ("titans",)
    torch.set_num_threads(1)
    for model in args.models:
        for seed in args.seeds if model == "titans" else (0,):
            for dataset in args.sets:
                lookback = chosen_lookback(dataset) if args.searched else LOOKBACKS[0]
                if lookback is None or (model == "titans" and chosen(dataset) is None):
                    print(f"{dataset}: its settings are not chosen yet; run forecast_search.py")
                    continue
                work(FILE, [_key(model, dataset, lookback, h, seed) for h in HORIZONS], FIELDS, run)


if __name__ == "__main__":
    main()
