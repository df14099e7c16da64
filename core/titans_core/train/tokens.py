"""Packed tokens on disk as windows for language modelling, in an order that can be resumed anywhere.

A folder of packed tokens, as :func:`titans_core.train.prepare.prepare` leaves it, holds ``train.bin`` and maybe
``val.bin``: token ids, little-endian uint16 or uint32, documents one after another, each ended by eos. ``tokens.json``
describes them.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from titans_core.tokenizers import Tokenizer
from titans_core.train.processes import processes

__all__ = ["KeepPlace", "OrderedBatches", "PackedTokens", "ResumableBatches", "TokenLoader"]

DESCRIPTION = "tokens.json"
FORMAT = "titans-tokens"
VERSION = 1
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}


class PackedTokens(Dataset[Tensor]):
    """Windows of packed tokens, read from a memory map: item i is an int64 tensor ``[length + 1]``.

    Of a window ``w``, ``w[:-1]`` are the inputs and ``w[1:]`` the targets. Inputs do not overlap: window i starts at
    token ``i * length``, and its last token, a target only, is the first of the next one. So every token but the first
    is a target exactly once, save fewer than ``length`` at the end of the file. Windows know nothing of documents; they
    cross from one into the next.

    Args:
        path: the folder that ``prepare`` wrote.
        part: "train" or "val".
        length: tokens of a window's input, at least 1.
        tokenizer: refuse tokens that another tokenizer made.
        verify: read the whole file once and compare its SHA-256 with the one noted when it was written.

    Attributes:
        vocab_size: ids are below it.
        tokens: tokens in the file.
        fingerprint: "sha256:..." of the file.
        description: what ``tokens.json`` says.

    Raises:
        FileNotFoundError: if there are no packed tokens in ``path``.
        ValueError: if a file is truncated, changed or of an unknown kind, or is too short for one window. A window with
            an id outside the vocabulary raises when it is read.
    """

    def __init__(
        self,
        path: str | Path,
        part: str = "train",
        length: int = 1024,
        *,
        tokenizer: Tokenizer | None = None,
        verify: bool = False,
    ) -> None:
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}.")
        self.description = _read_description(Path(path))
        parts = self.description["parts"]
        if part not in parts:
            raise ValueError(
                f"{path} has no part {part!r}, only {sorted(parts)}. Prepare it with val_fraction above 0 for a part "
                "'val'."
            )
        self.part, self.length = part, length
        self.file = Path(path) / parts[part]["file"]
        self.tokens: int = parts[part]["tokens"]
        self.vocab_size: int = self.description["vocab_size"]
        self.fingerprint: str = parts[part]["sha256"]
        self._dtype = DTYPES[self.description["dtype"]]
        self._map: np.memmap | None = None
        if tokenizer is not None:
            self._check_tokenizer(tokenizer)
        self._check_file(verify)
        if self.tokens < length + 1:
            raise ValueError(
                f"{self.file} has {self.tokens} tokens, and one window of length={length} needs {length + 1}. "
                "Lower length, or prepare more text."
            )

    def __len__(self) -> int:
        return (self.tokens - 1) // self.length

    def __getitem__(self, index: int) -> Tensor:
        if not 0 <= index < len(self):
            raise IndexError(f"{self.file} has windows 0 to {len(self) - 1}, got {index}.")
        if self._map is None:
            self._map = np.memmap(self.file, self._dtype, mode="r", shape=(self.tokens,))
        start = index * self.length
        window = self._map[start : start + self.length + 1].astype(np.int64)
        if window.max() >= self.vocab_size:
            at = int(window.argmax())
            raise ValueError(
                f"{self.file} is damaged: token {start + at} is {window[at]}, and ids must be below vocab_size="
                f"{self.vocab_size}. Prepare it again."
            )
        return torch.from_numpy(window)

    def __getstate__(self) -> dict[str, Any]:
        # a memory map is pickled with all that it maps; a worker process opens its own
        return {**self.__dict__, "_map": None}

    def _check_tokenizer(self, tokenizer: Tokenizer) -> None:
        made_by = self.description["tokenizer"]
        if tokenizer.fingerprint != made_by["fingerprint"] or tokenizer.vocab_size != self.vocab_size:
            raise ValueError(
                f"{self.file.parent} was made by another tokenizer: {made_by['spec']} (vocab_size={self.vocab_size}, "
                f"{made_by['fingerprint']}) there, {tokenizer.spec} (vocab_size={tokenizer.vocab_size}, "
                f"{tokenizer.fingerprint}) here. Use that one, or prepare the text again with this one."
            )

    def _check_file(self, verify: bool) -> None:
        again = "It was cut short or changed since it was written: prepare it again."
        if not self.file.is_file():
            raise ValueError(f"{self.file} is missing, and {DESCRIPTION} names it. Prepare it again.")
        expected, found = self.tokens * self._dtype.itemsize, self.file.stat().st_size
        if found != expected:
            raise ValueError(
                f"{self.file} must have {expected} bytes, {self._dtype.itemsize} for each of {self.tokens} tokens, and "
                f"has {found}. {again}"
            )
        if verify and (found_hash := _hash(self.file)) != self.fingerprint:
            raise ValueError(f"{self.file} must have {self.fingerprint}, has {found_hash}. {again}")


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
    epochs were whole. Add the callback :class:`KeepPlace` for the others. With several processes use
    ``Trainer(use_distributed_sampler=False)``: batches are shared already.

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


class KeepPlace(Callback):
    """Gives a loader its place back from every checkpoint, whether it was written within an epoch or between two."""

    def __init__(self, loader: TokenLoader) -> None:
        self.loader = loader

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.loader.load_state_dict(state_dict)


def _check_same(state: dict[str, Any], here: dict[str, Any]) -> None:
    differences = [f"{k} is {state.get(k)} there and {v} here" for k, v in here.items() if state.get(k) != v]
    if differences:
        raise ValueError(
            f"the checkpoint's place in the data is that of other batches: {'; '.join(differences)}. Resume with the "
            "data, length, batch_size and seed that it was written with, or start anew."
        )


def _read_description(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} holds no packed tokens: there is no {DESCRIPTION}, which is written last. Run prepare; again if "
            "it was interrupted."
        )
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: it is not valid JSON ({error}). Prepare it again.") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{path} does not describe packed tokens: its format must be {FORMAT!r}. Check the path.")
    if found.get("version") != VERSION:
        raise ValueError(
            f"{path} is of version {found.get('version')!r}, and this library reads version {VERSION}. Update the "
            "library, or prepare the text again."
        )
    if found.get("dtype") not in DTYPES or not _complete(found):
        raise ValueError(
            f"{path} is damaged: it must name a dtype of {sorted(DTYPES)}, vocab_size, tokenizer (spec, fingerprint) "
            "and parts (file, tokens, sha256). Prepare it again."
        )
    return found


def _complete(found: dict[str, Any]) -> bool:
    try:
        parts = found["parts"].values()
        made_by = found["tokenizer"]
        return (
            isinstance(found["vocab_size"], int)
            and all(isinstance(made_by[key], str) for key in ("spec", "fingerprint"))
            and all(isinstance(part["tokens"], int) for part in parts)
            and all(isinstance(part[key], str) for part in parts for key in ("file", "sha256"))
        )
    except (KeyError, TypeError, AttributeError):
        return False


def _hash(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return f"sha256:{found.hexdigest()}"
