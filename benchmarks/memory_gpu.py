"""Speed and peak memory of the neural memory on a CUDA device, beside what people use there instead.

    python benchmarks/memory_gpu.py [--minutes 6] [--smoke]

Three parts, at d_model 1024, 16 heads of 64, chunks of 64, bfloat16 tokens:

- the operator and the layer, depth 1 to 4 and expansion 1, 2 and 4, T from 2K to 64K at 64K tokens a step, beside
  fla's gated delta rule (operator and layer, as far as installed), causal attention (PyTorch's SDPA) and
  titans-pytorch's default layer: the form of the paper's Figures 8 and 9;
- one sequence of 2K to 1M tokens, read without gradients: tokens/s should stay flat;
- one token at a time, after contexts of different length: time and state should stay constant.

A row is the median, fastest and slowest of ``REPEATS`` runs after a warm-up, in tokens/s, with the peak of allocated
memory. What is not installed, does not fit or does not run is recorded with the reason, and tried again on a second
run, which skips finished rows; ``--minutes`` ends the run in time. ``--smoke`` runs tiny shapes on any device and
records nothing.
"""

import argparse
import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from records import RESULTS, append, read
from torch import Tensor

from titans_core import NeuralMemory, neural_memory
from titans_core.models.state import tensors
from titans_core.train.flops import memory_flops, peak_flops

FILE = RESULTS / "memory_gpu.jsonl"
REPEATS = 7
HEADS, HEAD, CHUNK, TOKENS = 16, 64, 64, 65536

Step = Callable[[], Any]


class Shapes:
    """Sizes of the full run, or tiny ones."""

    def __init__(self, smoke: bool) -> None:
        self.smoke = smoke
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.heads, self.head, self.chunk, self.tokens = (2, 16, 16, 64) if smoke else (HEADS, HEAD, CHUNK, TOKENS)
        self.lengths = [32, 64] if smoke else [2048, 4096, 8192, 16384, 32768, 65536]
        self.long = [64, 128] if smoke else [2**i for i in range(11, 21, 3)]
        self.memories = [(2, 4), (2, 2), (2, 1), (1, 1), (3, 4), (4, 4)]  # depth, expansion
        self.dtype = torch.float32 if self.device == "cpu" else torch.bfloat16

    def randn(self, *shape: int) -> Tensor:
        return torch.randn(shape, device=self.device, dtype=self.dtype, requires_grad=True)


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
    return lambda: neural_memory(q, k, v, alpha, eta, theta, tuple(weights), chunk_size=s.chunk)[0]


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
    layer = NeuralMemory(s.heads * s.head, s.heads, depth, expansion, s.chunk).to(s.device, s.dtype)
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


def cases(s: Shapes) -> Iterator[tuple[dict[str, Any], Callable[[], Callable[[], Tensor]]]]:
    """What is measured, by name, and what builds it; the most telling lengths and depths first."""
    order = sorted(s.lengths, key=lambda T: (T != 8192, T))
    for T in order:
        for depth, expansion in s.memories[:4] if order[0] != T else s.memories:
            memory = {"depth": depth, "expansion": expansion, "T": T}
            for part, build in (("operator", memory_operator), ("layer", memory_layer)):
                yield {"part": part, "side": "ours", **memory}, lambda b=build, m=memory: b(**m, s=s)  # type: ignore[misc]
        for part, side, peer in (
            ("operator", "gated delta rule (fla)", gated_delta_operator),
            ("operator", "attention (SDPA)", attention_operator),
            ("layer", "Gated DeltaNet (fla)", gated_delta_layer),
            ("layer", "Mamba2 (fla)", mamba2_layer),
            ("layer", "titans-pytorch", peer_layer),
        ):
            yield {"part": part, "side": side, "T": T}, lambda p=peer, t=T: p(t, s)  # type: ignore[misc]


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
    rates = sorted(tokens / seconds() for _ in range(REPEATS))
    peak = torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else 0.0
    return {"median": statistics.median(rates), "min": rates[0], "max": rates[-1], "peak_mb": round(peak, 1)}


def throughput(build: Callable[[], Callable[[], Tensor]], s: Shapes) -> dict[str, Any]:
    """Tokens/s forward and forward+backward."""
    run = build()

    def forward() -> None:
        with torch.no_grad():
            run()

    found: dict[str, Any] = {"forward": measure(forward, s.tokens, s.device)}
    found["forward+backward"] = measure(lambda: run().sum().backward(), s.tokens, s.device)
    return found


def long_sequence(T: int, s: Shapes) -> dict[str, Any]:
    """Tokens/s of one sequence without gradients, streamed in calls of at most ``s.tokens`` tokens."""
    layer = NeuralMemory(s.heads * s.head, s.heads, 2, 2, s.chunk).to(s.device, s.dtype)
    part = s.randn(1, min(T, s.tokens), s.heads * s.head)

    def step() -> None:
        state = None
        with torch.no_grad():
            for _ in range(T // part.shape[1]):
                _, state = layer(part, state)

    return {"forward": measure(step, T, s.device)}


def decoding(T: int, s: Shapes) -> dict[str, Any]:
    """Tokens/s one at a time after a context of T tokens, and bytes of state."""
    layer = NeuralMemory(s.heads * s.head, s.heads, 2, 2, s.chunk).to(s.device, s.dtype)
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
    done = [row["case"] for row in read(FILE) if "unavailable" not in row]
    peak = peak_flops(torch.device(s.device))

    def record(case: dict[str, Any], found: Callable[[], dict[str, Any]]) -> None:
        if case in done and not args.smoke:
            return
        if time.monotonic() > end:
            print(f"out of time before {case}", flush=True)
            return
        torch.manual_seed(0)
        try:
            row = {"case": case, **found()}
        except Exception as error:  # of a peer or of the compiler, which have errors of their own
            row = {"case": case, "unavailable": f"{type(error).__name__}: {error}".partition("\n")[0][:200]}
        print(row, flush=True)
        if not args.smoke:
            append(FILE, {**row, "device": device, "dtype": str(s.dtype), "seed": 0, "repeats": REPEATS})
        gc.collect()  # what stands in a cycle would be part of the next case's peak
        if s.device == "cuda":
            torch.cuda.synchronize()  # raises where a kernel broke the device for good: nothing here would run any more
            torch.cuda.empty_cache()

    def share(case: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
        """Adds the share of the device's arithmetic that the operator reached."""
        if case["part"] == "operator" and case["side"] == "ours" and peak:
            work = s.heads * memory_flops(_widths(case["depth"], case["expansion"], s), s.chunk)
            found["share_of_peak"] = {
                "forward": found["forward"]["median"] * work / peak,
                "forward+backward": found["forward+backward"]["median"] * 3 * work / peak,
            }
        return found

    for case, build in cases(s):
        record(case, lambda case=case, build=build: share(case, throughput(build, s)))  # type: ignore[misc]
    for T in s.long:
        record({"part": "one sequence", "side": "ours", "T": T}, lambda T=T: long_sequence(T, s))  # type: ignore[misc]
    for T in s.long[:3]:
        record({"part": "decoding", "side": "ours", "T": T}, lambda T=T: decoding(T, s))  # type: ignore[misc]


if __name__ == "__main__":
    main()
