"""DNA files in ``<data home>/dna``: local files, and published ones that can be downloaded."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from titans_datasets import cache
from titans_datasets.checksum import verify
from titans_datasets.download import download
from titans_datasets.sources import dna_files
from titans_datasets.sources.entries import PublishedFile

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["homes", "labelled", "local", "published", "read_parquet"]

_SUFFIXES = (".parquet", ".csv", ".tsv")
_COLUMNS = {"seq": ("seq", "sequence"), "label": ("label", "target", "class")}


def labelled(stem: str, home: Path, download: bool, published_as: str | None = None) -> "pd.DataFrame | None":
    """Columns seq and label of one part, from the first file or folder that exists; None if there is none.

    Args:
        stem: path below ``dna/``, without suffix.
        home: data home.
        download: download the file if it is published and missing.
        published_as: stem under which checksum and address are registered, if it differs from ``stem``.
    """
    import pandas as pd

    name = stem if published_as is None else published_as
    # files with a known checksum first
    suffixes = sorted(_SUFFIXES, key=lambda suffix: name + suffix not in dna_files.checksums())
    path = next((p for suffix in suffixes if (p := local(stem + suffix, home, name + suffix)) is not None), None)
    if path is None:
        folders = (place / "dna" / stem for place in homes(home))
        files = next((found for folder in folders if (found := sorted(folder.glob("*/*.txt")))), [])
        if files:
            return pd.DataFrame(
                {"seq": [f.read_text().strip() for f in files], "label": [f.parent.name for f in files]}
            )
        known = next((name + suffix for suffix in _SUFFIXES if name + suffix in dna_files.checksums()), None)
        path = published(known, home, download, missing_ok=True) if known else None
    if path is None:
        return None
    if path.suffix == ".parquet":
        frame = read_parquet(path)
    else:
        try:
            frame = pd.read_csv(path, sep="\t" if ".tsv" in path.suffixes else ",")
        except (ValueError, EOFError, OSError) as error:  # pandas's errors are ValueErrors, those of gzip the others
            raise ValueError(f"{path} is not a complete table ({error}). Replace it.") from error
    columns = {new: next((c for c in names if c in frame), None) for new, names in _COLUMNS.items()}
    if None in columns.values():
        raise ValueError(f"{path} has the columns {list(frame)}; expected seq or sequence, and label or target.")
    frame = frame.rename(columns={old: new for new, old in columns.items()})[["seq", "label"]]
    if frame.empty:
        raise ValueError(f"{path} has no rows. Replace it.")
    if frame.isna().any(axis=None):
        row = int(frame.isna().any(axis=1).to_numpy().argmax())
        raise ValueError(f"{path} lacks a sequence or a label in row {row} (0-based, without the header).")
    return frame


def read_parquet(path: Path) -> "pd.DataFrame":
    """Read a Parquet file; errors name its path."""
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except ImportError as error:
        raise ImportError(f"{path} is a Parquet file, which needs pyarrow: pip install 'titans-suite[dna]'") from error
    except (ValueError, OSError) as error:  # all errors of pyarrow are one of these
        raise ValueError(f"{path} is not a complete Parquet file ({error}). Replace it.") from error


def homes(home: Path) -> list[Path]:
    """Folders searched for DNA files, in this order."""
    return cache.with_cache(home)


def local(relative: str, home: Path, published_as: str | None = None) -> Path | None:
    """Path of a file below ``dna/``, or None if it does not exist.

    It is verified if its checksum, or that of its decompressed content, is known.
    """
    name = relative if published_as is None else published_as
    for place in homes(home):
        path = place / "dna" / relative
        if path.is_file():
            if sha256 := dna_files.checksums().get(name) or _manifest(place / "dna").get(relative):
                verify(path, path.name, f"sha256:{sha256}")
            elif sha256 := dna_files.checksums().get(name.removesuffix(".gz")):
                verify(path, path.name.removesuffix(".gz"), f"sha256:{sha256}")
            return path
    return None


def _manifest(folder: Path) -> dict[str, str]:
    path = folder / "manifest.json"
    if not path.is_file():
        return {}
    try:
        return {entry["file"]: entry["sha256"] for entry in json.loads(path.read_text())}
    except (ValueError, KeyError, TypeError) as error:
        form = '{"file": ..., "sha256": ...}'
        raise ValueError(f"{path} is not a list of {form} ({error!r}). Fix or delete it.") from error


def published(relative: str, home: Path, allow_download: bool, *, missing_ok: bool = False) -> Path | None:
    """Path of a published file below ``dna/``, downloaded if missing; with ``missing_ok``, None if unavailable."""
    path = local(relative, home) or local(f"{relative}.gz", home)
    if path is not None:
        return path
    sha256 = dna_files.checksums().get(relative)
    if sha256 is None or not allow_download:
        if missing_ok:
            return None
        where = "" if sha256 is None else f": load with download=True, or get {dna_files.url(relative)} ({sha256=})"
        raise FileNotFoundError(f"{home / 'dna' / relative} is missing{where}.")
    file = PublishedFile(relative, f"dna/{relative}", dna_files.url(relative), f"sha256:{sha256}")
    target = cache.place_for(file, homes(home)) / file.place
    download(file, target)
    return target
