"""Small models and small data for the forecaster's tests."""

import copy

import numpy as np
import pandas as pd
import pytest

from titans_ts import TitansForecaster, forecaster
from titans_ts.network import memory_training

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


WHOLE_MEMORY = forecaster.LEAST_MEMORY_STEPS, memory_training.LEARNING_RATE


def train_memory_in(patch, steps, rate):
    patch.setattr(forecaster, "LEAST_MEMORY_STEPS", steps)
    patch.setattr(memory_training, "LEARNING_RATE", rate)


@pytest.fixture(autouse=True, scope="module")
def short_memory(request):
    """Train online memories in three large steps instead of 40: they still correct about half of the error.

    The online memory takes most of the time of a tiny training. The scope is the module, so that models shared by the
    tests of a module are trained this way too; a module may set its own steps and rate: ``SHORT_MEMORY``.
    """
    with pytest.MonkeyPatch.context() as patch:
        train_memory_in(patch, *getattr(request.module, "SHORT_MEMORY", (3, 2e-2)))
        yield


@pytest.fixture
def whole_memory(short_memory, monkeypatch):
    """Train online memories as by default: for longer trainings, and for tests of the memory."""
    train_memory_in(monkeypatch, *WHOLE_MEMORY)


@pytest.fixture(scope="session")
def tiny():
    """Make a forecaster that trains in a second."""
    return lambda **options: TitansForecaster(**{**TINY, **options})


def three_waves():
    rng = np.random.default_rng(0)
    t = np.arange(120)
    waves = {"a": np.sin(t / 3), "b": 50 * np.cos(t / 3) + 200, "c": 0.01 * np.sin(t / 5)}
    columns = {name: y + 0.1 * y.std() * rng.normal(size=len(t)) for name, y in waves.items()}
    return pd.DataFrame(columns, index=pd.date_range("2024-01-01", periods=len(t), freq="h", name="ds"))


@pytest.fixture
def wide():
    """Three hourly series, 120 rows: noisy waves of different scale."""
    return three_waves()


@pytest.fixture(scope="module")
def trained_once(tiny):
    return tiny().fit(three_waves())


@pytest.fixture
def tiny_fitted(trained_once):
    """``tiny().fit(wide)``, for tests that are not about the training."""
    return copy.deepcopy(trained_once)


@pytest.fixture
def to_long():
    """Convert a wide frame to a long one."""

    def melt(wide):
        return wide.reset_index().melt("ds", var_name="unique_id", value_name="y")[["unique_id", "ds", "y"]]

    return melt


@pytest.fixture(scope="session")
def two_waves():
    """Two series of 500 hours, one of which depends on values of long ago."""
    rng = np.random.default_rng(1)
    t = np.arange(500)
    columns = {"a": np.sin(t / 3) * (1 + (t // 50) % 2), "b": 50 * np.cos(t / 4) + 200}
    frame = pd.DataFrame(columns, index=pd.date_range("2024-01-01", periods=500, freq="h", name="ds"))
    return frame + 0.05 * frame.std().to_numpy() * rng.normal(size=frame.shape)
