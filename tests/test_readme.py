"""The README keeps its word."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_tables_are_those_of_the_result_files() -> None:
    check = [sys.executable, str(ROOT / "benchmarks" / "tables.py"), "--check"]
    run = subprocess.run(check, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("block", BLOCKS)
def test_what_the_examples_import_is_there(block: str) -> None:
    imports = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.ImportFrom)]
    assert imports
    for node in imports:
        for name in node.names:
            assert hasattr(importlib.import_module(str(node.module)), name.name)


def test_the_memory_example_does_what_it_says() -> None:
    import torch

    block = next(b for b in BLOCKS if "NeuralMemory" in b)
    names: dict[str, torch.Tensor] = {}
    exec(block, names)
    torch.testing.assert_close(torch.cat((names["y1"], names["y2"]), dim=1), names["y"], rtol=1e-4, atol=1e-5)
    assert names["recalled"].shape == (1, 5, 64)


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)#]+)\)", README))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
