"""Packed tokens as a LightningDataModule, with the batch given in tokens."""

from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch.utils.data import DataLoader

from titans_core.train.token_batches import OrderedBatches, TokenLoader
from titans_core.train.tokens import PackedTokens


class TokenData(L.LightningDataModule):
    """Training and validation windows of packed tokens.

    Args:
        path: the folder that :func:`~titans_core.train.prepare.prepare` wrote.
        length: tokens of a sequence.
        batch_tokens: tokens of an optimiser step, over all processes; gradients are accumulated to it.
        micro_batch: sequences that a process takes at a time.
        num_workers: processes that read ahead.
        seed: of the order.
        verify: compare the files with their checksums first.
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
        self.path, self.length, self.batch_tokens, self.micro_batch = Path(path), length, batch_tokens, micro_batch
        self.num_workers, self.seed, self.verify = num_workers, seed, verify

    def setup(self, stage: str) -> None:
        """Opens the files, and tells the trainer how many batches make a step."""
        assert self.trainer is not None
        for name in ("length", "batch_tokens", "micro_batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if stage == TrainerFn.VALIDATING:  # what is there to train on may be too little, even for one window
            self.val: PackedTokens | None = PackedTokens(self.path, "val", self.length, verify=self.verify)
            return
        self.train = PackedTokens(self.path, "train", self.length, verify=self.verify)
        has_val = "val" in self.train.description["parts"]
        self.val = PackedTokens(self.path, "val", self.length, verify=self.verify) if has_val else None
        at_once = self.micro_batch * self.trainer.world_size
        accumulate, rest = divmod(self.batch_tokens, at_once * self.length)
        if rest or accumulate == 0:
            nearest = max(1, accumulate) * at_once * self.length
            raise ValueError(
                f"batch_tokens={self.batch_tokens} is no multiple of the {at_once * self.length} tokens that are taken "
                f"at once (micro_batch={self.micro_batch} x {self.trainer.world_size} processes x "
                f"length={self.length}). The nearest is {nearest}; or change micro_batch."
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
        """The place in the data, for a checkpoint."""
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on there, to train; what is validated may be another text, and is read from its beginning."""
        assert self.trainer is not None
        if self.trainer.state.fn == TrainerFn.FITTING:
            self.loader.load_state_dict(state_dict)

    def val_dataloader(self) -> DataLoader | list[DataLoader]:
        if self.val is None:
            return []
        assert self.trainer is not None
        at_once = self.micro_batch * self.trainer.world_size
        return DataLoader(self.val, batch_sampler=OrderedBatches(len(self.val), at_once))
