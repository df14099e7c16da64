"""Small models and small data for the forecaster's tests."""

import numpy as np
import pandas as pd
import pytest

from titans_ts import TitansForecaster

TINY = {
    "h": 4,
    "input_size": 12,
    "patch_size": 4,
    "dim": 8,
    "num_layers": 1,
    "max_epochs": 2,
    "random_state": 0,
    "verbose": 0,
}


@pytest.fixture(scope="session")
def tiny():
    """Makes a forecaster that trains in a second."""
    return lambda **options: TitansForecaster(**{**TINY, **options})


@pytest.fixture
def wide():
    """Three hourly series, 120 rows: noisy waves of different scale."""
    rng = np.random.default_rng(0)
    t = np.arange(120)
    waves = {"a": np.sin(t / 3), "b": 50 * np.cos(t / 3) + 200, "c": 0.01 * np.sin(t / 5)}
    columns = {name: y + 0.1 * y.std() * rng.normal(size=len(t)) for name, y in waves.items()}
    return pd.DataFrame(columns, index=pd.date_range("2024-01-01", periods=len(t), freq="h", name="ds"))


@pytest.fixture
def to_long():
    """A wide frame as a long one."""

    def melt(wide):
        return wide.reset_index().melt("ds", var_name="unique_id", value_name="y")[["unique_id", "ds", "y"]]

    return melt
