"""Shared by all tests: one thread, subprocesses, and the real data sets if available."""

import gc
import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

os.environ.setdefault("OMP_NUM_THREADS", "1")
gc.set_threshold(20_000, 20, 100)  # by default, a tenth of the time goes into searching imported modules for garbage
importlib.metadata.entry_points = cache(importlib.metadata.entry_points)  # Lightning asks all packages in each fit
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


MEGABYTES = """
import re
from pathlib import Path

def megabytes(key):
    return int(re.search(rf"{key}:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
"""


@pytest.fixture
def measured() -> Callable[..., list[float]]:
    """Runs a script in a process of its own and reads the numbers that it prints.

    ``megabytes("VmHWM")`` is at its hand: the most that the process held. (What ``getrusage`` calls the most starts
    with what its parent held.)
    """
    if sys.platform != "linux":
        pytest.skip("the resident set is read from /proc")

    def run(script: str, *arguments: str) -> list[float]:
        command = [sys.executable, "-W", "ignore", "-c", MEGABYTES + script, *arguments]
        return list(map(float, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()))

    return run
