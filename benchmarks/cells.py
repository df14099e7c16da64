"""Cells of an experiment: each runs once, in any number of processes, and is appended to a file when finished."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from records import append, read

Key = tuple[Any, ...]


def work(file: Path, keys: Iterable[Key], fields: tuple[str, ...], run: Callable[[Key], dict[str, Any]]) -> None:
    """Run the cells, in order, that are neither in the file nor being run by another process.

    Args:
        file: result file. A row has the ``fields`` of its key; in older rows a missing field counts as None.
        keys: the keys of all cells.
        fields: names of the parts of a key.
        run: computes the result of a key.
    """
    claims = file.parent / f".{file.stem}"
    claims.mkdir(parents=True, exist_ok=True)
    for key in keys:
        try:
            # released when the process ends, even if it is killed
            with FileLock(claims / hashlib.sha256(repr(key).encode()).hexdigest()[:16], timeout=0):
                if key in {tuple(_plain(row.get(f)) for f in fields) for row in read(file)}:
                    continue
                result = _timed(run, key)
                append(file, {**dict(zip(fields, key, strict=True)), **result})
        except Timeout:
            print(f"{' '.join(map(str, key))}: another process is running it", flush=True)
            continue
        shown = ", ".join(
            f"{k} {v:.4f}" for k, v in result.items() if isinstance(v, float) and k not in ("seconds", "core_share")
        )
        print(f"{' '.join(map(str, key))}: {shown}", flush=True)


def _timed(run: Callable[[Key], dict[str, Any]], key: Key) -> dict[str, Any]:
    """The result, and the share of a core that the process had; far below 1, other work slowed it down."""
    begin, before = time.perf_counter(), sum(os.times()[:4])
    result = run(key)
    share = (sum(os.times()[:4]) - before) / (time.perf_counter() - begin)
    return {**result, "core_share": round(share, 2)}


def _plain(value: Any) -> Any:
    """The value as it is in a key: settings are JSON there."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else value
