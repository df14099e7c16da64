"""A checkpoint may only be resumed by the run that wrote it."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from titans_core.train.fingerprint import differences

KEY = "titans_fingerprint"


class Fingerprint(Callback):
    """Write into every checkpoint the values that must match for it to be resumed."""

    def __init__(self, fingerprint: Mapping[str, str]) -> None:
        self.fingerprint = dict(fingerprint)

    def on_save_checkpoint(self, trainer: L.Trainer, module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint[KEY] = self.fingerprint


def is_whole(path: Path) -> bool:
    """Whether a file is an archive written by ``torch.save``, and its parts match their checksums.

    ``torch.load`` does not compare them: it reads a damaged tensor like any other.
    """
    try:
        with zipfile.ZipFile(path) as parts:
            return parts.testzip() is None
    except (zipfile.BadZipFile, EOFError):
        return False


def check_resumable(path: Path, fingerprint: Mapping[str, str]) -> None:
    """Raise an error for a checkpoint that another run wrote or that cannot be read.

    It is read as tensors, numbers and strings, never unpickled.

    Raises:
        ValueError: if it cannot be resumed; the message says what differs and what to do.
    """
    instead = f"Give another checkpoint_dir, or delete {path} to start a new run."
    try:
        if not is_whole(path):
            raise ValueError("it is cut short, or its parts do not match their checksums")
        found = torch.load(path, map_location="cpu", weights_only=True).get(KEY)
    except Exception as error:  # torch has no common error for damaged files
        raise ValueError(f"{path} cannot be read: it is damaged or not a checkpoint ({error}). {instead}") from error
    if found is None:
        raise ValueError(f"{path} was not written by this library. {instead}")
    if differ := differences(found, fingerprint):
        raise ValueError(f"{path} is the checkpoint of another run: {differ}. {instead}")
