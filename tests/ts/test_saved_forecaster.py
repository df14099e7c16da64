"""A forecaster that was saved is the same forecaster, whatever its settings, names and time stamps."""

import datetime
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import dateutil.tz
import numpy as np
import pandas as pd
import pytest
import torch

from titans_core.archive import ArchiveError, save_archive
from titans_ts import TitansForecaster

SHORT = 60  # rows that are too few for an online memory, where it has nothing to do with what is saved


def saved_and_loaded(model, path):
    model.save(path)
    return TitansForecaster.load(path)


@pytest.mark.parametrize(
    "stamps",
    [
        pd.date_range("2024-01-01", periods=120, freq="h", unit="ns"),
        pd.date_range("2024-01-01", periods=120, freq="h", unit="s"),
        pd.date_range("2024-01-01", periods=120, freq="h", tz="UTC"),
        pd.date_range("2024-12-01", periods=120, freq="D", tz="Europe/Berlin"),  # summer time begins with the forecast
        pd.date_range(end="2026-09-03", periods=120, freq="D", tz="America/Santiago"),  # a day there has no midnight
        pd.date_range("2024-01-01", periods=120, freq="W-WED"),
        pd.date_range("2024-01-01", periods=120, freq="B"),
    ],
    ids=["nanoseconds", "seconds", "utc", "berlin", "santiago", "wednesdays", "weekdays"],
)
def test_stamps_of_a_forecast_are_the_same_after_loading(tiny, wide, tmp_path, stamps):
    model = tiny(max_epochs=1).fit(wide.set_axis(stamps, axis=0))
    expected = model.predict()
    pd.testing.assert_frame_equal(saved_and_loaded(model, tmp_path).predict(), expected, check_exact=True)


@pytest.mark.parametrize("zone", [dateutil.tz.gettz("Europe/Berlin"), dateutil.tz.tzlocal()], ids=["file", "local"])
def test_a_time_zone_unknown_on_other_machines_is_refused_when_saving(tiny, wide, tmp_path, zone):
    stamps = pd.date_range("2024-01-01", periods=SHORT, freq="h", tz=zone)
    with pytest.warns(UserWarning, match=r"save\(\) will fail.*cannot be saved by name"):  # before the training
        model = tiny(max_epochs=1).fit(wide.iloc[:SHORT].set_axis(stamps, axis=0))
    with pytest.raises(ValueError, match=r"cannot be saved by name.*tz_convert\('Europe/Berlin'\)"):
        model.save(tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("h", np.int64(4)),
        ("dim", np.int32(8)),
        ("learning_rate", np.float32(1e-3)),
        ("freq", pd.offsets.Hour()),
        ("random_state", np.random.RandomState(0)),
        ("random_state", None),
    ],
    ids=["h", "dim", "learning_rate", "freq", "generator", "none"],
)
def test_settings_that_fit_takes_can_be_saved(tiny, wide, tmp_path, name, value):
    """A search over np.arange or an Optuna study sets such numbers."""
    model = tiny(max_epochs=1, **{name: value}).fit(wide.iloc[:SHORT])
    loaded = saved_and_loaded(model, tmp_path)
    pd.testing.assert_frame_equal(loaded.predict(), model.predict(), check_exact=True)
    if name != "random_state":
        assert loaded.get_params()[name] == value


@pytest.mark.parametrize(
    "ids",
    [[3, 1, 2], ["z", "é ü", ""], [1.5, 2.5, 3.5], ["a", 1, "b"]],
    ids=["numbers", "strings", "floats", "both"],
)
@pytest.mark.parametrize("layout", ["wide", "long"])
def test_names_of_series_are_the_same_after_loading(tiny, wide, to_long, tmp_path, ids, layout):
    frame = wide.set_axis(ids, axis=1).iloc[:SHORT]
    model = tiny(max_epochs=1).fit(to_long(frame) if layout == "long" else frame)
    expected = model.predict()
    pd.testing.assert_frame_equal(saved_and_loaded(model, tmp_path).predict(), expected, check_exact=True)


@pytest.mark.slow
def test_another_process_reads_the_same_numbers_from_a_folder_that_was_moved(tiny_fitted, tmp_path):
    model = tiny_fitted
    model.save(tmp_path / "here")
    shutil.move(tmp_path / "here", tmp_path / "there")
    code = (
        "import sys, torch; torch.set_num_threads(1); from titans_ts import TitansForecaster; "
        "print(TitansForecaster.load(sys.argv[1]).predict().to_numpy().tolist())"
    )
    run = subprocess.run([sys.executable, "-c", code, tmp_path / "there"], capture_output=True, text=True, check=True)
    assert run.stdout == f"{model.predict().to_numpy().tolist()}\n"
    assert run.stderr == ""


def test_a_pickled_forecaster_is_the_same_too(tiny_fitted):
    model = tiny_fitted
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(model)).predict(), model.predict(), check_exact=True)


def test_a_model_of_another_class_is_refused_by_name(tiny_fitted, tmp_path):
    class Other(TitansForecaster):
        pass

    tiny_fitted.save(tmp_path)
    with pytest.raises(ArchiveError, match="holds a TitansForecaster, not a Other"):
        Other.load(tmp_path)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_missing_file_is_named(tiny_fitted, tmp_path, name):
    tiny_fitted.save(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"no saved model at .*: {name} is missing"):
        TitansForecaster.load(tmp_path)


def test_saving_again_replaces_the_model(tiny_fitted, tiny, wide, tmp_path):
    tiny_fitted.save(tmp_path)
    second = tiny(random_state=5, h=2).fit(wide)
    pd.testing.assert_frame_equal(saved_and_loaded(second, tmp_path).predict(), second.predict(), check_exact=True)


@pytest.mark.parametrize("name", [("a", 1), pd.Timestamp("2024-01-01")])
@pytest.mark.parametrize("layout", ["wide", "long"])
def test_a_name_that_cannot_be_saved_is_refused_before_training(tiny, wide, to_long, name, layout):
    frame = wide.set_axis(pd.Index([name, "b", "c"], tupleize_cols=False, dtype=object), axis=1)
    frame, renamed = (frame, "df.columns = ") if layout == "wide" else (to_long(frame), r"df\['unique_id'\] = ")
    says = f"is a {type(name).__name__}, but only strings and numbers can be saved with a model.* with {renamed}"
    with pytest.raises(ValueError, match=says):
        tiny(max_epochs=1).fit(frame)


def test_loading_draws_no_random_numbers_and_keeps_the_seconds(tiny_fitted, tmp_path):
    model = tiny_fitted
    model.save(tmp_path / "m")
    before = torch.random.get_rng_state()
    loaded = TitansForecaster.load(tmp_path / "m")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert loaded.seconds_ == model.seconds_


def test_a_model_of_another_version_is_reported(tiny_fitted, tmp_path):
    """It lacks something that this version saves, or has more."""
    model = tiny_fitted
    learned, tensors = model._pack()
    params = model.get_params()
    for content, kept in (
        (learned, {k: v for k, v in tensors.items() if k != "context_drawn"}),
        ({**learned, "network": {**learned["network"], "unheard_of": 1}}, tensors),
    ):
        save_archive(tmp_path / "m", "TitansForecaster", {"params": params, "learned": content}, kept)
        with pytest.raises(ArchiveError, match="saved by another version"):
            TitansForecaster.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("freq", "step"),
    [
        (pd.Timedelta("1h"), "h"),
        (datetime.timedelta(hours=1), "h"),
        (np.timedelta64(3_600_000_000_000, "ns"), "h"),
        (np.timedelta64(1, "D"), "24h"),
        (pd.Timedelta("10us"), "10us"),
        (pd.Timedelta("1500ns"), "1500ns"),
    ],
)
def test_a_step_given_as_a_timedelta_is_saved(tiny, wide, tmp_path, freq, step):
    wide = wide.iloc[:SHORT].set_axis(pd.date_range("2024-01-01", periods=SHORT, freq=step, unit="ns"))
    model = tiny(freq=freq, max_epochs=1).fit(wide)
    loaded = saved_and_loaded(model, tmp_path / "m")
    pd.testing.assert_frame_equal(loaded.predict(wide), model.predict(wide))


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        pd.DateOffset(months=1),
        pd.DateOffset(days=1, normalize=True),
        pd.offsets.CustomBusinessDay(holidays=["2024-01-05"]),
        pd.offsets.CustomBusinessDay(n=2, weekmask="Mon Wed Fri", holidays=["2024-01-05"], normalize=True),
        pd.offsets.Week(2, weekday=2),
    ],
    ids=repr,
)
def test_a_step_that_is_an_offset_is_the_same_after_loading(tiny, wide, tmp_path, step):
    """At noon, which a normalised offset changes; given to fit or set later."""
    wide = wide.iloc[:SHORT]
    noon = wide.set_axis(pd.date_range("2024-01-03 12:00", periods=SHORT, freq=step))
    fitted = tiny(freq=step, max_epochs=1).fit(noon.set_axis(noon.index.normalize()) if step.normalize else noon)
    for model in (fitted, tiny(max_epochs=1).fit(wide).set_params(freq=step)):
        loaded = saved_and_loaded(model, tmp_path / "m")
        assert loaded.freq == step
        assert loaded.context_.freq == model.context_.freq
        pd.testing.assert_frame_equal(loaded.predict(), model.predict(), check_exact=True)
        shutil.rmtree(tmp_path / "m")
    again = saved_and_loaded(fitted.set_params(freq="MS"), tmp_path / "m")
    assert again.context_.freq == step
    assert again.freq == "MS"
    assert isinstance(again.freq, str)


def test_a_loaded_model_has_the_same_units_and_scores(tiny, wide, tmp_path):
    model = tiny(exogenous={"profile": ["day"]}, max_epochs=1).fit(wide)
    model.position_ = replace(model.position_, calibration=replace(model.calibration_, step=3, phase=2))
    model.save(tmp_path)
    loaded = TitansForecaster.load(tmp_path)
    for name in ("mean", "scale", "deviation", "profile"):
        np.testing.assert_array_equal(getattr(loaded.scaling_.units, name), getattr(model.scaling_.units, name))
    assert loaded.score(wide) == model.score(wide)
    assert (loaded.calibration_.step, loaded.calibration_.phase) == (3, 2)


def with_days(wide):
    """Add a daily shape as large as the waves."""
    return wide + 2 * np.sin(wide.index.hour.to_numpy() / 24 * 2 * np.pi)[:, None] * wide.std().to_numpy()


def test_a_model_saved_earlier_gives_the_same_forecasts(wide):
    """A model saved in the current format on 2026-11-26, and its forecast after ten more rows. If this fails, saved
    models are read wrongly, or the format has changed: then increase its number and create the folder again."""
    folder = Path(__file__).parent / "saved_by_format_6"
    model = TitansForecaster.load(folder)
    assert model.memory_ is not None
    assert model.scaling_.units.profile.any(axis=0).all()
    found = model.update(with_days(wide).iloc[110:]).predict(level=[80])
    then = pd.read_csv(folder / "then.csv", index_col="ds", parse_dates=True)
    np.testing.assert_allclose((found - then) / then.std(), 0, atol=1e-4)
    assert found.index.equals(then.index)
