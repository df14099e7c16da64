"""Saved models: a folder with ``model.json`` (description) and ``model.safetensors`` (tensors).

Nothing is unpickled.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from datetime import timedelta
from importlib import metadata
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from titans_core.files import held

FORMAT = 6
PACKAGE = "titans-suite"
FOREIGN = "model of another program, such as transformers"  # whose tensors are in a model.safetensors too


class ArchiveError(ValueError):
    """A saved model is incomplete, modified, or of another kind."""


def check_kind(path: str | Path, kind: str) -> None:
    """Raise an ArchiveError if ``path`` is a file, or holds a model of another kind, which would be overwritten."""
    folder = Path(path).expanduser()
    if folder.exists() and not folder.is_dir():
        raise ArchiveError(f"{path} is a file, but a model is saved as a folder: choose another path.")
    there = kind_of(folder) or (FOREIGN if _is_foreign(folder) else None)
    if there not in (None, kind):
        raise ArchiveError(f"{path} holds a {there}, which would be lost: choose another folder, or delete it.")


def kind_of(folder: Path) -> str | None:
    """Kind of the model in a folder; None if there is no model, or a damaged one."""
    try:
        kind: str = json.loads((folder / "model.json").read_text())["kind"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return kind


def _is_foreign(folder: Path) -> bool:
    """Whether tensors in a folder have no description of ours, in place or of a save under way or interrupted."""
    # in this order: a save in another process moves its tensors into place, then model.json.part to model.json
    described = ("model.json.part", "model.json")
    return (folder / "model.safetensors").exists() and not any((folder / name).exists() for name in described)


@contextlib.contextmanager
def unpacking(path: str | Path) -> Iterator[None]:
    """Explain errors of unpacking what an archive holds.

    Raises:
        ArchiveError: in place of a KeyError, TypeError or RuntimeError.
    """
    try:
        yield
    except (KeyError, TypeError, RuntimeError) as error:
        raise ArchiveError(
            f"{path} was saved by another version, or was modified ({type(error).__name__}: {error}). Load it with "
            "that version, or fit and save the model again."
        ) from error


@contextlib.contextmanager
def saving_to(path: str | Path, kind: str) -> Iterator[Path]:
    """Make the folder ``path``, and hold it against other processes that save to it, such as those of ``torchrun``.

    They wait for their turn, but not on Windows, and not on network file systems without locks.

    Raises:
        ArchiveError: if ``path`` is a file, or holds a model of another kind.
    """
    folder = Path(path).expanduser()
    check_kind(folder, kind)
    folder.mkdir(parents=True, exist_ok=True)
    with held(folder, wait=True):
        yield folder


def save_archive(path: str | Path, kind: str, content: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write a model to the folder ``path``.

    An older model of the same kind is replaced once the new one is completely written. Other files stay.

    Raises:
        ArchiveError: if ``path`` is a file, or holds a model of another kind.
    """
    with saving_to(path, kind) as folder:
        write_archive(folder, kind, content, tensors)


def write_archive(folder: Path, kind: str, content: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """As :func:`save_archive`, to a folder that :func:`saving_to` holds."""
    blob = save(_apart(tensors))
    head = {
        "format": FORMAT,
        "saved_by": _this_version(),
        "kind": kind,
        "content": content,
        "tensors_sha256": hashlib.sha256(blob).hexdigest(),
    }
    head = json.loads(json.dumps(head, default=_plain))  # as it will be read back
    head["sha256"] = _digest(head)
    _finish(folder)
    written = {"model.safetensors": blob, "model.json": json.dumps(head, indent=1).encode()}
    for name, data in written.items():
        (folder / f"{name}.part").write_bytes(data)
    for name in written:  # if interrupted between the two, model.json.part still matches the new tensors
        os.replace(folder / f"{name}.part", folder / name)


def load_archive(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a model written by :func:`save_archive`.

    Raises:
        FileNotFoundError: if there is no saved model.
        ArchiveError: if a file is truncated or modified, or the model is of another kind or format.
    """
    folder = Path(path).expanduser()
    if folder.is_file():
        raise FileNotFoundError(f"{folder} is a file: pass the folder written by save(), such as {folder.parent}.")
    head_file, tensor_file = folder / "model.json", folder / "model.safetensors"
    for file in (head_file, tensor_file):
        if not file.is_file():
            raise FileNotFoundError(
                f"no saved model at {folder}: {file.name} is missing. Pass the folder written by save()."
            )
    blob, actual, head = _read(folder)
    if head["format"] != FORMAT:
        newer = head["format"] > FORMAT
        by, then = ("a newer", "Upgrade.") if newer else ("an older", "Load it with that version, or train it again.")
        saved_by = f"{head['saved_by']}, " if "saved_by" in head else ""
        raise ArchiveError(
            f"{folder} was saved by {by} version ({saved_by}format {head['format']}; this is {_this_version()}, which "
            f"reads format {FORMAT}). {then}"
        )
    if head["kind"] != kind:
        raise ArchiveError(f"{folder} holds a {head['kind']}, not a {kind}. Load it with that class.")
    if actual != head["tensors_sha256"]:
        raise ArchiveError(
            f"{tensor_file} is truncated or modified: its sha256 is {actual}, expected {head['tensors_sha256']}. "
            "Save the model again."
        )
    try:
        return head["content"], load(blob)
    except SafetensorError as error:
        raise ArchiveError(f"{tensor_file} cannot be read: {error}. Save the model again.") from error


def _read(folder: Path) -> tuple[bytes, str, dict[str, Any]]:
    """The tensors, their checksum and their description; read again if a save replaced them meanwhile."""
    file = folder / "model.safetensors"
    while True:
        before = file.stat()
        blob = file.read_bytes()
        actual = hashlib.sha256(blob).hexdigest()
        head = _cut_off(folder, actual) or _head(folder / "model.json")
        after = file.stat()
        if os.path.samestat(before, after) and before.st_mtime_ns == after.st_mtime_ns:
            return blob, actual, head


def _this_version() -> str:
    try:
        return f"{PACKAGE} {metadata.version(PACKAGE)}"
    except metadata.PackageNotFoundError:  # run from source, not installed
        return PACKAGE


def _cut_off(folder: Path, actual: str) -> dict[str, Any] | None:
    """The description for tensors of checksum ``actual``, if an interrupted save left it in model.json.part."""
    with contextlib.suppress(ArchiveError, FileNotFoundError):
        head = _head(folder / "model.json.part")
        return head if head.get("tensors_sha256") == actual else None
    return None


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as safetensors takes them: on the CPU, contiguous, and none in the memory of another."""
    found: dict[str, Tensor] = {}
    held: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        if plain.untyped_storage().data_ptr() in held:
            plain = plain.clone()
        held.add(plain.untyped_storage().data_ptr())
        found[name] = plain
    return found


def _finish(folder: Path) -> None:
    """Complete an interrupted save by moving model.json.part into place."""
    tensors, part = folder / "model.safetensors", folder / "model.json.part"
    if tensors.is_file() and part.is_file() and _cut_off(folder, hashlib.sha256(tensors.read_bytes()).hexdigest()):
        os.replace(part, folder / "model.json")


def _head(file: Path) -> dict[str, Any]:
    try:
        head = json.loads(file.read_text())
        found = head.pop("sha256")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ArchiveError(f"{file} is truncated or damaged ({error}). Save the model again.") from error
    if found != _digest(head):
        raise ArchiveError(
            f"{file} was modified after it was saved: its content does not match its checksum. Save the model again."
        )
    return head


def _digest(head: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Convert values that JSON does not support.

    NumPy numbers become Python's, fractions floats, pandas offsets and devices their names, and time spans nanoseconds.
    """
    if isinstance(value, torch.device):
        return str(value)
    if hasattr(value, "freqstr"):
        return value.freqstr
    if isinstance(value, np.timedelta64):
        return f"{value.astype('timedelta64[ns]').astype(int)}ns"
    if isinstance(value, timedelta):  # also pandas.Timedelta, which has nanoseconds
        return f"{1000 * (value // timedelta(microseconds=1)) + getattr(value, 'nanoseconds', 0)}ns"
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"a setting of type {type(value).__name__} cannot be saved: {value!r}.")
