"""Text sets as lists of records.

    load_text("gutenberg")[0]["title"]                         15 novels: id, title, text
    "".join(r["text"] for r in load_text("wikitext2"))         plain files: one record each, part and text
    load_text("piqa")[0]["query"]                              questions: the fields of the file
    text_files("babi")["en/qa1_single-supporting-fact_test"]   a verified path, for custom readers

Files are looked for in ``<data home>/lm`` before anything is downloaded.
"""

import gzip
import json
import os
from pathlib import Path
from typing import Any

from titans_datasets import cache, registry

__all__ = ["load_text", "text_files"]


def load_text(
    name: str, *, data_home: str | os.PathLike[str] | None = None, download: bool = True
) -> list[dict[str, Any]]:
    """All records of a text set, in the order of its files.

    Args:
        name: one of ``list_datasets("text")``; case is ignored.
        data_home: folder of the data files. None: ``TITANS_DATA_HOME``, else the user's cache.
        download: download missing files, if they are published.

    Returns:
        For JSON Lines sets, one dict per line with the fields of the file. For plain files, one dict per file:
        ``"part"``, its key in ``info(name).files``, and ``"text"``, the unmodified content.

    Raises:
        ValueError: if the name is unknown; the message lists known names and the closest.
        FileNotFoundError: if a file is missing, and ``download`` is False or it is not published; the message says
            where to put it.
        OfflineError, ChecksumError, PermissionError: as for ``load_series``.
    """
    entry = registry.text_info(name)
    texts = {part: _read(path) for part, path in text_files(name, data_home=data_home, download=download).items()}
    if entry.layout == "plain":
        return [{"part": part, "text": text} for part, text in texts.items()]
    # not splitlines(): it would also split at Unicode line separators within strings
    return [json.loads(line) for text in texts.values() for line in text.split("\n") if line]


def text_files(name: str, *, data_home: str | os.PathLike[str] | None = None, download: bool = True) -> dict[str, Path]:
    """Verified path of each part, plain or gzip. Arguments and errors are those of ``load_text``."""
    home = cache.data_home(data_home)
    files = registry.text_info(name).files
    return {part: cache.obtain(file, home, allow_download=download) for part, file in files.items()}


def _read(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
