"""The kernels compile for Hopper without a GPU: they fit its shared memory and use its matrix units."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

from titans_core.ops.memory.triton.launch import CHOICES, HOPPER

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"

SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from memory_kernels import compiled, kernel_of

cell = json.loads(sys.argv[2])
counts = {"N", "P", "CROWD"}
special = [p.name for p in kernel_of(*cell[:3]).params if p.name in counts and not p.do_not_specialize]
print(json.dumps({**compiled(tuple(cell)), "special": special}))
"""

# a linear memory forgets towards a start by the same kernels
START = "deep, forgetting to its start"
SHAPES = [("bfloat16", 64, 64), ("float32", 64, 64), ("bfloat16", 128, 64)]
KINDS = [(memory, *shape, CHOICES[-1]) for memory in ("linear", "deep") for shape in SHAPES]
KINDS += [(START, "float32", 64, 64, CHOICES[-1])]
# the widest tiles, by the choice that takes most of them
WIDEST = [("linear", "float32"), ("deep", "bfloat16"), (START, "float32")]
KINDS += [(*kind, 128, 128, CHOICES[0]) for kind in WIDEST]


@pytest.mark.parametrize(("memory", "tokens", "width", "chunk", "choice"), KINDS)
@pytest.mark.parametrize("part", ["store", "read"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_kernel_fits_hopper_and_uses_its_matrix_units(direction, part, memory, tokens, width, chunk, choice):
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    cell = json.dumps([direction, part, memory, tokens, width, chunk, *choice])
    command = [sys.executable, "-c", SCRIPT, str(BENCHMARKS), cell]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["shared_bytes"] <= HOPPER
    assert found["matrix_units"]
    assert not found["special"]  # one kernel for any number of pieces and memories
