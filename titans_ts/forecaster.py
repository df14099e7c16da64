"""The estimator: from a frame to forecasts."""

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
from titans_ts import online
from titans_ts.answer import Answer, Answering
from titans_ts.arrays import forecast_arrays
from titans_ts.backtest import backtest, backtest_frame
from titans_ts.exogenous import Columns, read_columns
from titans_ts.frame import POLICIES, Freq
from titans_ts.intervals import check_levels
from titans_ts.memory_training import MemoryReport, train_memory
from titans_ts.model import Model, Position
from titans_ts.objective import Objective, objective_of
from titans_ts.panel import Panel, beyond, differing
from titans_ts.reading import (
    ahead_of,
    check_no_y,
    of_values,
    read_actual,
    read_given,
    read_known,
    read_newer,
    read_scored,
)
from titans_ts.scoring import rolling_error
from titans_ts.simba import Simba, SimbaConfig
from titans_ts.surprise import surprise_frame
from titans_ts.training import train
from titans_ts.training_rows import check_length, without_young
from titans_ts.widening import widening_of
from titans_ts.windows import Table

LEAST_MEMORY_STEPS = 40
_COUNTS = ("dim", "num_layers", "chunk_size", "batch_size")


class TitansForecaster(Answering, TitansEstimator):
    """Forecasts time series with the Titans neural memory in a Simba-style network.

    One network, trained on all series, forecasts ``h`` steps from the ``input_size`` before. Each window is normalised
    by its own mean and deviation, so series of any scale go together. Beside it an online memory reads the series
    from their beginning and corrects the forecasts; it goes on learning in :meth:`update`.

    Args:
        h: horizon, in steps.
        input_size: lookback, in steps.
        freq: step of the time axis, such as "h", "15min", "MS", or an integer; None infers it.
        loss: what is learned of each step. A point: "mae", "mse" or "huber". Probabilities: "quantile", or a
            distribution, "normal", "laplace" or "student_t". Near steps weigh more in all of them.
        exogenous: columns beside the target, by kind: ``{"hist": [...], "futr": [...], "stat": [...], "calendar":
            [...]}``. ``hist`` are known up to now, ``futr`` in the horizon too, ``stat`` stand in ``static_df``;
            ``calendar`` takes "auto", or cycles of the time stamps: "day", "week", "year". ``profile`` takes the same:
            the mean shape that a series has in these cycles, as far as it holds over the training rows, is taken from
            it, told to the network, and added to its forecasts.
        missing: NaN in the frame, and rows left out of it: "error"; "interpolate" them, and behind the end of a series
            go on with its last value; or "mask": the network is told what is not known.
        multivariate: also mix the series with each other; then ``predict`` needs the series of ``fit``, and all must
            have the same length, unless ``missing`` says what is not known of the shorter ones.
        patch_size: steps in a patch; patches overlap by half. None: a twelfth of the lookback, from 16 to 64.
        dim: width of the network; a multiple of 4.
        num_layers: blocks of memory and mixer.
        chunk_size: patches that share one gradient point of the memory. Choose it well below the number of patches
            (about ``2 * input_size / patch_size``), or the memory never corrects what it wrote.
        dropout: on the residual branches and before the head.
        learning_rate: of the outer loop (AdamW, one cycle).
        batch_size: windows of one series in a batch; with ``multivariate``, this divided by the number of series is
            the number of windows, though at least 16 where these are not more than 1,024 of one series.
        max_epochs: rounds of at most 100 batches of training windows, at most; None: as many as see a third of all
            windows, with ``multivariate`` all of them, though from 1,200 to 2,000 batches, and up to 200 rounds.
            Training stops where validation gets no better for a quarter of them, at least 3; of more validation
            windows than 100 times ``batch_size``, every second, third ... is taken.
        device: that the network is trained on: "auto", "cpu", "cuda", "cuda:1" or "mps". All else runs on the CPU.
        precision: "auto", or a precision of Lightning's Trainer.
        random_state: seed; the same integer gives the same model.
        verbose: 0 is silent, 1 shows progress bars.

    Attributes:
        network_: the trained :class:`~titans_ts.simba.Simba`, on the CPU.
        history_: losses by epoch (:class:`~titans_core.train.History`): "train_loss" in units of ``scale_``, "val_loss"
            in standard deviations of the series.
        memory_: the online memory (:class:`~titans_ts.online.OnlineMemory`), or None where it did not lower the
            validation error, or the series were too short to learn one; ``memory_report_`` says by how much it did.
            Without validation rows it is always kept.
        calibration_: errors on the validation rows, from which intervals are made; None without such rows.
        context_: the newest rows, from where ``predict()`` goes on.
        left_out_: series that began too late to train on; ``update`` and what scores leave them out, too.
        seconds_: that ``fit`` took.
        has_calendar_: whether time stamps are an input.
        mean_, scale_: mean and standard deviation of each series in the training part, less its profile.
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

    # parts of what was learned, and of where it stands
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
        """Train on a frame. Series that begin too late are left out with a warning, unless mixed, or in a matrix.

        Args:
            df: a long frame (``unique_id, ds, y`` and the declared exogenous columns), a wide frame (one column a
                series, a DatetimeIndex or a column ``ds``), or a matrix ``[T, N]``; pandas or polars; sorted by time,
                regular.
            y: not read, with a warning; there for sklearn.
            static_df: one row a series: ``unique_id`` and the declared static columns.
            val_size: rows at the end that are kept from training, to stop it early and to calibrate intervals; 0 trains
                on all rows for ``max_epochs``. Default: a fifth of the rows beyond ``input_size + h``, at least ``h``;
                none, with a warning, where there are too few.
            checkpoint_dir: a folder for a checkpoint after each epoch. If it holds one of this very fit, with the same
                data and settings, training goes on from there; any other is refused.
            on_epoch: told the number and the validation loss of each epoch, where there are validation rows; what it
                raises ends the training.

        Raises:
            TypeError: no frame or matrix, or a frame as y.
            ValueError: bad arguments or a bad frame; the message says where, and what to do.
            FloatingPointError: the training diverged.
        """
        check_no_y(y)
        begin = time.perf_counter()
        given, columns = self._given(df, static_df)
        panel = without_young(given, self, val_size)
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
        """What a panel teaches, whose values are filled."""
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
        """All that ``fit`` sets; until then, what was fitted before stays."""
        self.model_, self.position_, self.history_, self.memory_report_ = model, position, history, report
        self.left_out_, self.seconds_, self.n_features_in_ = left_out, seconds, len(self.mean_)
        return self

    def update(self, new_df: Any) -> Self:
        """Take in new observations: the online memory learns them, and forecasts go on from their end.

        No weight of the outer loop changes, and the time it takes does not depend on how much was read before.
        Afterwards ``predict()`` gives what ``predict(whole_history)`` would, but for ``missing="interpolate"`` where a
        hole goes on behind ``new_df``: it is filled without what comes later. Intervals follow the errors that have
        become known.

        Args:
            new_df: the rows that follow those known, of all series, in the layout of ``fit``; of a wide frame also one
                row alone, ``df.iloc[i]``, whose values are told apart by their names. Rows, and of a long frame values
                of some series, may be left out where ``missing`` is "mask" or "interpolate"; they cannot be given
                later.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: a bad frame, other series than those of ``fit``, or rows that do not follow; nothing is changed
                then.
        """
        newer = read_newer(self, new_df)
        if self.missing != "mask" and np.isnan(newer.values).any():
            raise ValueError("the new rows have series that begin later: each row must have a value of each series.")
        self.position_ = self.position_.moved(self.model_, newer)
        return self

    def predict_windows(self, windows: np.ndarray, origins: pd.DatetimeIndex | None = None) -> np.ndarray:
        """Forecasts of many windows by the network alone: ``[W, input_size, N]`` -> ``[W, h, N]``, in the data's units.

        Args:
            windows: of the series of ``fit``.
            origins: the time stamp of each window's first forecast step, ``[W]``; needed with a calendar or a profile.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: windows of another shape, or with values that are infinite, beyond float32, or not known to a
                model that was not fitted with ``missing="mask"``; no stamps where they are needed; or a model with
                exogenous columns.
        """
        self._fitted()
        return forecast_arrays(self.model_, self.context_, windows, origins)

    def predict_insample(self, df: Any, step_size: int | None = None, level: list[float] | None = None) -> pd.DataFrame:
        """Forecasts at many origins in a frame, such as the one of ``fit``, beside what came.

        Args:
            df: as in ``fit``, of the series of ``fit``.
            step_size: rows between origins; default ``h``.
            level: as in ``predict``.

        Returns:
            ``unique_id, ds, cutoff, y, Titans``, and the bounds for each level; ``cutoff`` is the last row known.
        """
        return self._insample(df, self._fitted().input_size, step_size, level)

    def _insample(
        self, df: Any, first: int, step_size: int | None, level: list[float] | None, judged: bool = False
    ) -> pd.DataFrame:
        """As :meth:`predict_insample`, from the row ``first`` on; ``judged`` as of :func:`backtest_frame`."""
        h = self._fitted().h
        panel = read_scored(self, df)
        check_length(panel, first + h, "input_size + h")
        step = h if step_size is None else step_size
        at_least("step_size", step)
        origins = list(range(first, len(panel.values) - h + 1, step))
        return backtest_frame(self, panel, origins, check_levels(level), judged=judged)

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
    ) -> pd.DataFrame:
        """Train on the past and forecast what followed, at the last ``n_windows`` origins of a frame.

        This forecaster stays as it is; copies of it are fitted. So the same seed gives the same frame.

        Args:
            df: as in ``fit``.
            n_windows: how many origins.
            step_size: rows between them; default ``h``.
            refit: False trains once, before the first origin, and from then on takes in the rows as :meth:`update`
                does; True trains anew at each origin; a number, at each so many.
            val_size: as in ``fit``.
            level: as in ``predict``.
            static_df: as in ``fit``.

        Returns:
            A long frame ``unique_id, ds, cutoff, y, Titans``, and the bounds for each level; ``cutoff`` is the last row
            known, and ``y`` is NaN where nothing was measured. Long whatever the layout of ``df``; of polars if that
            is. Series that begin too late to train on before a cutoff are left out of what is trained there, with a
            warning.

        Raises:
            ValueError: bad arguments or a bad frame, or one too short for so many windows.
        """
        return backtest(self, df, n_windows, step_size, refit, val_size, level, static_df)

    def score(self, df: Any, y: None = None) -> float:
        """Minus the mean absolute error of all rolling forecasts in a frame. Higher is better, 0 is perfect.

        Every window of ``input_size + h`` rows is scored, at stride 1; each series counts in units of its standard
        deviation in ``fit``, profile and all. What is not known is not scored, nor a series that ended before, nor
        with ``missing="interpolate"`` a forecast from inside a hole.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: a bad frame, other series than those of ``fit``, or fewer than ``input_size + h`` rows.
        """
        config = self._fitted()
        panel = read_scored(self, df)
        self._check_series(panel, "score", " For a search of scikit-learn: cv=TimeSplit(...) of titans_ts.splits.")
        check_length(panel, config.input_size + config.h, "input_size + h")
        return -rolling_error(self.model_, panel, self.missing)

    def surprise(self, df: Any, step_size: int = 1) -> Any:
        """How surprised the online memory was, over time: a view of anomalies.

        It is how far the window that ends at a row was from what the memory expected behind the window that ended
        ``memory_.stride`` rows before (the associative loss, Eq. 12), in its own units, read with the memory as it
        stood after its last write before that row.

        Args:
            df: as in ``predict``; read from its first row, so the first values are those of an empty memory. Of the
                columns the memory reads the values only; others need not be there.
            step_size: rows between values; ``memory_.stride``: only where the memory writes.

        Returns:
            A long frame ``unique_id, ds, surprise``; ``ds`` is the last row of the window, so a spike shows at its own.
            NaN where a row of the two windows was not measured: from the beginning of a hole to ``memory_.span +
            memory_.stride - 1`` rows behind its end.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: where the model has no memory (``memory_report_`` says why), or a bad frame.

        Example:
            >>> found = forecaster.surprise(df)
            >>> found = found[found.groupby("unique_id").cumcount() >= 16 * forecaster.memory_.stride]  # not empty
            >>> anomalies = found[found.groupby("unique_id")["surprise"].rank(pct=True) > 0.99]
        """
        self._fitted()
        if self.memory_ is None:
            why = self.memory_report_.why_none
            raise ValueError(f"this model has no online memory: {why} There is no surprise to show.")
        at_least("step_size", step_size)
        panel = read_known(self, of_values(df, self.context_.ids), Columns())
        return surprise_frame(self.model_, panel, self.context_, step_size)

    def _answer(self, df: Any, futr_df: Any, level: list[float] | None, static_df: Any) -> Answer:
        config, levels = self._fitted(), check_levels(level)
        if df is None and static_df is not None:
            raise ValueError("static_df is of the series of df, and df is None: the series of fit keep theirs.")
        past = self.context_ if df is None else read_known(self, df, static_df=static_df)
        if config.together:
            self._check_series(past, "a multivariate model")
        padded = past.padded_to(config.input_size) if config.masked else past
        check_length(padded, config.input_size, "input_size")
        futr = ahead_of(padded, futr_df, config.h, self.scaling_.columns.futr, self.missing)
        return Answer(past, levels, self.model_.behind(padded, futr, levels, self.position_, from_start=df is not None))

    def _actual(self, actual: Any, past: Panel) -> Panel:
        return read_actual(self, actual, past)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to the folder ``path`` (JSON and safetensors).

        Raises:
            NotFittedError: before ``fit``.
        """
        from titans_ts.saved import plain

        super(TitansForecaster, plain(self)).save(path)

    def _given(self, df: Any, static_df: Any) -> tuple[Panel, Columns]:
        """What ``fit`` is given, read by the arguments of the constructor."""
        self._check_params()
        columns = read_columns(self.exogenous)
        return read_given(self, df, columns, static_df), columns

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
                f"{what} needs the series of fit, all and no others: {self.context_.ids[:8]}, got {panel.ids[:8]}"
                f"{differing(panel.ids, self.context_.ids)}.{then}"
            )

    def _fitted(self) -> SimbaConfig:
        """What the network was built from: ``fit`` decides, not what ``set_params`` said since."""
        check_is_fitted(self, "model_")
        return self.model_.network.config

    def _pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        from titans_ts.saved import pack

        self._fitted()
        return pack(self)

    def _unpack(self, learned: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        from titans_ts.saved import unpack

        unpack(self, learned, tensors)
