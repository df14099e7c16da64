"""Speed and peak memory of the neural memory on a CUDA device, beside what people use there instead.

    python benchmarks/memory_gpu.py [--minutes 6] [--smoke]

Three parts, at d_model 1024, 16 heads of 64, chunks of 64, bfloat16 tokens:

- the operator and the layer, depth 1 to 4 and expansion 1, 2 and 4, T from 2K to 64K at 64K tokens a step, beside
  fla's gated delta rule (operator and layer, as far as installed), causal attention (PyTorch's SDPA) and
  titans-pytorch's default layer: the form of the paper's Figures 8 and 9;
- one sequence of 2K to 1M tokens, read without gradients: tokens/s should stay flat;
- one token at a time, after contexts of different length: time and state should stay constant.

A row is the median, fastest and slowest of ``REPEATS`` runs after a warm-up (of fewer, but ``LEAST``, where those take
long), in tokens/s, with the peak of allocated memory; its case says which backend ran. What is not installed, does not
fit or does not run is recorded with the reason, and tried again on a second run, which skips what is finished on this
device at this commit; ``--minutes`` ends the run in time, which the rows that decide most come first for. ``--smoke``
runs tiny shapes on any device and records nothing.
"""

import argparse
import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from records import COMMIT, RESULTS, append, read
from torch import Tensor

from titans_core import NeuralMemory, neural_memory
from titans_core.models.state import tensors
from titans_core.train.flops import memory_flops, peak_flops

FILE = RESULTS / "memory_gpu.jsonl"
REPEATS, LEAST, ENOUGH = 7, 5, 2.0  # the last in seconds
HEADS, HEAD, CHUNK, TOKENS = 16, 64, 64, 65536
FLA, PEER = "Gated DeltaNet (fla)", "titans-pytorch"

Step = Callable[[], Any]


class Shapes:
    """Sizes of the full run, or tiny ones."""

    def __init__(self, smoke: bool) -> None:
        self.smoke = smoke
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.heads, self.head, self.chunk, self.tokens = (2, 16, 16, 64) if smoke else (HEADS, HEAD, CHUNK, TOKENS)
        self.lengths = [32, 64] if smoke else [2048, 4096, 8192, 16384, 32768, 65536]
        self.middle = self.lengths[len(self.lengths) // 3]
        self.long = [64, 128] if smoke else [2**i for i in range(11, 21, 3)]
        self.memories = [(2, 4), (2, 2), (2, 1), (1, 1), (3, 4), (4, 4)]  # depth, expansion
        self.dtype = torch.float32 if self.device == "cpu" else torch.bfloat16

    def randn(self, *shape: int) -> Tensor:
        return torch.randn(shape, device=self.device, dtype=self.dtype, requires_grad=True)


def _backend(depth: int, s: Shapes) -> str:
    """Named, so that no row is of another than it says."""
    return "triton" if depth <= 2 and s.device == "cuda" else "chunk"


def _widths(depth: int, expansion: int, s: Shapes) -> list[int]:
    return [s.head, *[s.head * expansion] * (depth - 1), s.head]


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
    return lambda: neural_memory(
        q, k, v, alpha, eta, theta, tuple(weights), chunk_size=s.chunk, backend=_backend(depth, s)
    )[0]


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


def our_layer(depth: int, expansion: int, s: Shapes) -> NeuralMemory:
    layer = NeuralMemory(s.heads * s.head, s.heads, depth, expansion, s.chunk, backend=_backend(depth, s))
    return layer.to(s.device, s.dtype)


def memory_layer(depth: int, expansion: int, T: int, s: Shapes) -> Callable[[], Tensor]:
    layer = our_layer(depth, expansion, s)
    x = s.randn(s.tokens // T, T, s.heads * s.head)
    return lambda: layer(x)[0]


def gated_delta_layer(T: int, s: Shapes) -> Callable[[], Tensor]:
    from fla.layers import GatedDeltaNet

    layer = GatedDeltaNet(hidden_size=s.heads * s.head, num_heads=s.heads, head_dim=s.head, expand_v=1)
    layer = layer.to(s.device, s.dtype)
    x = s.randn(s.tokens // T, T, s.heads * s.head)
    return lambda: layer(x)[0]


def mamba2_layer(T: int, s: Shapes) -> Callable[[], Tensor]:
    import mamba_ssm  # noqa: F401  without its kernels fla runs a slow stand-in
    from fla.layers import Mamba2

    layer = Mamba2(hidden_size=s.heads * s.head, num_heads=2 * s.heads, head_dim=s.head).to(s.device, s.dtype)
    x = s.randn(s.tokens // T, T, s.heads * s.head)
    return lambda: _first(layer(x))


def _first(found: Any) -> Tensor:
    return found[0] if isinstance(found, tuple) else found


def peer_layer(T: int, s: Shapes) -> Callable[[], Tensor]:
    from titans_pytorch import NeuralMemory as Peer

    layer = Peer(s.heads * s.head, dim_head=s.head, heads=s.heads, chunk_size=s.chunk).to(s.device, s.dtype)
    x = s.randn(s.tokens // T, T, s.heads * s.head)
    return lambda: layer(x)[0]


def cases(s: Shapes) -> list[tuple[dict[str, Any], Step]]:
    """What is measured, by name, and how; what tells most first."""
    return sorted(_cases(s), key=lambda named: _after(named[0], s))


def _after(case: dict[str, Any], s: Shapes) -> tuple[Any, ...]:
    """Its place: the layer beside Gated DeltaNet, one token at a time, a million tokens, titans-pytorch; the rest."""
    middle = case["T"] == s.middle
    first = (
        middle and case["part"] == "layer" and case.get("depth", 2) == 2 and case["side"] in ("ours", FLA),
        case["part"] == "decoding",
        case["part"] == "one sequence" and case["T"] == s.long[-1],
        middle and case["side"] == PEER,
    )
    return (first.index(True) if any(first) else len(first), not middle, case["T"])


def _cases(s: Shapes) -> Iterator[tuple[dict[str, Any], Step]]:
    for T in s.lengths:
        for depth, expansion in s.memories if s.middle == T else s.memories[:4]:
            memory = {"depth": depth, "expansion": expansion, "T": T}
            for part, build in (("operator", memory_operator), ("layer", memory_layer)):
                case = {"part": part, "side": "ours", "backend": _backend(depth, s), **memory}
                yield case, partial(_ours, case, partial(build, **memory, s=s), s)
        for part, side, peer in (
            ("operator", "gated delta rule (fla)", gated_delta_operator),
            ("operator", "attention (SDPA)", attention_operator),
            ("layer", FLA, gated_delta_layer),
            ("layer", "Mamba2 (fla)", mamba2_layer),
            ("layer", PEER, peer_layer),
        ):
            yield {"part": part, "side": side, "T": T}, partial(throughput, partial(peer, T, s), s)
    for T in s.long:
        yield {"part": "one sequence", "side": "ours", "backend": _backend(2, s), "T": T}, partial(long_sequence, T, s)
    for T in s.long[:3]:
        yield {"part": "decoding", "side": "ours", "backend": _backend(2, s), "T": T}, partial(decoding, T, s)


def measure(step: Step, tokens: int, device: str) -> dict[str, float]:
    def seconds() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    seconds(), seconds()  # compiles, tunes, fills the caches
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    taken = [seconds() for _ in range(LEAST)]
    while len(taken) < REPEATS and sum(taken) < ENOUGH:
        taken.append(seconds())
    rates = sorted(tokens / each for each in taken)
    peak = torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else 0.0
    return {
        "median": statistics.median(rates),
        "min": rates[0],
        "max": rates[-1],
        "repeats": len(rates),
        "peak_mb": round(peak, 1),
    }


def throughput(build: Callable[[], Callable[[], Tensor]], s: Shapes) -> dict[str, Any]:
    """Tokens/s forward and forward+backward."""
    run = build()

    def forward() -> None:
        with torch.no_grad():
            run()

    found: dict[str, Any] = {"forward": measure(forward, s.tokens, s.device)}
    try:
        found["forward+backward"] = measure(lambda: run().sum().backward(), s.tokens, s.device)
    except Exception as error:  # what was measured forward stays
        found["unavailable"] = _said(error)
    return found


def _ours(case: dict[str, Any], build: Callable[[], Callable[[], Tensor]], s: Shapes) -> dict[str, Any]:
    """As :func:`throughput`, and the share of the device's arithmetic that the operator reached."""
    found, peak = throughput(build, s), peak_flops(torch.device(s.device))
    if case["part"] == "operator" and peak:
        work = s.heads * memory_flops(_widths(case["depth"], case["expansion"], s), s.chunk)
        times = {"forward": 1, "forward+backward": 3}
        found["share_of_peak"] = {m: found[m]["median"] * n * work / peak for m, n in times.items() if m in found}
    return found


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:200]


def long_sequence(T: int, s: Shapes) -> dict[str, Any]:
    """Tokens/s of one sequence without gradients, streamed in calls of at most ``s.tokens`` tokens."""
    layer = our_layer(2, 2, s)
    part = s.randn(1, min(T, s.tokens), s.heads * s.head)

    def step() -> None:
        state = None
        with torch.no_grad():
            for _ in range(T // part.shape[1]):
                _, state = layer(part, state)

    return {"forward": measure(step, T, s.device)}


def decoding(T: int, s: Shapes) -> dict[str, Any]:
    """Tokens/s one at a time after a context of T tokens, and bytes of state."""
    layer = our_layer(2, 2, s)
    with torch.no_grad():
        _, state = layer(s.randn(1, T, s.heads * s.head))
        token = s.randn(1, 1, s.heads * s.head)
        found = measure(lambda: layer(token, state), 1, s.device)
    return {"step": found, "state_bytes": sum(x.nbytes for x in tensors(state))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=6, help="start nothing new after so many")
    parser.add_argument("--smoke", action="store_true", help="tiny shapes on any device; printed, not recorded")
    args = parser.parse_args()
    s = Shapes(args.smoke)
    if s.device == "cpu" and not args.smoke:
        parser.error("there is no CUDA device; --smoke runs tiny shapes without one.")
    torch.manual_seed(0)
    end = time.monotonic() + 60 * args.minutes
    device = torch.cuda.get_device_name() if s.device == "cuda" else "cpu"
    here = {"device": device, "commit": COMMIT}
    finished = [row["case"] for row in read(FILE) if "unavailable" not in row and row.items() >= here.items()]
    for case, measured in cases(s):
        if case in finished and not args.smoke:
            continue
        if time.monotonic() > end:
            print(f"out of time before {case}", flush=True)
            continue
        torch.manual_seed(0)
        try:
            row = {"case": case, **measured()}
        except Exception as error:  # of a peer or of the compiler, which have errors of their own
            row = {"case": case, "unavailable": _said(error)}
        print(row, flush=True)
        if not args.smoke:
            append(FILE, {**row, "device": device, "dtype": str(s.dtype), "seed": 0})
        gc.collect()  # what stands in a cycle would be part of the next case's peak
        if s.device == "cuda":
            torch.cuda.synchronize()  # raises where a kernel broke the device for good: nothing here would run any more
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
