"""The cost of gates: the memory on one CPU thread, with gates per token or per chunk, without momentum or forgetting.

    python benchmarks/memory_gates.py

The layer of ``memory_cpu.py``, forward, and forward and backward. The variants alternate; speeds are medians of
``REPEATS`` runs after two warm-up runs. Finished cells are skipped.
"""

import argparse
import statistics
import time
from typing import Any

import torch
from cells import work
from memory_cpu import MODES
from records import RESULTS

FILE = RESULTS / "memory_gates.jsonl"
FIELDS = ("dim", "heads", "chunk", "T")
CASES = [(128, 4, 16, 1024), (128, 4, 64, 1024), (128, 4, 128, 1024), (256, 4, 64, 4096)]
VARIANTS: dict[str, dict[str, Any]] = {
    "of tokens": {},
    "of chunks": {"gates": "chunk"},
    "no momentum": {"momentum": False},
    "no forgetting": {"forget": False},
    "neither": {"momentum": False, "forget": False},
    "neither, of chunks": {"momentum": False, "forget": False, "gates": "chunk"},
}
REPEATS = 9


def run(case: tuple[int, int, int, int]) -> dict[str, Any]:
    from titans_core import NeuralMemory

    dim, heads, C, T = case
    torch.manual_seed(0)
    layers = {
        name: NeuralMemory(dim, num_heads=heads, depth=2, expansion=4, chunk_size=C, backend="chunk", **options)
        for name, options in VARIANTS.items()
    }
    x = torch.randn(1, T, dim)
    rates: dict[str, dict[str, list[float]]] = {name: {mode: [] for mode in MODES} for name in VARIANTS}
    for repeat in range(REPEATS + 2):
        for name, layer in layers.items():
            for mode, once in MODES.items():
                begin = time.perf_counter()
                once(lambda x, layer=layer: layer(x)[0], x)
                if repeat > 1:
                    rates[name][mode].append(T / (time.perf_counter() - begin))
    return {
        "tokens_per_second": {
            name: {mode: {"median": statistics.median(r), "min": min(r), "max": max(r)} for mode, r in of.items()}
            for name, of in rates.items()
        },
        "repeats": REPEATS,
        "threads": 1,
        "seed": 0,
    }


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    work(FILE, CASES, FIELDS, run)
