"""Local files as data sets of lm-evaluation-harness: what the task files beside this one name as ``custom_dataset``.

A file is looked for in the folder ``data`` of the harness's metadata, else in ``$TITANS_DATA_HOME/lm``, else where
``titans_datasets`` puts what it downloads: in ``titans_datasets/lm`` of the user's cache.
"""

import json
import os
from pathlib import Path
from typing import Any

import datasets


def lines(file: str, data: str | None = None, **about: Any) -> dict[str, datasets.Dataset]:
    """A JSON Lines file, one document a line."""
    return _test([json.loads(line) for line in _read(file, data).split("\n") if line.strip()])


def pages(file: str, data: str | None = None, **about: Any) -> dict[str, datasets.Dataset]:
    """WikiText, one document a page, cut where the harness's own ``wikitext_document_level`` is: before each line
    `` = Title = ``. That takes two formulas of the test part for titles too: 62 pages."""
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
            f"{path} was expected, and no such file is there: fetch it once, with titans_datasets.load(...), or check "
            "data and TITANS_DATA_HOME."
        )
    return path.read_text(encoding="utf-8")


def _test(documents: list[dict[str, Any]]) -> dict[str, datasets.Dataset]:
    return {"test": datasets.Dataset.from_list(documents)}
