"""Packed tokens on disk, as windows for language modelling.

A folder written by :func:`titans_core.train.prepare.prepare` holds ``train.bin`` and optionally ``val.bin``: token ids
as little-endian uint16 or uint32, one document after another, each followed by the end-of-text token. ``tokens.json``
describes them.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from titans_core.checks import at_least
from titans_core.tokenizers import Tokenizer

__all__ = ["PackedTokens"]

DESCRIPTION = "tokens.json"
FORMAT = "titans-tokens"
VERSION = 1
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}


class PackedTokens(Dataset[Tensor]):
    """Windows of packed tokens, read from a memory map. Item i is an int64 tensor ``[length + 1]``.

    For a window ``w``, ``w[:-1]`` are the inputs and ``w[1:]`` the targets. Inputs do not overlap: window i starts at
    token ``i * length``, and its last token, only a target, is the first input of the next window. So every token
    except the first is a target exactly once, apart from fewer than ``length`` tokens at the end of the file. Windows
    ignore document boundaries and may span several documents.

    Args:
        path: folder written by ``prepare``.
        part: "train" or "val".
        length: number of input tokens per window, at least 1.
        tokenizer: if given, raise an error if another tokenizer produced the tokens.
        verify: read the whole file once and compare its SHA-256 with the recorded one.

    Attributes:
        vocab_size: all ids are below it.
        tokens: number of tokens in the file.
        fingerprint: "sha256:..." of the file.
        description: content of ``tokens.json``.

    Raises:
        FileNotFoundError: if there are no packed tokens in ``path``.
        ValueError: if a file is truncated, modified, of an unknown kind, or too short for one window, or if
            ``tokenizer`` does not match. An id outside the vocabulary raises this when its window is read.
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
        at_least("length", length)
        folder = Path(path).expanduser()
        self.description = _read_description(folder)
        parts = self.description["parts"]
        if part not in parts:
            raise ValueError(
                f"{path} has no part {part!r}, only {sorted(parts)}. For a part 'val', prepare the text with "
                "val_fraction above 0."
            )
        self.length = int(length)  # NumPy's number in a checkpoint could not be read again
        self.file = folder / parts[part]["file"]
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
                f"{self.file} has {self.tokens} tokens, but one window of length={length} needs {length + 1}. "
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
                f"{self.file} is damaged: token {start + at} is {window[at]}, but ids must be below vocab_size="
                f"{self.vocab_size}. Prepare the text again."
            )
        return torch.from_numpy(window)

    def __getstate__(self) -> dict[str, Any]:
        # pickling a memory map would copy its data; each worker process opens its own map
        return {**self.__dict__, "_map": None}

    def _check_tokenizer(self, tokenizer: Tokenizer) -> None:
        made_by = self.description["tokenizer"]
        if tokenizer.fingerprint != made_by["fingerprint"] or tokenizer.vocab_size != self.vocab_size:
            raise ValueError(
                f"{self.file.parent} was made with another tokenizer: {made_by['spec']} (vocab_size={self.vocab_size}, "
                f"{made_by['fingerprint']}) there, {tokenizer.spec} (vocab_size={tokenizer.vocab_size}, "
                f"{tokenizer.fingerprint}) here. Use that tokenizer, or prepare the text again with this one."
            )

    def _check_file(self, verify: bool) -> None:
        again = "The file is truncated or was modified: prepare the text again."
        if not self.file.is_file():
            raise ValueError(f"{self.file} is missing, although {DESCRIPTION} lists it. Prepare the text again.")
        expected, found = self.tokens * self._dtype.itemsize, self.file.stat().st_size
        if found != expected:
            raise ValueError(
                f"{self.file} must have {expected} bytes, {self._dtype.itemsize} for each of {self.tokens} tokens, but "
                f"has {found}. {again}"
            )
        if verify and (found_hash := _hash(self.file)) != self.fingerprint:
            raise ValueError(f"{self.file} must have {self.fingerprint}, but has {found_hash}. {again}")


def _read_description(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} holds no packed tokens: {DESCRIPTION}, which is written last, is missing. Run prepare "
            "(again, if it was interrupted)."
        )
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: it is not valid JSON ({error}). Prepare it again.") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{path} does not describe packed tokens: its format must be {FORMAT!r}. Check the path.")
    if found.get("version") != VERSION:
        raise ValueError(
            f"{path} has version {found.get('version')!r}, but this library reads version {VERSION}. Update the "
            "library, or prepare the text again."
        )
    if found.get("dtype") not in DTYPES or not _complete(found):
        raise ValueError(
            f"{path} is damaged: it must contain a dtype of {sorted(DTYPES)}, vocab_size, tokenizer (spec, "
            "fingerprint) and parts (file, tokens, sha256). Prepare the text again."
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
