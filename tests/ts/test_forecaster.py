"""Laws of the estimator: parameters, reproducibility, saving and loading, refusal of bad input."""

import copy
import inspect
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import titans_ts
from titans_core.archive import ArchiveError
from titans_ts import TitansForecaster
from titans_ts.estimator import training_length
from titans_ts.estimator.training_length import default_epochs, windows_in_batch
from titans_ts.network.objective import DecayingError


def values(forecast):
    return forecast["Titans"].to_numpy() if "Titans" in getattr(forecast, "columns", ()) else np.asarray(forecast)


@pytest.mark.parametrize("call", ["predict", "score", "save", "plot", "predict_windows"])
def test_methods_before_fit_raise_not_fitted(tiny, wide, tmp_path, call):
    arguments = {
        "predict": (),
        "score": (wide,),
        "save": (tmp_path,),
        "plot": (),
        "predict_windows": (np.zeros((1, 12, 3)),),
    }
    with pytest.raises(NotFittedError):
        getattr(tiny(), call)(*arguments[call])


def test_the_constructor_only_stores_and_clone_and_set_params_work(tiny):
    parameters = inspect.signature(TitansForecaster).parameters
    assert len(parameters) < 20
    assert all(p.default is not inspect.Parameter.empty for p in parameters.values())
    odd = {name: object() for name in parameters}
    assert all(value is odd[name] for name, value in TitansForecaster(**odd).get_params(deep=False).items())
    assert set(vars(TitansForecaster())) == set(parameters)
    cloned = clone(tiny(dim=16)).set_params(h=7)
    assert (cloned.dim, cloned.h) == (16, 7)


def test_the_same_seed_gives_the_same_forecasts_and_another_seed_others(tiny_fitted, tiny, wide):
    first = tiny_fitted.predict().to_numpy()
    again, other = (tiny(random_state=s).fit(wide).predict().to_numpy() for s in (0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_fit_leaves_the_callers_frame_and_random_states_alone(tiny, wide):
    before, state = wide.copy(), torch.random.get_rng_state()
    numpy_state = np.random.get_state()[1].copy()  # noqa: NPY002 (the global state is what must not move)
    tiny().fit(wide)
    pd.testing.assert_frame_equal(wide, before)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002


def test_long_wide_and_matrix_give_the_same_numbers(tiny_fitted, tiny, wide, to_long):
    expected = tiny_fitted.predict()
    assert list(expected.columns) == ["a", "b", "c"]
    assert expected.index[0] == wide.index[-1] + pd.Timedelta("1h")
    long = tiny().fit(to_long(wide)).predict()
    np.testing.assert_array_equal(long["Titans"].to_numpy().reshape(3, 4).T, expected.to_numpy())
    np.testing.assert_array_equal(tiny().fit(wide.to_numpy()).predict(), expected.to_numpy())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "multivariate"),
    [
        ("wide", True),
        ("long", False),
        ("long", True),
        ("numbered", True),
        ("matrix", False),
        ("monthly", False),
        ("integers", True),
    ],
)
def test_fit_save_load_predict_gives_the_same_numbers(tiny, wide, to_long, tmp_path, layout, multivariate):
    frame = {
        "wide": lambda: wide,
        "long": lambda: to_long(wide),
        "numbered": lambda: to_long(wide).replace({"unique_id": {"a": 5, "b": 3, "c": 9}}),
        "matrix": wide.to_numpy,
        "monthly": lambda: wide.set_axis(pd.date_range("2000-01", periods=120, freq="MS"), axis=0),
        "integers": lambda: wide.set_axis(range(100, 340, 2), axis=0),
    }[layout]()
    model = tiny(multivariate=multivariate).fit(frame)
    model.save(tmp_path / "m")
    loaded = TitansForecaster.load(tmp_path / "m")
    assert loaded.get_params() == model.get_params()
    assert loaded.history_ == model.history_
    expected, actual = model.predict(), loaded.predict()
    if layout == "matrix":
        assert np.array_equal(actual, expected)
        assert np.array_equal(loaded.predict(frame), expected)
    else:
        pd.testing.assert_frame_equal(actual, expected, check_exact=True)
        pd.testing.assert_frame_equal(loaded.predict(frame), expected, check_exact=True)
    assert loaded.score(frame) == model.score(frame)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_saved_model_that_was_cut_or_changed_is_refused(tiny_fitted, tmp_path, name):
    tiny_fitted.save(tmp_path / "m")
    file = tmp_path / "m" / name
    data = file.read_bytes()
    file.write_bytes(data[:-100])
    with pytest.raises(ArchiveError, match=rf"{name} is truncated"):
        TitansForecaster.load(tmp_path / "m")
    file.write_bytes(data.replace(b"0", b"1"))
    with pytest.raises(ArchiveError, match="modified"):
        TitansForecaster.load(tmp_path / "m")


@pytest.mark.slow
def test_a_predictable_series_is_learned(tiny):
    t = np.arange(600)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"y": np.sin(t * 2 * np.pi / 12) + 0.1 * rng.normal(size=600)}, index=t)
    model = tiny(max_epochs=12, batch_size=32, learning_rate=1e-2).fit(frame.iloc[:500])
    test = frame.iloc[500:]
    steps = np.lib.stride_tricks.sliding_window_view(test["y"].to_numpy(), 16)
    last_value = np.abs(steps[:, 12:] - steps[:, 11:12]).mean() / model.scale_[0]
    error = -model.score(test)
    assert error < 0.3 * last_value
    assert error < 0.25  # the noise alone is about 0.11


def test_the_score_is_minus_the_scaled_absolute_error_of_every_window(tiny_fitted, wide):
    model = tiny_fitted
    test = wide.iloc[40:70]
    errors = []
    for start in range(len(test) - 16 + 1):
        past, future = test.iloc[: start + 12], test.iloc[start + 12 : start + 16]
        errors.append(((model.predict(past) - future).abs() / model.scale_).to_numpy())
    assert model.score(test) == pytest.approx(-np.mean(errors), rel=1e-5)
    with pytest.raises(ValueError, match="score needs exactly the series of fit"):
        model.score(test[["a", "b"]])


def test_validation_rows_are_used_neither_in_training_nor_in_scaling(tiny, wide):
    spoiled = wide.copy()
    spoiled.iloc[-20:] += 1000
    model = tiny().fit(spoiled, val_size=20)
    np.testing.assert_allclose(model.mean_, wide.iloc[:-20].mean(), rtol=1e-12)
    np.testing.assert_allclose(model.scale_, wide.iloc[:-20].std(ddof=0), rtol=1e-12)
    # the same training rows, so the same training losses
    losses = [e["train_loss"] for e in tiny().fit(wide, val_size=20).history_.epochs]
    assert [e["train_loss"] for e in model.history_.epochs] == losses
    assert "val_loss" not in tiny(max_epochs=1).fit(wide, val_size=0).history_.epochs[0]


@pytest.mark.parametrize("val_size", [3, 105, 120])
def test_a_val_size_that_leaves_no_window_is_refused(tiny, wide, val_size):
    with pytest.raises(ValueError, match=rf"val_size={val_size} of 120 rows.*With val_size=0, fit trains on all rows"):
        tiny().fit(wide, val_size=val_size)


def beginning(long, **first):
    """A long frame without the rows of some series before a time."""
    for name, time in first.items():
        long = long[(long["unique_id"] != name) | (long["ds"] >= time)]
    return long


def test_new_rows_alone_are_warned_of_where_update_would_take_them(tiny, wide):
    model = tiny(missing="mask", max_epochs=1).fit(wide.iloc[:100])
    with pytest.warns(UserWarning, match=r"fewer than input_size=12 rows in df: \['a', 'b', 'c'\].* call update"):
        model.predict(wide.iloc[100:105])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(wide.iloc[90:105])
        model.update(wide.iloc[100:105]).predict()


def test_advice_on_validation_rows_names_the_series_it_helps(tiny, wide, to_long):
    late = beginning(to_long(wide), b=wide.index[100], c=wide.index[110])
    with pytest.warns(
        UserWarning, match=r"skipped: \['b', 'c'\]\. With val_size=4 there are enough rows of \['b'\]\. predict"
    ):
        tiny(max_epochs=1).fit(late)


def test_too_short_a_series_is_refused_with_the_rows_needed(tiny_fitted, tiny, wide, to_long):
    with pytest.raises(ValueError, match=r"has 15 rows .*input_size \+ h = 16 are needed"):
        tiny().fit(wide.iloc[:15])
    model = tiny_fitted
    with pytest.raises(ValueError, match=r"has 11 rows .*input_size = 12 are needed"):
        model.predict(wide.iloc[:11])
    late = beginning(to_long(wide), b=wide.index[100])
    begun = wide.copy()
    begun.iloc[:105] = np.nan  # none of them early enough
    with pytest.raises(ValueError, match=r"has 15 rows from its first value on .*input_size \+ h = 16 are needed"):
        tiny(missing="mask").fit(begun)
    with pytest.warns(UserWarning, match="16 rows are too few to keep h=4 of them for validation") as warned:
        tiny().fit(wide.iloc[:16])
    assert warned[0].filename == __file__
    ended = to_long(wide)
    ended = ended[np.where(ended["unique_id"] == "a", ended["ds"] < wide.index[14], ended["ds"] >= wide.index[90])]
    with pytest.raises(
        ValueError, match=r"2 series have, first \['b', 'c'\], 10 rows .*With val_size=14 there are enough"
    ):
        tiny(missing="mask").fit(ended)  # not: the frame has 14 rows
    tiny(missing="mask", max_epochs=1).fit(ended, val_size=14)
    young = ended[ended["unique_id"] != "a"]
    longer = pd.concat([to_long(wide[["a"]].iloc[:60]), young])
    with pytest.warns(UserWarning, match=r"\['b', 'c'\].* The others end at 2024-01-03 11:00:00, and forecasts begin"):
        tiny(missing="mask", max_epochs=1).fit(longer)
    mixed = tiny(multivariate=True, missing="mask")
    with pytest.raises(ValueError, match=r"2 series have, first \['b', 'c'\], 0 rows for training"):
        mixed.fit(beginning(late, c=wide.index[100]))
    with pytest.raises(ValueError, match=r"series 'b' has 0 rows for training .*With val_size=4 there are enough"):
        mixed.fit(late)
    mixed.set_params(max_epochs=1).fit(late, val_size=4)
    with pytest.raises(ValueError, match=r"needed\. With val_size=0 there are enough"):
        mixed.fit(beginning(late, b=wide.index[101]))
    with pytest.raises(ValueError, match=r"needed\. Give more history"):
        mixed.fit(beginning(late, b=wide.index[105]))
    with pytest.raises(ValueError, match="series 'b' is shorter than input_size=12"):
        model.predict(beginning(late, b=wide.index[-5]))


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "missing"), [("long", "error"), ("long", "mask"), ("wide", "mask")])
def test_series_too_short_to_train_on_are_left_out_and_forecast_from_a_frame(
    tiny, wide, to_long, tmp_path, layout, missing
):
    frame = beginning(to_long(wide), b=wide.index[100])
    old = frame[frame["unique_id"] != "b"]
    if layout == "wide":
        frame, old = (df.pivot(index="ds", columns="unique_id", values="y") for df in (frame, old))
    says = (
        r"1 series begin too late to train on and are skipped: \['b'\]\. With val_size=4 there are enough rows\. pred"
    )
    with pytest.warns(UserWarning, match=says) as warned:
        model = tiny(missing=missing).fit(frame)
    assert [str(x.filename) for x in warned] == [__file__]
    alone = tiny(missing=missing).fit(old)
    pd.testing.assert_frame_equal(model.predict(level=[80]), alone.predict(level=[80]))
    pd.testing.assert_frame_equal(model.predict(frame), alone.predict(frame))
    assert np.isfinite(model.predict(frame).to_numpy()[:, -1].astype(float)).all()
    again = r"series \['b'\] began too late for fit and are skipped here too: only predict\(df\) accepts them"
    with pytest.warns(UserWarning, match=again) as warned:
        assert model.score(frame) == alone.score(old)
    assert warned[0].filename == __file__
    with pytest.warns(UserWarning, match=again):
        pd.testing.assert_frame_equal(model.predict_insample(frame), alone.predict_insample(old))
    model.save(tmp_path)
    for forecaster in (model, TitansForecaster.load(tmp_path)):
        later, its = (on(df, wide.index[-1] - wide.index[0] + wide.index.freq) for df in (frame, old))
        with pytest.warns(UserWarning, match=again):
            forecaster.update(later)
        pd.testing.assert_frame_equal(forecaster.predict(), copy.deepcopy(alone).update(its).predict())
    with pytest.raises(ValueError, match=r"\(new: \['d'\]\)"):
        model.score(frame.assign(d=1.0) if layout == "wide" else frame.replace({"b": "d"}))


def test_series_left_out_need_no_static_columns_to_be_skipped(tiny, wide, to_long):
    frame = beginning(to_long(wide), b=wide.index[100])
    old = frame[frame["unique_id"] != "b"]
    facts = pd.DataFrame({"unique_id": ["a", "b", "c"], "size": [1.0, 2.0, 3.0]})
    with pytest.warns(UserWarning, match="begin too late"):
        model = tiny(max_epochs=1, exogenous={"stat": ["size"]}).fit(frame, static_df=facts)
    with pytest.warns(UserWarning, match="are skipped here too"):
        assert model.score(frame) == model.score(old)
    with pytest.warns(UserWarning, match="are skipped here too"):
        pd.testing.assert_frame_equal(model.predict_insample(frame), model.predict_insample(old))
    with pytest.raises(ValueError, match=r"score needs exactly the series of fit: .*\(new: \['d'\]\)"):
        model.score(frame.replace({"b": "d"}))


def on(df, by):
    """A frame shifted in time."""
    return df.assign(ds=df["ds"] + by) if "ds" in df else df.set_axis(df.index + by)


def test_no_series_of_a_matrix_is_left_out(tiny, wide):
    wide.iloc[:105, 1] = np.nan
    with pytest.raises(ValueError, match="series 1 has 0 rows for training"):
        tiny(missing="mask").fit(wide.to_numpy())


def test_series_that_begin_later_are_trained_on_their_rows(tiny, wide, to_long):
    late = to_long(wide)
    late = late[(late["unique_id"] != "b") | (late["ds"] >= wide.index[40])]
    model = tiny().fit(late)
    forecast = model.predict()
    assert np.isfinite(forecast["Titans"]).all()
    assert np.isfinite(model.score(late))
    b = forecast.loc[forecast["unique_id"] == "b", "Titans"]
    assert b.between(100, 300).all()
    with pytest.raises(ValueError, match="multivariate=True needs series of the same length"):
        tiny(multivariate=True).fit(late)


def test_new_series_are_accepted_unless_series_are_mixed(tiny_fitted, tiny, wide):
    model = tiny_fitted
    new = wide[["b"]].rename(columns={"b": "new"}) * 1e6
    forecast = model.predict(new)
    assert list(forecast.columns) == ["new"]
    assert forecast["new"].between(1e8, 3e8).all()
    # a series has the forecast it had among others
    together = model.predict(pd.concat([wide, new], axis=1))
    np.testing.assert_allclose(together[["new"]], forecast, rtol=1e-5)
    # float32: digits count against the scale of the series, which is about 1, not against a value near 0
    np.testing.assert_allclose(together[["a"]], model.predict(wide)[["a"]], rtol=1e-5, atol=1e-6)

    mixed = tiny(multivariate=True, max_epochs=1).fit(wide)
    with pytest.raises(
        ValueError,
        match=r"multivariate model needs exactly the series of fit: \['a', 'b', 'c'\], got \['new'\]",
    ):
        mixed.predict(new)


def test_a_finished_training_is_not_repeated(tiny, wide, tmp_path, monkeypatch):
    expected = tiny().fit(wide, checkpoint_dir=tmp_path / "run").predict()
    seen = []
    real = DecayingError.__call__
    monkeypatch.setattr(
        DecayingError,
        "__call__",
        lambda self, network, batch: seen.append(network.training) or real(self, network, batch),
    )
    again = tiny().fit(wide, checkpoint_dir=tmp_path / "run")
    assert not any(seen)
    pd.testing.assert_frame_equal(again.predict(), expected, check_exact=True)
    tiny(max_epochs=1).fit(wide.iloc[:60])
    assert any(seen)


def test_the_checkpoint_of_another_fit_is_refused(tiny, wide, tmp_path):
    tiny(max_epochs=1).fit(wide, checkpoint_dir=tmp_path)
    for options, frame, says in (
        ({}, wide + 1, "the data differs"),
        ({"dropout": 0.1}, wide, "dropout is .* there and 0.1 here"),
        ({"dim": 16}, wide, "the network differs"),
    ):
        with pytest.raises(ValueError, match=f"the checkpoint of another run: .*{says}.*or delete .*last.ckpt"):
            tiny(max_epochs=1, **options).fit(frame, checkpoint_dir=tmp_path)


def test_training_is_long_enough_for_small_data_by_default(tiny, wide, monkeypatch):
    monkeypatch.setattr(training_length, "LEAST", 60)
    model = tiny(max_epochs=None, batch_size=48).fit(wide, val_size=0)
    assert len(model.history_.epochs) == 9  # 3 series of 105 windows: 7 batches an epoch, 60 in all


@pytest.mark.parametrize(
    ("batches", "rounds"), [(1, 200), (7, 172), (100, 12), (1874, 12), (4200, 14), (6132, 20), (45000, 20)]
)
def test_the_default_training_length_is_a_third_of_all_windows_within_bounds(batches, rounds):
    assert default_epochs(batches, together=False) == rounds


@pytest.mark.parametrize(("batches", "rounds"), [(1, 200), (480, 12), (1900, 19), (2300, 20)])
def test_the_default_training_length_of_mixed_series_is_all_windows_within_bounds(batches, rounds):
    assert default_epochs(batches, together=True) == rounds


@pytest.mark.parametrize(("series", "windows"), [(2, 64), (7, 18), (21, 16), (64, 16), (321, 3), (2000, 1)])
def test_a_batch_of_mixed_series_has_several_windows(series, windows):
    assert windows_in_batch(128, series) == windows


def test_verbose_0_is_silent_and_1_shows_progress(tiny, wide, capfd):
    model = tiny(verbose=0).fit(wide)
    model.predict()
    assert capfd.readouterr() == ("", "")
    tiny(verbose=1).fit(wide)
    shown = "".join(capfd.readouterr())
    assert "Epoch 1: 100%" in shown
    assert "val_loss" in shown


def test_the_plot_shows_the_forecast_after_the_past(tiny, wide):
    model = tiny().fit(wide.iloc[:100])
    figure = model.plot(wide.iloc[:100], actual=wide.iloc[100:104], series=["b", "a"], history=20)
    assert isinstance(figure, Figure)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["b", "a"]
    lines = {line.get_label(): line.get_ydata() for line in figure.axes[0].get_lines()}
    np.testing.assert_array_equal(lines["past"], wide["b"].iloc[80:100])
    np.testing.assert_array_equal(lines["actual"], wide["b"].iloc[100:104])
    np.testing.assert_allclose(lines["Titans"][1:], model.predict()["b"], rtol=1e-6)
    assert len(model.plot().axes) == 3
    with pytest.raises(ValueError, match=r"unknown series \['z'\]: the frame has"):
        model.plot(series=["z"])
    with pytest.raises(ValueError, match="series is empty: choose from"):
        model.plot(series=[])
    assert len(model.plot(series="b").axes) == 1


def test_actual_values_are_plotted_after_the_past_of_a_matrix_too(tiny, wide, to_long):
    values = wide.to_numpy()
    model = tiny(max_epochs=1).fit(values[:80])
    lines = {line.get_label(): line.get_xdata() for line in model.plot(actual=values[80:84]).axes[0].get_lines()}
    assert lines["actual"].tolist() == [80, 81, 82, 83]
    # of a frame with the model's own columns, without a word on them
    frame = to_long(wide).assign(price=1.0)
    model = tiny(exogenous={"hist": ["price"]}, max_epochs=1).fit(frame[frame["ds"] < wide.index[80]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.plot(actual=frame[frame["ds"] >= wide.index[80]])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("h", 0),
        ("input_size", 2.5),
        ("dim", "wide"),
        ("max_epochs", 0),
        ("loss", "rmse"),
        ("missing", "drop"),
        ("dropout", 1),
        ("learning_rate", 0),
        ("learning_rate", float("inf")),
    ],
)
def test_bad_settings_are_named_in_fit(tiny, wide, name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be .* got {value!r}"):
        tiny(**{name: value}).fit(wide)


def test_incompatible_settings_are_named(tiny, wide):
    with pytest.raises(ValueError, match="dim must be a multiple of 4, got 9"):
        tiny(dim=9).fit(wide)


def test_importing_the_package_is_fast_and_its_names_are_fixed():
    assert titans_ts.__all__ == ["TitansEnsemble", "TitansForecaster"]
    heavy = ("torch", "lightning", "pandas", "sklearn", "matplotlib")
    code = f"import sys, titans_ts; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
    with pytest.raises(AttributeError, match="no attribute 'Forecaster'"):
        titans_ts.Forecaster  # noqa: B018


@pytest.mark.slow
def test_a_saved_model_forecasts_without_lightning(tiny_fitted, tmp_path):
    tiny_fitted.save(tmp_path / "model")
    code = (
        "import sys; from titans_ts import TitansForecaster; TitansForecaster.load(sys.argv[1]).predict(); "
        "print([m for m in ('lightning', 'optuna', 'matplotlib', 'torch._dynamo') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, tmp_path / "model"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_parameters_set_after_fit_do_not_change_a_fitted_model(tiny_fitted, tmp_path):
    model = tiny_fitted
    expected = model.predict()
    model.set_params(h=9, input_size=5, dim=32, multivariate=True)
    pd.testing.assert_frame_equal(model.predict(), expected)
    model.save(tmp_path / "m")
    pd.testing.assert_frame_equal(TitansForecaster.load(tmp_path / "m").predict(), expected)


def test_a_model_of_a_matrix_forecasts_a_frame(tiny_fitted, tiny, wide):
    model = tiny(max_epochs=1).fit(wide.to_numpy())
    forecast = model.predict(wide)
    assert forecast.index[0] == wide.index[-1] + pd.Timedelta("1h")
    with pytest.raises(ValueError, match="irregular time stamps for freq 'h'"):
        tiny_fitted.predict(wide.iloc[::2])


def test_fits_in_threads_equal_fits_in_sequence(tiny_fitted, tiny, wide):
    alone = tiny_fitted.predict()
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda _: tiny().fit(wide).predict(), range(3)))
    assert torch.equal(torch.random.get_rng_state(), before)
    for forecast in found:
        pd.testing.assert_frame_equal(forecast, alone)


@pytest.mark.parametrize("missing", ["error", "interpolate", "mask"])
def test_the_callers_default_dtype_does_not_matter(tiny, wide, missing):
    if missing != "error":  # gaps in the middle and at the end
        wide.iloc[30:34, 0] = wide.iloc[90:95, 1] = wide.iloc[-3:, 2] = np.nan

    def found():
        model = tiny(missing=missing).fit(wide.iloc[:110])
        before = model.score(wide), model.predict_insample(wide, level=[80])
        return *before, model.update(wide.iloc[110:]).predict(level=[80])

    expected = found()
    torch.set_default_dtype(torch.float64)
    try:
        again = found()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert again[0] == expected[0]
    for frame, other in zip(again[1:], expected[1:], strict=True):
        pd.testing.assert_frame_equal(frame, other)


def test_fit_where_gradients_are_disabled(tiny_fitted, tiny, wide):
    expected = tiny_fitted.predict()
    with torch.no_grad():
        found = tiny().fit(wide).predict()
        assert not torch.is_grad_enabled()
    pd.testing.assert_frame_equal(found, expected)


def test_a_frame_without_any_window_to_train_on_is_refused(tiny):
    y = np.sin(np.arange(16.0))
    y[11] = np.nan  # the only lookback with a whole horizon after it ends here
    with pytest.raises(ValueError, match="there is no window to train on: each lookback ends in a gap"):
        tiny(missing="interpolate").fit(pd.DataFrame({"a": y}), val_size=0)


def test_fit_in_inference_mode_is_refused(tiny, wide):
    with torch.inference_mode(), pytest.raises(RuntimeError, match="call fit outside of it"):
        tiny().fit(wide)


@pytest.mark.parametrize("multivariate", [False, True])
def test_a_series_that_ended_may_be_left_out_of_the_scored_frame(tiny, wide, to_long, multivariate):
    long, static = to_long(wide), pd.DataFrame({"unique_id": list("abc"), "size": [1.0, 5.0, 90.0]})
    model = tiny(missing="mask", multivariate=multivariate, exogenous={"stat": ["size"]})
    model.fit(long, static_df=static, val_size=40)
    without = long[long["unique_id"] != "c"]
    silent = pd.concat([without, long[long["unique_id"] == "c"].head(1).assign(y=np.nan)])
    assert model.score(without) == model.score(silent)
    found = model.predict_insample(without)
    assert set(found["unique_id"]) == {"a", "b"}
    pd.testing.assert_frame_equal(found, model.predict_insample(silent))


def test_a_fitted_model_reads_frames_with_the_step_of_fit(tiny_fitted, wide):
    model = tiny_fitted
    before = model.predict(wide)
    pd.testing.assert_frame_equal(before, model.set_params(freq="2h").predict(wide))


def test_a_frame_given_as_y_is_refused(tiny, wide, to_long):
    with pytest.raises(TypeError, match="static_df="):
        tiny().fit(to_long(wide), pd.DataFrame({"unique_id": list("abc"), "size": 1.0}))


def test_windows_beyond_float32_are_refused(tiny_fitted, wide):
    model = tiny_fitted
    windows = np.stack([wide.to_numpy()[:12]] * 2)
    windows[1, 3, 0] = 1e300
    with pytest.raises(ValueError, match="1 values that are NaN, infinite or beyond float32"):
        model.predict_windows(windows)


def test_many_series_are_forecast_a_few_windows_at_a_time(tiny_fitted, wide, monkeypatch):
    model = tiny_fitted
    windows = np.lib.stride_tricks.sliding_window_view(wide.to_numpy(), 12, axis=0).transpose(0, 2, 1)
    whole, seen = model.predict_windows(windows), []
    monkeypatch.setattr("titans_ts.network.rolling.LANES", 10)
    normalised = type(model.network_).normalised
    monkeypatch.setattr(
        type(model.network_), "normalised", lambda self, x, *given: seen.append(len(x)) or normalised(self, x, *given)
    )
    np.testing.assert_allclose(model.predict_windows(windows), whole, rtol=1e-5, atol=1e-5)
    assert seen == [3] * 36 + [1]


def test_sizes_may_be_numbers_of_numpy(tiny, wide, monkeypatch):
    """As those of a grid of a search are."""
    monkeypatch.setattr(
        "titans_ts.network.rolling.FLOATS", 640
    )  # as with a long lookback: fewer windows at once than LANES
    expected = tiny(max_epochs=1).fit(wide)
    model = tiny(max_epochs=1, h=np.int64(4), input_size=np.int64(12)).fit(wide)
    np.testing.assert_array_equal(model.predict(level=[80]), expected.predict(level=[80]))
    assert model.score(wide) == expected.score(wide)
