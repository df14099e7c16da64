"""The outer loop as a LightningModule: a network, a loss, AdamW and a one-cycle schedule."""

from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from titans_core.train.options import Loss


class OuterLoop(L.LightningModule):
    """Trains ``network`` to lower ``loss(network, batch)``, which gives a mean and the number of values in it.

    The random state of an epoch depends on the seed and the epoch alone, so a run resumed at an epoch is the same run.
    """

    def __init__(
        self, network: nn.Module, loss: Loss, learning_rate: float, weight_decay: float, total_steps: int, seed: int
    ) -> None:
        super().__init__()
        self.network, self.loss = network, loss
        self.learning_rate, self.weight_decay, self.total_steps, self.seed = (
            learning_rate,
            weight_decay,
            total_steps,
            seed,
        )

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        # not at the start of the epoch: making a loader's iterator draws from the random state, before or after that
        if batch_idx == 0:
            torch.manual_seed(self.seed + self.current_epoch)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss, count = self.loss(self.network, batch)
        self.log("train_loss", loss, on_step=False, on_epoch=True, prog_bar=True, batch_size=count, sync_dist=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        # weighted by the number of values: the mean over all of them, whatever the batch size
        loss, count = self.loss(self.network, batch)
        self.log("val_loss", loss, on_step=False, on_epoch=True, prog_bar=True, batch_size=count, sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(parameter_groups(self.network, self.weight_decay), lr=self.learning_rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=self.learning_rate, total_steps=max(2, self.total_steps), pct_start=0.3
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def parameter_groups(network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """For an optimiser: weights of two dimensions and more decay, vectors do not."""
    decayed = [p for p in network.parameters() if p.ndim >= 2]
    plain = [p for p in network.parameters() if p.ndim < 2]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
