"""Where the time of ``fit`` goes: ETTh1, 96 -> 96, one thread, the forecaster with its defaults.

    python benchmarks/fit_profile.py [--rounds 12]

Each part is timed by patching its function. Its time excludes the parts that it calls, except for validation, the
online memory and the state at the end, whose times include them. The shares hardly depend on the number of rounds,
except for those three.
"""

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import lightning.pytorch.loops.evaluation_loop as evaluation
import torch
from cells import work
from records import RESULTS
from torch.utils.data import dataloader

from titans_core.nn import memory
from titans_core.ops.memory import functions
from titans_core.train.module import OuterLoop
from titans_ts import TitansForecaster, forecaster
from titans_ts.evaluation import load_protocol

FILE = RESULTS / "fit_profile.jsonl"
# timed functions: owner, name, part, and whether the part includes all that the function calls
PLACES = (
    (dataloader._BaseDataLoaderIter, "__next__", "windows", False),
    (OuterLoop, "training_step", "network, forward", False),
    (memory, "neural_memory", "memory, forward", False),
    (torch.Tensor, "backward", "network, backward", False),
    (functions._Coefficients, "backward", "memory, backward", False),
    (functions._Pieces, "backward", "memory, backward", False),
    (torch.optim.Adam, "step", "optimiser", False),
    (evaluation._EvaluationLoop, "run", "validation", True),
    (TitansForecaster, "_train_memory", "online memory", True),
    (forecaster.Position, "after", "state at the end", True),
)
REST = "reading, Lightning and the rest"


class Clock:
    """Seconds of each part, without those of nested parts."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.stack: list[tuple[str, bool]] = [(REST, False)]
        self.since = time.perf_counter()

    def turn(self) -> None:
        """Add the time since the last turn to the innermost part, or to the outer part that includes all it calls."""
        now = time.perf_counter()
        part = next((part for part, takes_all in self.stack if takes_all), self.stack[-1][0])
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self.since
        self.since = now

    def timed(self, call: Callable[..., Any], part: str, takes_all: bool) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            self.turn()
            self.stack.append((part, takes_all))
            try:
                return call(*args, **kwargs)
            finally:
                self.turn()
                self.stack.pop()

        return run


def run(key: tuple[Any, ...]) -> dict[str, Any]:
    (rounds,) = key
    data = load_protocol("ETTh1")
    model, clock = TitansForecaster(96, 96, max_epochs=rounds, random_state=0, verbose=0), Clock()
    with ExitStack() as timing:
        for owner, name, part, takes_all in PLACES:
            timed = clock.timed(getattr(owner, name), part, takes_all)
            bound = isinstance(vars(owner)[name], staticmethod | classmethod)
            timing.enter_context(mock.patch.object(owner, name, staticmethod(timed) if bound else timed))
        model.fit(data.training, val_size=data.val_size)
    clock.turn()
    return {"parts": {part: round(s, 2) for part, s in clock.seconds.items()}, "seconds": round(model.seconds_, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    args = parser.parse_args()
    torch.set_num_threads(1)
    work(FILE, [(args.rounds,)], ("rounds",), run)


if __name__ == "__main__":
    main()
