"""How the files of checkpoints are written."""

import os
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO


class WholeCheckpoints(TorchCheckpointIO):
    """Checkpoints are written beside the file that they replace once they are complete.

    Lightning writes them to the folder for temporary files. If that is on another disk, it may be smaller, and the file
    is then copied over the older checkpoint: a process that is killed, or a full disk, would leave neither.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        if storage_options is not None or "://" in str(path):  # not a file of this machine
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        # always this name, so that the part that a killed process left is replaced; not one like the checkpoint's, from
        # which Lightning would resume
        part = file.with_name("unfinished.part")
        try:
            with part.open("wb") as sink:
                torch.save(checkpoint, sink)
            os.replace(part, file)
        except RuntimeError as error:  # torch hides what the disk said
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
        finally:
            part.unlink(missing_ok=True)
