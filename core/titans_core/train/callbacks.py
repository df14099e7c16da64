"""Lightning callbacks: averaged weights, best weights and losses, early stopping, and a progress bar."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, TQDMProgressBar, WeightAveraging
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm
from torch import Tensor, nn


class Averaged(WeightAveraging):
    """A moving average of the weights, used for validation and kept as the result.

    If training stops before its learning rate has decreased, the last weights are as noisy as the last steps.

    Args:
        steps: approximate number of steps to average over; fewer at the start.
    """

    def __init__(self, steps: int) -> None:
        def move(averages: Sequence[Tensor], currents: Sequence[Tensor], count: Tensor) -> None:
            keep = ((1 + count) / (10 + count)).clamp(max=1 - 1 / steps)
            for average, current in zip(averages, currents, strict=True):
                average.copy_(torch.lerp(current.to(average), average, keep.to(average)))

        super().__init__(use_buffers=False, multi_avg_fn=move)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        # the module is moved to its device only after this hook: the average would stay on the CPU
        self._device = trainer.strategy.root_device
        super().setup(trainer, pl_module, stage)

    @property
    def network(self) -> nn.Module:
        assert self._average_model is not None
        return self._average_model.module.get_submodule("network")


class KeepBest(L.Callback):
    """Remember the losses of every epoch, and the network's weights at the best validation loss.

    Both are stored in checkpoints, so they survive an interruption.

    Args:
        averaged: source of the weights; None: the network being trained.
    """

    def __init__(self, averaged: Averaged | None = None) -> None:
        self.averaged = averaged
        self.epochs: list[dict[str, float]] = []
        self.best_loss = float("inf")
        self.best_epoch = -1
        self.best_weights: dict[str, Tensor] = {}

    # on_train_epoch_end runs after the validation of the same epoch
    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        losses = {name: float(value) for name, value in trainer.callback_metrics.items() if name.endswith("_loss")}
        self.epochs.append({"epoch": trainer.current_epoch, **losses})
        loss = losses.get("val_loss")
        if loss is None or loss < self.best_loss:
            self.best_loss = float("inf") if loss is None else loss
            self.best_epoch = trainer.current_epoch
            network = pl_module.get_submodule("network") if self.averaged is None else self.averaged.network
            self.best_weights = {k: v.detach().cpu().clone() for k, v in network.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        return {
            "epochs": self.epochs,
            "best_loss": self.best_loss,
            "best_epoch": self.best_epoch,
            "best_weights": self.best_weights,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update(state_dict)


class Patience(EarlyStopping):
    """Early stopping that also stops a resumed run at once if the run had already stopped."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.wait_count >= self.patience:
            trainer.should_stop = True


class OnEpoch(L.Callback):
    """Call a function with the number and the validation loss of each epoch. An exception in it ends the training."""

    def __init__(self, tell: Callable[[int, float], None]) -> None:
        self.tell = tell

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        loss = trainer.callback_metrics.get("val_loss")
        if loss is not None:
            self.tell(trainer.current_epoch, float(loss))


class ProgressBar(TQDMProgressBar):
    """One line per epoch with both losses. Validation, which is short, has no bar of its own.

    The bar is written to stderr, so that the output of a program can be piped without it.
    """

    def init_train_tqdm(self) -> Any:
        return Tqdm(
            desc=self.train_description,
            position=2 * self.process_position,
            disable=self.is_disabled,
            dynamic_ncols=True,
            file=sys.stderr,
            smoothing=0,
            bar_format=self.BAR_FORMAT,
        )

    def init_validation_tqdm(self) -> Any:
        return Tqdm(disable=True)
