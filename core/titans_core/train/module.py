"""The outer loop as a LightningModule: a network, a loss, AdamW and a one-cycle schedule."""

from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from titans_core.train.options import Loss


class OuterLoop(L.LightningModule):
    """Train ``network`` to minimise ``loss(network, batch)``, which returns a mean and the number of values in it.

    The random state of an epoch depends only on the seed and the epoch, so a run resumed at an epoch gives the same
    result.
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
        # not in on_train_epoch_start: a loader's iterator draws from the random state, before or after that hook
        if batch_idx == 0:
            seed = torch.default_generator.manual_seed if self.device.type == "cpu" else torch.manual_seed
            seed(self.seed + self.current_epoch)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss, count = self.loss(self.network, batch)
        self.log("train_loss", loss, on_step=False, on_epoch=True, prog_bar=True, batch_size=count, sync_dist=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        # weighted by the number of values, so that the mean does not depend on the batch size
        loss, count = self.loss(self.network, batch)
        self.log("val_loss", loss, on_step=False, on_epoch=True, prog_bar=True, batch_size=count, sync_dist=True)

    def configure_optimizers(self) -> Any:
        groups = parameter_groups(self.network, self.weight_decay)
        # foreach, everywhere: on a CPU too the same numbers in fewer calls, which tells where weights are small
        optimizer = torch.optim.AdamW(groups, lr=self.learning_rate, foreach=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=self.learning_rate, total_steps=max(2, self.total_steps), pct_start=0.3
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def parameter_groups(network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Optimiser groups: weight decay for parameters of two or more dimensions, none for vectors."""
    decayed = [p for p in network.parameters() if p.ndim >= 2]
    plain = [p for p in network.parameters() if p.ndim < 2]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
