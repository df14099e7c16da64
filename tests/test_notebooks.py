"""The notebooks run from their first cell to their last, in their short mode."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks_and_none_holds_outputs_or_a_path_of_somebodys_machine():
    assert {p.stem for p in NOTEBOOKS} >= {"forecasting_quickstart", "hyperparameter_sweep"}
    for path in NOTEBOOKS:
        book = nbformat.read(path, as_version=4)
        assert all(not c.get("outputs") for c in book.cells)
        assert not re.search(r"/(home|root|Users|work)/", path.read_text())


@pytest.mark.timeout(240)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs_and_shows_pictures(path, real_data, monkeypatch, tmp_path):
    monkeypatch.setenv("TITANS_SHORT", "1")
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [o for c in book.cells for o in c.get("outputs", ()) if "image/png" in o.get("data", {})]
    assert len(shown) >= 2
    assert not [o for c in book.cells for o in c.get("outputs", ()) if o.output_type == "error"]
