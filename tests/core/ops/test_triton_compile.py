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
from memory_kernels import compiled
from titans_core.ops.memory.triton import backward, forward

cell = json.loads(sys.argv[2])
module, kernel = {"forward": forward, "backward": backward}[cell[0]], f"_{cell[1]}_{cell[2].partition(',')[0]}"
counts = {"N", "P", "CROWD"}
special = [p.name for p in getattr(module, kernel).fn.params if p.name in counts and not p.do_not_specialize]
print(json.dumps({**compiled(tuple(cell)), "special": special}))
"""

# the widest that float32 tokens and long chunks ask for, and what is most used
KINDS = [
    ("linear", "bfloat16", 64, 64),
    ("linear", "float32", 128, 128),
    ("deep", "bfloat16", 64, 64),
    ("deep", "bfloat16", 128, 128),
    ("deep", "float32", 64, 64),
    ("deep, forgetting to its start", "float32", 128, 128),
]


@pytest.mark.parametrize(("memory", "tokens", "width", "chunk"), KINDS)
@pytest.mark.parametrize("part", ["store", "read"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_kernel_fits_hopper_and_uses_its_matrix_units(direction, part, memory, tokens, width, chunk):
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    cell = json.dumps([direction, part, memory, tokens, width, chunk, *CHOICES[1]])
    command = [sys.executable, "-c", SCRIPT, str(BENCHMARKS), cell]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["shared_bytes"] <= HOPPER
    assert found["matrix_units"]
    assert not found["special"]  # one kernel for any number of pieces and memories
