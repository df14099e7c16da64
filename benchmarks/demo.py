"""Train a TitansForecaster, compare it with two baselines, and save a picture, the scores and the model.

    python benchmarks/demo.py [--out out/demo] [--offline-panel] [--max-epochs 30]

Data: ETTh1 from TITANS_DATA_HOME, else from ../shared/data next to the checkout, else from the download cache, else
downloaded and verified. If all of these fail, the AirPassengers panel of neuralforecast is used instead.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from peers import QUIET, score_neuralforecast

from titans_datasets import ChecksumError, Split, load
from titans_ts import TitansForecaster
from titans_ts.evaluation import ProtocolData, load_protocol, naive_predictor, score_windows

SETTINGS: dict[str, dict[str, Any]] = {
    "ETTh1": {"h": 96, "input_size": 96},
    "AirPassengers panel": {"h": 12, "input_size": 24, "patch_size": 6, "batch_size": 32},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for picture, metrics and model")
    parser.add_argument("--offline-panel", action="store_true", help="use the AirPassengers panel")
    parser.add_argument("--max-epochs", type=int, help="epochs of the forecaster; default: its own")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    frame, data = etth1(args.offline_panel)
    settings = SETTINGS[data.name]
    h, input_size = settings["h"], settings["input_size"]
    inputs, targets = data.windows("test", input_size, h)
    print(f"{data.name}: lookback {input_size}, horizon {h}, {len(inputs)} test windows of {inputs.shape[2]} series\n")

    begin = time.perf_counter()
    epochs = {} if args.max_epochs is None else {"max_epochs": args.max_epochs}
    forecaster = TitansForecaster(**settings, **epochs, random_state=0)
    forecaster.fit(frame.iloc[: data.split.val.stop], val_size=data.val_size)
    seconds = time.perf_counter() - begin

    def titans(windows: np.ndarray) -> np.ndarray:
        return (forecaster.predict_windows(windows * data.scale + data.mean) - data.mean) / data.scale

    rows = {
        "TitansForecaster": score_windows(titans, inputs, targets),
        "DLinear (neuralforecast)": score_dlinear(data, h, input_size),
        "seasonal-naive": score_windows(naive_predictor("seasonal-naive", h, data.season_length), inputs, targets),
    }
    print(f"\n{'':26}{'MSE':>8}{'MAE':>8}")
    for name, row in rows.items():
        print(f"{name:26}{row['mse']:8.4f}{row['mae']:8.4f}")
    print(f"\nTitansForecaster trained for {seconds:.0f} s, {len(forecaster.history_.epochs)} epochs.")

    past = frame.iloc[: data.split.test.start]
    actual = frame.iloc[data.split.test.start : data.split.test.start + h]
    forecaster.plot(past, actual=actual).savefig(args.out / "forecast.png", dpi=120)
    forecaster.save(args.out / "model")
    report = {
        "dataset": data.name,
        **{key: settings[key] for key in ("h", "input_size")},
        "train_seconds": round(seconds, 1),
        "epochs": forecaster.history_.epochs,
        "models": rows,
    }
    (args.out / "metrics.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"Wrote {args.out}/forecast.png, {args.out}/metrics.json and {args.out}/model/")


def etth1(offline_panel: bool) -> tuple[pd.DataFrame, ProtocolData]:
    """The frame in its own units, and the data standardised; the AirPassengers panel if ETTh1 is not available."""
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    if "TITANS_DATA_HOME" not in os.environ and shared.is_dir():
        os.environ["TITANS_DATA_HOME"] = str(shared)
    if not offline_panel:
        try:
            return load("ETTh1"), load_protocol("ETTh1")
        except (OSError, ChecksumError) as error:
            print(f"ETTh1 is not available:\n{error}\n\nUsing the AirPassengers panel instead.\n")
    return air_passengers()


def air_passengers() -> tuple[pd.DataFrame, ProtocolData]:
    from neuralforecast.utils import AirPassengersPanel

    frame = AirPassengersPanel.pivot(index="ds", columns="unique_id", values="y")
    frame.index = pd.DatetimeIndex(frame.index)
    values = frame.to_numpy(dtype=float)
    split = Split(slice(0, 96), slice(96, 120), slice(120, 144))
    mean, scale = values[:96].mean(axis=0), values[:96].std(axis=0)
    values = (values - mean) / scale
    standardised = pd.DataFrame(values, index=frame.index, columns=frame.columns)
    return frame, ProtocolData("AirPassengers panel", values, standardised, split, mean, scale, season_length=12)


def score_dlinear(data: ProtocolData, h: int, input_size: int) -> dict[str, Any]:
    """neuralforecast's DLinear, stopped early on the validation rows."""
    from neuralforecast.losses.pytorch import MSE
    from neuralforecast.models import DLinear

    model = DLinear(
        h=h,
        input_size=input_size,
        loss=MSE(),
        max_steps=1000,
        early_stop_patience_steps=3,
        val_check_steps=100,
        learning_rate=1e-3,
        windows_batch_size=1024,
        scaler_type="identity",
        random_seed=0,
        **QUIET,
    )
    return score_neuralforecast(model, data)


if __name__ == "__main__":
    main()
