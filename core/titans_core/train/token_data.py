"""Packed tokens as a LightningDataModule, with the batch size given in tokens."""

from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch.utils.data import DataLoader

from titans_core.checks import at_least
from titans_core.train.token_batches import OrderedBatches, TokenLoader
from titans_core.train.tokens import PackedTokens


class TokenData(L.LightningDataModule):
    """Training and validation windows of packed tokens.

    Args:
        path: folder written by :func:`~titans_core.train.prepare.prepare`.
        length: tokens per sequence.
        batch_tokens: tokens per optimiser step, over all processes; reached by accumulating gradients.
        micro_batch: sequences per process and forward pass.
        num_workers: number of prefetching processes.
        seed: seed of the order.
        verify: check the files' checksums first.
    """

    def __init__(
        self,
        path: str | Path,
        length: int = 4096,
        batch_tokens: int = 524_288,
        micro_batch: int = 8,
        num_workers: int = 0,
        seed: int = 0,
        verify: bool = False,
    ) -> None:
        super().__init__()
        self.path, self.length = Path(path).expanduser(), length
        self.batch_tokens, self.micro_batch = batch_tokens, micro_batch
        self.num_workers, self.seed, self.verify = num_workers, seed, verify

    def setup(self, stage: str) -> None:
        """Open the files, and set the trainer's number of batches per step."""
        assert self.trainer is not None
        for name in ("length", "batch_tokens", "micro_batch"):
            at_least(name, getattr(self, name))
        if stage == TrainerFn.VALIDATING:  # the training part is not needed, and may be shorter than one window
            self.val: PackedTokens | None = PackedTokens(self.path, "val", self.length, verify=self.verify)
            return
        if self.trainer.overfit_batches:  # type: ignore[attr-defined]
            raise ValueError(
                "overfit_batches would not repeat the same batches, because the data goes on where an epoch was left. "
                "To overfit, prepare a text of that many tokens."
            )
        self.train = PackedTokens(self.path, "train", self.length, verify=self.verify)
        has_val = "val" in self.train.description["parts"]
        self.val = PackedTokens(self.path, "val", self.length, verify=self.verify) if has_val else None
        at_once = self.micro_batch * self.trainer.world_size
        accumulate, rest = divmod(self.batch_tokens, at_once * self.length)
        if rest or accumulate == 0:
            nearest = max(1, accumulate) * at_once * self.length
            raise ValueError(
                f"batch_tokens={self.batch_tokens} is not a multiple of {at_once * self.length}, the tokens per "
                f"forward pass (micro_batch={self.micro_batch} x {self.trainer.world_size} processes x "
                f"length={self.length}). Use {nearest}, or change micro_batch."
            )
        if self.trainer.accumulate_grad_batches not in (1, accumulate):
            raise ValueError(
                f"accumulate_grad_batches={self.trainer.accumulate_grad_batches} does not fit batch_tokens="
                f"{self.batch_tokens}, which takes {accumulate} forward passes per step: leave it out."
            )
        self.trainer.accumulate_grad_batches = accumulate
        self.loader = TokenLoader(
            self.train,
            at_once,
            seed=self.seed,
            num_workers=self.num_workers,
            pin_memory=torch.cuda.is_available(),
            together=accumulate,
        )

    def train_dataloader(self) -> TokenLoader:
        return self.loader

    def state_dict(self) -> dict[str, Any]:
        """The position in the data, for a checkpoint."""
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the position for training. Validation always starts at the beginning of its text."""
        assert self.trainer is not None
        if self.trainer.state.fn == TrainerFn.FITTING:
            self.loader.load_state_dict(state_dict)

    def val_dataloader(self) -> DataLoader | list[DataLoader]:
        if self.val is None:
            return []
        assert self.trainer is not None
        at_once = self.micro_batch * self.trainer.world_size
        return DataLoader(self.val, batch_sampler=OrderedBatches(len(self.val), at_once))
