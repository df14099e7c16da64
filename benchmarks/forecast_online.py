"""The online memory over a whole test span, in one streaming pass; and how often intervals hold what came.

    python benchmarks/forecast_online.py

For each set and seed one model (lookback 96, horizon 96) is scored on every test window of the protocol four times: the
network alone; with the memory as it stood at the end of the validation rows, read but never written again; with the
memory learning on; and, for coverage, at every 24th origin, with intervals of ``fit`` and with intervals that take in
the errors that become known.
"""

import time
from typing import Any

import numpy as np
import torch
from cells import work
from records import RESULTS

FILE = RESULTS / "forecast_online.jsonl"
FIELDS = ("dataset", "calendar", "seed")
LEVELS = (80, 95)


def run(key: tuple[Any, ...]) -> dict[str, Any]:
    from titans_ts import TitansForecaster, online
    from titans_ts.backtest import backtest_frame
    from titans_ts.evaluation import load_protocol
    from titans_ts.rolling import corrections, forecast_rows

    dataset, calendar, seed = key
    data = load_protocol(dataset)
    exogenous = {"calendar": "auto"} if calendar else None
    model = TitansForecaster(dropout=0.3, exogenous=exogenous, random_state=seed, verbose=0)
    model.fit(data.training, val_size=data.val_size)
    memory, report = model.memory_, model.memory_report_
    about = {"seconds": round(model.seconds_, 1), "kept": report.kept, "val_without": report.without,
             "val_with": report.with_memory}  # fmt: skip

    frame = data.frame.iloc[: data.split.test.stop]
    panel = model._read(frame, model.scaling_.columns, None, reset=False)
    table = model.scaling_.table(panel, model.mean_, model.scale_)
    origins = torch.arange(data.split.test.start, data.split.test.stop - model.h + 1)
    truth = table.values[origins[:, None] + torch.arange(model.h)]
    alone = forecast_rows(model.network_, model.model_.objective, table, origins).point
    about["alone"] = _errors(alone, truth)
    if memory is not None:
        begin = time.perf_counter()
        about["online"] = _errors(alone + corrections(memory, table, origins), truth)
        about["pass_seconds"] = round(time.perf_counter() - begin, 1)
        streams = model.position_.streams
        frozen = torch.zeros_like(alone)
        with torch.no_grad():
            for i, origin in enumerate(origins.tolist()):
                for stream in streams:
                    values = table.values[origin - memory.span : origin]
                    frozen[i][:, stream.series] = online.recall(memory, stream, values)
        about["frozen"] = _errors(alone + frozen, truth)

    few = origins[::24].tolist()
    for name, fitted in (("coverage_of_fit", None), ("coverage_moving", data.split.test.start)):
        found = backtest_frame(model, panel, few, list(LEVELS), fitted=fitted)
        about[name] = {
            str(v): float(found["y"].between(found[f"Titans-lo-{v}"], found[f"Titans-hi-{v}"]).mean()) for v in LEVELS
        }
    rows = frame.iloc[data.split.test.start :]
    seconds = []
    for i in range(200):
        begin = time.perf_counter()
        model.update(rows.iloc[i : i + 1])
        seconds.append(time.perf_counter() - begin)
    about["update_ms"] = round(1e3 * float(np.median(seconds)), 2)
    return about


def _errors(found: torch.Tensor, truth: torch.Tensor) -> dict[str, float]:
    error = (found - truth).double()
    return {"mse": float(error.square().mean()), "mae": float(error.abs().mean()), "n_windows": len(error)}


def main() -> None:
    torch.set_num_threads(1)
    keys = [(name, calendar, seed) for seed in (0, 1, 2) for calendar in (False, True) for name in ("ETTh1", "ETTm1")]
    work(FILE, keys, FIELDS, run)


if __name__ == "__main__":
    main()
