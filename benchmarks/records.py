"""Result files: one JSON object per line, each with machine, versions, commit and date of the measurement."""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = (
    "torch", "triton", "numpy", "lightning", "titans-pytorch", "neuralforecast", "fla-core", "flash-linear-attention",
    "mamba-ssm",
)  # fmt: skip


def environment() -> dict[str, Any]:
    """Where a number comes from: commit, machine and versions."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "commit": COMMIT,
        "machine": f"{_cpu()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "versions": versions,
    }


def append(file: Path, row: dict[str, Any]) -> None:
    """Append a finished cell to the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    with file.open("a") as stream:
        stream.write(json.dumps({**row, "date": date, **environment()}) + "\n")


def read(file: Path) -> list[dict[str, Any]]:
    """All cells of a result file; none if the file does not exist.

    Raises:
        ValueError: a line is not valid JSON, as after a full disk.
    """
    rows = []
    for number, line in enumerate(file.read_text().splitlines() if file.exists() else [], 1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{file}, line {number} is not a complete row: delete it, and its cell runs again."
            ) from error
    return rows


def resident_mib(key: str) -> float:
    """Resident memory of this process in MiB, from Linux's /proc: now (``VmRSS``) or at its peak (``VmHWM``).

    (The peak of ``getrusage`` starts at the parent's resident memory.)
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) / 1024


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown CPU"


def _commit() -> str:
    def git(*args: str) -> str:
        return subprocess.run(["git", *args], capture_output=True, text=True, cwd=RESULTS.parent, check=False).stdout

    if "TITANS_COMMIT" in os.environ:  # files that were copied, without their history or with an older one
        return os.environ["TITANS_COMMIT"]
    head = git("rev-parse", "--short", "HEAD").strip() if shutil.which("git") else ""
    if not head:
        return "unknown"
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude)results")
    return head + ("+changes" if changed else "")


COMMIT = _commit()  # at import: the code that runs, even if another commit is checked out later
