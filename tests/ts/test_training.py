"""Laws of fit: exact resumption, early stopping, no side effects, and independence of units."""

import random
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from titans_ts import TitansForecaster
from titans_ts.estimator.model import Model
from titans_ts.network.memory_training import MemoryReport
from titans_ts.network.objective import LOSSES, DecayingError, Point, objective_of, step_weights
from titans_ts.network.rolling import Forecasts
from titans_ts.network.simba import Simba, SimbaConfig
from titans_ts.network.windows import Batch


class PowerCutError(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "multivariate"), [(1, False), (6, True), (15, False)])
def test_an_interrupted_and_resumed_fit_equals_an_uninterrupted_one(
    tiny, wide, tmp_path, monkeypatch, steps, multivariate
):
    options = {"max_epochs": 4, "batch_size": 48, "multivariate": multivariate}  # 6 batches an epoch
    expected = tiny(**options).fit(wide)
    assert len(expected.history_.epochs) == 4
    done = 0

    def cut(self, network, batch):
        nonlocal done
        done += network.training
        if done > steps:
            raise PowerCutError
        return real(self, network, batch)

    real = DecayingError.__call__
    with monkeypatch.context() as patch:
        patch.setattr(DecayingError, "__call__", cut)
        with pytest.raises(PowerCutError):
            tiny(**options).fit(wide, checkpoint_dir=tmp_path)
    resumed = tiny(**options).fit(wide, checkpoint_dir=tmp_path)
    assert resumed.history_ == expected.history_
    pd.testing.assert_frame_equal(resumed.predict(), expected.predict(), check_exact=True)


def test_training_stops_early_without_a_better_validation_error(tiny):
    """Noise has nothing to learn; after some epochs the network only learns the training rows by heart."""
    noise = pd.DataFrame({"a": np.random.default_rng(0).normal(size=60)})
    model = tiny(max_epochs=60, learning_rate=3e-2, dropout=0.0, batch_size=8).fit(noise, val_size=20)
    losses = [epoch["val_loss"] for epoch in model.history_.epochs]
    best = model.history_.best_epoch
    assert len(losses) == best + 16 < 60  # a quarter of the epochs without a better one
    assert losses[best] == min(losses)


def test_the_network_is_the_one_of_the_best_epoch(tiny, wide):
    model = tiny(max_epochs=6, learning_rate=3e-2).fit(wide, val_size=30)
    best = model.history_.best_epoch
    assert best > 0
    scaled = ((wide - model.mean_) / model.scale_).to_numpy(dtype=np.float32)[-42:]
    both = np.lib.stride_tricks.sliding_window_view(scaled, 16, axis=0).transpose(0, 2, 1)
    batch = Batch(*(torch.tensor(both[:, part].copy()) for part in (slice(12), slice(12, 16))))
    with torch.no_grad():
        loss = DecayingError(Point("mae"))(model.network_, batch)[0].item()
    assert loss == pytest.approx(model.history_.epochs[best]["val_loss"], rel=1e-5)
    assert not model.network_.training


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("last", [59, 56])
def test_without_a_validation_forecast_to_score_no_epoch_counts_as_the_best(tiny, wide, together, last):
    """Each lookback ends in a gap that was filled with the value after it, or nothing follows that value."""
    gap = wide.iloc[:60].copy()
    gap.iloc[45:, 0 if together else slice(None)] = np.nan
    gap.iloc[last] = wide.iloc[last]
    if last < 59 and together:
        gap.iloc[last + 1 :] = np.nan
    with pytest.warns(UserWarning, match=r"the last val_size=10 rows, which are for validation, can be scored.*mask"):
        model = tiny(missing="interpolate", multivariate=together, max_epochs=8).fit(gap, val_size=10)
    assert len(model.history_.epochs) == 8  # with an error of nothing, of 0, it would have stopped
    assert not any("val_loss" in epoch for epoch in model.history_.epochs)


def test_the_loss_weighs_step_t_by_one_over_its_root():
    class Network:
        def normalised(self, x, hist, futr, stat):
            error = torch.tensor([3.0, 1.0, 2.0, 5.0])[None, :, None, None]
            return error / 10, torch.zeros(1, 1, 1), torch.full((1, 1, 1), 10.0)

    loss, count = DecayingError(Point("mae"))(Network(), Batch(torch.zeros(1, 2, 1), torch.zeros(1, 4, 1)))
    roots = [1, 2**-0.5, 3**-0.5, 0.5]
    expected = sum(w * e for w, e in zip(roots, [3, 1, 2, 5], strict=True)) / sum(roots)
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert count == 4


def test_fit_does_not_depend_on_units(tiny_fitted, tiny, wide):
    """Each series in units of its own: the forecast comes in the same ones."""
    scale, shift = pd.Series({"a": 1e3, "b": 1e-2, "c": 50.0}), pd.Series({"a": -5.0, "b": 1.0, "c": 0.0})
    expected = tiny_fitted.predict() * scale + shift
    actual = tiny().fit(wide * scale + shift).predict()
    deviation = wide.std() * scale
    np.testing.assert_allclose((actual - expected) / deviation, 0, atol=1e-3)


def test_only_the_lookback_matters_to_a_forecast_of_the_network_alone(tiny, wide, monkeypatch):
    monkeypatch.setattr("titans_ts.forecaster.train_memory", lambda *args, **options: (None, MemoryReport(0)))
    model = tiny().fit(wide)
    expected = model.predict(wide.iloc[-12:])
    pd.testing.assert_frame_equal(model.predict(wide), expected, check_exact=True)
    pd.testing.assert_frame_equal(model.predict(), expected, check_exact=True)
    changed = wide.copy()
    changed.iloc[-1] += 1
    assert (model.predict(changed) - expected).abs().min().min() > 1e-6


def test_windows_are_forecast_as_frames_are(tiny_fitted, wide):
    model = tiny_fitted
    windows = np.stack([wide.to_numpy()[start : start + 12] for start in (0, 50, 108)])
    together = model.predict_windows(windows)
    for out, start in zip(together, (0, 50, 108), strict=True):
        np.testing.assert_allclose(out, model.predict(wide.iloc[start : start + 12]), rtol=1e-5, atol=1e-6)
    assert model.predict_windows(windows[:0]).shape == (0, 4, 3)
    with pytest.raises(ValueError, match=r"windows must be \[W, 12, 3\], got shape \(3, 11, 3\)"):
        model.predict_windows(windows[:, 1:])
    with pytest.raises(ValueError, match=r"windows must be .* got shape \(1, 2\)"):
        model.predict_windows([[1, 2]])
    with pytest.raises(ValueError, match="windows has 1 values that are NaN, infinite or beyond float32"):
        model.predict_windows(np.where(windows == windows[0, 0, 0], np.nan, windows))


def test_a_constant_series_is_forecast_as_constant(tiny):
    frame = pd.DataFrame({"flat": np.full(60, 5.0)})
    model = tiny().fit(frame)
    assert model.scale_ == pytest.approx(0.005)  # a thousandth of its size
    np.testing.assert_allclose(model.predict()["flat"], 5.0, atol=0.001)


def test_a_better_forecaster_scores_higher_and_a_perfect_one_scores_0(tiny_fitted, wide, monkeypatch):
    model = tiny_fitted
    score = model.score(wide)
    assert score < 0

    def off_by(error):
        def rolling(self, table, origins, levels=()):
            return Forecasts(
                table.values[origins[:, None] + torch.arange(4)] + error, None, torch.ones(len(origins), 3)
            )

        monkeypatch.setattr(Model, "rolling", rolling)
        return model.score(wide)

    assert off_by(0) == 0
    assert off_by(100) == pytest.approx(-100, rel=1e-6)


def test_mixed_series_are_put_in_the_order_of_fit_and_depend_on_each_other(tiny_fitted, tiny, wide):
    mixed = tiny(multivariate=True).fit(wide)
    pd.testing.assert_frame_equal(mixed.predict(wide[["b", "a", "c"]]), mixed.predict(wide))
    apart = tiny_fitted
    other_order = apart.predict(wide[["b", "a", "c"]])[["a", "b", "c"]]
    # in units of each series: a forecast may be near zero
    np.testing.assert_allclose((other_order - apart.predict()) / apart.scale_, 0, atol=1e-6)
    other = wide.assign(a=wide["a"].to_numpy()[::-1])
    for model in (mixed, apart):
        change = (model.predict(other) - model.predict(wide))[["b", "c"]].abs() / model.scale_[1:]
        assert (change.max().max() > 1e-6) == model.multivariate


def test_fit_leaves_no_file_and_no_random_state_behind(tiny, wide, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = random.getstate()
    tiny(max_epochs=1).fit(wide).predict()
    assert random.getstate() == before
    assert list(tmp_path.iterdir()) == []
    tiny(max_epochs=1).fit(wide.iloc[:60], checkpoint_dir="run")
    assert [str(f.relative_to(tmp_path)) for f in sorted(tmp_path.rglob("*"))] == ["run", "run/last.ckpt"]


def test_a_generator_as_random_state_moves_on_from_fit_to_fit(tiny, wide):
    def two_fits():
        state = np.random.RandomState(0)
        return [tiny(random_state=state, max_epochs=1).fit(wide).predict().to_numpy() for _ in range(2)]

    first, again = two_fits(), two_fits()
    assert np.array_equal(first, again)
    assert not np.array_equal(first[0], first[1])


def test_every_precision_of_the_documentation_gives_much_the_same_forecast(tiny, wide):
    # by the network alone: the memory learns beside it from whatever it says
    windows = wide.to_numpy()[None, -12:]
    expected = tiny(batch_size=64).fit(wide).predict_windows(windows)
    for precision in ("32-true", "bf16-mixed", "64-true", "bf16-true"):
        actual = tiny(batch_size=64, precision=precision).fit(wide).predict_windows(windows)
        np.testing.assert_allclose((actual - expected) / wide.std().to_numpy(), 0, atol=0.1, err_msg=precision)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_is_computed_in_float32_under_autocast(loss):
    """In bf16 even the probabilities of quantiles would be others."""
    torch.manual_seed(0)
    objective = objective_of(loss)
    network = Simba(SimbaConfig(h=1, input_size=32, outputs=objective.outputs)).eval()
    batch = Batch(torch.randn(64, 32, 1), 3 * torch.randn(64, 1, 1))
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found, _ = DecayingError(objective)(network, batch)
        raw, center, scale = network.normalised(batch.x)
    assert raw.dtype == torch.bfloat16
    expected = objective.error(raw.float(), (batch.y - center) / scale, scale).mean()
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "value"),
    [("learning_rate", "fast"), ("dropout", "some"), ("dropout", None), ("learning_rate", float("nan"))]
    + [(name, 0) for name in ("patch_size", "dim", "num_layers", "chunk_size", "batch_size")],
)
def test_a_setting_of_the_wrong_kind_is_named(tiny, wide, name, value):
    with pytest.raises((ValueError, TypeError), match=name):
        tiny(**{name: value}).fit(wide)


def test_a_forecaster_that_cannot_learn_says_so(tiny, wide):
    with pytest.raises(FloatingPointError, match="Lower learning_rate"):
        tiny(learning_rate=1e30).fit(wide)


def test_forecasts_of_a_noisy_wave_are_far_better_than_the_last_value():
    rng = np.random.default_rng(3)
    t = np.arange(400)
    wave = 20 + 5 * np.sin(t * 2 * np.pi / 10)
    frame = pd.DataFrame({"wave": wave + 0.5 * rng.normal(size=400)}, index=pd.date_range("2024", periods=400))
    model = TitansForecaster(
        h=5, input_size=15, patch_size=5, dim=8, num_layers=1, learning_rate=1e-2, max_epochs=15,
        dropout=0.1, batch_size=32, random_state=0, verbose=0,
    ).fit(frame.iloc[:300])  # fmt: skip
    errors, naive = [], []
    for start in range(300, 380, 7):
        past, truth = frame.iloc[start - 15 : start], wave[start : start + 5]
        errors.append(np.abs(model.predict(past)["wave"].to_numpy() - truth).mean())
        naive.append(np.abs(past["wave"].iloc[-1] - truth).mean())
    assert np.mean(errors) < 0.8 < 4 < np.mean(naive)


def test_a_checkpoint_of_other_time_stamps_is_refused(tiny, wide, tmp_path):
    options = {"exogenous": {"calendar": ["day"]}, "max_epochs": 1}
    tiny(**options).fit(wide, checkpoint_dir=tmp_path)
    later = wide.set_axis(wide.index + pd.Timedelta("7h"))
    with pytest.raises(ValueError, match="the checkpoint of another run: time is"):
        tiny(**options).fit(later, checkpoint_dir=tmp_path)


def test_validation_rows_without_a_value_are_refused(tiny, wide):
    wide = wide.copy()
    wide.iloc[-20:] = np.nan
    with pytest.raises(ValueError, match="the last val_size=20 rows, which are for validation, have no known value"):
        tiny(missing="mask").fit(wide, val_size=20)


@pytest.mark.parametrize("val_size", [0.2, 40.0, -1])
def test_val_size_is_a_number_of_rows(tiny, wide, val_size):
    with pytest.raises(ValueError, match="val_size must be an integer >= 0"):
        tiny().fit(wide, val_size=val_size)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_network_trained_on_a_gpu_forecasts_on_the_cpu(tiny, wide):
    """Its forecasts are close to those of one trained on the CPU; only the order of sums differs."""
    model = tiny(device="cuda", precision="32-true", max_epochs=4).fit(wide)
    assert next(model.network_.parameters()).device.type == "cpu"
    here = tiny(device="cpu", max_epochs=4).fit(wide)
    np.testing.assert_allclose((model.predict() - here.predict()) / wide.std(), 0, atol=0.05)
    assert model.history_.epochs[-1]["val_loss"] == pytest.approx(here.history_.epochs[-1]["val_loss"], rel=0.05)


def test_validation_uses_only_known_values(tiny):
    """Interpolated values are easy to forecast, so that the validation error was too low."""
    rng, t = np.random.default_rng(0), np.arange(300)
    frame = pd.DataFrame(
        {"a": np.sin(t / 4) + 0.5 * rng.normal(size=300)}, index=pd.date_range("2024", periods=300, freq="h")
    )
    holes = frame.mask(rng.random(frame.shape) < 0.5)
    model = tiny(missing="interpolate", loss="mae").fit(holes, val_size=100)
    model.model_ = replace(model.model_, memory=None)  # the network alone, as training judges it
    found = model.predict_insample(holes, step_size=1)
    step = ((found["ds"] - found["cutoff"]) / pd.Timedelta("1h")).astype(int) - 1
    measured = holes["a"].reindex(found["cutoff"]).notna().to_numpy()
    counted = (found["cutoff"] >= frame.index[199]) & found["y"].notna() & measured
    error = (found["y"] - found["Titans"]).abs() / model.scale_[0]
    weight = step_weights(4, torch.device("cpu")).numpy()[step]
    expected = np.average(error[counted], weights=weight[counted])
    assert model.history_.epochs[model.history_.best_epoch]["val_loss"] == pytest.approx(expected, rel=1e-3)
