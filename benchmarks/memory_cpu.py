"""Speed and peak memory of the neural memory on one CPU thread, beside titans-pytorch.

    python benchmarks/memory_cpu.py [--quick]

Layer against layer: projections, gates, a 2-layer memory with hidden width 4 times its head. Two settings of the peer:
its default, a cheaper update with one step a chunk, and ``chunk_size=1, batch_size=C``, the update that ours makes:
a gate for each token, gradients at the chunk's start. The sides take turns within one process; medians of ``REPEATS``
runs after a warm-up. Peak memory: growth of the resident set in a process of its own. Finished cells are skipped on a
second run.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from records import RESULTS, append, read
from torch import Tensor, nn

FILE = RESULTS / "memory_cpu.jsonl"
REPEATS = 5
# (dim, heads, chunk, T)
CASES = [(dim, heads, C, T) for dim in (128, 256) for heads in (4, 1) for C in (64, 16) for T in (1024, 4096)]
# the peer at equal updates holds the weights of every token: 4 GB here, too much for a wider head or a longer sequence
EQUAL_CASES = [(128, 4, 64, 1024), (128, 4, 16, 1024)]
SIDES = ("ours", "peer", "peer-equal")


def build(side: str, dim: int, heads: int, C: int) -> Callable[[Tensor], Tensor]:
    torch.manual_seed(0)
    if side == "ours":
        from titans_core import NeuralMemory

        return _first(NeuralMemory(dim, num_heads=heads, depth=2, expansion=4, chunk_size=C, backend="chunk"))
    from titans_pytorch import NeuralMemory as Peer

    chunks = {"chunk_size": C} if side == "peer" else {"chunk_size": 1, "batch_size": C}
    return _first(Peer(dim, dim_head=dim // heads, heads=heads, **chunks))


def _first(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: layer(x)[0]


def forward(layer: Callable[[Tensor], Tensor], x: Tensor) -> None:
    with torch.no_grad():
        layer(x)


def forward_backward(layer: Callable[[Tensor], Tensor], x: Tensor) -> None:
    layer(x).sum().backward()


MODES = {"forward": forward, "forward+backward": forward_backward}


def measure_speed(case: tuple[int, int, int, int]) -> dict[str, dict[str, Any]]:
    """Tokens/s of each side and mode: median, slowest and fastest of the repetitions, sides taking turns."""
    dim, heads, C, T = case
    sides = [s for s in SIDES if s != "peer-equal" or case in EQUAL_CASES]
    layers = {side: build(side, dim, heads, C) for side in sides}
    x = torch.randn(1, T, dim)
    speeds: dict[str, dict[str, Any]] = {side: {} for side in sides}
    for mode, run in MODES.items():
        times: dict[str, list[float]] = {side: [] for side in sides}
        for repeat in range(REPEATS + 1):
            for side in sides:
                begin = time.perf_counter()
                run(layers[side], x)
                if repeat > 0:
                    times[side].append(time.perf_counter() - begin)
        for side in sides:
            rates = sorted(T / t for t in times[side])
            speeds[side][mode] = {"median": statistics.median(rates), "min": rates[0], "max": rates[-1]}
    return speeds


def measure_memory(side: str, mode: str, case: tuple[int, int, int, int]) -> float:
    """Growth of this process's peak resident set by one run, in MB."""
    dim, heads, C, T = case
    layer = build(side, dim, heads, C)
    MODES[mode](layer, torch.randn(1, C, dim))  # loads what is loaded at first use
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    MODES[mode](layer, torch.randn(1, T, dim))
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only the two shortest cases, and print instead of record")
    parser.add_argument("--memory-of", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    if args.memory_of:
        side, mode, case = args.memory_of
        print(measure_memory(side, mode, tuple(json.loads(case))))
        return

    cases = [c for c in CASES if c in EQUAL_CASES] if args.quick else CASES
    done = set() if args.quick else {tuple(row["case"]) for row in read(FILE)}
    for case in cases:
        if case in done:
            continue
        sides = measure_speed(case)
        for side, result in sides.items():
            for mode in MODES:
                command = [sys.executable, __file__, "--memory-of", side, mode, json.dumps(case)]
                out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                result[mode]["peak_mb"] = float(out.split()[-1])
        row = {"case": case, "columns": ["dim", "heads", "chunk", "T"], "threads": 1, "repeats": REPEATS, "seed": 0}
        if args.quick:
            print(json.dumps({**row, **sides}, indent=1))
        else:
            append(FILE, {**row, **sides})
        ours = sides["ours"]
        for side in list(sides)[1:]:
            ratios = [ours[m]["median"] / sides[side][m]["median"] for m in MODES]
            print(f"{case}: {ratios[0]:.2f} / {ratios[1]:.2f} times {side}", flush=True)


if __name__ == "__main__":
    main()
