"""The demo without local data and without a network connection."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from titans_ts import TitansForecaster

DEMO = Path(__file__).resolve().parents[1] / "benchmarks" / "demo.py"


@pytest.mark.slow
def test_without_data_and_network_the_demo_says_so_and_runs_on_the_panel(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "TITANS_DATA_HOME": str(tmp_path / "empty"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "https_proxy": "http://127.0.0.1:9",  # no one listens there: every download fails at once
        "OMP_NUM_THREADS": "1",
    }
    out = tmp_path / "out"
    command = [sys.executable, str(DEMO), "--out", str(out), "--max-epochs", "30"]
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stderr
    assert "ETTh1 is not available" in run.stdout
    assert "AirPassengers panel: lookback 24, horizon 12, 13 test windows of 2 series" in run.stdout
    assert "Epoch" in run.stderr  # the progress bar

    report = json.loads((out / "metrics.json").read_text())
    assert set(report["models"]) == {"TitansForecaster", "DLinear (neuralforecast)", "seasonal-naive"}
    ours, naive = report["models"]["TitansForecaster"], report["models"]["seasonal-naive"]
    assert ours["n_windows"] == 13
    assert ours["mae"] < 0.7 * naive["mae"]
    assert (out / "forecast.png").read_bytes().startswith(b"\x89PNG")
    assert TitansForecaster.load(out / "model").predict().shape == (12, 2)
