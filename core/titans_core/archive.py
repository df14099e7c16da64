"""A saved model: a folder with ``model.json`` (what it is) and ``model.safetensors`` (its numbers).

Nothing is unpickled.
"""

import contextlib
import hashlib
import json
import os
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

FORMAT = 5
PACKAGE = "titans-suite"


class ArchiveError(ValueError):
    """A saved model that is incomplete, changed, or of another kind."""


def check_kind(path: str | Path, kind: str) -> None:
    """Raises ArchiveError where a file is, or a folder that holds a model of another kind, which would be replaced."""
    if Path(path).exists() and not Path(path).is_dir():
        raise ArchiveError(f"{path} is a file; a model is saved as a folder.")
    there = _kind_of(Path(path))
    if there not in (None, kind):
        raise ArchiveError(f"{path} holds a {there}, which would be lost: name another folder, or delete it.")


def save_archive(path: str | Path, kind: str, content: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write a model to the folder ``path``. An older one of its kind there is replaced, once the new one is written
    whole; other files stay.

    Raises:
        ArchiveError: a file of this name, or a model of another kind.
    """
    folder = Path(path)
    check_kind(folder, kind)
    folder.mkdir(parents=True, exist_ok=True)
    blob = save({name: t.detach().cpu().contiguous() for name, t in tensors.items()})
    head = {
        "format": FORMAT,
        "saved_by": _this_version(),
        "kind": kind,
        "content": content,
        "tensors_sha256": hashlib.sha256(blob).hexdigest(),
    }
    head = json.loads(json.dumps(head, default=_plain))  # as it will be read
    head["sha256"] = _digest(head)
    _finish(folder)
    written = {"model.safetensors": blob, "model.json": json.dumps(head, indent=1).encode()}
    for name, data in written.items():
        (folder / f"{name}.part").write_bytes(data)
    for name in written:  # cut off between the two, what belongs to the new tensors lies beside the old
        os.replace(folder / f"{name}.part", folder / name)


def load_archive(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read what :func:`save_archive` wrote.

    Raises:
        FileNotFoundError: no saved model there.
        ArchiveError: a truncated or changed file, another kind of model, or a newer format.
    """
    folder = Path(path)
    if folder.is_file():
        raise FileNotFoundError(f"{folder} is a file: give the folder that save() wrote, such as {folder.parent}.")
    head_file, tensor_file = folder / "model.json", folder / "model.safetensors"
    for file in (head_file, tensor_file):
        if not file.is_file():
            raise FileNotFoundError(
                f"no saved model at {folder}: {file.name} is missing. Give the folder that save() wrote."
            )
    blob = tensor_file.read_bytes()
    actual = hashlib.sha256(blob).hexdigest()
    head = _cut_off(folder, actual) or _head(head_file)
    if head["format"] != FORMAT:
        newer = head["format"] > FORMAT
        by, then = ("a newer", "Upgrade.") if newer else ("an older", "Load it with that version, or fit it again.")
        saved_by = f"{head['saved_by']}, " if "saved_by" in head else ""
        raise ArchiveError(
            f"{folder} was saved by {by} version ({saved_by}format {head['format']}; this is {_this_version()}, which "
            f"reads format {FORMAT}). {then}"
        )
    if head["kind"] != kind:
        raise ArchiveError(f"{folder} holds a {head['kind']}, not a {kind}.")
    if actual != head["tensors_sha256"]:
        raise ArchiveError(
            f"{tensor_file} is truncated or changed: sha256 is {actual}, {head['tensors_sha256']} was saved. "
            "Save the model again."
        )
    try:
        return head["content"], load(blob)
    except SafetensorError as error:
        raise ArchiveError(f"{tensor_file} cannot be read: {error}.") from error


def _this_version() -> str:
    try:
        return f"{PACKAGE} {metadata.version(PACKAGE)}"
    except metadata.PackageNotFoundError:  # run from its source
        return PACKAGE


def _cut_off(folder: Path, actual: str) -> dict[str, Any] | None:
    """What belongs to the tensors of checksum ``actual``, where it was written but not yet put in its place."""
    with contextlib.suppress(ArchiveError, FileNotFoundError):
        head = _head(folder / "model.json.part")
        return head if head.get("tensors_sha256") == actual else None
    return None


def _finish(folder: Path) -> None:
    """Puts in its place what a saving that was cut off left beside it."""
    tensors, part = folder / "model.safetensors", folder / "model.json.part"
    if tensors.is_file() and part.is_file() and _cut_off(folder, hashlib.sha256(tensors.read_bytes()).hexdigest()):
        os.replace(part, folder / "model.json")


def _kind_of(folder: Path) -> str | None:
    """Of the model in a folder; None of no model, or a damaged one."""
    try:
        kind: str = json.loads((folder / "model.json").read_text())["kind"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return kind


def _head(file: Path) -> dict[str, Any]:
    try:
        head = json.loads(file.read_text())
        found = head.pop("sha256")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ArchiveError(f"{file} is truncated or damaged ({error}). Save the model again.") from error
    if found != _digest(head):
        raise ArchiveError(
            f"{file} was changed after it was saved: its content does not fit its checksum. Save the model again."
        )
    return head


def _digest(head: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """What JSON does not know, as what it does: numpy's numbers as Python's, pandas' offsets and devices by name,
    time spans in nanoseconds."""
    if isinstance(value, torch.device):
        return str(value)
    if hasattr(value, "freqstr"):
        return value.freqstr
    if isinstance(value, np.timedelta64):
        return f"{value.astype('timedelta64[ns]').astype(int)}ns"
    if isinstance(value, timedelta):  # those of pandas too, which go below a microsecond
        return f"{1000 * (value // timedelta(microseconds=1)) + getattr(value, 'nanoseconds', 0)}ns"
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a setting of type {type(value).__name__} cannot be saved: {value!r}.")
