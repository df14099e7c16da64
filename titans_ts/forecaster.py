"""The estimator: from a frame to forecasts."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn
from typing_extensions import Self

from titans_core.train import History, TitansEstimator, TrainingOptions, digest, train_network
from titans_ts.frame import Freq, Panel, read_frame
from titans_ts.simba import Simba, SimbaConfig, forecast
from titans_ts.windows import Windows, all_windows, loader

COLUMN = "Titans"
# arguments in which an interrupted fit and its continuation may differ, or that training compares by itself
_NOT_COMPARED = ("device", "verbose", "freq", "max_epochs", "patience", "learning_rate", "precision")
_COUNTS = ("patch_size", "dim", "num_layers", "num_heads", "chunk_size", "batch_size")


class TitansForecaster(TitansEstimator):
    """Forecasts time series with the Titans neural memory in a Simba-style network.

    One network, trained on all series, forecasts ``h`` steps from the ``input_size`` before. Each window is normalised
    by its own mean and deviation, so series of any scale go together.

    Args:
        h: horizon, in steps.
        input_size: lookback, in steps.
        freq: step of the time axis, such as "h", "15min", "MS", or an integer; None infers it.
        patch_size: steps in a patch; patches overlap by half.
        dim: width of the network; a multiple of ``num_heads`` and, with ``mixer="einfft"``, of 4.
        num_layers: blocks of memory and mixer.
        num_heads: heads of the memory.
        chunk_size: patches that share one gradient point of the memory. Choose it well below the number of patches
            (about ``2 * input_size / patch_size``), or the memory never reads what it wrote.
        mixer: of channels: "einfft" or "mlp".
        multivariate: also mix the series with each other; then all series must have the same length, and ``predict``
            needs the series of ``fit``.
        dropout: on the residual branches and before the head.
        learning_rate: of the outer loop (AdamW, one cycle).
        batch_size: windows in a batch, each of all series.
        max_epochs: passes over the training windows, at most; None: as many as make 600 batches, from 5 to 200.
        patience: epochs without a better validation error before training stops; None: a quarter of ``max_epochs``, at
            least 3.
        device: "auto", "cpu", "cuda", "cuda:1" or "mps".
        precision: "auto", or a precision of Lightning's Trainer.
        random_state: seed; the same integer gives the same model.
        verbose: 0 is silent, 1 shows a progress bar.

    Attributes:
        network_: the trained :class:`~titans_ts.simba.Simba`, on the CPU.
        history_: losses by epoch (:class:`~titans_core.train.History`); in standardised units.
        context_: the last ``input_size`` rows of the training frame, from where ``predict()`` goes on.
        mean_, scale_: mean and standard deviation of each series in the training part.
        n_features_in_: number of series.

    Example:
        >>> from titans_ts import TitansForecaster
        >>> forecaster = TitansForecaster(h=24, input_size=96).fit(df)
        >>> forecaster.predict()
    """

    def __init__(
        self,
        h: int = 96,
        input_size: int = 96,
        *,
        freq: Freq | None = None,
        patch_size: int = 16,
        dim: int = 32,
        num_layers: int = 2,
        num_heads: int = 4,
        chunk_size: int = 4,
        mixer: str = "einfft",
        multivariate: bool = False,
        dropout: float = 0.5,
        learning_rate: float = 2e-3,
        batch_size: int = 64,
        max_epochs: int | None = None,
        patience: int | None = None,
        device: str = "auto",
        precision: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 1,
    ) -> None:
        self.h = h
        self.input_size = input_size
        self.freq = freq
        self.patch_size = patch_size
        self.dim = dim
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.chunk_size = chunk_size
        self.mixer = mixer
        self.multivariate = multivariate
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.device = device
        self.precision = precision
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, df: Any, y: None = None, *, val_size: int | None = None, checkpoint_dir: str | Path | None = None
    ) -> Self:
        """Train on a frame.

        Args:
            df: a long frame (``unique_id, ds, y``), a wide frame (one column a series, a DatetimeIndex), or a matrix
                ``[T, N]``; sorted by time, regular, without gaps or NaN.
            y: ignored; there for sklearn.
            val_size: rows at the end that are kept from training, to stop it early; 0 trains on all rows for
                ``max_epochs``. Default: a fifth of the rows beyond ``input_size + h``, where that leaves a window.
            checkpoint_dir: a folder for a checkpoint after each epoch. If it holds one of this very fit, with the same
                data and settings, training goes on from there; any other is refused.

        Raises:
            ValueError: bad arguments or a bad frame; the message says where, and what to do.
        """
        self._check_params()
        panel = self._read(df, reset=True)
        T = len(panel.values)
        _check_length(panel, self.input_size + self.h, "input_size + h")
        if self.multivariate and np.isnan(panel.values).any():
            raise ValueError(
                "multivariate=True needs series of the same length. Cut the longer ones, or use multivariate=False."
            )
        if val_size is None:
            val_size = self._default_val_size(T)
        border = T - val_size
        if val_size < 0 or border < self.input_size + self.h or 0 < val_size < self.h:
            raise ValueError(
                f"val_size={val_size} of {T} rows: validation needs at least h={self.h} rows, and training at least "
                f"input_size + h = {self.input_size + self.h}. Use val_size=0 to train on all rows."
            )

        rows = np.isfinite(panel.values[:border]).sum(axis=0)
        if rows.min() < self.input_size + self.h:
            raise ValueError(
                f"series {panel.ids[int(rows.argmin())]!r} has {rows.min()} rows for training (before the last "
                f"{val_size}, which are for validation), but input_size + h = {self.input_size + self.h} are needed. "
                "Give more of its past, leave it out, or lower input_size or h."
            )

        self.mean_, self.scale_ = _scale(panel.values[:border])
        scaled = _tensor((panel.values - self.mean_) / self.scale_)

        seed = self._seed()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = Simba(self._config(panel.values.shape[1]))
        train = loader(Windows(scaled, self.input_size, self.h, 0, border), self.batch_size, seed)
        val = Windows(scaled, self.input_size, self.h, border, T)
        max_epochs = self.max_epochs or min(200, max(5, -(-600 // len(train))))
        self.history_: History = train_network(
            network,
            decaying_error,
            train,
            loader(val, self.batch_size) if val_size else None,
            TrainingOptions(
                learning_rate=self.learning_rate,
                max_epochs=max_epochs,
                patience=max(3, max_epochs // 4) if self.patience is None else self.patience,
                seed=seed,
                device=self.device,
                precision=self.precision,
                progress=self.verbose > 0,
                checkpoint_dir=checkpoint_dir,
            ),
            identity={
                "data": digest(panel.values),
                "val_size": val_size,
                **{name: getattr(self, name) for name in self._get_param_names() if name not in _NOT_COMPARED},
            },
        )
        self.network_ = network
        self.context_ = panel.rows(-self.input_size)
        return self

    def predict(self, df: Any = None) -> pd.DataFrame | np.ndarray:
        """The ``h`` steps that follow a frame.

        Args:
            df: where to forecast from, in any layout that ``fit`` takes, at least ``input_size`` rows; other series
                than those of ``fit`` are welcome unless ``multivariate``. None: from the end of the training frame.

        Returns:
            In the layout of ``df`` (of the training frame, if None). Long: ``unique_id, ds, Titans``. Wide: one column
            a series, indexed by time. Matrix: ``[h, N]``.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: a bad frame.
        """
        h = self._fitted().h
        panel = self.context_ if df is None else self._read(df, reset=False)
        return panel.output(panel.future(h), self._continue(panel), COLUMN)

    def predict_windows(self, windows: np.ndarray) -> np.ndarray:
        """Forecasts of many windows at once: ``[W, input_size, N]`` -> ``[W, h, N]``, in the data's units."""
        expected = (self._fitted().input_size, self.n_features_in_)
        windows = np.asarray(windows)
        if windows.ndim != 3 or windows.shape[1:] != expected:
            raise ValueError(f"windows must be [W, {expected[0]}, {expected[1]}], got shape {windows.shape}.")
        if not np.isfinite(windows).all():
            raise ValueError(f"windows have {int((~np.isfinite(windows)).sum())} values that are NaN or infinite.")
        return self._forecast(windows, self.mean_, self.scale_)

    def score(self, df: Any, y: None = None) -> float:
        """Minus the mean absolute error of all rolling forecasts in a frame. Higher is better, 0 is perfect.

        Every window of ``input_size + h`` rows is scored, at stride 1; each series counts in units of its standard
        deviation in ``fit`` (``scale_``).

        Raises:
            NotFittedError: before ``fit``.
            ValueError: a bad frame, other series than those of ``fit``, or fewer than ``input_size + h`` rows.
        """
        config = self._fitted()
        panel = self._read(df, reset=False)
        if panel.ids != self.context_.ids:
            raise ValueError(f"score needs the series of fit, {self.context_.ids[:8]}, got {panel.ids[:8]}.")
        _check_length(panel, config.input_size + config.h, "input_size + h")
        inputs, targets = all_windows(panel.values, config.input_size, config.h)
        error = np.abs(self._forecast(inputs, self.mean_, self.scale_) - targets) / self.scale_
        return -float(np.nanmean(error))

    def plot(
        self, df: Any = None, *, actual: Any = None, series: list[Any] | None = None, history: int | None = None
    ) -> Any:
        """A picture of the forecast behind the end of the past: a matplotlib Figure, one panel a series.

        Args:
            df: as in ``predict``.
            actual: a frame of what really came, drawn beside the forecast.
            series: which to draw; default: the first six.
            history: rows of the past to draw; default: ``2 * h``, where the frame has them.
        """
        from titans_ts.plots import plot_forecast

        h = self._fitted().h
        past = self.context_ if df is None else self._read(df, reset=False)
        values = self._continue(past)
        truth = None if actual is None else self._read(actual, reset=False)
        return plot_forecast(past, past.future(h), values, truth, series, history or 2 * h)

    def _continue(self, panel: Panel) -> np.ndarray:
        """The h steps behind a panel, ``[h, N]``."""
        config = self._fitted()
        if config.num_series is not None and panel.ids != self.context_.ids:
            raise ValueError(
                f"a multivariate model forecasts the series of fit, in their order: {self.context_.ids[:8]}, "
                f"got {panel.ids[:8]}."
            )
        _check_length(panel, config.input_size, "input_size")
        recent = panel.values[-config.input_size :]
        if np.isnan(recent).any():
            short = panel.ids[int(np.isnan(recent).any(axis=0).argmax())]
            raise ValueError(f"series {short!r} is shorter than input_size={config.input_size}. Give more of its past.")
        # a series that fit knew keeps the scale it had there; a new one has that of what is known of it
        mean, scale = _scale(panel.values)
        for column, name in enumerate(panel.ids):
            if name in self.context_.ids:
                known = self.context_.ids.index(name)
                mean[column], scale[column] = self.mean_[known], self.scale_[known]
        return self._forecast(recent[None], mean, scale)[0]

    def _forecast(self, windows: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return forecast(self.network_, _tensor((windows - mean) / scale)).double().numpy() * scale + mean

    def _config(self, num_series: int) -> SimbaConfig:
        return SimbaConfig(
            h=self.h,
            input_size=self.input_size,
            num_series=num_series if self.multivariate else None,
            patch_size=self.patch_size,
            dim=self.dim,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            chunk_size=self.chunk_size,
            mixer=self.mixer,
            dropout=self.dropout,
        )

    def _check_params(self) -> None:
        for name in ("h", "input_size", *_COUNTS, "max_epochs", "patience"):
            value = getattr(self, name)
            if value is None and name in ("max_epochs", "patience"):
                continue
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be an integer >= 1, got {value!r}.")
        if not _is_number(self.dropout) or not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout!r}.")
        if not _is_number(self.learning_rate) or not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate!r}.")

    def _read(self, df: Any, reset: bool) -> Panel:
        if isinstance(df, pd.DataFrame):
            known = self.freq
            if known is None and not reset and self.context_.layout != "matrix":
                known = self.context_.freq
            panel = read_frame(df, known)
        elif hasattr(df, "columns"):
            panel = read_frame(df)  # another library's frame: the error says how to convert it
        else:
            # sklearn's own checks and messages for matrices
            panel = read_frame(validate_data(self, df, reset=reset, dtype=np.float64))
        if reset:
            self.n_features_in_ = panel.values.shape[1]
        return panel

    def _default_val_size(self, T: int) -> int:
        spare = T - self.input_size - self.h
        size = max(self.h, spare // 5)
        return size if spare >= size else 0

    def _fitted(self) -> SimbaConfig:
        """What the network was built from: ``fit`` decides, not what ``set_params`` said since."""
        check_is_fitted(self, "network_")
        config: SimbaConfig = self.network_.config
        return config

    def _pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        config, context = self._fitted(), self.context_
        is_integer = isinstance(context.freq, int)
        learned = {
            "ids": [i.item() if isinstance(i, np.generic) else i for i in context.ids],
            "freq": context.freq if isinstance(context.freq, int) else context.freq.freqstr,
            **({"last": int(context.index[-1])} if is_integer else _stamps(pd.DatetimeIndex(context.index))),
            "layout": context.layout,
            "network": asdict(config),
            "history": {"epochs": self.history_.epochs, "best_epoch": self.history_.best_epoch},
        }
        arrays = {"context": context.values, "mean": self.mean_, "scale": self.scale_}
        tensors = {f"network.{k}": v for k, v in self.network_.state_dict().items()}
        return learned, {**tensors, **{k: torch.tensor(v) for k, v in arrays.items()}}

    def _unpack(self, learned: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        network = {k.removeprefix("network."): v for k, v in tensors.items() if k.startswith("network.")}
        context, self.mean_, self.scale_ = (tensors[k].numpy() for k in ("context", "mean", "scale"))
        self.n_features_in_ = len(self.mean_)
        rows, freq = len(context), learned["freq"]
        if isinstance(freq, int):
            stop = learned["last"] + freq
            index: pd.Index = pd.RangeIndex(stop - rows * freq, stop, freq, name="ds")
        else:
            last = pd.Timestamp(learned["last"], tz="UTC").tz_convert(learned["timezone"])
            index = pd.date_range(end=last, periods=rows, freq=freq, unit=learned["unit"], name="ds")
            freq = pd.tseries.frequencies.to_offset(freq)
        self.context_ = Panel(context, learned["ids"], index, freq, learned["layout"])
        self.history_ = History(**learned["history"])
        self.network_ = Simba(SimbaConfig(**learned["network"]))
        self.network_.load_state_dict(network)
        self.network_.eval()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _stamps(index: pd.DatetimeIndex) -> dict[str, Any]:
    """The end of a DatetimeIndex in JSON: the moment in UTC, its time zone, and the unit it is counted in."""
    zone, last = None, index[-1]
    if index.tz is not None:
        zone, last = str(index.tz), last.tz_convert("UTC").tz_localize(None)
        try:
            known = zone != "tzlocal()" and pd.Timestamp(0, tz="UTC").tz_convert(zone).tz is not None
        except Exception:  # pandas asks several libraries, each with errors of its own
            known = False
        if not known:
            raise ValueError(
                f"the model was fitted on time stamps in the time zone {zone}, which has no name that another machine "
                "knows. Before fit, convert them to a named one: df.index.tz_convert('Europe/Berlin')."
            )
    return {"last": last.isoformat(), "timezone": zone, "unit": index.unit}


def _check_length(panel: Panel, least: int, what: str) -> None:
    rows = len(panel.values)
    if rows < least:
        raise ValueError(
            f"the frame has {rows} rows (n_samples={rows}), but {what} = {least} are needed. "
            "Give a longer frame, or lower input_size or h."
        )


def _scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each series, NaN left out; 1 for a series that does not change."""
    deviation = np.nanstd(values, axis=0)
    return np.nanmean(values, axis=0), np.where(deviation > 0, deviation, 1.0)


def _tensor(values: np.ndarray) -> Tensor:
    """float32, and always laid out alike: the last digits of a forecast depend on the strides of its input."""
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def decaying_error(network: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    """Mean absolute error of a batch of windows in which step t weighs ``t ** -0.5``, and the number of values.

    Far steps are mostly noise; weighing them less makes what is learned more general (CARD, arXiv:2305.12095).
    """
    inputs, targets = batch
    known = ~inputs.isnan().any(dim=1)
    if not known.all():  # series that begin later than others: the lanes that are whole, each as a window of its own
        inputs, targets = inputs.mT[known].unsqueeze(-1), targets.mT[known].unsqueeze(-1)
    error = (network(inputs) - targets).abs()
    weight = torch.arange(1, error.shape[1] + 1, device=error.device).rsqrt()
    return (error * (weight / weight.mean()).unsqueeze(-1)).mean(), error.numel()
