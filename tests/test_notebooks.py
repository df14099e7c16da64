"""The notebooks run completely in their short mode."""

import os
import re
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import nbformat
import pytest
from jupyter_client import KernelManager
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
# those that make their own data where the real is not at hand
DNA = {"dna_classification", "genome_pretraining"}


@pytest.fixture(scope="module")
def kernel(real_data, tmp_path_factory):
    """One kernel for all notebooks, in an empty folder: it imports everything once, which takes most of the time."""
    manager = KernelManager(kernel_name="python3")
    folder = tmp_path_factory.mktemp("beside")
    manager.start_kernel(cwd=str(folder), env={**os.environ, "TITANS_SHORT": "1"})
    yield manager, folder
    manager.shutdown_kernel(now=True)


def run(path, manager):
    """The outputs of all cells; none is an error."""
    book = nbformat.read(path, as_version=4)
    book.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))  # no names of the notebook before
    NotebookClient(book, timeout=200, km=manager).execute()
    outputs = [o for c in book.cells for o in c.get("outputs", ())]
    assert not [o for o in outputs if o.output_type == "error"]
    return outputs


def pictures(outputs):
    return [o for o in outputs if "image/png" in o.get("data", {})]


def test_notebook_outputs_match_their_source_and_contain_no_local_paths(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "benchmarks"))
    from run_notebooks import source

    assert {p.stem for p in NOTEBOOKS} == {
        "dna_classification",
        "forecasting_quickstart",
        "genome_pretraining",
        "hyperparameter_sweep",
    }
    for path in NOTEBOOKS:
        book = nbformat.read(path, as_version=4)
        assert book.metadata["titans"]["source"] == source(book), f"{path.name} was changed; run `make notebooks`"
        assert len(pictures(o for c in book.cells for o in c.get("outputs", ()))) >= 2
        assert not re.search(r"/(home|root|Users|work)/", path.read_text())


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs_and_shows_pictures(path, kernel):
    manager, folder = kernel
    assert len(pictures(run(path, manager))) >= 2
    assert not list(folder.iterdir())  # a notebook leaves nothing beside itself


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", sorted(DNA))
def test_a_dna_notebook_runs_on_generated_data_where_the_real_is_not_here(name, monkeypatch, tmp_path):
    monkeypatch.setenv("TITANS_SHORT", "1")
    monkeypatch.setenv("TITANS_DATA_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # where files fetched before would be found
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    plt.close("all")
    names = {}
    # in this process, which has imported most of it already; the test above runs it as a notebook
    for cell in nbformat.read(next(p for p in NOTEBOOKS if p.stem == name), as_version=4).cells:
        if cell.cell_type == "code":
            exec(cell.source, names)
    assert len(plt.get_fignums()) >= 2
    plt.close("all")
