"""The memory on one CPU thread, from two thousand to a million tokens: speed, state size and time per step.

    python benchmarks/memory_scaling.py

A layer of width 128 with 4 heads and chunks of 64, which forgets towards its start. For two lengths also a layer that
forgets towards zero: untrained, its memory decays to denormal numbers, with which some CPUs are several times slower,
unless they flush them to zero (``torch.set_flush_denormal``).

Measured are reading in one stream, in pieces of 8,192 tokens; training in one call, forward and backward, up to
``LEARNED`` tokens; and 200 single steps after the stream. Medians of ``REPEATS`` runs; a single run for reading a
million tokens. Finished cells are skipped.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from cells import work
from records import RESULTS

FILE = RESULTS / "memory_scaling.jsonl"
FIELDS = ("T", "forget_to", "flushed")
CASES = [(T, "start", None) for T in (2_048, 8_192, 32_768, 131_072, 1_048_576)]
CASES += [(2_048, "zero", None), (32_768, "zero", None), (32_768, "zero", True)]
LEARNED = 131_072
DIM, HEADS, CHUNK, PIECE, STEPS, REPEATS = 128, 4, 64, 8_192, 200, 3


def run(key: tuple[int, str, bool | None]) -> dict[str, Any]:
    from titans_core import NeuralMemory

    T, forget_to, flushed = key
    torch.set_flush_denormal(bool(flushed))
    torch.manual_seed(0)
    options = {"num_heads": HEADS, "depth": 2, "expansion": 4, "chunk_size": CHUNK, "forget_to": forget_to}
    layer = NeuralMemory(DIM, **options, backend="chunk")
    x = torch.randn(1, min(T, LEARNED), DIM)
    repeats = REPEATS if T <= LEARNED else 1

    @torch.no_grad()
    def stream() -> Any:
        state = None
        for start in range(0, T, PIECE):
            at = start % x.shape[1]
            _, state = layer(x[:, at : at + min(PIECE, T - start)], state)
        return state

    def learn() -> None:
        layer(x)[0].sum().backward()

    learn() if T <= LEARNED else layer(x[:, :PIECE])  # warm-up
    state = stream() if T <= LEARNED else None
    read, state = _timed(stream, repeats)
    found = {"read_tokens_per_second": T / read}
    if T <= LEARNED:
        found["learned_tokens_per_second"] = T / _timed(learn, repeats)[0]

    @torch.no_grad()
    def steps() -> None:
        after = state
        for t in range(STEPS):
            _, after = layer(x[:, t : t + 1], after)

    steps()
    return {
        **found,
        "step_microseconds": 1e6 * _timed(steps, REPEATS)[0] / STEPS,
        "state_bytes": sum(w.nbytes for part in (state.memory.weights, state.memory.momentum) for w in part),
        "repeats": repeats,
        "threads": 1,
        "seed": 0,
    }


def _timed(once: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Median seconds of the runs, and the result of the last one."""
    seconds, result = [], None
    for _ in range(repeats):
        begin = time.perf_counter()
        result = once()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds), result


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    work(FILE, CASES, FIELDS, run)
