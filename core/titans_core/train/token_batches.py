"""Batches of windows of tokens, in an order that can be resumed anywhere and shared by any number of processes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from titans_core.train.processes import processes
from titans_core.train.tokens import PackedTokens

__all__ = ["OrderedBatches", "ResumableBatches", "TokenLoader"]


class ResumableBatches(Sampler[list[int]]):
    """Batches of window indices for training: shuffled anew in each epoch, and resumable after any batch.

    The order is a pure function of ``(seed, epoch, step)``, the same on every machine and with every NumPy. Only whole
    batches are given, and of them only whole groups of ``together``: of an epoch's order the last windows, which make
    none, are left out, and they are others in each epoch.

    It keeps a place, the epoch and the step of the batch that comes next. A pass goes from there to the end of the
    epoch; the place moves only by :meth:`advance`, so that a loader which reads ahead does not lose what it had read.
    ``batch_size`` is that of all processes together: where ``torch.distributed`` runs, each gets its part of every
    batch, and the parts make the batch of one process. So a run may be resumed by more or fewer processes.

    Memory: 8 bytes for each window, and three times that while an epoch's order is drawn.

    Args:
        windows: how many there are.
        batch_size: windows of a batch, over all processes; a multiple of their number.
        seed: of the order, at least 0.
        together: batches of an optimiser step.
    """

    def __init__(self, windows: int, batch_size: int, seed: int = 0, together: int = 1) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
        if seed < 0:
            raise ValueError(f"seed must be at least 0, got {seed}.")
        if windows < batch_size * together:
            step = f"batch_size={batch_size}" if together == 1 else f"a step of {together} batches of {batch_size}"
            raise ValueError(
                f"{step} needs as many windows, and there are {windows}. Lower the size of a batch or the length of a "
                "window, or prepare more text."
            )
        self.windows, self.batch_size, self.seed, self.together = windows, batch_size, seed, together
        self.epoch, self.step = 0, 0
        self._begun = False
        self._order: tuple[int, np.ndarray] | None = None

    def __len__(self) -> int:
        """Batches of an epoch, whatever the place."""
        return self.windows // (self.batch_size * self.together) * self.together

    def batch(self, epoch: int, step: int) -> np.ndarray:
        """The windows ``[batch_size]`` of a step, over all processes."""
        if not 0 <= step < len(self):
            raise IndexError(f"an epoch has steps 0 to {len(self) - 1}, got {step}.")
        if self._order is None or self._order[0] != epoch:
            # NumPy promises that the raw stream never changes; it promises nothing of the kind for `permutation`
            keys = np.random.PCG64([self.seed, epoch]).random_raw(self.windows)
            self._order = epoch, np.argsort(keys, kind="stable")
        return self._order[1][step * self.batch_size : (step + 1) * self.batch_size]

    def __iter__(self) -> Iterator[list[int]]:
        rank, world = processes()
        if self.batch_size % world:
            raise ValueError(
                f"batch_size={self.batch_size} is shared by {world} processes, so it must be a multiple of {world}."
            )
        epoch = self.epoch
        for step in range(self.step, len(self)):
            yield self.batch(epoch, step)[rank::world].tolist()

    def advance(self) -> None:
        """A batch was used: the place moves to the next one."""
        self._begun = True
        self.step += 1
        if self.step == len(self):
            self.epoch, self.step = self.epoch + 1, 0

    @property
    def sampler(self) -> "ResumableBatches":
        """Itself: here Lightning looks for what to tell the epoch."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Start at ``epoch``, unless there is a place already: then that counts.

        Lightning calls this before each epoch. It gives the place back when it resumes within an epoch, but says only
        the number when it resumes between two; and with ``max_steps`` its number may run ahead after resuming.
        """
        if not self._begun:
            self.epoch = epoch

    def state_dict(self) -> dict[str, int]:
        """The place, and what must be the same for it to mean the same batches."""
        names = ("epoch", "step", "windows", "batch_size", "seed", "together")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on at the place of ``state``.

        Raises:
            ValueError: if it is that of other data or another order.
        """
        _check_same(state, {name: getattr(self, name) for name in ("windows", "batch_size", "seed", "together")})
        self.epoch, self.step = state["epoch"], state["step"]
        self._begun = True


class OrderedBatches(Sampler[list[int]]):
    """Batches of window indices for validation: all of them in order, in every pass.

    The last batch may be smaller. Where ``torch.distributed`` runs, each process gets its part of every batch; the last
    ``windows % processes`` windows are then left out, so that all have equally many.

    Args:
        windows: how many there are.
        batch_size: windows of a batch, over all processes; a multiple of their number.
    """

    def __init__(self, windows: int, batch_size: int) -> None:
        if windows < 1 or batch_size < 1:
            raise ValueError(f"windows and batch_size must be at least 1, got {windows} and {batch_size}.")
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
    """Training batches, int64 ``[batch_size / processes, length + 1]``, that go on where a checkpoint was written.

    The loader is one stream of batches: a pass goes from its place to the end of an epoch, and the next pass goes on
    from there. A pass that was left early (``limit_train_batches``, ``break``) is therefore taken up, not begun again.
    A batch counts as used once it was handed out, whatever worker processes have read ahead; a checkpoint written while
    a training step runs, as after an exception, counts that step's batch as used.

    Lightning saves :meth:`state_dict` in its checkpoints, and gives it back when it resumes within an epoch. With
    ``max_epochs``, resuming between two, it gives only the epoch's number, which says enough for a new loader whose
    epochs were whole; :class:`~titans_core.train.token_data.TokenData` keeps the place of the others too. With several
    processes use ``Trainer(use_distributed_sampler=False)``: batches are shared already.

    Args:
        tokens: the windows.
        batch_size: windows of a batch, over all processes; a multiple of their number.
        seed: of the order.
        num_workers: processes that read ahead; 0 reads in this one, which a memory map seldom makes slow.
        pin_memory: put batches where a GPU fetches them faster.
        together: batches of an optimiser step; an epoch has only whole steps.
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
            # its own: an iterator draws a number, and a resumed run makes its iterators at other times
            generator=torch.Generator().manual_seed(seed),
        )

    def __iter__(self) -> Iterator[Tensor]:  # type: ignore[override]
        # a generator: workers start at the first batch, as Lightning sets the epoch after asking for an iterator
        for batch in super().__iter__():
            self.batches.advance()
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """The place of the batch that comes next, and what must be the same for it to be the same batch."""
        return {**self.batches.state_dict(), **self._identity()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on at the place of ``state_dict``.

        Raises:
            ValueError: if it is that of other data or another order; the message says what differs.
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
            f"the checkpoint's place in the data is that of other batches: {'; '.join(differences)} (batch_size: "
            "micro_batch times the number of processes; together: how many of these make batch_tokens). Resume with "
            "the data, length, batch_tokens, micro_batch, processes and seed that it was written with, or start anew."
        )
