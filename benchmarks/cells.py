"""Cells of an experiment: done once each, by as many processes as one likes, appended to a file when finished."""

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
    """Run the cells that are neither in the file nor taken by a living process, in their order.

    Args:
        file: of results; a row has the ``fields`` of its key. Rows of before a field was one are of no key.
        keys: which cells there are.
        fields: names of a key's parts.
        run: a key to its result.
    """
    claims = file.parent / f".{file.stem}"
    claims.mkdir(parents=True, exist_ok=True)
    for key in keys:
        try:
            # ends with the process, however that ends
            with FileLock(claims / hashlib.sha256(repr(key).encode()).hexdigest()[:16], timeout=0):
                if key in {tuple(_plain(row.get(f)) for f in fields) for row in read(file)}:
                    continue
                result = _timed(run, key)
                append(file, {**dict(zip(fields, key, strict=True)), **result})
        except Timeout:
            print(f"{' '.join(map(str, key))}: another process is at it", flush=True)
            continue
        shown = ", ".join(
            f"{k} {v:.4f}" for k, v in result.items() if isinstance(v, float) and k not in ("seconds", "core_share")
        )
        print(f"{' '.join(map(str, key))}: {shown}", flush=True)


def _timed(run: Callable[[Key], dict[str, Any]], key: Key) -> dict[str, Any]:
    """Its result, and what share of a core it had: where that is far below 1, other work stretched its times."""
    begin, before = time.perf_counter(), sum(os.times()[:4])
    result = run(key)
    share = (sum(os.times()[:4]) - before) / (time.perf_counter() - begin)
    return {**result, "core_share": round(share, 2)}


def _plain(value: Any) -> Any:
    """Settings stand in a key as JSON."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else value
