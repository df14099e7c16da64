"""The forecasting estimator."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from typing_extensions import Self

from titans_core.checks import at_least, below_one, positive
from titans_core.train import History, TitansEstimator
from titans_ts.estimator.answer import Answer, Answering
from titans_ts.estimator.arrays import forecast_arrays
from titans_ts.estimator.backtest import backtest, backtest_frame
from titans_ts.estimator.cut import check_length, without_skipped
from titans_ts.estimator.model import Model, Position
from titans_ts.estimator.reading import (
    ahead_of,
    check_names,
    check_no_y,
    read_actual,
    read_given,
    read_known,
    read_newer,
    read_scored,
    warn_of_empty_end,
)
from titans_ts.estimator.saved import pack, plain, unpack
from titans_ts.estimator.scoring import rolling_error
from titans_ts.estimator.surprise import surprise_frame
from titans_ts.estimator.training import train
from titans_ts.frames.exogenous import Columns, read_columns
from titans_ts.frames.frame import POLICIES, Freq
from titans_ts.frames.kinds import of_values
from titans_ts.frames.panel import Panel, beyond, differing
from titans_ts.frames.saved_stamps import warn_of_stamps
from titans_ts.intervals import check_levels
from titans_ts.network import online
from titans_ts.network.memory_training import MemoryReport, train_memory
from titans_ts.network.objective import Objective, objective_of
from titans_ts.network.simba import Simba, SimbaConfig
from titans_ts.network.widening import widening_of
from titans_ts.network.windows import Table

LEAST_MEMORY_STEPS = 40
_COUNTS = ("dim", "num_layers", "chunk_size", "batch_size")


class TitansForecaster(Answering, TitansEstimator):
    """Time-series forecaster built on the Titans neural memory in a Simba-style network.

    One network is trained on all series and forecasts ``h`` steps from the previous ``input_size`` steps. Each window
    is normalised by its own mean and standard deviation, so series of different scales can be combined. If there are
    few training windows, their mirror images are trained on too (:mod:`titans_ts.network.mirror`). An online memory
    also reads each series from its first row and corrects the forecasts; it keeps learning in :meth:`update`.

    Args:
        h: horizon, in steps.
        input_size: lookback, in steps.
        freq: step of the time axis, such as "h", "15min", "MS", or an integer; None infers it.
        loss: training loss. Point forecasts: "mae", "mse" or "huber". Probabilistic forecasts: "quantile", or the
            likelihood of a "normal", "laplace" or "student_t" distribution. Near steps always get more weight.
        exogenous: columns other than the target, by kind: ``{"hist": [...], "futr": [...], "stat": [...], "calendar":
            [...]}``. ``hist`` columns are known only up to the present, ``futr`` columns also in the horizon, ``stat``
            columns come from ``static_df``. ``calendar`` adds time features: "auto", or a list of the cycles "day",
            "week", "year". ``profile`` takes the same values: the mean shape of each series in these cycles, as far as
            it is stable over the training rows, is subtracted from the series, given to the network as a feature, and
            added to the forecasts.
        missing: how to treat NaN and missing rows. "error" rejects them. "interpolate" fills them linearly, and after
            the last value of a series repeats that value. "mask" marks them as unknown in the input of the network.
        multivariate: also mix the series with each other. ``predict`` then needs all series of ``fit``, and with
            ``missing="error"`` they must have the same length.
        patch_size: steps in a patch; patches overlap by half. None: a twelfth of the lookback, from 16 to 64.
        dim: width of the network; a multiple of 4.
        num_layers: number of blocks of memory and mixer.
        chunk_size: patches in a chunk of the memory; their gradients are taken at the same weights. Choose it well
            below the number of patches (about ``2 * input_size / patch_size``), or the memory never corrects itself.
        dropout: dropout rate on the residual branches and before the head.
        learning_rate: peak learning rate of the outer loop (AdamW, one cycle).
        batch_size: windows in a batch. With ``multivariate`` a window holds all ``N`` series, and a batch has
            ``batch_size // N`` windows, but at least ``min(16, 1024 // N)`` and at least one.
        max_epochs: maximum number of epochs; an epoch has at most 100 batches. None: a third of a pass over all
            training windows (a full pass with ``multivariate``), but 1,200 to 2,000 batches and at most 200 epochs.
            Training stops early after ``max(3, max_epochs // 4)`` epochs without a better validation loss. If there
            are more than ``100 * batch_size`` validation windows, only every second, third, ... is used.
        device: where the network is trained: "auto", "cpu", "cuda", "cuda:1" or "mps". All else runs on the CPU.
        precision: "auto", or a precision of Lightning's Trainer.
        random_state: seed; the same integer gives the same model.
        verbose: 0 is silent, 1 shows progress bars.

    Attributes:
        network_: the trained :class:`~titans_ts.network.simba.Simba`, on the CPU.
        history_: losses by epoch (:class:`~titans_core.train.History`): "train_loss" in units of ``scale_``, "val_loss"
            in standard deviations of the series.
        memory_: the online memory (:class:`~titans_ts.network.online.OnlineMemory`). None if it did not lower the
            validation error, or if the series were too short to train it. It is kept untested without validation rows,
            or if no forecast of them could be scored.
        memory_report_: validation errors with and without the memory
            (:class:`~titans_ts.network.memory_training.MemoryReport`).
        calibration_: errors on the validation rows, from which intervals are computed; None without such rows.
        context_: the newest rows; ``predict()`` forecasts from their end.
        left_out_: series that began too late to train on. ``update``, ``score`` and ``predict_insample`` skip them.
        seconds_: duration of ``fit``.
        has_calendar_: whether the network uses time stamps.
        mean_, scale_: mean and standard deviation of each series in the training rows, after subtracting its profile.
        n_features_in_: number of series.

    Example:
        >>> from titans_ts import TitansForecaster
        >>> forecaster = TitansForecaster(h=24, input_size=96).fit(df)
        >>> forecaster.predict(level=[80, 95])
    """

    def __init__(
        self,
        h: int = 96,
        input_size: int = 96,
        *,
        freq: Freq | None = None,
        loss: str = "mae",
        exogenous: Mapping[str, Any] | None = None,
        missing: str = "error",
        multivariate: bool = False,
        patch_size: int | None = None,
        dim: int = 32,
        num_layers: int = 2,
        chunk_size: int = 4,
        dropout: float = 0.5,
        learning_rate: float = 1e-3,
        batch_size: int = 128,
        max_epochs: int | None = None,
        device: str = "auto",
        precision: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 1,
    ) -> None:
        self.h = h
        self.input_size = input_size
        self.freq = freq
        self.loss = loss
        self.exogenous = exogenous
        self.missing = missing
        self.multivariate = multivariate
        self.patch_size = patch_size
        self.dim = dim
        self.num_layers = num_layers
        self.chunk_size = chunk_size
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.device = device
        self.precision = precision
        self.random_state = random_state
        self.verbose = verbose

    network_ = property(lambda self: self.model_.network)
    memory_ = property(lambda self: self.model_.memory)
    scaling_ = property(lambda self: self.model_.scaling)
    mean_ = property(lambda self: self.scaling_.units.mean)
    scale_ = property(lambda self: self.scaling_.units.scale)
    has_calendar_ = property(lambda self: bool(self.scaling_.columns.calendar or self.scaling_.columns.profile))
    context_ = property(lambda self: self.position_.context)
    calibration_ = property(lambda self: self.position_.calibration)

    def fit(
        self,
        df: Any,
        y: None = None,
        *,
        static_df: Any = None,
        val_size: int | None = None,
        checkpoint_dir: str | Path | None = None,
        on_epoch: Callable[[int, float], None] | None = None,
    ) -> Self:
        """Train the forecaster.

        Series that begin too late to train on are skipped with a warning. With ``multivariate``, or if ``df`` is a
        matrix, they raise a ValueError instead.

        Args:
            df: training data, sorted by time with regular steps; pandas, polars or numpy. A long frame (``unique_id,
                ds, y`` and the declared exogenous columns), a wide frame (one column per series and a DatetimeIndex or
                a column ``ds``), or a matrix ``[T, N]``.
            y: ignored with a warning; present for compatibility with scikit-learn.
            static_df: one row per series: ``unique_id`` and the declared static columns.
            val_size: rows at the end reserved for early stopping and the calibration of intervals; 0 trains on all
                rows for ``max_epochs``. Default: a fifth of the rows beyond ``input_size + h``, at least ``h``; 0 with
                a warning if there are too few rows.
            checkpoint_dir: folder for a checkpoint after each epoch. If it holds a checkpoint of the same data and
                settings, training resumes from it; any other checkpoint raises an error.
            on_epoch: callback ``(epoch, val_loss)`` after each epoch; needs validation rows. An exception that it
                raises ends the training.

        Raises:
            TypeError: ``df`` is neither a frame nor a matrix, or ``y`` is a frame.
            ValueError: bad arguments or a bad frame; the message says what is wrong and how to fix it.
            FloatingPointError: the training diverged.
        """
        check_no_y(y)
        begin = time.perf_counter()
        given, columns = self._given(df, static_df)
        panel = without_skipped(given, self, val_size)
        learned = self._learned(panel, columns, val_size, checkpoint_dir, on_epoch)
        return self._take(*learned, left_out=beyond(given.ids, panel.ids), seconds=time.perf_counter() - begin)

    def _learned(
        self,
        panel: Panel,
        columns: Columns,
        val_size: int | None,
        checkpoint_dir: str | Path | None = None,
        on_epoch: Callable[[int, float], None] | None = None,
    ) -> tuple[Model, Position, History, MemoryReport]:
        """Train network and memory on a panel whose values are filled."""
        trained = train(self, panel, columns, val_size, checkpoint_dir, on_epoch)
        network, objective, table, border = trained.network, trained.objective, trained.table, trained.border
        memory, report = self._train_memory(
            network, objective, table, border, steps=max(LEAST_MEMORY_STEPS, trained.batches // 4), seed=trained.seed
        )
        widening = widening_of(network, objective, table, border, trained.seed) if self.missing != "error" else None
        model = Model(network, objective, trained.scaling, memory, widening)
        return model, Position.after(model, trained.panel, table, border), trained.history, report

    def _take(
        self,
        model: Model,
        position: Position,
        history: History,
        report: MemoryReport,
        left_out: list[Any],
        seconds: float | None,
    ) -> Self:
        """Set all fitted attributes at once, so that a failed ``fit`` leaves the earlier ones in place."""
        self.model_, self.position_, self.history_, self.memory_report_ = model, position, history, report
        self.left_out_, self.seconds_, self.n_features_in_ = left_out, seconds, len(self.mean_)
        return self

    def update(self, new_df: Any) -> Self:
        """Add new observations: the online memory learns from them, and ``predict()`` forecasts from their end.

        The network is not retrained, and the cost does not depend on the length of the earlier history. Afterwards
        ``predict()`` gives the same forecasts as ``predict(whole_history)``, with two exceptions. With
        ``missing="interpolate"``, a gap that continues after ``new_df`` is filled without the values that come later.
        And values that ``fit`` clipped, with a warning, stay clipped here. Intervals are updated with the errors that
        have become known.

        Args:
            new_df: the rows that follow the known ones, of all series, in the layout of ``fit``. For a wide frame also
                a single row ``df.iloc[i]``, whose values are matched by name. With ``missing`` "mask" or "interpolate",
                rows may be missing, and in a long frame single series; they cannot be added later.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: a bad frame, other series than those of ``fit``, or rows that do not directly follow. The
                forecaster is then unchanged.
        """
        newer = read_newer(self, new_df)
        if self.missing != "mask" and np.isnan(newer.values).any():
            raise ValueError("new_df has series that begin after its first row: each row needs a value of each series.")
        self.position_ = self.position_.after_rows(self.model_, newer)
        return self

    def predict_windows(self, windows: np.ndarray, origins: pd.DatetimeIndex | None = None) -> np.ndarray:
        """Forecast many windows, without the online memory.

        Args:
            windows: lookbacks of the series of ``fit``, ``[W, input_size, N]``, in the units of the data.
            origins: the time stamp of each window's first forecast step, ``[W]``; needed with a calendar or a profile.

        Returns:
            Forecasts ``[W, h, N]``, in the units of the data.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: windows of another shape; values that are infinite or beyond float32, or NaN in a model that
                was not fitted with ``missing="mask"``; missing ``origins``; or a model with ``hist`` or ``futr``
                columns.
        """
        self._fitted()
        return forecast_arrays(self.model_, self.context_, windows, origins)

    def predict_insample(self, df: Any, step_size: int | None = None, level: list[float] | None = None) -> Any:
        """Forecast at many origins within a frame, such as the training frame.

        Args:
            df: as in ``fit``, with the series of ``fit``.
            step_size: rows between origins; default ``h``.
            level: as in ``predict``.

        Returns:
            A long frame of actual values and forecasts, with the columns of :meth:`cross_validation`.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: bad arguments, a bad frame, other series than those of ``fit``, or fewer than ``input_size + h``
                rows.
        """
        return self._insample(df, self._fitted().input_size, step_size, level)

    def _insample(self, df: Any, first: int, step_size: int | None, level: list[float] | None) -> Any:
        """:meth:`predict_insample` from the row ``first`` on."""
        h = self._fitted().h
        panel = read_scored(self, df, "a backtest")
        check_length(panel, first + h, "input_size + h")
        step = h if step_size is None else step_size
        at_least("step_size", step)
        origins = list(range(first, len(panel.values) - h + 1, step))
        return backtest_frame(self, panel, origins, check_levels(level))

    def cross_validation(
        self,
        df: Any,
        *,
        n_windows: int = 1,
        step_size: int | None = None,
        refit: bool | int = False,
        val_size: int | None = None,
        level: list[float] | None = None,
        static_df: Any = None,
    ) -> Any:
        """Backtest: train on the past and forecast the steps that follow, at the last ``n_windows`` origins of a frame.

        Copies of this forecaster are fitted; it stays unchanged.

        Args:
            df: as in ``fit``.
            n_windows: number of origins.
            step_size: rows between origins; default ``h``.
            refit: False trains once, before the first origin, and then adds the rows as :meth:`update` does, except
                that gaps to interpolate are filled from all rows before an origin. True trains again at each origin,
                an integer k at every k-th.
            val_size: as in ``fit``.
            level: as in ``predict``.
            static_df: as in ``fit``.

        Returns:
            A long frame ``unique_id, ds, cutoff, y, Titans``, and the bounds for each level, for any layout of ``df``;
            polars if ``df`` is polars. ``cutoff`` is the time of the last row that a forecast used; ``y`` is NaN (in
            polars null) where no value is known. Series that begin too late to train on before a cutoff are skipped
            there, with a warning.

        Raises:
            ValueError: bad arguments, a bad frame, or a frame too short for ``n_windows``.
        """
        return backtest(self, df, n_windows, step_size, refit, val_size, level, static_df)

    def score(self, df: Any, y: None = None) -> float:
        """Negative mean absolute error of all rolling forecasts in a frame. Higher is better, 0 is perfect.

        Every window of ``input_size + h`` rows is scored, at stride 1. Errors of each series are divided by its
        standard deviation in ``fit`` (before any profile is subtracted). Unknown values are not scored, nor, with
        ``missing="interpolate"``, forecasts from inside a gap.

        Args:
            df: as in ``fit``, with the series of ``fit``.
            y: ignored; present for compatibility with scikit-learn.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: a bad frame, other series than those of ``fit``, fewer than ``input_size + h`` rows, or no known
                value to score.
            FloatingPointError: some forecasts are not finite.
        """
        return -rolling_error([self._to_score(df)])

    def _to_score(self, df: Any) -> tuple[Model, Table]:
        """The model and a frame as its table, for :func:`rolling_error`."""
        config = self._fitted()
        panel = read_scored(self, df, "score", " In a scikit-learn search, use cv=titans_ts.splits.TimeSplit(...).")
        check_length(panel, config.input_size + config.h, "input_size + h")
        self.scaling_.warn_of(panel)
        return self.model_, self.scaling_.table(panel.filled(self.missing))

    def surprise(self, df: Any, step_size: int = 1) -> Any:
        """The surprise of the online memory over time: how new the shape of each window is, whatever its size.

        The surprise at a row is the associative loss of the memory (Eq. 12): the squared distance between the code of
        the window that ends at the row and the memory's prediction from the window that ended ``memory_.stride`` rows
        earlier. The memory is read in its state after the last write before the row.

        Args:
            df: as in ``predict``. The memory starts empty at the first row, so the first values are large. It reads
                only the target; exogenous columns may be missing.
            step_size: rows between values; ``memory_.stride`` gives only the rows at which the memory writes.

        Returns:
            A long frame ``unique_id, ds, surprise``; ``ds`` is the last row of the window. NaN if a row of the two
            windows is unknown: from the first row of a gap to ``memory_.span + memory_.stride - 1`` rows after its end.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: a bad frame, or a model without memory (``memory_report_`` says why).

        Example:
            >>> found = forecaster.surprise(df)
            >>> found = found[found.groupby("unique_id").cumcount() >= 16 * forecaster.memory_.stride]  # warm-up
            >>> anomalies = found[found.groupby("unique_id")["surprise"].rank(pct=True) > 0.99]
        """
        self._fitted()
        if self.memory_ is None:
            why = self.memory_report_.why_none
            raise ValueError(f"this model has no online memory and so no surprise: {why}")
        at_least("step_size", step_size)
        panel = read_known(self, of_values(df, self.context_.ids), Columns())
        return surprise_frame(self.model_, panel, self.context_, step_size)

    def _answer(self, df: Any, futr_df: Any, level: list[float] | None, static_df: Any) -> Answer:
        config, levels = self._fitted(), check_levels(level)
        if df is None and static_df is not None:
            raise ValueError("static_df needs df: without df, the series of fit keep their static columns.")
        if df is None:
            past = self.context_
        else:
            past = read_known(self, df, static_df=static_df)
            warn_of_empty_end(past)
        if config.together:
            self._check_series(past, "a multivariate model")
        padded = past.padded_to(config.input_size) if config.masked else past
        check_length(padded, config.input_size, "input_size")
        futr = ahead_of(padded, futr_df, config.h, self.scaling_.columns.futr, self.missing)
        return Answer(
            past, levels, self.model_.forecast(padded, futr, levels, self.position_, from_start=df is not None)
        )

    def _actual(self, actual: Any, past: Panel) -> Panel:
        return read_actual(self, actual, past)

    def save(self, path: str | Path) -> None:
        """Save the fitted model to the folder ``path`` (JSON and safetensors).

        Raises:
            NotFittedError: before ``fit``.
        """
        super(TitansForecaster, plain(self)).save(path)

    def _given(self, df: Any, static_df: Any) -> tuple[Panel, Columns]:
        """The data of ``fit`` as a panel, and the declared columns."""
        self._check_params()
        columns = read_columns(self.exogenous)
        panel = read_given(self, df, columns, static_df)
        check_names(panel)
        warn_of_stamps(panel.index, panel.freq)
        return panel, columns

    def _network(self, config: SimbaConfig) -> Simba:
        return Simba(config)

    def _train_memory(
        self, network: Simba, objective: Objective, table: Table, border: int, *, steps: int, seed: int
    ) -> tuple[online.OnlineMemory | None, MemoryReport]:
        return train_memory(network, objective, table, border, steps=steps, seed=seed, progress=self.verbose > 0)

    def _check_params(self) -> None:
        self._check_counts("h", "input_size", *_COUNTS, or_none=("patch_size", "max_epochs"))
        if self.dim % 4:
            raise ValueError(f"dim must be a multiple of 4, got {self.dim}.")
        below_one("dropout", self.dropout)
        positive("learning_rate", self.learning_rate)
        if self.missing not in POLICIES:
            raise ValueError(f"missing must be one of {POLICIES}, got {self.missing!r}.")
        objective_of(self.loss)

    def _check_series(self, panel: Panel, what: str, then: str = "") -> None:
        if panel.ids != self.context_.ids:
            raise ValueError(
                f"{what} needs exactly the series of fit: {self.context_.ids[:8]}, got {panel.ids[:8]}"
                f"{differing(panel.ids, self.context_.ids)}.{then}"
            )

    def _fitted(self) -> SimbaConfig:
        """The configuration of the fitted network, which a later ``set_params`` does not change."""
        check_is_fitted(self, "model_")
        return self.model_.network.config

    def _pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        self._fitted()
        return pack(self)

    def _unpack(self, learned: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        unpack(self, learned, tensors)
