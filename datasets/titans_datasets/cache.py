"""Where files live on this machine, and how one gets there."""

import os
import warnings
from pathlib import Path

from titans_datasets.checksum import verify
from titans_datasets.download import advice, download
from titans_datasets.registry import DatasetInfo

__all__ = ["data_home", "obtain", "user_cache"]

_FOLDER = "ts"


def user_cache() -> Path:
    """``$XDG_CACHE_HOME/titans_datasets``, or ``~/.cache/titans_datasets`` where that is not set."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "titans_datasets"


def data_home(path: str | os.PathLike[str] | None = None) -> Path:
    """The folder under which data files are looked for: those of the time-series sets in its ``ts/``.

    Args:
        path: taken where given; else the environment variable ``TITANS_DATA_HOME``; else
            ``titans_datasets`` in the user's cache (``$XDG_CACHE_HOME``, ``~/.cache``).

    Returns:
        Absolute path, ``~`` expanded. It need not exist; nothing is created.
    """
    chosen = path if path is not None else os.environ.get("TITANS_DATA_HOME") or user_cache()
    return Path(chosen).expanduser().absolute()


def obtain(info: DatasetInfo, home: Path, *, allow_download: bool = True) -> Path:
    """Path of the verified file of one set, fetched first where it is missing.

    It is looked for in ``home`` as ``ts/<file>`` and ``ts/<file>.gz``. Where ``home`` cannot be written to, the user's
    cache serves as a second place: looked in too, and downloaded to, with a warning that says so.

    Raises:
        FileNotFoundError: missing, and ``allow_download`` is false.
        OfflineError: missing, and cannot be fetched.
        ChecksumError: there, or fetched, but not the published bytes.
        PermissionError: missing, and neither ``home`` nor the user's cache can be written to.
    """
    # written down under the name it is published by: weather.csv.gz holds weather.csv
    published = f"{info.file}.gz" if info.url.endswith(f"{info.file}.gz") else info.file
    homes = [home] if _writable(home / _FOLDER) else [home, user_cache()]
    for place in homes:
        for name in (info.file, f"{info.file}.gz"):
            path = place / _FOLDER / name
            if path.is_file():
                verify(path, info.file, info.checksum)
                return path
    target = homes[-1] / _FOLDER / published
    if not allow_download:
        places = " or ".join(str(place / _FOLDER) for place in homes)
        raise FileNotFoundError(
            f"{info.name} is not in {places}, and download=False. Load it with download=True once.\n"
            f"{advice(info, target)}"
        )
    if not _writable(homes[-1] / _FOLDER):
        raise PermissionError(
            f"{info.name} is missing, and there is nowhere to put it: "
            f"{' and '.join(map(str, homes))} cannot be written to. Set TITANS_DATA_HOME to a folder that can."
        )
    if len(homes) > 1:
        warnings.warn(
            f"{home} cannot be written to; {info.name} is downloaded to {target} instead. "
            "Later loads with this data home find it there.",
            stacklevel=3,
        )
    download(info, target)
    return target


def _writable(folder: Path) -> bool:
    """Whether ``folder`` could be made and written to: decided by the nearest folder above it that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
