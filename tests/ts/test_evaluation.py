"""The evaluation protocol is the standard one."""

import json

import numpy as np
import pytest

from titans_datasets import load
from titans_ts import TitansForecaster
from titans_ts.evaluation import evaluate_protocol, load_protocol, naive_predictor, score_windows

pytestmark = pytest.mark.real_data


def test_the_last_value_on_etth1_has_its_published_score(real_data):
    result = evaluate_protocol("last-value", "ETTh1", input_size=96, h=96)
    assert (round(result["mse"], 4), round(result["mae"], 4)) == (1.2944, 0.7132)
    assert result["n_windows"] == 2785
    assert evaluate_protocol("last-value", "etth1")["dataset"] == "ETTh1"
    assert json.loads(json.dumps(result)) == result


def test_the_last_value_on_etth2_336_is_scored_on_all_windows(real_data):
    assert evaluate_protocol("last-value", "ETTh2", h=336)["mse"] == pytest.approx(0.597, abs=5e-4)


@pytest.mark.parametrize(("name", "rows"), [("ETTh1", 2881), ("ETTh2", 2881), ("ETTm1", 11521), ("weather", 10540)])
@pytest.mark.parametrize("h", [96, 720])
def test_all_test_windows_exist_at_any_lookback(real_data, name, rows, h):
    data = load_protocol(name)
    for input_size in (96, 336):
        inputs, targets = data.windows("test", input_size, h)
        assert inputs.shape[:2] == (rows - h, input_size)
        assert len(targets) == rows - h
        np.testing.assert_array_equal(targets[0], data.values[data.split.test.start :][:h])


def test_values_are_standardised_by_training_rows(real_data):
    data = load_protocol("ETTh1")
    train = load("ETTh1").to_numpy()[:8640]
    np.testing.assert_allclose(data.mean, train.mean(axis=0))
    np.testing.assert_allclose(data.scale, train.std(axis=0, ddof=0))
    np.testing.assert_allclose(data.values[:8640].std(axis=0), 1)
    assert len(data.training) == 11520
    assert data.val_size == 2880


def test_errors_are_means_over_everything_whatever_the_batch():
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(23, 8, 3)), rng.normal(size=(23, 5, 3))
    predict = naive_predictor("last-value", 5, 4)
    results = [score_windows(predict, inputs, targets, batch_size=b) for b in (1, 7, 1000)]
    error = inputs[:, -1:] - targets
    for result in results:
        assert result["mse"] == pytest.approx((error**2).mean(), rel=1e-12)
        assert result["mae"] == pytest.approx(np.abs(error).mean(), rel=1e-12)
        assert result["n_windows"] == 23
    assert score_windows(lambda x: targets, inputs, targets, 100)["mse"] == 0


def test_the_seasonal_forecast_repeats_the_newest_season():
    inputs = np.arange(10.0)[None, :, None]
    assert naive_predictor("seasonal-naive", 5, 3)(inputs)[0, :, 0].tolist() == [7, 8, 9, 7, 8]
    assert naive_predictor("last-value", 2, 3)(inputs)[0, :, 0].tolist() == [9, 9]
    with pytest.raises(ValueError, match="at least one season of 12 rows, got 10"):
        naive_predictor("seasonal-naive", 5, 12)(inputs)


def test_unknown_names_are_listed_in_the_error(real_data):
    with pytest.raises(ValueError, match=r"an estimator or one of .*'prophet'"):
        evaluate_protocol("prophet", "ETTh1")
    with pytest.raises(ValueError, match="ETTh1"):
        evaluate_protocol("last-value", "ETTh7")


def test_a_part_that_does_not_exist_is_refused(real_data):
    """It would be scored on the test rows."""
    with pytest.raises(ValueError, match="part must be one of 'val', 'test', 'rehearsal', got 'validation'"):
        evaluate_protocol("last-value", "ETTh1", part="validation")


@pytest.mark.parametrize("model", ["last-value", TitansForecaster()])
@pytest.mark.parametrize(("h", "says"), [(0, "h=0"), (5000, "2976 rows are too few for a window")])
def test_a_horizon_without_a_window_is_refused_before_training(real_data, model, h, says):
    with pytest.raises(ValueError, match=says):
        evaluate_protocol(model, "ETTh1", h=h)


def test_a_rehearsal_needs_rows_before_it(real_data):
    data = load_protocol("ETTh1").rehearsal.rehearsal
    with pytest.raises(ValueError, match="only 2880 rows precede the 2880 val rows: too few for a rehearsal"):
        _ = data.rehearsal


@pytest.mark.slow
def test_a_small_forecaster_beats_the_naive_ones_and_is_not_changed(real_data):
    model = TitansForecaster(dim=8, num_layers=1, max_epochs=1, batch_size=1792, learning_rate=1e-2, verbose=0)
    before = model.get_params()
    result = evaluate_protocol(model, "ETTh1", input_size=48, h=24, seed=5)
    assert model.get_params() == before
    assert not hasattr(model, "network_")
    assert (result["h"], result["input_size"], result["seed"], result["epochs"]) == (24, 48, 5, 1)
    assert result["parameters"] > 1000
    for naive in ("last-value", "seasonal-naive"):
        assert result["mse"] < 0.95 * evaluate_protocol(naive, "ETTh1", input_size=48, h=24)["mse"]
    json.dumps(result)
