"""Compile the GPU kernels ahead of time, without a GPU: how much shared memory does each shape need?

    python benchmarks/memory_kernels.py [--targets sm_90]

For each kernel and each choice of slices, warps and stages (the first call on a GPU chooses one): bytes of shared
memory, registers per thread, spilled bytes, and whether the matrix units are used. For Hopper (sm_90), chunks of 64 and
of 128, the largest, for which at least the last choice fits. For Ampere (sm_80), which has less shared memory, also
shorter chunks, and only the last choice, which needs least or little more. Ada and consumer Blackwell run code of the
same kind as Ampere. Speed must be measured on a GPU (``run_gpu.sh``). Finished cells of the same Triton version are
skipped.
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
FIELDS = ("target", "pass", "kernel", "memory", "tokens", "width", "chunk", "slice", "warps", "stages", "triton")
KERNELS = (("forward", "store"), ("forward", "read"), ("backward", "read"), ("backward", "flow"), ("backward", "write"))
LINEAR, DEEP, DEEP_WITH_START = MEMORIES = ("linear", "deep", "deep, forgetting to its start")
TOKENS = ("bfloat16", "float32")
WIDTHS, CHUNKS = (32, 64, 128), (64, 128)
SHORTER = (16, 32)  # chunks, for Ampere only
HOPPER, AMPERE = TARGETS = ("sm_90", "sm_80")
# arguments of the kernels that are as precise as the tokens
AS_TOKENS = (
    *("q_", "k_", "v_", "y_", "dy_", "dq_", "dv_", "delta_", "seen_", "parts", "ddelta1_", "ddelta1_read"),
    *("dX2_", "dX2_read", "dz_", *(name + layer for layer in ("", "1", "2") for name in ("WS", "A", "dWS"))),
    *("dWS_read", "dWS1_read", "dWS2_read"),
)
EXPANSION = 4  # hidden layers are processed in slices, so a narrower one does not need less


def tuner_of(direction: str, part: str, memory: str) -> Any:
    """The autotuner of a kernel."""
    from titans_core.ops.memory.triton import forward, read_backward, store_backward

    module = forward if direction == "forward" else read_backward if part == "read" else store_backward
    return getattr(module, f"_{part}_{'linear' if memory == LINEAR else 'deep'}")


def kernel_of(direction: str, part: str, memory: str) -> Any:
    """The decorated kernel without the autotuner."""
    return tuner_of(direction, part, memory).fn


def compiled(key: tuple[Any, ...]) -> dict[str, Any]:
    """Compile a cell, a key of :data:`FIELDS` with or without the last, without running it.

    Triton's interpreter must be off in this process.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from titans_core.ops.memory.triton.launch import without_wgmma
    from titans_core.ops.memory.triton.widths import tile_size

    target, direction, part, memory, tokens, width, chunk, block, warps, stages, *_ = key
    kernel = kernel_of(direction, part, memory)
    constants = {
        "K": width,
        "V": width,
        "H": EXPANSION * width,
        "n": 2,
        "BLOCK_C": tile_size(chunk),
        "BLOCK": block,
        "ACTIVATION": "silu",
        "BF16": tokens == "bfloat16",
        "TURN": 0,
        **({"m": 3} if memory == DEEP_WITH_START else {"m": 2, "B1": None, "B2": None}),
    }
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    types = {"arrived": "*i32", **dict.fromkeys(("N", "P", "C", "CROWD", "HEADS", "LENGTH"), "i32")}
    if "first" in kernel.arg_names:
        types |= {"first": "i32", "last": "i32"}  # without a first, "last" is a tensor
    if tokens == "bfloat16":
        types |= dict.fromkeys(AS_TOKENS, "*bf16")
        types |= {"dk_": "*bf16"} if part == "write" else {}  # a part of it is float32 before
    signature = {name: "constexpr" if name in constants else types.get(name, "*fp32") for name in kernel.arg_names}
    # torch aligns its allocations
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names) if signature[name][0] == "*"}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    begin = time.perf_counter()
    gpu = GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
    with without_wgmma():
        found = triton.compile(source, target=gpu, options={"num_warps": warps, "num_stages": stages})
    seconds = time.perf_counter() - begin
    return {
        "shared_bytes": found.metadata.shared,
        "acquires": ".acquire" in found.asm["ptx"],  # what other programs left
        "matrix_units": "mma.sync" in found.asm["ptx"] and "wgmma" not in found.asm["ptx"],
        **_registers(found.asm["cubin"]),
        "compile_seconds": round(seconds, 1),
    }


def _registers(cubin: bytes) -> dict[str, int]:
    """Registers per thread, and spilled bytes."""
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return {
        name: int(re.search(rf"\b{word}:(\d+)", usage)[1])  # type: ignore[index]
        for name, word in (("registers", "REG"), ("spilled_bytes", "STACK"))
    }


def choices(direction: str, part: str, memory: str, tokens: str, width: int, chunk: int) -> list[tuple[int, int, int]]:
    """The choices of slices, warps and stages among which the first call on a GPU chooses.

    Triton's interpreter must be off in this process.
    """
    from titans_core.ops.memory.triton.launch import choices_of

    given = {"K": width, "V": width, "H": width if memory == LINEAR else EXPANSION * width}
    given |= {"BF16": tokens == "bfloat16", "BLOCK_C": chunk}
    tuner = tuner_of(direction, part, memory)
    return choices_of(tuner.early_config_prune(tuner.configs, given))


def cells(target: str) -> list[tuple[Any, ...]]:
    import triton

    memories, chunks = (MEMORIES, CHUNKS) if target == HOPPER else ((LINEAR, DEEP), (*SHORTER, *CHUNKS))
    return [
        (target, *kind, *choice, triton.__version__)
        for tokens in TOKENS
        for memory in memories
        for width in WIDTHS
        for chunk in chunks
        for direction, part in KERNELS
        for kind in [(direction, part, memory, tokens, width, chunk)]
        for choice in choices(*kind)[0 if target == HOPPER else -1 :]
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=TARGETS)
    os.environ.pop("TRITON_INTERPRET", None)
    with tempfile.TemporaryDirectory() as cache:  # what was compiled before would take no time
        os.environ["TRITON_CACHE_DIR"] = cache
        for target in parser.parse_args().targets:
            work(FILE, cells(target), FIELDS, compiled)
