"""Local files as data sets of lm-evaluation-harness: the ``custom_dataset`` functions of the task files in this folder.

Files are read from the folder ``data`` of the harness's metadata, else from ``$TITANS_DATA_HOME/lm``, else from
``titans_datasets/lm`` in the user's cache, where ``titans_datasets`` stores downloads.
"""

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
    home = os.environ.get("TITANS_DATA_HOME")
    if not home:
        home = str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "titans_datasets")
    path = (Path(data) if data else Path(home) / "lm").expanduser() / file
    if not path.is_file():
        raise FileNotFoundError(
            f"no such file: {path}. Download it with titans_datasets.load(...), or check data and TITANS_DATA_HOME."
        )
    return path.read_text(encoding="utf-8")


def _test(documents: list[dict[str, Any]]) -> dict[str, datasets.Dataset]:
    return {"test": datasets.Dataset.from_list(documents)}
