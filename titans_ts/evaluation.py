"""The standard long-term forecasting protocol: what a number must mean before it stands beside a published one.

Splits of :func:`titans_datasets.protocol_split`; each series standardised by its training rows; every test window
scored at stride 1, none dropped; mean squared and mean absolute error over windows, steps and series, on standardised
values. The same protocol as in iTransformer (arXiv:2310.06625) and Time-Series-Library, less their dropped last batch.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.base import clone

from titans_datasets import Split, info, load, protocol_split
from titans_ts.windows import all_windows

Predictor = Callable[..., np.ndarray]
Part = Literal["val", "test", "rehearsal"]
NAIVE = ("last-value", "seasonal-naive")


@dataclass(frozen=True)
class ProtocolData:
    """A benchmark set, standardised by its training rows.

    Attributes:
        name: the set.
        values: ``[T, N]``, standardised.
        frame: the same with names and regular time stamps, from the first.
        split: its train, val and test rows.
        mean, scale: what was subtracted and divided by, ``[N]``.
        season_length: steps in a day.
    """

    name: str
    values: np.ndarray
    frame: pd.DataFrame
    split: Split
    mean: np.ndarray
    scale: np.ndarray
    season_length: int

    def windows(self, part: Literal["val", "test"], input_size: int, h: int) -> tuple[np.ndarray, np.ndarray]:
        """All windows of a part: inputs ``[W, input_size, N]``, targets ``[W, h, N]``."""
        return all_windows(self.values[self.split.rows(part, input_size)], input_size, h)

    def origins(self, part: Literal["val", "test"], input_size: int, h: int) -> pd.DatetimeIndex:
        """The time stamp of the first forecast step of each window of :meth:`windows`."""
        index = pd.DatetimeIndex(self.frame.index[self.split.rows(part, input_size)])
        return index[input_size : len(index) - h + 1]

    @property
    def training(self) -> pd.DataFrame:
        """Train and val rows, for ``fit(training, val_size=val_size)``."""
        return self.frame.iloc[: self.split.val.stop]

    @property
    def val_size(self) -> int:
        return self.split.val.stop - self.split.val.start

    @property
    def rehearsal(self) -> "ProtocolData":
        """The same a block earlier: its test rows are the val rows, its val rows as many before them. What is scored
        there did not stop the training, as in the protocol itself."""
        border = self.split.val.start
        split = Split(slice(0, border - self.val_size), slice(border - self.val_size, border), self.split.val)
        return replace(self, split=split)


def load_protocol(name: str) -> ProtocolData:
    """A benchmark set by name: "ETTh1", "ETTh2", "ETTm1", "ETTm2", "weather", "ECL" or "traffic", in any case."""
    frame = load(name)
    split = protocol_split(name, len(frame))
    values = frame.to_numpy()
    train = values[split.train]
    mean, scale = train.mean(axis=0), train.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    values = (values - mean) / scale
    # the protocol counts rows: weather has a stamp twice and some left out, so its later stamps are minutes off here
    step = pd.Series(frame.index).diff().mode()[0]
    index = pd.date_range(frame.index[0], periods=len(frame), freq=step, name=frame.index.name)
    standardised = pd.DataFrame(values, index=index, columns=frame.columns)
    return ProtocolData(info(name).name, values, standardised, split, mean, scale, info(name).season_length)


def score_windows(
    predict: Predictor,
    inputs: np.ndarray,
    targets: np.ndarray,
    batch_size: int = 512,
    origins: pd.DatetimeIndex | None = None,
) -> dict[str, Any]:
    """Errors over all windows, steps and series: ``{"mse", "mae", "n_windows"}``.

    ``predict`` maps ``[W, input_size, N]`` to ``[W, h, N]`` and gets at most ``batch_size`` windows at a time; with
    ``origins`` also the time stamp of each window's first forecast step.
    """
    squared = absolute = 0.0
    for start in range(0, len(inputs), batch_size):
        part = slice(start, start + batch_size)
        stamps = () if origins is None else (origins[part],)
        error = predict(inputs[part], *stamps) - targets[part]
        squared += float(np.square(error).sum())
        absolute += float(np.abs(error).sum())
    return {"mse": squared / targets.size, "mae": absolute / targets.size, "n_windows": len(targets)}


def evaluate_protocol(
    model: Any, name: str, *, input_size: int = 96, h: int = 96, seed: int = 0, part: Part = "test"
) -> dict[str, Any]:
    """Train a model on a benchmark set and score it by the protocol.

    Args:
        model: an estimator such as :class:`~titans_ts.TitansForecaster`, or an ensemble of some, which is cloned and
            given ``input_size``, ``h`` and ``random_state=seed`` (the one passed in stays untouched), and forecasts
            from the lookback alone, without its online memory; or "last-value" or "seasonal-naive" (a day ago).
        name: the set, in any case.
        input_size: lookback, in rows.
        h: horizon, in rows.
        seed: of the estimator.
        part: "test"; or, to choose a configuration, "rehearsal": the whole protocol a block earlier
            (:attr:`ProtocolData.rehearsal`); or "val", which flatters, as these rows also end the training. Read "test"
            once per finished configuration.

    Returns:
        ``mse``, ``mae`` and ``n_windows``, and what they belong to: ``model``, ``dataset``, ``input_size``, ``h``,
        ``seed``, ``part``; for an estimator also ``seconds`` (training), ``epochs`` and ``parameters``. All values go
        into JSON.

    Raises:
        ValueError: an unknown set or model.
    """
    data = load_protocol(name)
    stamps = None
    about: dict[str, Any] = {"dataset": data.name, "input_size": input_size, "h": h, "seed": seed, "part": part}
    scored: Literal["val", "test"] = "val" if part == "val" else "test"
    if part == "rehearsal":
        data = data.rehearsal
    if isinstance(model, str):
        about["model"] = model
        predict = naive_predictor(model, h, data.season_length)
    else:
        about["model"] = type(model).__name__
        estimator = _for(model, input_size=input_size, h=h, random_state=seed)
        begin = time.perf_counter()
        estimator.fit(data.training, val_size=data.val_size)
        about["seconds"] = round(time.perf_counter() - begin, 1)
        members = getattr(estimator, "forecasters_", (estimator,))
        about["epochs"] = sum(len(each.history_.epochs) for each in members)
        about["parameters"] = sum(p.numel() for each in members for p in each.network_.parameters())
        predict = estimator.predict_windows
        if getattr(estimator, "has_calendar_", False):
            stamps = data.origins(scored, input_size, h)
    return {**about, **score_windows(predict, *data.windows(scored, input_size, h), origins=stamps)}


def _for(model: Any, **params: Any) -> Any:
    """A clone with these parameters; of an ensemble, in each of its forecasters."""
    found = clone(model)
    for each in getattr(found, "forecasters", (found,)):
        each.set_params(**params)
    return found


def naive_predictor(kind: str, h: int, season_length: int) -> Predictor:
    """Forecasts without training: "last-value" repeats the newest value, "seasonal-naive" the newest season.

    Raises:
        ValueError: another kind, or (when called) windows shorter than a season.
    """
    if kind not in NAIVE:
        raise ValueError(f"model must be an estimator or one of {NAIVE}, got {kind!r}.")
    length = 1 if kind == "last-value" else season_length

    def predict(inputs: np.ndarray) -> np.ndarray:
        if inputs.shape[1] < length:
            raise ValueError(
                f"seasonal-naive needs a lookback of at least a season, {length} rows, got {inputs.shape[1]}."
            )
        season = inputs[:, inputs.shape[1] - length :]
        return np.tile(season, (1, -(-h // length), 1))[:, :h]

    return predict
