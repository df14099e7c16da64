"""Speed and peak memory of the neural memory on a CUDA device, compared with common alternatives.

    python benchmarks/memory_gpu.py [--minutes 6] [--smoke]

Three parts, at d_model 1024, 16 heads of 64, chunks of 64, bfloat16 tokens:

- the operator and the layer, depth 1 to 4 and expansion 1, 2 and 4, T from 2K to 64K at 64K tokens per step, compared
  with fla's gated delta rule (operator and layer) and Mamba2 layer, causal attention (PyTorch's SDPA) and
  titans-pytorch's default layer, as in the paper's Figures 8 and 9;
- one sequence of 2K to 1M tokens, read without gradients: tokens/s should stay flat;
- one token at a time, after contexts of different length: time and state should stay constant.

A row has the median, fastest and slowest of at most ``REPEATS`` runs after a warm-up, in tokens/s, and the peak of
allocated memory. A case that fails, does not fit or is not reached in time is recorded with the reason, and tried again
on the next run; cases that this commit has measured on this device are skipped. ``--minutes`` limits the time. Each
peer has its own process and time limit, so that its failure does not affect others. ``--warm`` compiles fla's kernels
and measures nothing. ``--smoke`` runs tiny shapes on any device and records nothing.
"""

import argparse
import gc
import importlib.util
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from records import COMMIT, RESULTS, append, read
from torch import Tensor

from titans_core import NeuralMemory, neural_memory
from titans_core.models.state import tensors
from titans_core.train.flops import memory_flops, peak_flops

FILE = RESULTS / "memory_gpu.jsonl"
REPEATS, LEAST, SECONDS = 7, 3, 1  # repetitions of a case: at most, at least, and no more after this many seconds
PEER_SECONDS = 90  # time limit of a peer
HEADS, HEAD, CHUNK, TOKENS = 16, 64, 64, 65536

Step = Callable[[], Any]
Case = tuple[dict[str, Any], Callable[[], dict[str, Any]]]


class Shapes:
    """Sizes of the full run, or tiny ones."""

    def __init__(self, smoke: bool) -> None:
        self.smoke = smoke
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.name = torch.cuda.get_device_name() if self.device == "cuda" else "cpu"
        self.heads, self.head, self.chunk, self.tokens = (2, 16, 16, 64) if smoke else (HEADS, HEAD, CHUNK, TOKENS)
        self.lengths = [32, 64] if smoke else [2048, 4096, 8192, 16384, 32768, 65536]
        self.long = [64, 128] if smoke else [2**i for i in range(11, 21, 3)]
        self.memories = [(2, 4), (2, 2), (2, 1), (1, 1), (3, 4), (4, 4)]  # depth, expansion
        self.dtype = torch.float32 if self.device == "cpu" else torch.bfloat16

    def randn(self, *shape: int) -> Tensor:
        return torch.randn(shape, device=self.device, dtype=self.dtype, requires_grad=True)


def _widths(depth: int, expansion: int, s: Shapes) -> list[int]:
    return [s.head, *[s.head * expansion] * (depth - 1), s.head]


def _backend(depth: int, s: Shapes) -> str:
    """The backend, explicitly, so that a row is never measured with another one than it states."""
    return "triton" if depth <= 2 and s.device == "cuda" else "chunk"


def _layer(depth: int, expansion: int, s: Shapes) -> NeuralMemory:
    layer = NeuralMemory(s.heads * s.head, s.heads, depth, expansion, s.chunk, backend=_backend(depth, s))
    return layer.to(s.device, s.dtype)


def memory_operator(depth: int, expansion: int, T: int, s: Shapes) -> Callable[[], Tensor]:
    B = s.tokens // T
    weights = [
        (torch.randn(s.heads, a, b, device=s.device) * a**-0.5).requires_grad_()
        for a, b in itertools.pairwise(_widths(depth, expansion, s))
    ]
    q, v = s.randn(B, T, s.heads, s.head), s.randn(B, T, s.heads, s.head)
    k = F.normalize(s.randn(B, T, s.heads, s.head), dim=-1).detach().requires_grad_()
    alpha, eta, theta = (
        (scale * torch.rand(B, T, s.heads, device=s.device)).requires_grad_() for scale in (0.02, 0.8, 1 / s.chunk)
    )
    options = {"chunk_size": s.chunk, "backend": _backend(depth, s)}
    return lambda: neural_memory(q, k, v, alpha, eta, theta, tuple(weights), **options)[0]


def gated_delta_operator(T: int, s: Shapes) -> Callable[[], Tensor]:
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    B = s.tokens // T
    q, k, v = (s.randn(B, T, s.heads, s.head) for _ in range(3))
    g = (-torch.rand(B, T, s.heads, device=s.device)).requires_grad_()
    beta = torch.rand(B, T, s.heads, device=s.device, dtype=s.dtype).requires_grad_()
    return lambda: chunk_gated_delta_rule(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)[0]


def attention_operator(T: int, s: Shapes) -> Callable[[], Tensor]:
    q, k, v = (s.randn(s.tokens // T, s.heads, T, s.head) for _ in range(3))
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)


def memory_layer(depth: int, expansion: int, T: int, s: Shapes) -> Callable[[], Tensor]:
    layer = _layer(depth, expansion, s)
    x = s.randn(s.tokens // T, T, s.heads * s.head)
    return lambda: layer(x)[0]


def gated_delta_layer(T: int, s: Shapes) -> Callable[[], Tensor]:
    from fla.layers import GatedDeltaNet

    layer = GatedDeltaNet(hidden_size=s.heads * s.head, num_heads=s.heads, head_dim=s.head, expand_v=1)
    layer = layer.to(s.device, s.dtype)
    x = s.randn(s.tokens // T, T, s.heads * s.head)
    return lambda: layer(x)[0]


def mamba2_layer(T: int, s: Shapes) -> Callable[[], Tensor]:
    """Mamba2 on its Triton kernels; in one fused operation, as in training, if causal-conv1d is installed."""
    _package_only("mamba_ssm")
    import mamba_ssm.ops.triton.ssd_combined  # noqa: F401  without its kernels fla runs a slow stand-in
    from fla.layers import Mamba2

    layer = Mamba2(hidden_size=s.heads * s.head, num_heads=2 * s.heads, head_dim=s.head).to(s.device, s.dtype)
    layer.train(importlib.util.find_spec("causal_conv1d") is not None)
    x = s.randn(s.tokens // T, T, s.heads * s.head)
    return lambda: _first(layer(x))


def _package_only(name: str) -> None:
    """Make the modules of a package importable without its ``__init__``, which may need extensions that we do not."""
    spec = importlib.util.find_spec(name)
    if spec is not None and name not in sys.modules:
        sys.modules[name] = importlib.util.module_from_spec(spec)


def _first(found: Any) -> Tensor:
    return found[0] if isinstance(found, tuple) else found


def peer_layer(T: int, s: Shapes) -> Callable[[], Tensor]:
    from titans_pytorch import NeuralMemory as Peer

    layer = Peer(s.heads * s.head, dim_head=s.head, heads=s.heads, chunk_size=s.chunk).to(s.device, s.dtype)
    x = s.randn(s.tokens // T, T, s.heads * s.head)
    return lambda: layer(x)[0]


def groups(s: Shapes) -> dict[str, list[Case]]:
    """What is measured, each case with what measures it, in the order of how telling it is; a peer is a group."""
    lengths = sorted(s.lengths, key=lambda T: (T != 8192, T))

    def ours(part: str, depth: int, expansion: int, T: int) -> Case:
        memory = {"depth": depth, "expansion": expansion, "T": T}
        case = {"part": part, "side": "ours", "backend": _backend(depth, s), **memory}
        build = memory_operator if part == "operator" else memory_layer
        return case, lambda: share(case, throughput(lambda: build(**memory, s=s), s), s)

    def streamed(part: str, run: Callable[[int, Shapes], dict[str, Any]], T: int) -> Case:
        return {"part": part, "side": "ours", "backend": _backend(2, s), "T": T}, lambda: run(T, s)

    def peer(part: str, side: str, build: Callable[[int, Shapes], Callable[[], Tensor]]) -> list[Case]:
        return [({"part": part, "side": side, "T": T}, lambda T=T: throughput(lambda: build(T, s), s)) for T in lengths]

    def all_of(T: int, memories: list[tuple[int, int]]) -> list[Case]:
        return [ours(part, *memory, T) for memory in memories for part in ("layer", "operator")]

    first = all_of(lengths[0], s.memories[:4])
    first += [streamed("decoding", decoding, T) for T in s.long[:3]]
    first += [streamed("one sequence", long_sequence, T) for T in reversed(s.long)]
    rest = [case for T in reversed(lengths[1:]) for case in all_of(T, s.memories[:4])]
    rest += all_of(lengths[0], s.memories[4:])
    return {
        "first": first,
        "Gated DeltaNet": peer("layer", "Gated DeltaNet (fla)", gated_delta_layer),
        "rest": rest,
        "titans-pytorch": peer("layer", "titans-pytorch", peer_layer),
        "gated delta rule": peer("operator", "gated delta rule (fla)", gated_delta_operator),
        "attention": peer("operator", "attention (SDPA)", attention_operator),
        "Mamba2": peer("layer", "Mamba2 (fla)", mamba2_layer),
    }


def measure(step: Step, tokens: int, device: str) -> dict[str, float]:
    def seconds() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    seconds(), seconds()  # compiles, tunes and fills the caches
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    taken: list[float] = []
    while len(taken) < LEAST or (len(taken) < REPEATS and sum(taken) < SECONDS):
        taken.append(seconds())
    rates = sorted(tokens / t for t in taken)
    peak = torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else 0.0
    found = {"median": statistics.median(rates), "min": rates[0], "max": rates[-1], "peak_mb": round(peak, 1)}
    return {**found, "repeats": len(rates)}


def throughput(build: Callable[[], Callable[[], Tensor]], s: Shapes) -> dict[str, Any]:
    """Tokens/s forward and forward+backward; if backward fails, forward alone and the reason."""
    run = build()

    def forward() -> None:
        with torch.no_grad():
            run()

    found: dict[str, Any] = {"forward": measure(forward, s.tokens, s.device)}
    try:
        found["forward+backward"] = measure(lambda: run().sum().backward(), s.tokens, s.device)
    except Exception as error:
        found["unavailable"] = _reason(error)
    return found


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:200]


def share(case: dict[str, Any], found: dict[str, Any], s: Shapes) -> dict[str, Any]:
    """Add the operator's share of the device's peak FLOP/s."""
    peak = peak_flops(torch.device(s.device))
    if case["part"] == "operator" and peak:
        work = s.heads * memory_flops(_widths(case["depth"], case["expansion"], s), s.chunk)
        found["share_of_peak"] = {
            mode: found[mode]["median"] * factor * work / peak
            for mode, factor in (("forward", 1), ("forward+backward", 3))
            if mode in found
        }
    return found


def long_sequence(T: int, s: Shapes) -> dict[str, Any]:
    """Tokens/s of one sequence without gradients, streamed in calls of at most ``s.tokens`` tokens."""
    layer = _layer(2, 2, s)
    part = s.randn(1, min(T, s.tokens), s.heads * s.head)

    def step() -> None:
        state = None
        with torch.no_grad():
            for _ in range(T // part.shape[1]):
                _, state = layer(part, state)

    return {"forward": measure(step, T, s.device)}


def decoding(T: int, s: Shapes) -> dict[str, Any]:
    """Tokens/s of single steps after a context of T tokens, and the size of the state in bytes."""
    layer = _layer(2, 2, s)
    with torch.no_grad():
        _, state = layer(s.randn(1, T, s.heads * s.head))
        token = s.randn(1, 1, s.heads * s.head)
        found = measure(lambda: layer(token, state), 1, s.device)
    return {"step": found, "state_bytes": sum(x.nbytes for x in tensors(state))}


def run(cases: list[Case], s: Shapes, end: float) -> None:
    """Measure the cases that are not recorded yet, while there is time."""
    there = _recorded(finished=True)
    for case, found in cases:
        if not s.smoke and _key(case, s) in there:
            continue
        if time.monotonic() > end:
            return
        torch.manual_seed(0)
        try:
            row = {"case": case, **found()}
        except Exception as error:  # peers and compilers raise errors of many types
            row = {"case": case, "unavailable": _reason(error)}
        record(row, s)
        if s.device == "cuda":
            gc.collect()  # garbage in reference cycles would count in the next case's peak
            torch.cuda.synchronize()  # raises if a kernel broke the CUDA context: nothing would run any more
            torch.cuda.empty_cache()


def run_apart(name: str, cases: list[Case], s: Shapes, end: float) -> None:
    """Measure a group in its own process, and record the cases that it did not reach."""
    left = end - time.monotonic()
    if name not in ("first", "rest"):
        left = min(left, PEER_SECONDS)
    reason = "out of time"
    if left > 0:
        command = [sys.executable, __file__, "--group", name, "--minutes", str((left - 5) / 60)]
        try:
            code = subprocess.run(command, timeout=left, check=False).returncode
            reason = f"its process ended with {code}" if code else reason
        except subprocess.TimeoutExpired:
            pass
    tried = _recorded(finished=False)
    for case, _ in cases:
        if _key(case, s) not in tried:
            record({"case": case, "unavailable": reason}, s)


def record(row: dict[str, Any], s: Shapes) -> None:
    print(row, flush=True)
    if not s.smoke:
        append(FILE, {**row, "device": s.name, "dtype": str(s.dtype), "seed": 0})


def _key(case: dict[str, Any], s: Shapes) -> tuple[Any, ...]:
    return case, s.name, COMMIT


def _recorded(finished: bool) -> list[tuple[Any, ...]]:
    """Keys of the recorded rows: of all, or of those that need not be tried again."""
    rows = [row for row in read(FILE) if not (finished and "unavailable" in row)]
    return [(row["case"], row["device"], row["commit"]) for row in rows]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=6, help="start no new case after this time")
    parser.add_argument(
        "--smoke", action="store_true", help="run tiny shapes on any device; print rows without recording them"
    )
    parser.add_argument("--warm", action="store_true", help="only compile fla's kernels")
    parser.add_argument("--group", help="measure one group, in this process")
    args = parser.parse_args(arguments)
    s = Shapes(args.smoke)
    if s.device == "cpu" and not args.smoke:
        parser.error("there is no CUDA device; --smoke runs tiny shapes without one.")
    end = time.monotonic() + 60 * args.minutes
    if args.warm:
        for build in (gated_delta_layer, gated_delta_operator):
            build(8192, s)().sum().backward()
        return
    for name, cases in groups(s).items():
        if args.smoke or name == args.group:
            run(cases, s, end)
        elif not args.group:
            run_apart(name, cases, s, end)


if __name__ == "__main__":
    main()
