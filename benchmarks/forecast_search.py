"""Settings for each benchmark set, chosen on its validation rows by one rule for all.

    python benchmarks/forecast_search.py

At horizon 96 and seed 0: first the calendar and the mixing of series, each off and on; then, for the best of the four,
the dropout. Test rows are never read. Cells that are done are skipped, and several processes share the work.
"""

import itertools
import sys
from typing import Any

import torch
from cells import work
from records import RESULTS, read

FILE = RESULTS / "forecast_search.jsonl"
SETS = ("ETTh1", "ETTh2", "weather", "ETTm1", "ETTm2")
FIELDS = ("dataset", "input_size", "calendar", "multivariate", "dropout")
FIRST, DROPOUTS = 0.3, (0.1, 0.5)


def forecaster(calendar: bool, multivariate: bool, dropout: float, **options: Any) -> Any:
    """The forecaster of a cell, without its online memory: a lookback is all that the protocol allows."""
    from titans_ts import TitansForecaster
    from titans_ts.memory_training import MemoryReport

    class TitansForecasterAlone(TitansForecaster):
        def _train_memory(self, *args: Any, **kwargs: Any) -> tuple[None, MemoryReport]:
            return None, MemoryReport(0)

    return TitansForecasterAlone(
        exogenous={"calendar": "auto"} if calendar else None,
        multivariate=multivariate,
        dropout=dropout,
        verbose=0,
        **options,
    )


def chosen(dataset: str, input_size: int = 96) -> dict[str, Any] | None:
    """The settings with the lowest validation error; None while cells are missing."""
    rows = _rows(dataset, input_size)
    return None if len(rows) < 4 + len(DROPOUTS) else {k: _best(rows)[k] for k in FIELDS[2:]}


def _rows(dataset: str, input_size: int) -> list[dict[str, Any]]:
    return [r for r in read(FILE) if (r["dataset"], r["input_size"]) == (dataset, input_size)]


def _best(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return min(rows, key=lambda row: row["mse"] + row["mae"])


def _run(key: tuple[Any, ...]) -> dict[str, Any]:
    from titans_ts.evaluation import evaluate_protocol

    dataset, input_size, *settings = key
    model = forecaster(*settings)
    found = evaluate_protocol(model, dataset, input_size=input_size, h=96, seed=0, part="val")
    return {k: v for k, v in found.items() if k not in ("dataset", "input_size", "model")}


def main(input_size: int = 96) -> None:
    torch.set_num_threads(1)
    for dataset in SETS:
        first = [(dataset, input_size, c, m, FIRST) for c, m in itertools.product((True, False), (False, True))]
        work(FILE, first, FIELDS, _run)
        rows = [r for r in _rows(dataset, input_size) if r["dropout"] == FIRST]
        if len(rows) < 4:
            continue  # another process is at it
        best = _best(rows)
        then = [(dataset, input_size, best["calendar"], best["multivariate"], d) for d in DROPOUTS]
        work(FILE, then, FIELDS, _run)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
