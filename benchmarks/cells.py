"""Cells of an experiment: done once each, by as many processes as one likes, appended to a file when finished."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from records import append, read

Key = tuple[Any, ...]


def work(file: Path, keys: Iterable[Key], fields: tuple[str, ...], run: Callable[[Key], dict[str, Any]]) -> None:
    """Run the cells that are neither in the file nor taken by a living process, in their order.

    Args:
        file: of results; a row has the ``fields`` of its key.
        keys: which cells there are.
        fields: names of a key's parts.
        run: a key to its result.
    """
    claims = file.parent / f".{file.stem}"
    for key in keys:
        done = {tuple(_plain(row[f]) for f in fields) for row in read(file)}
        if key in done or not _claim(claims, key):
            continue
        try:
            result = run(key)
            append(file, {**dict(zip(fields, key, strict=True)), **result})
            shown = ", ".join(f"{k} {v:.4f}" for k, v in result.items() if isinstance(v, float) and k != "seconds")
            print(f"{' '.join(map(str, key))}: {shown}", flush=True)
        finally:
            _path(claims, key).unlink(missing_ok=True)


def _plain(value: Any) -> Any:
    """Settings stand in a key as JSON."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else value


def _claim(folder: Path, key: Key) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    path = _path(folder, key)
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        if _alive(path):
            return False
        path.unlink(missing_ok=True)  # left by a process that was killed
        return _claim(folder, key)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(str(os.getpid()))
    return True


def _alive(path: Path) -> bool:
    try:
        os.kill(int(path.read_text() or 0) or os.getpid(), 0)
    except (OSError, ValueError):
        return False
    return True


def _path(folder: Path, key: Key) -> Path:
    return folder / hashlib.sha256(repr(key).encode()).hexdigest()[:16]
