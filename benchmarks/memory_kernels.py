"""The GPU kernels, compiled ahead of time, which takes no GPU: how much shared memory each shape needs.

    python benchmarks/memory_kernels.py [--targets sm_90]

Targets are sm_90 (Hopper), and two with less shared memory: sm_80 (Ampere; Ada, sm_89, is compiled alike) and sm_120
(consumer Blackwell). For each kernel and each choice of slice and warps, among which the first call on a GPU decides:
bytes of shared memory, registers of a thread, bytes that spill out of them, and whether the matrix units are used. For
Hopper, chunks of 64 and 128, the largest, which all fit; for the others, chunks from 16 on and only the last choice,
which needs the least shared memory. How fast a kernel is, only a GPU can tell (``run_gpu.sh``). Finished cells are
skipped on a second run with the same Triton.
"""

import argparse
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from cells import work
from records import RESULTS

FILE = RESULTS / "memory_kernels.jsonl"
FIELDS = ("target", "pass", "kernel", "memory", "tokens", "width", "chunk", "slice", "warps", "triton")
PASSES, KERNELS = ("forward", "backward"), ("store", "read")
LINEAR, DEEP, DEEP_WITH_START = MEMORIES = ("linear", "deep", "deep, forgetting to its start")
TOKENS = ("bfloat16", "float32")
WIDTHS, CHUNKS = (32, 64, 128), (64, 128)
SHORTER = (16, 32)  # chunks, for targets with less shared memory
HOPPER, *SMALLER = TARGETS = ("sm_90", "sm_80", "sm_120")
EXPANSION = 4  # hidden layers are worked through in slices: a narrower one needs no less


def kernel_of(direction: str, part: str, memory: str) -> Any:
    """As it was decorated, without the search among choices."""
    from titans_core.ops.memory.triton import backward, forward

    module = {"forward": forward, "backward": backward}[direction]
    return getattr(module, f"_{part}_{'linear' if memory == LINEAR else 'deep'}").fn


def compiled(key: tuple[Any, ...]) -> dict[str, Any]:
    """Compile a cell of :data:`FIELDS`, with or without the last. Nothing is run. Not in a process with Triton's
    interpreter."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    target, direction, part, memory, tokens, width, chunk, block, warps, *_ = key
    kernel = kernel_of(direction, part, memory)
    constants = {
        "K": width,
        "V": width,
        "H": EXPANSION * width,
        "n": 2,
        "BLOCK_C": max(16, triton.next_power_of_2(chunk)),
        "BLOCK": block,
        "ACTIVATION": "silu",
        "BF16": tokens == "bfloat16",
        **({} if memory == DEEP_WITH_START else {"B1": None, "B2": None}),
    }
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    types = {name: "*bf16" if tokens == "bfloat16" else "*fp32" for name in ("q_", "k_", "v_")}
    types |= dict.fromkeys(("N", "P", "C", "CROWD"), "i32")
    signature = {name: "constexpr" if name in constants else types.get(name, "*fp32") for name in kernel.arg_names}
    # torch aligns what it allocates
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names) if signature[name][0] == "*"}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    begin = time.perf_counter()
    gpu = GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
    found = triton.compile(source, target=gpu, options={"num_warps": warps, "num_stages": 1})
    seconds = time.perf_counter() - begin
    return {
        "shared_bytes": found.metadata.shared,
        "matrix_units": ("wgmma" if target == HOPPER else "mma.sync") in found.asm["ptx"],
        **_registers(found.asm["cubin"]),
        "compile_seconds": round(seconds, 1),
    }


def _registers(cubin: bytes) -> dict[str, int]:
    """Of a thread; and what of them did not fit."""
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return {
        name: int(re.search(rf"\b{word}:(\d+)", said)[1])  # type: ignore[index]
        for name, word in (("registers", "REG"), ("spilled_bytes", "STACK"))
    }


def cells(target: str) -> list[tuple[Any, ...]]:
    import triton

    from titans_core.ops.memory.triton.launch import CHOICES

    smaller = target in SMALLER
    return [
        (target, direction, part, memory, tokens, width, chunk, *choice, triton.__version__)
        for tokens in TOKENS
        for memory in (MEMORIES[:2] if smaller else MEMORIES)
        for width in WIDTHS
        for chunk in ((*SHORTER, *CHUNKS) if smaller else CHUNKS)
        for direction in PASSES
        for part in KERNELS
        for choice in (CHOICES[-1:] if smaller else CHOICES)
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=TARGETS)
    os.environ.pop("TRITON_INTERPRET", None)
    for target in parser.parse_args().targets:
        work(FILE, cells(target), FIELDS, compiled)
