"""Local files as data sets of lm-evaluation-harness: the ``custom_dataset`` functions of the task files in this folder.

Files, plain or gzip (``<file>.gz``), are read from the folder ``data`` of the harness's metadata, as they are. Without
one, they are read from where ``titans_datasets`` stores downloads, ``$TITANS_DATA_HOME/lm`` or ``titans_datasets/lm``
in the user's cache, and must be the published ones (``sha256`` of the task).
"""

import gzip
import hashlib
import json
import os
import zlib
from pathlib import Path
from typing import Any

import datasets


def lines(file: str, data: str | None = None, **about: Any) -> dict[str, datasets.Dataset]:
    """A JSON Lines file, one document per line."""
    path, text = _read(file, data, **about)
    try:
        return _test([json.loads(line) for line in text.split("\n") if line.strip()])
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not a complete JSON Lines file ({error}). Replace it.") from error


def pages(file: str, data: str | None = None, **about: Any) -> dict[str, datasets.Dataset]:
    """WikiText, one document per page, split before each line `` = Title = `` as in ``wikitext_document_level``.

    This takes two formulas of the test part for titles too, which gives 62 pages.
    """
    found: list[list[str]] = []
    for line in _read(file, data, **about)[1].split("\n"):
        words = line.split()
        if len(words) > 2 and words[0] == words[-1] == "=" and "=" not in (words[1], words[-2]):
            found.append([])
        if found:
            found[-1].append(line)
    return _test([{"page": "\n".join(page)} for page in found])


def _read(
    file: str, data: str | None, sha256: str | None = None, published: str = "...", **about: Any
) -> tuple[Path, str]:
    """The path of a file and its text. ``published``: its name in ``titans_datasets``."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "titans_datasets"
    # downloads are in the cache too, if the data home is not writable
    homes = dict.fromkeys([Path(os.environ.get("TITANS_DATA_HOME") or cache), cache])
    folders = [Path(data)] if data else [home / "lm" for home in homes]
    paths = [folder.expanduser() / file for folder in folders]
    for path in paths:
        for found in (path, path.with_name(f"{path.name}.gz")):
            if found.is_file():
                return found, _text(found, None if data else sha256, published)
    raise FileNotFoundError(
        f"no such file: {' or '.join(map(str, paths))}. titans_datasets.load({published!r}) downloads it, or "
        "says what to put there. Or check data and TITANS_DATA_HOME."
    )


def _text(path: Path, sha256: str | None, published: str) -> str:
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is not a complete gzip ({error}). Replace it.") from error
    if sha256 and (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise ValueError(
            f"{path} is not the published file, or not all of it: its sha256 is {found}, expected {sha256}. Get it "
            f"again with titans_datasets.load({published!r}). A file of your own is read with data."
        )
    return content.decode("utf-8")


def _test(documents: list[dict[str, Any]]) -> dict[str, datasets.Dataset]:
    return {"test": datasets.Dataset.from_list(documents)}
