"""The README and the pages of docs/ are correct: examples, links and tables."""

import ast
import gzip
import importlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
LINKS = [(page, link) for page in PAGES for link in re.findall(r"\]\((?!http)([^)]+)\)", page.read_text())]
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.slow
def test_the_tables_are_those_of_the_result_files() -> None:
    check = [sys.executable, str(ROOT / "benchmarks" / "tables.py"), "--check"]
    run = subprocess.run(check, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("block", BLOCKS)
def test_the_imports_of_the_examples_exist(block: str) -> None:
    imports = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.ImportFrom)]
    assert imports
    for node in imports:
        for name in node.names:
            assert hasattr(importlib.import_module(str(node.module)), name.name)


def test_the_memory_example_works_as_described() -> None:
    import torch

    block = next(b for b in BLOCKS if "NeuralMemory" in b)
    names: dict[str, torch.Tensor] = {}
    exec(block, names)
    torch.testing.assert_close(torch.cat((names["y1"], names["y2"]), dim=1), names["y"], rtol=1e-4, atol=1e-5)
    assert names["recalled"].shape == (1, 5, 64)


def test_the_command_that_prepares_text_takes_a_few_novels(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "language_models.md").read_text()
    arguments = re.search(r"^python (-m titans_core\.train\.prepare .*)$", text, re.MULTILINE)
    assert arguments
    novels = "".join(json.dumps({"text": f"{i} " + 100 * "It was the best of times.\n"}) + "\n" for i in range(15))
    (tmp_path / "books.jsonl.gz").write_bytes(gzip.compress(novels.encode()))
    subprocess.run([sys.executable, *shlex.split(arguments[1])], cwd=tmp_path, capture_output=True, check=True)
    assert (tmp_path / "tokens" / "val.bin").stat().st_size > 0


@pytest.mark.parametrize(("page", "link"), LINKS)
def test_links_lead_somewhere(page: Path, link: str) -> None:
    path, _, section = link.partition("#")
    target = page.parent / path if path else page
    assert target.exists()
    if section:
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
        assert section in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_examples_of_the_guide_of_language_models_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "language_models.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        if "huggingface" not in block:  # needs the model of an earlier command
            exec(block.replace("* 100", "* 5").replace("max_new_tokens=20", "max_new_tokens=2"), names)
    assert names["state"].tokens == names["book"].shape[1] + names["question"].shape[1]
    assert len(names["sample"].answers) == 1
