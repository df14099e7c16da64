"""The outer loop of a forecaster: from a panel to a trained network."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch.utils.data import DataLoader

from titans_core.train import History, TrainingOptions, borrowed_randomness, digest, train_network
from titans_core.train.batches import loader
from titans_ts.exogenous import Columns
from titans_ts.holes import HOLED
from titans_ts.objective import DecayingError, Objective, objective_of
from titans_ts.panel import Panel
from titans_ts.rolling import windows_at_once
from titans_ts.scaling import Scaling, tensor
from titans_ts.simba import FLOOR, Simba, SimbaConfig, default_patch, default_reach
from titans_ts.spikes import without_wrong
from titans_ts.training_rows import EPOCH, border_of, check_length, default_epochs, warn_of_sparse, windows_in_batch
from titans_ts.windows import Table, all_windows_of

if TYPE_CHECKING:
    from titans_ts.forecaster import TitansForecaster

AVERAGE = 100  # steps: training mostly stops before its learning rate has come down
# arguments in which an interrupted fit and its continuation may differ, or that training compares by itself
_NOT_COMPARED = ("device", "verbose", "freq", "max_epochs", "learning_rate", "precision")


@dataclass(frozen=True)
class Trained:
    """A trained network and what it was trained on.

    Attributes:
        network: in evaluation mode, with the weights of its best epoch.
        objective: how its outputs are read.
        scaling: units.
        panel: what it was trained on, wrong values at the limits of the others.
        table: the panel in these units.
        border: the row from which validation began.
        history: losses by epoch.
        batches: of all epochs together.
        seed: of the training.
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
        """The lowest of the epochs."""
        return self.history.epochs[self.history.best_epoch]["val_loss"]


def train(
    forecaster: "TitansForecaster",
    panel: Panel,
    columns: Columns,
    val_size: int | None,
    checkpoint_dir: str | Path | None = None,
    on_epoch: Callable[[int, float], None] | None = None,
) -> Trained:
    """Train the network of a forecaster, which stays as it is, on a panel whose values are filled.

    The arguments are those of :meth:`titans_ts.TitansForecaster.fit`.

    Raises:
        ValueError: a panel that is too short, or series of unequal length where they are mixed.
    """
    columns = columns.with_cycles_of(panel.index)
    T = len(panel.values)
    check_length(panel, forecaster.input_size + forecaster.h, "input_size + h")
    if forecaster.multivariate and forecaster.missing == "error" and np.isnan(panel.values).any():
        raise ValueError(
            "multivariate=True needs series of the same length. Cut the longer ones, or use multivariate=False."
        )
    border = border_of(panel, forecaster.input_size, forecaster.h, val_size)
    val_size = T - border

    warn_of_sparse(panel)
    panel = without_wrong(panel, border)
    scaling = Scaling.of(panel.rows(None, border), columns)
    scaling.warn_of(panel, since=border)
    table = scaling.table(panel)
    if columns.profile:  # errors are told in one unit, whatever the settings
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
        h=forecaster.h,
        input_size=forecaster.input_size,
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
    """What else must be the same for a checkpoint to be gone on from."""
    params = {name: getattr(forecaster, name) for name in forecaster._get_param_names() if name not in _NOT_COMPARED}
    data = digest(panel.values, panel.hist, panel.futr, panel.stat)
    holes = {"holes": HOLED} if forecaster.missing == "mask" else {}  # it made none up until 2026-11-25
    return {"data": data, "time": panel.clock(), "val_size": val_size, **params, **holes}


def _batches(
    forecaster: "TitansForecaster", table: Table, border: int, seed: int
) -> tuple[DataLoader, DataLoader | None, int]:
    """Windows to train on, in units of the network; windows to validate on where there are rows for it; and for how
    many epochs."""
    (T, N), h, together = table.values.shape, forecaster.h, forecaster.multivariate
    size = windows_in_batch(forecaster.batch_size, N) if together else forecaster.batch_size
    windows = all_windows_of(replace(table, unit=None), forecaster.input_size, h, 0, border, together)
    if forecaster.missing == "mask":  # a network that saw none does not know what to make of one
        windows = windows.holed(seed)
    most = EPOCH * forecaster.batch_size  # windows of one series
    step = max(1, -(-(T - h + 1 - border) * N // most))
    val = all_windows_of(table, forecaster.input_size, h, border, T, together, step)
    max_epochs = forecaster.max_epochs or default_epochs(-(-len(windows) // size), together)
    # nothing is kept for a gradient there: as many at once as forecasts are made
    many = max(size, windows_at_once(forecaster.input_size + h, N if together else 1))
    return loader(windows, size, seed, most=EPOCH), loader(val, many) if len(val) else None, max_epochs
