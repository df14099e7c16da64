"""The standard long-term forecasting protocol, for results comparable with published ones.

Splits are those of :func:`titans_datasets.protocol_split`. Each series is standardised by its training rows. Every test
window is scored, at stride 1. MSE and MAE are means over windows, steps and series, on standardised values. This is the
protocol of iTransformer (arXiv:2310.06625) and Time-Series-Library, but without dropping the last batch.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from sklearn.base import clone

from titans_datasets import Split, info, load, n_windows, protocol_split

Predictor = Callable[..., np.ndarray]
Part = Literal["val", "test", "rehearsal"]
NAIVE = ("last-value", "seasonal-naive")


@dataclass(frozen=True)
class ProtocolData:
    """A benchmark data set, standardised by its training rows.

    Attributes:
        name: name of the data set.
        values: standardised values, ``[T, N]``.
        frame: the same as a frame with series names and regular time stamps.
        split: train, val and test rows.
        mean, scale: mean and standard deviation of the training rows, ``[N]``.
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
        """All windows of a part, as views: inputs ``[W, input_size, N]``, targets ``[W, h, N]``.

        Raises:
            ValueError: if there is none.
        """
        rows = self.split.rows(part, input_size)
        n_windows(rows, h, input_size)
        return all_windows(self.values[rows], input_size, h)

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
        """The same data one block earlier: the val rows become test rows, and as many rows before them val rows. As in
        the protocol, the scored rows are not those used for early stopping."""
        border = self.split.val.start
        if border <= self.val_size:
            raise ValueError(f"only {border} rows precede the {self.val_size} val rows: too few for a rehearsal.")
        split = Split(slice(0, border - self.val_size), slice(border - self.val_size, border), self.split.val)
        return replace(self, split=split)


def load_protocol(name: str) -> ProtocolData:
    """Load a benchmark set: "ETTh1", "ETTh2", "ETTm1", "ETTm2", "weather", "ECL" or "traffic" (case-insensitive)."""
    frame = load(name)
    split = protocol_split(name, len(frame))
    values = frame.to_numpy()
    train = values[split.train]
    mean, scale = train.mean(axis=0), train.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    values = (values - mean) / scale
    # the protocol counts rows. weather repeats one stamp and lacks some, so its later stamps are off by minutes here
    step = pd.Series(frame.index).diff().mode()[0]
    index = pd.date_range(frame.index[0], periods=len(frame), freq=step, name=frame.index.name)
    standardised = pd.DataFrame(values, index=index, columns=frame.columns)
    return ProtocolData(info(name).name, values, standardised, split, mean, scale, info(name).season_length)


def all_windows(values: np.ndarray, input_size: int, h: int) -> tuple[np.ndarray, np.ndarray]:
    """All windows of ``values`` ``[T, N]``, as views: inputs ``[W, input_size, N]`` and targets ``[W, h, N]``."""
    both = np.lib.stride_tricks.sliding_window_view(values, input_size + h, axis=0).transpose(0, 2, 1)
    return both[:, :input_size], both[:, input_size:]


def score_windows(
    predict: Predictor,
    inputs: np.ndarray,
    targets: np.ndarray,
    batch_size: int = 512,
    origins: pd.DatetimeIndex | None = None,
) -> dict[str, Any]:
    """MSE and MAE over all windows, steps and series: ``{"mse", "mae", "n_windows"}``.

    ``predict`` maps ``[W, input_size, N]`` to ``[W, h, N]``, for at most ``batch_size`` windows per call. With
    ``origins``, it also gets the time stamp of each window's first forecast step.
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
    model: Any, name: str, *, input_size: int | None = 96, h: int = 96, seed: int = 0, part: Part = "test"
) -> dict[str, Any]:
    """Train a model on a benchmark set and score it by the protocol.

    Args:
        model: an estimator such as :class:`~titans_ts.TitansForecaster`, or an ensemble. A clone of it gets
            ``input_size``, ``h`` and ``random_state=seed``, and forecasts without its online memory. Or a baseline:
            "last-value" or "seasonal-naive" (the values of the previous day).
        name: name of the data set (case-insensitive).
        input_size: lookback, in rows. None keeps the model's own, so that members of an ensemble can have different
            ones. All members forecast the same windows.
        h: horizon, in rows.
        seed: random seed of the estimator.
        part: "test"; evaluate it once per final configuration. To select a configuration, use "rehearsal", the
            protocol one block earlier (:attr:`ProtocolData.rehearsal`). "val" is optimistic, since these rows are also
            used for early stopping.

    Returns:
        ``mse``, ``mae`` and ``n_windows``, and the settings ``model``, ``dataset``, ``input_size`` (of an ensemble, the
        longest), ``h``, ``seed``, ``part``; for an estimator also ``seconds`` (training time), ``epochs`` and
        ``parameters``. All values are JSON-serialisable.

    Raises:
        ValueError: an unknown set, model or part, no window of this lookback and horizon in the part, a baseline
            without ``input_size``, or an ensemble with members that differ only in what is set here.
    """
    if part not in get_args(Part):
        raise ValueError(f"part must be one of {', '.join(map(repr, get_args(Part)))}, got {part!r}.")
    data = load_protocol(name)
    stamps = None
    about: dict[str, Any] = {"dataset": data.name, "h": h, "seed": seed, "part": part}
    scored: Literal["val", "test"] = "val" if part == "val" else "test"
    if part == "rehearsal":
        data = data.rehearsal
    if isinstance(model, str):
        about["model"] = model
        if input_size is None:
            raise ValueError(f"{model!r} has no lookback of its own: give input_size.")
        windows = data.windows(scored, input_size, h)
        predict = naive_predictor(model, h, data.season_length)
    else:
        about["model"] = type(model).__name__
        sizes = {} if input_size is None else {"input_size": input_size}
        estimator = _for(model, **sizes, h=h, random_state=seed)
        input_size = max(each.input_size for each in getattr(estimator, "forecasters", (estimator,)))
        windows = data.windows(scored, input_size, h)
        begin = time.perf_counter()
        estimator.fit(data.training, val_size=data.val_size)
        about["seconds"] = round(time.perf_counter() - begin, 1)
        members = getattr(estimator, "forecasters_", (estimator,))
        about["epochs"] = sum(len(each.history_.epochs) for each in members)
        about["parameters"] = sum(p.numel() for each in members for p in each.network_.parameters())
        predict = estimator.predict_windows
        if getattr(estimator, "has_calendar_", False):
            stamps = data.origins(scored, input_size, h)
    about["input_size"] = input_size
    return {**about, **score_windows(predict, *windows, origins=stamps)}


def _for(model: Any, **params: Any) -> Any:
    """A clone with these parameters; in an ensemble they are set for each member."""
    found = clone(model)
    members = list(getattr(found, "forecasters", (found,)))
    for each in members:
        each.set_params(**params)
    if len({str(each.get_params()) for each in members}) < len(members):
        raise ValueError(
            f"two members of the ensemble are the same: the protocol sets {', '.join(params)} for all of them. Give "
            "members that differ in another parameter."
        )
    return found


def naive_predictor(kind: str, h: int, season_length: int) -> Predictor:
    """A baseline predictor: "last-value" repeats the last value, "seasonal-naive" the last season.

    Raises:
        ValueError: an unknown kind; or, when called, windows shorter than a season.
    """
    if kind not in NAIVE:
        raise ValueError(f"model must be an estimator or one of {NAIVE}, got {kind!r}.")
    length = 1 if kind == "last-value" else season_length

    def predict(inputs: np.ndarray) -> np.ndarray:
        if inputs.shape[1] < length:
            raise ValueError(
                f"seasonal-naive needs a lookback of at least one season of {length} rows, got {inputs.shape[1]}."
            )
        season = inputs[:, inputs.shape[1] - length :]
        return np.tile(season, (1, -(-h // length), 1))[:, :h]

    return predict
