"""The peers of Table 3: neuralforecast models with the settings of public scripts, at a lookback of 96.

DLinear, iTransformer and SOFTS follow their authors' scripts; PatchTST, TimeMixer and TimeXer follow
Time-Series-Library. (DLinear's script is for a lookback of 336. At the learning rate of 1e-4 that Time-Series-Library
has for 96, neuralforecast's DLinear learns almost nothing on ETTh1.) Widths, layers, heads, dropout, batches, learning
rates and their schedules, epochs and patience are those of the scripts. As there, the weights of the best validation
epoch are scored. The networks are neuralforecast's, which differ from the papers in some details.
"""

import copy
from dataclasses import dataclass, field
from typing import Any

from peers import QUIET, score_neuralforecast
from quick_windows import draw_quickly

HORIZONS = (96, 192, 336, 720)


@dataclass(frozen=True)
class Script:
    """The settings of a script.

    Attributes:
        network: arguments of the model.
        batch: windows per batch, each of all series.
        decay: schedule of the learning rate: "half" after each epoch, or "cosine" to 0.
        patience: epochs without a better validation error before training stops.
    """

    network: dict[str, Any] = field(default_factory=dict)
    batch: int = 32
    learning_rate: float = 1e-4
    decay: str = "half"
    epochs: int = 10
    patience: int = 3


def _dlinear(dataset: str, h: int) -> Script:
    rates = {"ETTh1": 5e-3, "ETTh2": 5e-2, "ETTm2": 1e-3 if h <= 192 else 1e-2}
    batch = {"ETTm1": 8, "weather": 16}.get(dataset, 32)
    return Script({"moving_avg_window": 25}, batch=batch, learning_rate=rates.get(dataset, 1e-4))


def _itransformer(dataset: str, h: int) -> Script:
    width = {"ETTh1": 256 if h <= 192 else 512, "weather": 512}.get(dataset, 128)
    layers = 3 if dataset == "weather" else 2
    return Script({"hidden_size": width, "d_ff": width, "e_layers": layers, "n_heads": 8, "dropout": 0.1})


def _softs(dataset: str, h: int) -> Script:
    layers, width, core, inner = {
        "ETTh1": (1, 256, 256, 256 if h <= 192 else 512),
        "ETTh2": (2, 128, 64, 128),
        "ETTm1": (2, 128, 64, 128),
        "ETTm2": (2, 256, 256, 128),
        "weather": (3, 512, 128, 512),
    }[dataset]
    epochs, patience = {"ETTm1": (50, 3), "weather": (10, 10)}.get(dataset, (20, 3))
    return Script(
        {"hidden_size": width, "d_core": core, "d_ff": inner, "e_layers": layers, "dropout": 0.0},
        batch=16 if dataset in ("ETTm1", "weather") else 32,
        learning_rate=3e-4,
        decay="cosine",
        epochs=epochs,
        patience=patience,
    )


def _timemixer(dataset: str, h: int) -> Script:
    return Script(
        {
            "d_model": 32 if dataset == "ETTm2" else 16,
            "d_ff": 32,
            "e_layers": 3 if dataset == "weather" else 2,
            "down_sampling_layers": 3,
            "down_sampling_window": 2,
            "channel_independence": 1,
            "dropout": 0.1,
        },
        batch={"ETTh2": 32, "ETTm1": 16}.get(dataset, 128),
        learning_rate=1e-2,
        epochs=20 if dataset == "weather" else 10,
        patience=10 if dataset in ("ETTh1", "weather") else 3,
    )


def _timexer(dataset: str, h: int) -> Script:
    layers, width, inner, batch = {
        "ETTh1": ((1, 256, 2048, 4), (2, 128, 2048, 4), (1, 512, 1024, 16), (1, 256, 1024, 16)),
        "ETTh2": ((1, 256, 1024, 16), (1, 256, 1024, 32), (2, 512, 1024, 4), (2, 256, 1024, 16)),
        "ETTm1": ((1, 256, 2048, 4), (1, 256, 256, 4), (1, 256, 1024, 4), (1, 256, 512, 4)),
        "ETTm2": ((1, 256, 2048, 32), (1, 256, 1024, 16), (1, 512, 1024, 32), (1, 512, 2048, 32)),
        "weather": ((1, 256, 512, 4), (3, 128, 1024, 4), (1, 256, 2048, 4), (1, 128, 2048, 4)),
    }[dataset][HORIZONS.index(h)]
    network = {"hidden_size": width, "d_ff": inner, "e_layers": layers, "n_heads": 8, "patch_len": 16, "dropout": 0.1}
    return Script(network, batch=batch)


def _patchtst(dataset: str, h: int) -> Script:
    layers, heads, batch = {
        "ETTh1": ((1, 2, 32), (1, 8, 32), (1, 8, 32), (1, 16, 32)),
        "ETTh2": ((3, 4, 32), (3, 4, 32), (3, 4, 32), (3, 4, 32)),
        "ETTm1": ((1, 2, 32), (3, 2, 128), (1, 4, 128), (3, 4, 128)),
        "ETTm2": ((3, 16, 32), (3, 2, 128), (1, 4, 32), (3, 4, 128)),
        "weather": ((2, 4, 32), (2, 16, 32), (2, 4, 128), (2, 4, 128)),
    }[dataset][HORIZONS.index(h)]
    network = {"hidden_size": 512, "linear_hidden_size": 2048, "encoder_layers": layers, "n_heads": heads,
               "patch_len": 16, "stride": 8, "dropout": 0.1, "fc_dropout": 0.1, "attn_dropout": 0.1,
               "head_dropout": 0.1, "res_attention": False, "batch_normalization": True,
               "revin_subtract_last": False}  # fmt: skip
    return Script(network, batch=batch, epochs=3 if dataset == "weather" else 10)


SCRIPTS = {
    "DLinear": _dlinear,
    "iTransformer": _itransformer,
    "SOFTS": _softs,
    "TimeMixer": _timemixer,
    "TimeXer": _timexer,
    "PatchTST": _patchtst,
}


def settings(name: str, dataset: str, h: int) -> dict[str, Any]:
    """The settings of a peer, as in the result files."""
    return copy.deepcopy(vars(SCRIPTS[name](dataset, h)))


def peer(
    name: str,
    script: Script,
    data: Any,
    h: int,
    input_size: int,
    seed: int,
    epochs: int | None = None,
    accelerator: str = "cpu",
) -> Any:
    """An untrained neuralforecast model that trains by a script; ``epochs`` replaces its epochs and early stopping."""
    import torch
    from neuralforecast import models
    from neuralforecast.losses.pytorch import MSE

    series = data.values.shape[1]
    kind = getattr(models, name)
    # an epoch is a pass over the training windows; a univariate model's batch counts windows of one series
    steps = max(1, (data.split.train.stop - input_size - h + 1) // script.batch)
    rounds = script.epochs if epochs is None else epochs
    decay = (
        {"num_lr_decays": rounds}
        if script.decay == "half"
        else {
            "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR,
            "lr_scheduler_kwargs": {"T_max": rounds * steps},
        }
    )
    return kind(
        h=h,
        input_size=input_size,
        **({"n_series": series} if kind.MULTIVARIATE else {}),
        **script.network,
        **decay,
        loss=MSE(),
        max_steps=rounds * steps,
        val_check_steps=steps,
        early_stop_patience_steps=script.patience if epochs is None else -1,
        batch_size=series,
        windows_batch_size=script.batch * (1 if kind.MULTIVARIATE else series),
        inference_windows_batch_size=256,
        learning_rate=script.learning_rate,
        random_seed=seed + 1,
        scaler_type="identity",
        accelerator=accelerator,
        devices=1,
        callbacks=[best_weights()],
        **QUIET,
    )


def best_weights() -> Any:
    """A Lightning callback that restores the weights of the best validation when training ends."""
    from pytorch_lightning import Callback

    class BestWeights(Callback):
        least, weights = float("inf"), None

        def on_validation_end(self, trainer: Any, module: Any) -> None:
            error = float(trainer.callback_metrics.get("ptl/val_loss", "inf"))
            if not trainer.sanity_checking and error < self.least:
                self.least, self.weights = error, copy.deepcopy(module.state_dict())

        def on_train_end(self, trainer: Any, module: Any) -> None:
            if self.weights is not None:
                module.load_state_dict(self.weights)

    return BestWeights()


def run_peer(name: str, dataset: str, input_size: int, h: int, seed: int, given: dict[str, Any]) -> dict[str, Any]:
    """Train a peer, on a GPU if there is one, and score every test window."""
    import torch

    from titans_ts.evaluation import load_protocol

    data = load_protocol(dataset)
    there = torch.cuda.is_available()
    model = peer(name, Script(**given), data, h, input_size, seed, accelerator="gpu" if there else "cpu")
    draw_quickly(model)
    found = score_neuralforecast(model, data)
    size = sum(p.numel() for p in model.parameters())
    found = {**found, "seconds": round(found["seconds"], 1), "parameters": size, "settings": given}
    return {**found, "device": torch.cuda.get_device_name()} if there else found
