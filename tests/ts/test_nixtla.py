"""The network in neuralforecast and darts: the same numbers, losses, exogenous columns, saving and loading."""

import logging
import subprocess
import sys
import textwrap
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
import ray
import torch
from neuralforecast import NeuralForecast
from neuralforecast.common._base_auto import MockTrial, RayOptions
from neuralforecast.losses.pytorch import GMM, MAE, MSE, DistributionLoss, MQLoss
from neuralforecast.models import DLinear, PatchTST
from neuralforecast.utils import AirPassengersPanel, AirPassengersStatic

from titans_datasets import load
from titans_ts.network.simba import Simba
from titans_ts.nixtla import AutoTitans, Standardised, Titans
from titans_ts.units.column_units import ColumnUnits, Moments

QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "enable_checkpointing": False}
SMALL = {
    "h": 12, "input_size": 24, "n_series": 2, "patch_size": 6, "dim": 8, "num_layers": 1, "dropout": 0.0,
    "max_steps": 5, "windows_batch_size": 8, "accelerator": "cpu", **QUIET,
}  # fmt: skip
FRAME = AirPassengersPanel[["unique_id", "ds", "y", "trend", "y_[lag12]"]].rename(columns={"y_[lag12]": "lag"})
TARGET = FRAME[["unique_id", "ds", "y"]]


@pytest.fixture(autouse=True)
def quiet():
    for name in ("lightning_fabric", "pytorch_lightning", "lightning.pytorch", "ray"):
        logging.getLogger(name).setLevel(logging.ERROR)


def last_windows():
    wide = TARGET.pivot(index="ds", columns="unique_id", values="y")
    return torch.tensor(wide.to_numpy()[-24:], dtype=torch.float32)[None]


def test_in_neuralforecast_the_forecasts_are_those_of_the_network():
    nf = NeuralForecast(models=[Titans(**SMALL), DLinear(h=12, input_size=24, max_steps=2, **QUIET)], freq="ME")
    nf.fit(TARGET)
    frame = nf.predict()
    assert list(frame.columns) == ["unique_id", "ds", "Titans", "DLinear"]
    network = nf.models[0].network
    assert isinstance(network, Simba)
    with torch.no_grad():
        expected = network.eval()(last_windows())[0]
    np.testing.assert_allclose(frame["Titans"].to_numpy().reshape(2, 12).T, expected, rtol=1e-4)


@pytest.mark.slow
def test_together_with_patchtst_it_fits_forecasts_backtests_saves_and_loads(real_data, tmp_path):
    wide = load("ETTh1").iloc[:2400][["HUFL", "MUFL", "OT"]]
    frame = wide.rename_axis("ds").reset_index().melt("ds", var_name="unique_id", value_name="y")
    common = {"h": 24, "input_size": 48, "accelerator": "cpu", "random_seed": 1, **QUIET}
    titans = Titans(**common, n_series=3, patch_size=12, dim=16, num_layers=1, max_steps=30, val_check_steps=15)
    peer = PatchTST(**common, hidden_size=16, n_heads=2, patch_len=12, stride=6, max_steps=4, val_check_steps=2)
    nf = NeuralForecast(models=[titans, peer], freq="h")
    nf.fit(frame[frame["ds"] < wide.index[2376]], val_size=240)
    found = nf.predict()
    assert list(found.columns) == ["unique_id", "ds", "Titans", "PatchTST"]
    nf.save(str(tmp_path / "nf"), overwrite=True, save_dataset=True)
    loaded = NeuralForecast.load(str(tmp_path / "nf")).predict()
    pd.testing.assert_frame_equal(loaded[found.columns], found, rtol=1e-5)
    rolled = nf.cross_validation(frame, n_windows=10, step_size=24, val_size=240)
    assert rolled.groupby("cutoff").size().tolist() == [72] * 10
    error = (rolled["y"] - rolled["Titans"]).abs().groupby(rolled["unique_id"]).mean() / wide.std()
    naive = wide.diff(24).iloc[-240:].abs().mean() / wide.std()
    assert error.mean() < naive.mean()  # PatchTST, hardly trained, is not judged


@pytest.mark.slow
@pytest.mark.parametrize("scaler", ["identity", "standard", "robust", "minmax", "minmax1", "invariant"])
def test_scalers_of_neuralforecast_give_forecasts_in_the_units_of_the_series(scaler):
    nf = NeuralForecast(models=[Titans(**{**SMALL, "max_steps": 15}, scaler_type=scaler)], freq="ME")
    nf.fit(TARGET)
    last = TARGET.groupby("unique_id")["y"].apply(lambda y: y[-12:].mean())
    found = nf.predict().groupby("unique_id")["Titans"].mean()
    np.testing.assert_allclose(found / last, 1, atol=0.3)


def test_it_learns_and_backtests():
    models = [Titans(**{**SMALL, "max_steps": 75, "learning_rate": 1e-2})]
    frame = NeuralForecast(models=models, freq="ME").cross_validation(TARGET, n_windows=2, step_size=12)
    error = (frame["y"] - frame["Titans"]).abs().mean()
    naive = TARGET.groupby("unique_id")["y"].diff(12).abs().groupby(TARGET["unique_id"]).apply(lambda d: d[-24:].mean())
    assert error < 1.2 * naive.mean()
    assert frame.groupby("unique_id").size().tolist() == [24, 24]


@pytest.mark.slow
def test_a_saved_model_is_the_same_in_another_process(tmp_path):
    nf = NeuralForecast(models=[Titans(**SMALL)], freq="ME")
    nf.fit(TARGET)
    nf.save(str(tmp_path / "nf"), overwrite=True, save_dataset=True)
    script = """
        import titans_ts.nixtla
        from neuralforecast import NeuralForecast
        NeuralForecast.load("nf").predict().to_parquet("f.parquet")
    """
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "f.parquet"), nf.predict(), rtol=1e-5)


def test_quantiles_are_in_their_columns_and_a_distribution_in_its_units():
    quantiles = Titans(**SMALL, loss=MQLoss(level=[80]), alias="Q")
    student = Titans(
        **{**SMALL, "max_steps": 60}, loss=DistributionLoss("StudentT", level=[80]), scaler_type="standard", alias="S"
    )
    nf = NeuralForecast(models=[quantiles, student], freq="ME")
    nf.fit(TARGET)
    frame = nf.predict()
    with torch.no_grad():
        raw = nf.models[0].network.eval()(last_windows())[0]  # [h, N, 3]
    for at, name in enumerate(("Q-median", "Q-lo-80", "Q-hi-80")):
        np.testing.assert_allclose(frame[name].to_numpy().reshape(2, 12).T, raw[..., at], rtol=1e-4)
    level = TARGET.groupby("unique_id")["y"].apply(lambda y: y[-12:].mean()).to_numpy()
    found = frame["S-median"].to_numpy().reshape(2, 12).mean(axis=1)
    np.testing.assert_allclose(found, level, rtol=0.35)
    assert (frame["S-lo-80"] < frame["S-hi-80"]).all()


@pytest.mark.parametrize(
    "loss",
    [
        DistributionLoss("Normal", level=[80]),
        DistributionLoss("ISQF", level=[80], num_pieces=1),
        GMM(n_components=2, level=[80]),
        MQLoss(level=[80]),
        MAE(),
    ],
    ids=lambda loss: getattr(loss, "distribution", type(loss).__name__),
)
def test_forecasts_of_a_series_do_not_depend_on_others(loss):
    scaler = "standard" if loss.is_distribution_output else "identity"
    nf = NeuralForecast(models=[Titans(**SMALL, loss=loss, scaler_type=scaler)], freq="ME")
    nf.fit(TARGET)
    first, second = TARGET["unique_id"].unique()
    changed = TARGET.assign(y=TARGET["y"].where(TARGET["unique_id"] != first, TARGET["y"].to_numpy()[::-1]))
    found = []
    for df in (TARGET, changed):
        torch.manual_seed(0)
        found.append(nf.predict(df=df).set_index("unique_id").filter(like="Titans"))
    pd.testing.assert_frame_equal(found[0].loc[second], found[1].loc[second], rtol=1e-5)
    assert not np.allclose(found[0].loc[first], found[1].loc[first], rtol=1e-3)


@pytest.mark.parametrize("distribution", ["Normal", "StudentT", "NegativeBinomial", "Poisson"])
def test_distribution_parameters_belong_to_their_series(distribution):
    model = Titans(**SMALL, loss=DistributionLoss(distribution), scaler_type="standard").eval()
    x = last_windows()
    changed = torch.stack((x[..., 0].flip(1), x[..., 1]), dim=-1)
    with torch.no_grad():
        own, other = (model.loss.domain_map(model({"insample_y": y})) for y in (x, changed))
        raw = model.network(x)  # [1, h, N, parameters]
    assert len(own) == len(model.loss.param_names)
    for i, (parameter, now) in enumerate(zip(own, other, strict=True)):
        torch.testing.assert_close(parameter.reshape(1, 12, 2), raw.reshape(1, 12, 2, -1)[..., i])
        torch.testing.assert_close(parameter[..., 1], now[..., 1])
        assert not torch.allclose(parameter[..., 0], now[..., 0], rtol=1e-3)


@pytest.mark.parametrize("loss", [MAE(), MSE()], ids=["mae", "mse"])
def test_exogenous_columns_of_every_kind_move_the_forecast(loss):
    model = Titans(
        **{**SMALL, "max_steps": 20, "learning_rate": 1e-2}, loss=loss,
        futr_exog_list=["trend"], hist_exog_list=["lag"], stat_exog_list=["airline1"],
    )  # fmt: skip
    nf = NeuralForecast(models=[model], freq="ME")
    nf.fit(FRAME, static_df=AirPassengersStatic)
    ahead = nf.make_future_dataframe().assign(trend=150.0)

    def forecast(frame=FRAME, futr=ahead, static=AirPassengersStatic):
        return nf.predict(frame, static_df=static, futr_df=futr)["Titans"].to_numpy()

    expected = forecast()
    assert np.abs(forecast(futr=ahead.assign(trend=50.0)) - expected).max() > 1e-2
    assert np.abs(forecast(frame=FRAME.assign(lag=9.0)) - expected).max() > 1e-2
    assert np.abs(forecast(static=AirPassengersStatic.assign(airline1=5.0)) - expected).max() > 1e-2


def test_the_units_of_exogenous_columns_do_not_change_the_forecast(tmp_path):
    """A column of millions would drown the others, and the target."""
    columns = {"futr_exog_list": ["trend"], "hist_exog_list": ["lag"], "stat_exog_list": ["airline1"]}

    def forecast(of, static, then):
        model = Titans(**{**SMALL, "max_steps": 20, "learning_rate": 1e-2}, **columns)
        nf = NeuralForecast(models=[model], freq="ME")
        nf.fit(of, static_df=static)
        nf.save(str(tmp_path / "nf"), overwrite=True)
        loaded = NeuralForecast.load(str(tmp_path / "nf"))
        ahead = nf.make_future_dataframe(of).assign(trend=then)
        return loaded.predict(of, static_df=static, futr_df=ahead)["Titans"].to_numpy()

    # powers of two, which round nothing: a rounding that differs is another training after some steps
    large = FRAME.assign(trend=FRAME["trend"] * 2**20, lag=FRAME["lag"] / 2**20)
    expected = forecast(FRAME, AirPassengersStatic, 150.0)
    static = AirPassengersStatic.assign(airline1=AirPassengersStatic["airline1"] * 2**20)
    np.testing.assert_allclose(forecast(large, static, 150.0 * 2**20), expected, rtol=1e-3)
    # whose windows have units of their own, but for what does not change in one
    assert list(Titans(**SMALL, **columns, scaler_type="standard").units) == ["stat"]


def test_each_series_keeps_its_place_in_training():
    """A column in two currencies has units for each series, which a shuffled batch would mix up."""
    first = FRAME["unique_id"].iloc[0]
    factor = np.where(FRAME["unique_id"] == first, 1.0, 1000.0)
    frame = FRAME.assign(trend=FRAME["trend"] * factor)
    nf = NeuralForecast(models=[Titans(**{**SMALL, "max_steps": 10}, futr_exog_list=["trend"])], freq="ME")
    nf.fit(frame)
    units = nf.models[0].units["futr"]
    by_series = frame.groupby("unique_id")["trend"]
    assert (units.low[:, 0].numpy() >= by_series.min()).all()
    assert (units.high[:, 0].numpy() <= by_series.max()).all()


def test_padding_of_windows_is_not_a_value_of_a_column():
    """neuralforecast pads with zeros after a series in training, and before one that begins late."""
    frame = FRAME.assign(trend=FRAME["trend"] + 5000)
    first = frame["unique_id"].iloc[0]
    late = frame[(frame["unique_id"] == first) | (frame["ds"] > frame["ds"].min() + pd.DateOffset(months=40))]
    model = Titans(
        **{**SMALL, "max_steps": 40}, futr_exog_list=["trend"], hist_exog_list=["lag"], start_padding_enabled=True
    )
    nf = NeuralForecast(models=[model], freq="ME")
    nf.fit(late)
    units = nf.models[0].units["futr"]
    assert abs(float(units.mean.mean()) - late["trend"].mean()) < 60  # of windows drawn at random; zeros are 5000 off
    assert float(units.variance.max().sqrt()) < 120  # 83 of the frame
    assert float(units.low.min()) >= 5000


def test_padding_of_windows_moves_no_forecast():
    torch.manual_seed(0)
    model = Titans(**SMALL, hist_exog_list=["lag"], futr_exog_list=["trend"])
    torch.nn.init.normal_(model.network.direct.weight)
    h, L = SMALL["h"], SMALL["input_size"]
    x, mask, columns = 1000 + torch.randn(5, L, 2), torch.ones(5, L, 2), 5000 + torch.randn(5, 1, L + h, 2)
    mask[:, :7, 0] = 0  # a series that begins late; the next window is of its first row, the last before it
    mask[1, :-1, 0], mask[2, :, 0] = 0, 0

    def forecast(mask, pad=0.0):
        there = torch.cat((mask, torch.ones(5, h, 2)), dim=1) > 0
        futr = columns.where(there[:, None], pad)
        y = x.where(mask > 0, pad)
        return model({"insample_y": y, "insample_mask": mask, "hist_exog": futr[:, :, :L], "futr_exog": futr})

    forecast(mask)  # in training, which learns the units of the columns
    model.eval()
    padded = forecast(mask)
    torch.testing.assert_close(padded, forecast(mask, pad=1e4))  # zeros are below all values, and this above
    assert (padded[[0, 1, 3, 4]] > 900).all()  # zeros are a thousand lower
    torch.testing.assert_close(padded[..., 1], forecast(torch.ones_like(mask))[..., 1])
    expected, columns[:, :, -h - 1 :] = padded, 5001.0
    assert (forecast(mask) - expected).abs().amax(dim=(0, 1)).min() > 1e-3  # columns do count


def test_units_of_columns_come_from_all_training_rows():
    torch.manual_seed(0)
    sizes = torch.tensor([[1e-6, 1e6, 0.0, 1.0], [1e-6, 1e2, 0.0, 1.0]])
    units = Standardised(columns=4, series=2)
    batches = [torch.randn(4, 5, 2, 4) * sizes + torch.tensor([0.0, 0.0, 1e7, 0.0]) + i * sizes * 0.1 for i in range(6)]
    for batch in batches:
        batch[..., 3] = (batch[..., 3] > 2).float()
    assert not units.eval()(batches[0]).any()  # nothing is known yet
    for i, batch in enumerate(batches, start=1):
        found = units.train()(batch)
        seen = torch.stack(batches[:i]).double().flatten(0, 2)  # [R, series, columns]
        expected = ColumnUnits.of(Moments.of(seen, torch.tensor(True)), 1e-6, once=0.0)
        torch.testing.assert_close(found, expected.standardised(batch.double()).float(), rtol=1e-3, atol=1e-3)
        assert not found[..., 2].any()  # which never changes
    assert expected.apart.tolist() == [False, True, False, False]
    torch.testing.assert_close(found[..., 3].max() - found[..., 3].min(), torch.tensor(1.0))
    torch.testing.assert_close(units.eval()(batches[-1]), found)
    far = units(1e9 * sizes.expand(1, 1, 2, 4))
    assert far.isfinite().all()
    assert far.max() < 30  # the range of training and as much again
    assert int(units.number[0, 0]) == 120
    assert not Standardised(3, 1)(torch.full((1, 1, 1, 3), 7.0)).any()  # a row deviates by nothing


def test_columns_of_categories_are_embedded_as_by_other_models():
    frame = FRAME.assign(quarter=FRAME["ds"].dt.quarter - 1)
    model = Titans(
        **{**SMALL, "max_steps": 20, "learning_rate": 1e-2}, futr_exog_list=["trend", "quarter"],
        cat_exog_list=["quarter"], categorical_cardinalities={"quarter": 4},
    )  # fmt: skip
    nf = NeuralForecast(models=[model], freq="ME")
    nf.fit(frame)
    ahead = nf.make_future_dataframe().assign(trend=150.0)
    first, last = (nf.predict(futr_df=ahead.assign(quarter=q))["Titans"].to_numpy() for q in (0, 3))
    assert np.abs(first - last).max() > 1e-3
    assert nf.models[0].units["futr"].mean.shape == (2, 1)  # of the trend of two series


def test_embeddings_of_categories_have_no_units():
    """They change as they are learned: a category that is constant in a series is no constant there."""
    x = torch.randn(4, 6, 2, 3)
    x[:, :, 0, 1:] = torch.linspace(1, 1.001, 4)[:, None, None]
    units = Standardised(1, 2).train()
    found = units(x)
    assert torch.equal(found[..., 1:], x[..., 1:])
    assert not torch.equal(found[..., :1], x[..., :1])


def test_mixed_series_work_and_unsupported_options_are_refused():
    model = Titans(**SMALL, multivariate=True)
    nf = NeuralForecast(models=[model], freq="ME")
    nf.fit(TARGET)
    network, x = nf.models[0].network.eval(), last_windows()
    changed = x.clone()
    changed[..., 0] = changed[..., 0].flip(1)
    with torch.no_grad():
        assert (network(changed) - network(x))[..., 1].abs().max() > 1e-4
    with pytest.raises(ValueError, match="created with n_series=3, but got 2 series"):
        NeuralForecast(models=[Titans(**{**SMALL, "n_series": 3})], freq="ME").fit(TARGET)
    with pytest.raises(ValueError, match="exclude_insample_y=True is not supported"):
        Titans(**SMALL, exclude_insample_y=True)
    with pytest.raises(ValueError, match=r"needs a scaler.*scaler_type='standard'"):
        Titans(**SMALL, loss=DistributionLoss("Normal"))


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "samples"), [("optuna", 2), ("ray", 1)])
def test_settings_are_searched_by_both_backends(backend, samples, tmp_path, request):
    if backend == "ray":  # which a search starts with more processes than it needs, and leaves running
        ray.init(num_cpus=1, include_dashboard=False)
        request.addfinalizer(ray.shutdown)
    config = AutoTitans.get_default_config(h=12, backend=backend, n_series=2)
    small = {"max_steps": 2, "dim": 8, "num_layers": 1, "val_check_steps": 1, **QUIET, "accelerator": "cpu"}
    space = {**config, **small} if backend == "ray" else (lambda trial: {**config(trial), **small})
    options = {"ray_options": RayOptions(cpus=1, gpus=0)} if backend == "ray" else {}
    auto = AutoTitans(h=12, n_series=2, config=space, num_samples=samples, backend=backend, **options)
    nf = NeuralForecast(models=[auto], freq="ME")
    nf.fit(TARGET, val_size=24)
    assert nf.predict()["AutoTitans"].notna().all()
    assert isinstance(nf.models[0].model, Titans)
    nf.save(str(tmp_path / "nf"), overwrite=True, save_dataset=True)
    loaded = NeuralForecast.load(str(tmp_path / "nf"))
    np.testing.assert_allclose(
        loaded.predict().iloc[:, -1].to_numpy(), nf.predict()["AutoTitans"].to_numpy(), rtol=1e-5
    )


@pytest.mark.parametrize("backend", ["optuna", "ray"])
def test_the_default_space_of_a_distribution_has_a_scaler(backend):
    auto = AutoTitans(h=12, n_series=2, loss=DistributionLoss("Normal"), backend=backend)
    config = auto.config(MockTrial()) if backend == "optuna" else auto.config
    assert config["scaler_type"] == "standard"


def test_a_config_for_other_series_is_refused():
    config = AutoTitans.get_default_config(h=12, backend="optuna", n_series=3)
    with pytest.raises(ValueError, match="'n_series': 2"):
        AutoTitans(h=12, n_series=2, config=config, backend="optuna")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        *(({name: 0}, f"{name} must be an integer >= 1, got 0") for name in
          ("h", "input_size", "n_series", "patch_size", "dim", "num_layers", "num_heads", "memory_depth",
           "chunk_size")),
        ({"input_size": -1, "patch_size": None}, "input_size must be an integer >= 1, got -1"),
        ({"h": 2.5}, "h must be an integer >= 1, got 2.5"),
        ({"dim": 30}, "got dim=30 and num_heads=4"),
        ({"dim": 6, "num_heads": 3}, "dim must be a multiple of 4 with mixer='einfft', got 6"),
        ({"mixer": "fft"}, "mixer must be one of .* got 'fft'"),
        ({"dropout": 1.5}, r"dropout must be in \[0, 1\), got 1.5"),
        ({"loss": "mae"}, r"such as MAE\(\), got 'mae'"),
        ({"d_model": 64}, r"neither Titans nor Lightning's Trainer has \['d_model'\]. Titans has the sizes .* dim,"),
    ],
    ids=lambda x: "-".join(x) if isinstance(x, dict) else "",
)  # fmt: skip
def test_invalid_arguments_are_refused_in_the_constructor(wrong, says):
    with pytest.raises((ValueError, TypeError), match=says):
        Titans(**{**SMALL, **wrong})
    if {"h", "n_series", "loss"} & set(wrong):
        with pytest.raises((ValueError, TypeError), match=says):
            AutoTitans(**{"h": 12, "n_series": 2, **wrong})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"config": {"input_size": 24, "patch_siz": 8}}, r"config of AutoTitans: .* has \['patch_siz'\]"),
        ({"config": lambda trial: {"n_series": 2, "d_model": 8}, "backend": "optuna"}, r"has \['d_model'\]"),
        ({"config": {"input_size": 24}, "backend": "optuna"}, "config must be a function trial -> dict"),
        (
            {"config": lambda trial: None, "backend": "optuna"},
            "config must be a function trial -> dict for backend='optuna'",
        ),
        ({"config": lambda trial: {}}, "config must be a dict for backend='ray', got function"),
        ({"backend": "hyperopt"}, "backend must be 'ray' or 'optuna', got 'hyperopt'"),
    ],
)
def test_an_invalid_config_is_refused_in_the_constructor(options, says):
    with pytest.raises((ValueError, TypeError), match=says):
        AutoTitans(h=12, n_series=2, **options)


def test_the_model_works_in_darts(tmp_path):
    from darts import TimeSeries
    from darts.models import NeuralForecastModel

    try:
        from darts.utils.serialization import safe_globals
    except ImportError:  # before darts 0.48, whose last version for Python 3.10 loads any class
        safe_globals = nullcontext
    wide = TARGET.pivot(index="ds", columns="unique_id", values="y").astype(np.float32)
    series = TimeSeries.from_dataframe(wide, freq="ME")
    model = NeuralForecastModel(
        input_chunk_length=24, output_chunk_length=12, model=Titans, n_epochs=2, random_state=0,
        model_kwargs={"patch_size": 6, "dim": 8, "num_layers": 1},
        pl_trainer_kwargs={"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False},
    )  # fmt: skip
    model.fit(series)
    found = model.predict(12)
    assert list(found.components) == list(wide.columns)
    network = model.model.nf.network
    assert isinstance(network, Simba)
    with torch.no_grad():
        expected = network.eval()(torch.tensor(wide.to_numpy()[-24:])[None])[0]
    np.testing.assert_allclose(found.values(), expected, rtol=1e-4)
    model.save(str(tmp_path / "titans.pt"))
    with safe_globals([Titans]):
        loaded = NeuralForecastModel.load(str(tmp_path / "titans.pt"))
    np.testing.assert_array_equal(loaded.predict(12).values(), found.values())


def test_darts_covariates_may_have_any_unit():
    from darts import TimeSeries
    from darts.models import NeuralForecastModel

    wide = TARGET.pivot(index="ds", columns="unique_id", values="y").astype(np.float32)
    series = TimeSeries.from_dataframe(wide, freq="ME")
    stamps = wide.index.append(pd.date_range(wide.index[-1], periods=13, freq="ME")[1:])
    columns = {"month": stamps.month, "level": 1e6 + np.arange(len(stamps))}
    ahead = pd.DataFrame(columns, index=stamps).astype(np.float32)
    model = NeuralForecastModel(
        input_chunk_length=24, output_chunk_length=12, model=Titans, n_epochs=2, random_state=0,
        model_kwargs={"patch_size": 6, "dim": 8, "num_layers": 1},
        pl_trainer_kwargs={"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False},
    )  # fmt: skip
    model.fit(series, future_covariates=TimeSeries.from_dataframe(ahead, freq="ME"))
    units = model.model.nf.units["futr"]
    seen = ahead.iloc[: len(wide) - 12]  # rows of lookbacks; those in the middle are in more of them
    np.testing.assert_allclose(units.mean, [seen.mean()] * 2, rtol=0.02)  # of two series
    assert np.isfinite(model.predict(12, future_covariates=TimeSeries.from_dataframe(ahead, freq="ME")).values()).all()


def test_every_setting_of_training_reaches_neuralforecast():
    settings = {
        "max_steps": 7,
        "learning_rate": 3e-4,
        "early_stop_patience_steps": 4,
        "val_check_steps": 5,
        "batch_size": 3,
        "valid_batch_size": 2,
        "windows_batch_size": 11,
        "inference_windows_batch_size": 13,
        "start_padding_enabled": True,
        "step_size": 2,
        "random_seed": 9,
        "alias": "other",
    }
    model = Titans(h=12, input_size=24, n_series=2, loss=MSE(), valid_loss=MAE(), num_lr_decays=3, **settings)
    assert {name: getattr(model, name) for name in settings} == settings
    assert model.lr_decay_steps == 2
    assert (type(model.loss), type(model.valid_loss)) == (MSE, MAE)


def test_lookbacks_of_the_default_space_are_multiples_of_the_horizon():
    config = AutoTitans.get_default_config(h=12, backend="ray", n_series=2)
    assert config["input_size"].categories == [12, 24, 36, 48]
    auto = AutoTitans(h=12, n_series=2, config={**AutoTitans.default_config, "max_steps": 2})
    assert auto.config["input_size"].categories == [12, 24, 36, 48]


@pytest.mark.parametrize("backend", ["optuna", "ray"])
def test_a_constant_of_the_default_space_replaces_what_is_searched(backend):
    config = AutoTitans.get_default_config(h=12, backend=backend, n_series=2, input_size=30, dim=8)
    config = config(MockTrial()) if backend == "optuna" else config
    assert (config["input_size"], config["dim"]) == (30, 8)
