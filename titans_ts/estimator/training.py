"""Training of the network of a forecaster (the outer loop)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.data import DataLoader

from titans_core.train import History, TrainingOptions, borrowed_randomness, digest, train_network
from titans_core.train.batches import loader
from titans_core.warn import warn_caller
from titans_ts.estimator.cut import Cut, check_length
from titans_ts.estimator.training_length import EPOCH, default_epochs, windows_in_batch
from titans_ts.frames.exogenous import Columns
from titans_ts.frames.panel import Panel
from titans_ts.frames.sparse import warn_of_sparse
from titans_ts.frames.spikes import without_wrong
from titans_ts.network.mirror import FEW, Mirrored
from titans_ts.network.objective import DecayingError, Objective, objective_of
from titans_ts.network.rolling import windows_at_once
from titans_ts.network.simba import FLOOR, Simba, SimbaConfig, default_patch, default_reach
from titans_ts.network.windows import Table, all_windows_of
from titans_ts.units.scaling import Scaling, tensor

if TYPE_CHECKING:
    from titans_ts.forecaster import TitansForecaster

AVERAGE = 100  # steps of weight averaging, since training often stops early, at a high learning rate
# arguments that may differ when a fit is resumed, or that train_network checks itself
_NOT_COMPARED = ("device", "verbose", "freq", "max_epochs", "learning_rate", "precision")


@dataclass(frozen=True)
class Trained:
    """A trained network and its training data.

    Attributes:
        network: the network in evaluation mode, with the weights of its best epoch.
        objective: interpretation of its outputs.
        scaling: units of series and columns.
        panel: the training data, with wrong values clipped.
        table: the standardised panel.
        border: the first validation row.
        history: losses by epoch.
        batches: number of batches in all epochs.
        seed: seed of the training.
    """

    network: Simba
    objective: Objective
    scaling: Scaling
    panel: Panel
    table: Table
    border: int
    history: History
    batches: int
    seed: int

    @property
    def val_loss(self) -> float:
        """The lowest validation loss of all epochs."""
        return self.history.epochs[self.history.best_epoch]["val_loss"]


def train(
    forecaster: "TitansForecaster",
    panel: Panel,
    columns: Columns,
    val_size: int | None,
    checkpoint_dir: str | Path | None = None,
    on_epoch: Callable[[int, float], None] | None = None,
) -> Trained:
    """Train a network for a forecaster, which stays unchanged, on a panel whose values are filled.

    The other arguments are those of :meth:`titans_ts.TitansForecaster.fit`.

    Raises:
        ValueError: the panel is too short, or series of a multivariate model have different lengths.
    """
    columns = columns.with_cycles_of(panel.index)
    T = len(panel.values)
    cut = Cut.of(forecaster, val_size)
    check_length(panel, cut.least, "input_size + h")
    if forecaster.multivariate and forecaster.missing == "error" and np.isnan(panel.values).any():
        raise ValueError(
            "multivariate=True needs series of the same length. Cut the longer ones, or use multivariate=False."
        )
    border = cut.checked_border(panel)
    val_size = T - border

    warn_of_sparse(panel)
    panel = without_wrong(panel, border)
    scaling = Scaling.of(panel.rows(None, border), columns)
    scaling.warn_of(panel, since=border)
    table = scaling.table(panel)
    if columns.profile:  # losses are in the same unit with and without a profile
        table = replace(table, unit=tensor(scaling.units.error_unit))
    objective = objective_of(forecaster.loss)
    seed = forecaster._seed()
    with borrowed_randomness(seed):
        network = forecaster._network(_config(forecaster, columns, table, objective))
    batches, val, max_epochs = _batches(forecaster, table, border, seed)
    history = train_network(
        network,
        DecayingError(objective),
        batches,
        val,
        TrainingOptions(
            learning_rate=forecaster.learning_rate,
            max_epochs=max_epochs,
            patience=max(3, max_epochs // 4),
            average=AVERAGE,
            seed=seed,
            device=forecaster.device,
            precision=forecaster.precision,
            progress=forecaster.verbose > 0,
            checkpoint_dir=checkpoint_dir,
        ),
        None if checkpoint_dir is None else _identity(forecaster, panel, val_size),
        on_epoch=on_epoch,
    )
    return Trained(network, objective, scaling, panel, table, border, history, len(batches) * len(history.epochs), seed)


def _config(forecaster: "TitansForecaster", columns: Columns, table: Table, objective: Objective) -> SimbaConfig:
    patch_size = default_patch(forecaster.input_size) if forecaster.patch_size is None else forecaster.patch_size
    return SimbaConfig(
        h=int(forecaster.h),  # a number of NumPy would reach torch's split, which takes none
        input_size=int(forecaster.input_size),
        num_series=table.values.shape[1] if forecaster.multivariate else None,
        patch_size=patch_size,
        dim=forecaster.dim,
        num_layers=forecaster.num_layers,
        chunk_size=forecaster.chunk_size,
        dropout=forecaster.dropout,
        outputs=objective.outputs,
        hist=0 if table.hist is None else table.hist.shape[-1],
        futr=0 if table.futr is None else table.futr.shape[-1],
        stat=0 if table.stat is None else table.stat.shape[-1],
        reach=default_reach(patch_size) if columns.futr else 0,
        masked=forecaster.missing == "mask",
        least_variance=FLOOR**2 if objective.probabilistic else 1e-5,
    )


def _identity(forecaster: "TitansForecaster", panel: Panel, val_size: int) -> dict[str, object]:
    """Data and settings that must match to resume from a checkpoint."""
    params = {name: getattr(forecaster, name) for name in forecaster._get_param_names() if name not in _NOT_COMPARED}
    data = digest(panel.values, panel.hist, panel.futr, panel.stat)
    return {"data": data, "time": panel.clock(), "val_size": val_size, **params}


def _batches(
    forecaster: "TitansForecaster", table: Table, border: int, seed: int
) -> tuple[DataLoader, DataLoader | None, int]:
    """Training windows in units of the network, validation windows (None if none can be scored), and the maximum number
    of epochs."""
    (T, N), h, together = table.values.shape, forecaster.h, forecaster.multivariate
    size = windows_in_batch(forecaster.batch_size, N) if together else forecaster.batch_size
    windows = all_windows_of(replace(table, unit=None), forecaster.input_size, h, 0, border, together)
    if not len(windows):
        raise ValueError(
            "there is no window to train on: each lookback ends in a gap, which was filled with later values. Give "
            "more rows, or set missing='mask'."
        )
    if forecaster.missing == "mask":  # the network must see gaps in training to handle them
        windows = windows.holed(seed)
    most = EPOCH * forecaster.batch_size  # windows of one series
    step = max(1, -(-(T - h + 1 - border) * N // most))
    val = all_windows_of(table, forecaster.input_size, h, border, T, together, step)
    scored = bool(table.truth.any_after(torch.arange(border, max(border, T - h + 1)), h, together).any())
    if border < T and not scored:  # a mean loss of nothing would be 0, and the first epoch the best
        warn_caller(
            f"no forecast of the last val_size={T - border} rows, which are for validation, can be scored: each "
            "lookback ends in a gap that was filled with later values, or no known value follows. Training uses no "
            "early stopping, and a point loss cannot provide intervals. Set missing='mask', or give another val_size."
        )
    max_epochs = forecaster.max_epochs or default_epochs(-(-len(windows) // size), together)
    # validation needs no gradients, so its batches can be as large as for forecasts
    many = max(size, windows_at_once(forecaster.input_size + h, N if together else 1))
    few = len(windows) * (N if together else 1) < FEW
    batches = loader(Mirrored(windows) if few else windows, size, seed, most=EPOCH, versions=2 if few else 1)
    return batches, loader(val, many) if scored else None, max_epochs
