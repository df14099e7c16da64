"""The demo without local data and without a network connection."""

import json
import runpy
import sys
from pathlib import Path
from urllib.error import URLError

import pytest

from titans_ts import TitansForecaster

DEMO = Path(__file__).resolve().parents[1] / "benchmarks" / "demo.py"


def unreachable(*args: object, **options: object) -> None:
    raise URLError("no network in this test")


@pytest.mark.slow
def test_without_data_and_network_the_demo_says_so_and_runs_on_the_panel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from neuralforecast.models import DLinear

    monkeypatch.setenv("TITANS_DATA_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("urllib.request.OpenerDirector.open", unreachable)
    monkeypatch.setattr("neuralforecast.models.DLinear", lambda **given: DLinear(**given | {"max_steps": 100}))
    monkeypatch.syspath_prepend(str(DEMO.parent))
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", [str(DEMO), "--out", str(out), "--max-epochs", "20"])
    runpy.run_path(str(DEMO), run_name="__main__")
    run = capsys.readouterr()
    assert "ETTh1 is not available" in run.out
    assert "AirPassengers panel: lookback 24, horizon 12, 13 test windows of 2 series" in run.out
    assert "Epoch" in run.err  # the progress bar

    report = json.loads((out / "metrics.json").read_text())
    assert set(report["models"]) == {"TitansForecaster", "DLinear (neuralforecast)", "seasonal-naive"}
    ours, naive = report["models"]["TitansForecaster"], report["models"]["seasonal-naive"]
    assert ours["n_windows"] == 13
    assert ours["mae"] < 0.7 * naive["mae"]
    assert (out / "forecast.png").read_bytes().startswith(b"\x89PNG")
    assert TitansForecaster.load(out / "model").predict().shape == (12, 2)
