"""The protocol on the real sets: all windows, batches, training rows, and no changes to the estimator."""

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from titans_datasets import load
from titans_ts.evaluation import evaluate_protocol, load_protocol, naive_predictor, score_windows

pytestmark = pytest.mark.real_data


@pytest.mark.parametrize(
    ("name", "rows", "horizons"),
    [("ETTh1", 2881, (96, 192, 336, 720)), ("ETTm2", 11521, (192, 720)), ("WEATHER", 10540, (336,))],
)
def test_the_number_of_windows_is_that_of_the_published_code(real_data, name, rows, horizons):
    data = load_protocol(name)
    for h in horizons:
        assert len(data.windows("test", 96, h)[1]) == rows - h


def test_validation_windows_begin_a_lookback_before_their_border_and_end_at_it(real_data):
    data = load_protocol("ETTh1")
    inputs, targets = data.windows("val", 96, 24)
    assert len(targets) == 2881 - 24
    np.testing.assert_array_equal(inputs[0], data.values[8640 - 96 : 8640])
    np.testing.assert_array_equal(targets[0], data.values[8640 : 8640 + 24])
    np.testing.assert_array_equal(targets[-1], data.values[11520 - 24 : 11520])
    assert evaluate_protocol("last-value", "ETTh1", h=24, part="val")["n_windows"] == 2857


def test_test_targets_do_not_depend_on_the_lookback(real_data):
    data = load_protocol("ETTh2")
    np.testing.assert_array_equal(data.windows("test", 96, 336)[1], data.windows("test", 720, 336)[1])


def test_no_last_batch_is_dropped_from_the_score(real_data):
    data = load_protocol("ETTh2")
    inputs, targets = data.windows("test", 96, 336)
    predict = naive_predictor("last-value", 336, 24)
    scores = [score_windows(predict, inputs, targets, batch_size=b)["mse"] for b in (128, 1000, 10_000)]
    assert scores == [pytest.approx(scores[0], rel=1e-12)] * 3
    assert round(scores[0], 3) == 0.597
    kept = len(targets) // 128 * 128
    assert kept < len(targets)
    assert score_windows(predict, inputs[:kept], targets[:kept])["mse"] < 0.595


def test_a_perfect_forecast_of_the_real_windows_scores_0(real_data):
    inputs, targets = load_protocol("ETTh1").windows("test", 96, 96)
    answers = iter(np.array_split(targets, range(500, len(targets), 500)))
    result = score_windows(lambda windows: next(answers), inputs, targets, batch_size=500)
    assert result == {"mse": 0.0, "mae": 0.0, "n_windows": 2785}


def test_weather_has_81_impossible_values_all_in_training_rows(real_data):
    raw = load("weather").to_numpy()
    data = load_protocol("weather")
    assert (raw == -9999).sum() == (raw[: data.split.train.stop] == -9999).sum() == 81
    assert (data.split.train.stop, data.val_size, len(raw)) == (36887, 5270, 52696)
    np.testing.assert_allclose(data.mean, raw[:36887].mean(axis=0))
    np.testing.assert_allclose(data.scale, raw[:36887].std(axis=0, ddof=0))
    np.testing.assert_allclose(data.values[-1] * data.scale + data.mean, raw[-1], rtol=1e-9, atol=1e-9)


class Spy:
    """An estimator that forecasts the last value and records its inputs."""

    fits: ClassVar[list] = []

    def __init__(self, h=1, input_size=1, random_state=None):
        self.h, self.input_size, self.random_state = h, input_size, random_state

    def get_params(self, deep=True):
        return {"h": self.h, "input_size": self.input_size, "random_state": self.random_state}

    def set_params(self, **params):
        vars(self).update(params)
        return self

    def fit(self, values, *, val_size):
        self.fits.append((values, val_size, self.get_params()))
        self.history_ = type("History", (), {"epochs": [{}]})
        self.network_ = type("Network", (), {"parameters": lambda self: []})()
        return self

    def predict_windows(self, windows):
        return np.repeat(windows[:, -1:], self.h, axis=1)


def test_an_estimator_is_cloned_and_configured_and_never_sees_a_test_row(real_data, monkeypatch):
    monkeypatch.setattr(Spy, "fits", [])
    model = Spy()
    result = evaluate_protocol(model, "etth1", input_size=48, h=96, seed=7)
    assert model.get_params() == {"h": 1, "input_size": 1, "random_state": None}
    ((values, val_size, params),) = Spy.fits
    assert params == {"h": 96, "input_size": 48, "random_state": 7}
    assert (len(values), val_size) == (11520, 2880)
    assert values.index[-1] == pd.Timestamp("2017-10-23 23:00")
    np.testing.assert_array_equal(values.to_numpy(), load_protocol("ETTh1").values[:11520])
    assert (round(result["mse"], 4), round(result["mae"], 4), result["n_windows"]) == (1.2944, 0.7132, 2785)
    assert (result["model"], result["dataset"], result["parameters"]) == ("Spy", "ETTh1", 0)


def test_a_rehearsal_is_the_protocol_a_block_earlier(real_data, monkeypatch):
    monkeypatch.setattr(Spy, "fits", [])
    result = evaluate_protocol(Spy(), "ETTh1", input_size=48, h=96, part="rehearsal")
    ((values, val_size, _),) = Spy.fits
    assert (len(values), val_size) == (8640, 2880)  # nothing of the rows that are scored
    np.testing.assert_array_equal(values.to_numpy(), load_protocol("ETTh1").values[:8640])
    assert result["part"] == "rehearsal"
    assert result["mse"] == evaluate_protocol("last-value", "ETTh1", input_size=48, h=96, part="val")["mse"]


def test_rows_are_stamped_regularly_even_where_the_file_is_not(real_data):
    raw = load("weather").index
    assert raw.has_duplicates
    frame = load_protocol("weather").frame
    assert frame.index.freq == pd.Timedelta(minutes=10)
    assert abs(frame.index - raw).max() <= pd.Timedelta(minutes=90)
    hourly = load_protocol("ETTh1").frame.index
    assert (hourly == load("ETTh1").index).all()


@pytest.mark.real_data
@pytest.mark.parametrize("part", ["val", "test"])
def test_an_origin_is_the_stamp_of_its_windows_first_target(real_data, part):
    data = load_protocol("ETTh1")
    origins, targets = data.origins(part, 96, 24), data.windows(part, 96, 24)[1]
    np.testing.assert_array_equal(data.frame.loc[origins].to_numpy(), targets[:, 0])
