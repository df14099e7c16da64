"""The peers of Table 3: models of neuralforecast with the settings of their papers' scripts for a lookback of 96.

Widths, layers and learning rates are those that the scripts of iTransformer, Time-Series-Library, TimeMixer, TimeXer
and SOFTS give for each set; training ends as there: at most 10 epochs, 3 without a better validation error.
"""

from typing import Any

from peers import QUIET, score_neuralforecast

EPOCHS, PATIENCE = 10, 3


def _itransformer(dataset: str, h: int) -> dict[str, Any]:
    if dataset == "ETTh1":
        size = {"hidden_size": 256 if h <= 192 else 512, "d_ff": 256 if h <= 192 else 512, "e_layers": 2}
    elif dataset == "weather":
        size = {"hidden_size": 512, "d_ff": 512, "e_layers": 3}
    else:
        size = {"hidden_size": 128, "d_ff": 128, "e_layers": 2}
    return {**size, "n_heads": 8, "learning_rate": 1e-4, "batch_size": 32, "windows_batch_size": 32}


def _patchtst(dataset: str, h: int) -> dict[str, Any]:
    small = dataset.startswith("ETTh")
    size = {"hidden_size": 16, "n_heads": 4, "linear_hidden_size": 128} if small else {
        "hidden_size": 128, "n_heads": 16, "linear_hidden_size": 256
    }  # fmt: skip
    return {**size, "encoder_layers": 3, "dropout": 0.3 if small else 0.2, "fc_dropout": 0.3 if small else 0.2,
            "patch_len": 16, "stride": 8, "learning_rate": 1e-4, "windows_batch_size": 896}  # fmt: skip


def _dlinear(dataset: str, h: int) -> dict[str, Any]:
    return {"moving_avg_window": 25, "learning_rate": 5e-3 if dataset.startswith("ETTh") else 1e-4,
            "windows_batch_size": 224}  # fmt: skip


def _timemixer(dataset: str, h: int) -> dict[str, Any]:
    layers = {"ETTh1": 2, "ETTh2": 2, "weather": 3, "ETTm1": 2, "ETTm2": 4}[dataset]
    width = 32 if dataset == "ETTm2" else 16
    return {"d_model": width, "d_ff": 32, "e_layers": layers, "down_sampling_layers": 3, "down_sampling_window": 2,
            "learning_rate": 1e-2, "windows_batch_size": 128}  # fmt: skip


def _timexer(dataset: str, h: int) -> dict[str, Any]:
    width = {"ETTh1": 256, "ETTh2": 256, "weather": 256, "ETTm1": 256, "ETTm2": 256}[dataset]
    layers = 1 if dataset in ("ETTm1", "ETTm2", "weather") else 2
    return {"hidden_size": width, "d_ff": 512, "e_layers": layers, "patch_len": 16, "learning_rate": 1e-4,
            "windows_batch_size": 32}  # fmt: skip


def _softs(dataset: str, h: int) -> dict[str, Any]:
    width = 512 if dataset == "weather" else 128 if dataset.startswith("ETTm") else 256
    layers = 3 if dataset == "weather" else 2
    return {"hidden_size": width, "d_core": width // 4 if dataset == "ETTh1" else 64, "d_ff": width, "e_layers": layers,
            "learning_rate": 3e-4, "windows_batch_size": 32}  # fmt: skip


PEERS = {
    "DLinear": _dlinear,
    "iTransformer": _itransformer,
    "SOFTS": _softs,
    "TimeMixer": _timemixer,
    "TimeXer": _timexer,
    "PatchTST": _patchtst,
}


def run_peer(name: str, dataset: str, input_size: int, h: int, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Train a peer and score every test window."""
    from neuralforecast import models
    from neuralforecast.losses.pytorch import MSE

    from titans_ts.evaluation import load_protocol

    data = load_protocol(dataset)
    series = data.values.shape[1]
    kind = getattr(models, name)
    windows = data.split.train.stop - input_size - h + 1
    a_batch = settings["windows_batch_size"]
    # a univariate model's batch counts windows of one series
    epoch = max(1, (windows if kind.MULTIVARIATE else windows * series) // a_batch)
    model = kind(
        h=h,
        input_size=input_size,
        **({"n_series": series} if kind.MULTIVARIATE else {}),
        **settings,
        loss=MSE(),
        max_steps=EPOCHS * epoch,
        val_check_steps=epoch,
        early_stop_patience_steps=PATIENCE,
        random_seed=seed + 1,
        scaler_type="identity",
        inference_windows_batch_size=256,
        accelerator="cpu",
        **QUIET,
    )
    found = score_neuralforecast(model, data)
    size = sum(p.numel() for p in model.parameters())
    return {**found, "seconds": round(found["seconds"], 1), "parameters": size, "settings": settings}
