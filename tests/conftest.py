"""Shared by all tests: one thread, and the real data sets where they are at hand."""

import os
from pathlib import Path

import pytest
import torch

os.environ.setdefault("OMP_NUM_THREADS", "1")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton: kernels then run on the CPU, in Python


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Two busy processes on two cores slow each other down; results do not depend on the number of threads."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real data sets: ``TITANS_DATA_HOME``, else ``../shared/data`` beside the checkout."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    home = Path(os.environ.get("TITANS_DATA_HOME", beside))
    if not (home / "ts").is_dir():
        pytest.skip(f"real data: no folder {home / 'ts'}; set TITANS_DATA_HOME")
    os.environ["TITANS_DATA_HOME"] = str(home)
    return home
