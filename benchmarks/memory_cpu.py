"""Speed and peak memory of the neural memory on one CPU thread, compared with titans-pytorch.

    python benchmarks/memory_cpu.py [--quick]

Whole layers are compared: projections, gates, and a 2-layer memory whose hidden width is 4 times that of its head. The
peer has two settings: its default, a cheaper update with one step per chunk, and ``chunk_size=1, batch_size=C``, which
makes the same update as this library: a gate for each token, gradients at the chunk's start. The sides alternate, each
in its own process, so that none is slowed down by the other's use of the heap. Speeds are medians of ``REPEATS`` runs
after two warm-up runs. Peak memory has its own file and processes: the growth of the resident set from just before the
run to its peak. Finished cells of a machine are skipped.
"""

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from records import RESULTS, append, environment, read, resident_mib
from torch import Tensor, nn

FILE = RESULTS / "memory_cpu.jsonl"
PEAK_FILE = RESULTS / "memory_cpu_peak.jsonl"
REPEATS = 7
# (dim, heads, chunk, T)
CASES = [(dim, heads, C, T) for dim in (128, 256) for heads in (4, 1) for C in (64, 16) for T in (1024, 4096)]
# with equal updates the peer stores the weights of every token: 4 GB here, and more for wider heads or longer sequences
EQUAL_CASES = [(128, 4, 64, 1024), (128, 4, 16, 1024)]
SIDES = ("ours", "peer", "peer-equal")


def sides_of(case: tuple[int, int, int, int]) -> list[str]:
    return [side for side in SIDES if side != "peer-equal" or case in EQUAL_CASES]


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


class Worker:
    """A side in its own process, which runs once per request."""

    def __init__(self, side: str, mode: str, case: tuple[int, int, int, int]) -> None:
        command = [sys.executable, __file__, "--serve", side, mode, json.dumps(case)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print("run", file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def stop(self) -> None:
        self.process.communicate()


def serve(side: str, mode: str, case: tuple[int, int, int, int]) -> None:
    """The loop of a worker: for each line of input, run once and print the seconds."""
    dim, heads, C, T = case
    layer, x = build(side, dim, heads, C), torch.randn(1, T, dim)
    for _ in sys.stdin:
        begin = time.perf_counter()
        MODES[mode](layer, x)
        print(time.perf_counter() - begin, flush=True)


def measure_speed(case: tuple[int, int, int, int]) -> dict[str, dict[str, Any]]:
    """Tokens/s of each side and mode: median, slowest and fastest run, with alternating sides."""
    sides = sides_of(case)
    speeds: dict[str, dict[str, Any]] = {side: {} for side in sides}
    for mode in MODES:
        workers = {side: Worker(side, mode, case) for side in sides}
        times: dict[str, list[float]] = {side: [] for side in sides}
        for repeat in range(REPEATS + 2):
            for side, worker in workers.items():
                seconds = worker.seconds()
                if repeat > 1:
                    times[side].append(seconds)
        for side, worker in workers.items():
            worker.stop()
            rates = sorted(case[-1] / t for t in times[side])
            speeds[side][mode] = {"median": statistics.median(rates), "min": rates[0], "max": rates[-1]}
    return speeds


def measure_memory(side: str, mode: str, case: tuple[int, int, int, int]) -> float:
    """Growth of this process's resident set from just before a run to its peak, in MB (Linux)."""
    dim, heads, C, T = case
    layer = build(side, dim, heads, C)
    MODES[mode](layer, torch.randn(1, C, dim))  # loads everything that is loaded on first use
    x = torch.randn(1, T, dim)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = resident_mib("VmRSS")
    MODES[mode](layer, x)
    return resident_mib("VmHWM") - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="run only the two cases with all three sides; print without recording"
    )
    parser.add_argument("--memory-of", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    if args.serve:
        side, mode, case = args.serve
        serve(side, mode, tuple(json.loads(case)))
        return
    if args.memory_of:
        side, mode, case = args.memory_of
        print(measure_memory(side, mode, tuple(json.loads(case))))
        return

    about = {"columns": ["dim", "heads", "chunk", "T"], "threads": 1, "seed": 0}
    here = environment()["machine"]  # ratios differ between machines, so each machine measures all cases
    timed, weighed = (
        {tuple(row["case"]) for row in read(file) if row["machine"] == here} for file in (FILE, PEAK_FILE)
    )
    for case in CASES:
        if args.quick and case not in EQUAL_CASES:
            continue
        if args.quick or case not in timed:
            speeds = measure_speed(case)
            for side in list(speeds)[1:]:
                ratios = [speeds["ours"][m]["median"] / speeds[side][m]["median"] for m in MODES]
                print(f"{case}: {ratios[0]:.2f} / {ratios[1]:.2f} times the speed of {side}", flush=True)
            if not args.quick:
                append(FILE, {"case": case, **about, "repeats": REPEATS, **speeds})
        if args.quick or case not in weighed:
            peaks = {side: {mode: _peak(side, mode, case) for mode in MODES} for side in sides_of(case)}
            print(f"{case}: peak MB {peaks}", flush=True)
            if not args.quick:
                append(PEAK_FILE, {"case": case, **about, "unit": "MB", **peaks})


def _peak(side: str, mode: str, case: tuple[int, int, int, int]) -> float:
    command = [sys.executable, __file__, "--memory-of", side, mode, json.dumps(case)]
    return round(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]), 1)


if __name__ == "__main__":
    main()
