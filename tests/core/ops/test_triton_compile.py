"""The kernels compile for Hopper and Ampere without a GPU: they fit the shared memory and use the matrix units."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

from titans_core.ops.memory.triton.room import kilobytes

HOPPER = 232_448  # bytes of shared memory of a block

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"

KERNELS = [("forward", "store"), ("forward", "read"), *(("backward", part) for part in ("read", "flow", "write"))]

# one process for all cells: most of a cell's time would be the imports
SCRIPT = """
import json, sys, traceback
sys.path.insert(0, sys.argv[1])
from memory_kernels import choices, compiled, kernel_of

counts = {"N", "P", "CROWD", "HEADS", "LENGTH", "first"}
for line in sys.stdin:
    cell = json.loads(line)
    try:
        params = kernel_of(*cell[1:4]).params
        numbers = counts | ({"last"} if any(p.name == "first" for p in params) else set())
        special = [p.name for p in params if p.name in numbers and not p.do_not_specialize]
        last = choices(*cell[1:])[-1]  # for the widest tiles the only one
        found = {**compiled((*cell, *last)), "special": special}
    except Exception:
        found = {"error": traceback.format_exc()}
    print(json.dumps({"cell": cell, **found}), flush=True)
"""

# a linear memory forgets towards a start by the same kernels
START = "deep, forgetting to its start"
KINDS = [
    ("linear", "bfloat16", 64, 64),
    ("linear", "float32", 128, 128),
    ("deep", "bfloat16", 128, 128),
    (START, "float32", 64, 64),
]


@pytest.fixture(scope="module")
def compiler():
    """Compiles a cell in a process without Triton's interpreter, which is the same for all cells."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", SCRIPT, str(BENCHMARKS)]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with subprocess.Popen(command, env=environment, **pipes) as process:

        def compile(cell):
            assert process.poll() is None, "the process ended at an earlier cell"
            process.stdin.write(json.dumps(cell) + "\n")
            process.stdin.flush()
            # before it comes what else was printed, and the answer to a test that ran out of time
            for line in process.stdout:
                if line.startswith('{"cell"') and (found := json.loads(line))["cell"] == cell:
                    return found
            raise AssertionError(f"the process ended with {process.wait()}")

        yield compile
        process.stdin.close()


@pytest.mark.parametrize(("memory", "tokens", "width", "chunk"), KINDS)
@pytest.mark.parametrize(("direction", "part"), KERNELS)
def test_a_kernel_fits_hopper_and_uses_its_matrix_units(compiler, direction, part, memory, tokens, width, chunk):
    found = compiler(["sm_90", direction, part, memory, tokens, width, chunk])
    assert "error" not in found, found["error"]
    assert found["shared_bytes"] <= HOPPER
    assert found["matrix_units"]
    assert found["acquires"] == (part in ("store", "flow") and memory != "linear")  # the compiler could leave it out
    assert not found["special"]  # one kernel for any number of pieces and memories


@pytest.mark.parametrize(("direction", "part"), KERNELS)
def test_a_kernel_compiles_for_ampere_and_needs_no_more_than_the_table_says(compiler, direction, part):
    found = compiler(["sm_80", direction, part, "deep", "bfloat16", 64, 64])
    assert "error" not in found, found["error"]
    assert found["shared_bytes"] <= 1024 * kilobytes(2, True, 64, 64)
    assert found["matrix_units"]
