"""The forecaster's examples run as written, with very short trainings."""

import re
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("Agg")
ROOT = Path(__file__).resolve().parents[1]
README, GUIDE = (
    re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
    for name in ("README.md", "docs/forecasting.md")
)


@pytest.fixture
def short(monkeypatch, tmp_path):
    """Shorten trainings to two batches, and work in a temporary folder."""
    monkeypatch.setattr("titans_ts.estimator.training.EPOCH", 2)
    monkeypatch.setattr("titans_ts.estimator.training.default_epochs", lambda *_: 1)
    monkeypatch.setattr("titans_ts.forecaster.LEAST_MEMORY_STEPS", 1)
    monkeypatch.chdir(tmp_path)


def frame(rows=900):
    t = np.arange(rows)
    rng = np.random.default_rng(0)
    columns = {name: np.sin(t / period) + 0.1 * rng.normal(size=rows) for name, period in (("a", 4), ("b", 7))}
    return pd.DataFrame(columns, index=pd.date_range("2024-01-01", periods=rows, freq="h", name="ds"))


def test_forecast_in_ten_lines(short, real_data):
    names = {}
    exec(README[0], names)
    assert Path("forecast.png").stat().st_size > 10_000
    pd.testing.assert_frame_equal(
        names["TitansForecaster"].load("etth1-model").predict(), names["forecaster"].predict(), check_exact=True
    )


@pytest.mark.filterwarnings("ignore")
def test_what_else_it_does(short):
    long = frame().reset_index().melt("ds", var_name="unique_id", value_name="y").assign(price=1.0)
    long["price"] += np.random.default_rng(1).normal(size=len(long))
    known = long[long["ds"] < long["ds"].max() - pd.Timedelta(hours=60)]
    later = long.drop(known.index)
    future = later[later["ds"] < later["ds"].min() + pd.Timedelta(hours=48)].drop(columns="y")
    new_rows = later[later["ds"] < later["ds"].min() + pd.Timedelta(hours=12)]
    block, count = re.subn(r"n_trials=50", "n_trials=2", README[1])
    assert count == 1
    names = {"df": known, "future": future, "new_rows": new_rows}
    exec(block, names)
    assert len(names["best"].study_.trials) == 2
    assert names["forecaster"].context_.index[-1] == new_rows["ds"].max()


def test_a_column_of_what_was_a_day_ago():
    long = frame().reset_index().melt("ds", var_name="unique_id", value_name="y").assign(price=np.arange(1800.0))
    last = long["ds"].max() - pd.Timedelta(hours=48)
    names = {"pd": pd, "df": long[long["ds"] <= last], "future": long[long["ds"] > last].drop(columns="y")}
    exec(next(block for block in GUIDE if "price_a_day_ago" in block), names)
    assert (len(names["df"]), len(names["future"])) == (2 * (900 - 48 - 24), 2 * 48)
    for part in (names["df"], names["future"]):
        assert (part["price"] - part["price_a_day_ago"] == 24).all()
    assert "y" not in names["future"]


@pytest.mark.filterwarnings("ignore")
def test_a_grid_search(short):
    from titans_ts import TitansForecaster

    names = {
        "TitansForecaster": TitansForecaster,
        "df": frame().reset_index().melt("ds", var_name="unique_id", value_name="y"),
    }
    exec(next(block for block in GUIDE if "GridSearchCV" in block), names)
    assert np.isfinite(names["search"].best_score_)


@pytest.mark.filterwarnings("ignore")
def test_several_forecasters_as_one(short):
    names = {"df": frame().reset_index().melt("ds", var_name="unique_id", value_name="y")}
    exec(next(block for block in GUIDE if "TitansEnsemble" in block), names)
    members = names["ensemble"].forecasters_
    assert [(one.input_size, one.has_calendar_) for one in members] == [
        (96, False),
        (96, True),
        (336, False),
        (336, True),
    ]
    assert len(names["ensemble"].predict()) == 2 * 48
