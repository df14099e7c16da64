"""Batches of token windows, in an order that can be resumed after any batch and shared by any number of processes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from titans_core.checks import at_least
from titans_core.train.processes import processes
from titans_core.train.tokens import PackedTokens

__all__ = ["OrderedBatches", "ResumableBatches", "TokenLoader"]


class ResumableBatches(Sampler[list[int]]):
    """Batches of window indices for training, reshuffled in each epoch and resumable after any batch.

    The order depends only on ``(seed, epoch, step)`` and is the same on every machine and NumPy version. Only full
    groups of ``together`` full batches are used: the last windows of each epoch's order, which do not fill a group, are
    skipped. They are different windows in each epoch.

    The sampler keeps a position: the epoch and the step of the next batch. Iterating goes from there to the end of the
    epoch. Only :meth:`advance` moves the position, so batches that a loader has prefetched are not lost. ``batch_size``
    is the total over all processes: with ``torch.distributed``, each process gets its share of every batch. A run may
    therefore be resumed with more or fewer processes.

    Memory: 8 bytes per window, and three times that while an epoch's order is drawn.

    Args:
        windows: number of windows.
        batch_size: windows per batch, over all processes; must be a multiple of the number of processes.
        seed: seed of the order, at least 0.
        together: number of batches per optimiser step.
    """

    def __init__(self, windows: int, batch_size: int, seed: int = 0, together: int = 1) -> None:
        for name, value, least in (("batch_size", batch_size, 1), ("seed", seed, 0), ("together", together, 1)):
            at_least(name, value, least)
        if windows < batch_size * together:
            step = f"batch_size={batch_size}" if together == 1 else f"a step of {together} batches of {batch_size}"
            raise ValueError(
                f"{step} needs at least that many windows, but there are only {windows}. Use smaller batches or "
                "shorter windows, or prepare more text."
            )
        # a checkpoint with NumPy's numbers could not be read again: that takes unpickling
        self.windows, self.batch_size = int(windows), int(batch_size)
        self.seed, self.together = int(seed), int(together)
        self.epoch, self.step = 0, 0
        self._begun = False
        self._order: tuple[int, np.ndarray] | None = None

    def __len__(self) -> int:
        """Number of batches per epoch, independent of the position."""
        return self.windows // (self.batch_size * self.together) * self.together

    def batch(self, epoch: int, step: int) -> np.ndarray:
        """Window indices ``[batch_size]`` of a step, over all processes."""
        if not 0 <= step < len(self):
            raise IndexError(f"an epoch has steps 0 to {len(self) - 1}, got {step}.")
        if self._order is None or self._order[0] != epoch:
            # NumPy guarantees that the raw stream never changes, but gives no such guarantee for `permutation`
            keys = np.random.PCG64([self.seed, epoch]).random_raw(self.windows)
            self._order = epoch, np.argsort(keys, kind="stable")
        return self._order[1][step * self.batch_size : (step + 1) * self.batch_size]

    def __iter__(self) -> Iterator[list[int]]:
        rank, world = processes()
        if self.batch_size % world:
            raise ValueError(
                f"batch_size={self.batch_size} is shared by {world} processes: it must be a multiple of {world}."
            )
        epoch = self.epoch
        for step in range(self.step, len(self)):
            yield self.batch(epoch, step)[rank::world].tolist()

    def advance(self) -> None:
        """Mark a batch as used: move the position to the next one."""
        self._begun = True
        self.step += 1
        if self.step == len(self):
            self.epoch, self.step = self.epoch + 1, 0

    @property
    def sampler(self) -> "ResumableBatches":
        """Returns itself: Lightning looks here for ``set_epoch``."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Start at ``epoch``, unless a position has already been set.

        Lightning calls this before each epoch. When it resumes within an epoch, it restores the position. When it
        resumes between epochs, it only passes the epoch number. With ``max_steps``, that number may be too high after
        resuming.
        """
        if not self._begun:
            self.epoch = epoch

    def state_dict(self) -> dict[str, int]:
        """The position, and the settings that must match for it to be valid."""
        names = ("epoch", "step", "windows", "batch_size", "seed", "together")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue at the position in ``state``.

        Raises:
            ValueError: if the state belongs to other data or another order.
        """
        _check_same(state, {name: getattr(self, name) for name in ("windows", "batch_size", "seed", "together")})
        self.epoch, self.step = state["epoch"], state["step"]
        self._begun = True


class OrderedBatches(Sampler[list[int]]):
    """Batches of window indices for validation: all windows, in order.

    The last batch may be smaller. With ``torch.distributed``, each process gets its share of every batch, and the last
    ``windows % processes`` windows are skipped, so that all processes have equally many.

    Args:
        windows: number of windows.
        batch_size: windows per batch, over all processes; must be a multiple of the number of processes.
    """

    def __init__(self, windows: int, batch_size: int) -> None:
        at_least("windows", windows)
        at_least("batch_size", batch_size)
        self.windows, self.batch_size = windows, batch_size

    def __len__(self) -> int:
        world = processes()[1]
        return -(-(self.windows // world * world) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        rank, world = processes()
        if self.batch_size % world or self.windows < world:
            raise ValueError(
                f"batch_size={self.batch_size} and {self.windows} windows are shared by {world} processes: batch_size "
                f"must be a multiple of {world}, and there must be at least {world} windows."
            )
        end = self.windows // world * world
        for start in range(0, end, self.batch_size):
            yield list(range(start + rank, min(start + self.batch_size, end), world))


class TokenLoader(DataLoader):
    """Training batches, int64 ``[batch_size / processes, length + 1]``, that continue at a checkpoint's position.

    The loader is one stream of batches. Iterating goes from the current position to the end of an epoch, and the next
    iteration continues from there. An iteration that ended early (``limit_train_batches``, ``break``) is therefore
    continued, not restarted. A batch counts as used once it is returned, whatever the workers have prefetched. If a
    checkpoint is written during a training step, for example after an exception, that step's batch counts as used.

    Lightning saves :meth:`state_dict` in its checkpoints and restores it when it resumes within an epoch. When it
    resumes between epochs (``max_epochs``), it passes only the epoch number. That is enough for a new loader whose
    epochs were complete; :class:`~titans_core.train.token_data.TokenData` restores the position in all cases. With
    several processes, use ``Trainer(use_distributed_sampler=False)``, because batches are already split.

    Args:
        tokens: the windows.
        batch_size: windows per batch, over all processes; must be a multiple of the number of processes.
        seed: seed of the order.
        num_workers: number of prefetching processes. 0 reads in this process, which is rarely slow with a memory map.
        pin_memory: put batches into pinned memory, for faster transfer to a GPU.
        together: number of batches per optimiser step. An epoch contains only complete steps.
    """

    def __init__(
        self,
        tokens: PackedTokens,
        batch_size: int,
        *,
        seed: int = 0,
        num_workers: int = 0,
        pin_memory: bool = False,
        together: int = 1,
    ) -> None:
        self.batches = ResumableBatches(len(tokens), batch_size, seed, together)
        super().__init__(
            tokens,
            batch_sampler=self.batches,
            num_workers=num_workers,
            pin_memory=pin_memory,
            # a separate generator: each new iterator draws a number, and a resumed run creates iterators at other times
            generator=torch.Generator().manual_seed(int(seed)),
        )

    def __iter__(self) -> Iterator[Tensor]:  # type: ignore[override]
        # a generator: workers start at the first batch, because Lightning sets the epoch after calling iter()
        for batch in super().__iter__():
            self.batches.advance()
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """The position of the next batch, and the settings that must match for it to be valid."""
        return {**self.batches.state_dict(), **self._identity()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue at the position in ``state_dict``.

        Raises:
            ValueError: if the state belongs to other data or another order; the message says what differs.
        """
        _check_same(state_dict, self._identity())
        self.batches.load_state_dict(state_dict)

    def _identity(self) -> dict[str, Any]:
        tokens: PackedTokens = self.dataset  # type: ignore[assignment]
        return {"length": tokens.length, "tokens": tokens.fingerprint}


def _check_same(state: dict[str, Any], here: dict[str, Any]) -> None:
    differences = [f"{k} is {state.get(k)} there and {v} here" for k, v in here.items() if state.get(k) != v]
    if differences:
        raise ValueError(
            f"the checkpoint's data position belongs to other batches: {'; '.join(differences)} (batch_size is "
            "micro_batch times the number of processes; together is the number of batches per batch_tokens). Resume "
            "with the same data, length, batch_tokens, micro_batch, processes and seed, or start a new run."
        )
