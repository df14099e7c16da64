"""Which GPUs run the kernels: what a shape needs of shared memory, and what a device has."""

import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

from titans_core.ops.memory import dispatch
from titans_core.ops.memory.triton import room

COMPILED = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "memory_kernels.jsonl"
KERNELS = {("forward", "store"), ("forward", "read"), *(("backward", part) for part in ("read", "flow", "write"))}
# compute capability, bytes of shared memory, multiprocessors
H100, A100, RTX_4090, T4 = (9, 232_448, 132), (8, 166_912, 108), (8, 101_376, 128), (7, 65_536, 40)
SLICE_OF_AN_A100 = (8, 166_912, 14)


def test_the_table_is_what_the_compiler_says():
    """The largest kernel by its smallest choice, on the target that needs most."""
    smallest = {}
    for row in map(json.loads, COMPILED.read_text().splitlines()):
        layers = 1 if row["memory"] == "linear" else 2
        shape = (layers, row["tokens"] == "bfloat16", row["width"], row["chunk"])
        kernel = (*shape, row["target"], row["pass"], row["kernel"])
        smallest[kernel] = min(row["shared_bytes"], smallest.get(kernel, math.inf))
    assert {kernel[-2:] for kernel in smallest} == KERNELS
    found = {}
    for (*shape, _, _, _), amount in smallest.items():
        found[tuple(shape)] = max(math.ceil(amount / 1024), found.get(tuple(shape), 0))
    table = {
        (*kind, width, chunk): amount
        for kind, of_width in room.KILOBYTES.items()
        for width, amounts in of_width.items()
        for chunk, amount in zip(room.CHUNKS, amounts, strict=True)
    }
    assert found == table


@pytest.mark.parametrize(
    ("device", "layers", "dtype", "width", "chunk_size", "reason"),
    [
        (H100, 2, torch.float32, 128, 128, None),
        (A100, 2, torch.float32, 128, 128, None),
        (A100, 2, torch.bfloat16, 128, 128, None),
        (RTX_4090, 2, torch.bfloat16, 128, 64, None),
        (RTX_4090, 2, torch.bfloat16, 48, 100, "width 48 need 112 KB of shared memory, and this device has 99"),
        (RTX_4090, 2, torch.bfloat16, 48, 64, None),
        (RTX_4090, 1, torch.bfloat16, 64, 128, None),
        (RTX_4090, 1, torch.bfloat16, 128, 128, "need 128 KB"),
        (RTX_4090, 1, torch.float32, 128, 128, "has 99; smaller chunks need less"),
        (
            SLICE_OF_AN_A100,
            2,
            torch.bfloat16,
            128,
            16,
            "512 is stored by 16 programs at once, and this device has 14 proc",
        ),
        (SLICE_OF_AN_A100, 2, torch.bfloat16, 64, 16, None),
        (T4, 1, torch.bfloat16, 16, 16, r"compute capability 8.0 \(Ampere\) or newer"),
    ],
)
def test_a_device_runs_what_fits_it(monkeypatch, device, layers, dtype, width, chunk_size, reason):
    monkeypatch.setattr(room, "_device", lambda _: device)
    q = SimpleNamespace(is_cuda=True, device=torch.device("cuda"), dtype=dtype)
    sizes = [width] * 2 if layers == 1 else [width, 4 * width, width]
    weights = [torch.empty(1, a, b) for a, b in itertools.pairwise(sizes)]
    if reason is None:
        assert dispatch.resolve_backend("triton", q, weights, chunk_size) == "triton"
    else:
        with pytest.raises(ValueError, match=f"backend='triton' cannot run here: .*{reason}"):
            dispatch.resolve_backend("triton", q, weights, chunk_size)


def test_rocm_is_refused(monkeypatch):
    properties = SimpleNamespace(major=9, shared_memory_per_block=65_536, multi_processor_count=104)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.version, "hip", "6.2")
    assert "NVIDIA GPU" in room.lacking(torch.device("cuda"), 1, True, 16, 16)
