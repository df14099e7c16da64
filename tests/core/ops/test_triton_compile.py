"""The kernels compile for Hopper without a GPU: they fit its shared memory and use its matrix units."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

SHARED_MEMORY = 227 * 1024

SCRIPT = """
import json, sys
from triton import compile, next_power_of_2
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from titans_core.ops.memory.triton import backward, forward
from titans_core.ops.memory.triton.launch import CHOICES

def compiled(tuned, bf16, base, K, H, C):
    kernel, (block, warps) = tuned.fn, CHOICES[-1]
    constants = {"K": K, "V": K, "H": H, "n": 2, "BLOCK_C": max(16, next_power_of_2(C)), "BLOCK": block,
                 "ACTIVATION": "silu", "BF16": bf16}
    constants |= {} if base else {"B1": None, "B2": None}
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    tokens = "*bf16" if bf16 else "*fp32"
    types = {"q_": tokens, "k_": tokens, "v_": tokens, "N": "i32", "P": "i32", "C": "i32", "CROWD": "i32"}
    signature = {name: "constexpr" if name in constants else types.get(name, "*fp32") for name in kernel.arg_names}
    # torch aligns what it allocates
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names) if signature[name][0] == "*"}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    return compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps, "num_stages": 1})

modules = {"forward": forward, "backward": backward}
module, name, *rest = json.loads(sys.argv[1])
kernel = compiled(getattr(modules[module], name), *rest)
counts = {"N", "P", "CROWD"}
special = [p.name for p in getattr(modules[module], name).fn.params if p.name in counts and not p.do_not_specialize]
print(json.dumps({"shared": kernel.metadata.shared, "matrix": "wgmma" in kernel.asm["ptx"], "special": special}))
"""

KERNELS = [(module, f"_{part}_") for module in ("forward", "backward") for part in ("store", "read")]
# bf16, width, chunk
SHAPES = [(True, 64, 64), (False, 64, 64), (True, 128, 64)]
# a linear memory forgets towards a start by the same kernels; of the deep one's, the least that float32 has room for
KINDS = [(depth, False, *shape) for depth in ("linear", "deep") for shape in SHAPES] + [("deep", True, False, 64, 64)]


@pytest.mark.parametrize(("depth", "base", "bf16", "K", "C"), KINDS)
@pytest.mark.parametrize(("module", "name"), KERNELS)
def test_a_kernel_fits_hopper_and_uses_its_matrix_units(module, name, depth, base, bf16, K, C):
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    arguments = json.dumps([module, name + depth, bf16, base, K, 4 * K, C])
    run = subprocess.run([sys.executable, "-c", SCRIPT, arguments], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["shared"] <= SHARED_MEMORY
    assert found["matrix"]
    assert not found["special"]  # one kernel for any number of pieces and memories
