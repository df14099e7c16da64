"""Local files as data sets of lm-evaluation-harness: the ``custom_dataset`` functions of the task files in this folder.

Files, plain or gzip (``<file>.gz``), are read from the folder ``data`` of the harness's metadata. Without one, they are
read from where ``titans_datasets`` stores downloads: ``$TITANS_DATA_HOME/lm``, or ``titans_datasets/lm`` in the user's
cache.
"""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import datasets


def lines(file: str, data: str | None = None, **about: Any) -> dict[str, datasets.Dataset]:
    """A JSON Lines file, one document per line."""
    return _test([json.loads(line) for line in _read(file, data).split("\n") if line.strip()])


def pages(file: str, data: str | None = None, **about: Any) -> dict[str, datasets.Dataset]:
    """WikiText, one document per page, split before each line `` = Title = `` as in ``wikitext_document_level``.

    This takes two formulas of the test part for titles too, which gives 62 pages.
    """
    found: list[list[str]] = []
    for line in _read(file, data).split("\n"):
        words = line.split()
        if len(words) > 2 and words[0] == words[-1] == "=" and "=" not in (words[1], words[-2]):
            found.append([])
        if found:
            found[-1].append(line)
    return _test([{"page": "\n".join(page)} for page in found])


def _read(file: str, data: str | None) -> str:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "titans_datasets"
    # downloads are in the cache too, if the data home is not writable
    homes = dict.fromkeys([Path(os.environ.get("TITANS_DATA_HOME") or cache), cache])
    folders = [Path(data)] if data else [home / "lm" for home in homes]
    paths = [folder.expanduser() / file for folder in folders]
    for path in paths:
        if path.is_file():
            return path.read_text(encoding="utf-8")
        packed = path.with_name(f"{path.name}.gz")
        if packed.is_file():
            with gzip.open(packed, "rt", encoding="utf-8") as stream:
                return stream.read()
    raise FileNotFoundError(
        f"no such file: {' or '.join(map(str, paths))}. Download it with titans_datasets.load(...), or check data and "
        "TITANS_DATA_HOME."
    )


def _test(documents: list[dict[str, Any]]) -> dict[str, datasets.Dataset]:
    return {"test": datasets.Dataset.from_list(documents)}
