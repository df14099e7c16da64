"""Where files live on this machine, and how one gets there."""

import os
from pathlib import Path

from titans_datasets.checksum import verify
from titans_datasets.download import advice, download
from titans_datasets.sources.entries import PublishedFile
from titans_datasets.warn import warn_caller

__all__ = ["data_home", "obtain", "user_cache", "writable"]


def user_cache() -> Path:
    """``$XDG_CACHE_HOME/titans_datasets``, or ``~/.cache/titans_datasets`` where that is not set."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "titans_datasets"


def data_home(path: str | os.PathLike[str] | None = None) -> Path:
    """The folder under which data files are looked for: time series in its ``ts/``, DNA in ``dna/``, text in ``lm/``.

    Args:
        path: taken where given; else the environment variable ``TITANS_DATA_HOME``; else
            ``titans_datasets`` in the user's cache (``$XDG_CACHE_HOME``, ``~/.cache``).

    Returns:
        Absolute path, ``~`` expanded. It need not exist; nothing is created.
    """
    chosen = path if path is not None else os.environ.get("TITANS_DATA_HOME") or user_cache()
    return Path(chosen).expanduser().absolute()


def obtain(file: PublishedFile, home: Path, *, allow_download: bool = True) -> Path:
    """Path of one verified file, fetched first where it is missing.

    It is looked for in ``home`` as ``<place>`` and ``<place>.gz``. Where ``home`` cannot be written to, the user's
    cache serves as a second place: looked in too, and downloaded to, with a warning that says so.

    Raises:
        FileNotFoundError: missing, and ``allow_download`` is false or it is published nowhere as one file.
        OfflineError: missing, and cannot be fetched.
        ChecksumError: there, or fetched, but not the published bytes.
        PermissionError: missing, and neither ``home`` nor the user's cache can be written to.
    """
    # written down under the name it is published by: weather.csv.gz holds weather.csv
    packed = file.url is not None and file.url.endswith(f"{file.file}.gz")
    published = f"{file.file}.gz" if packed else file.file
    homes = [home] if writable(home / file.folder) else [home, user_cache()]
    for place in homes:
        for name in (file.file, f"{file.file}.gz"):
            path = place / file.folder / name
            if path.is_file():
                verify(path, file.file, file.checksum)
                return path
    if file.url is None or not allow_download:
        places = " or ".join(str(place / file.folder) for place in homes)
        why = (
            "it is published nowhere as one file"
            if file.url is None
            else "download=False. Load it with download=True once"
        )
        raise FileNotFoundError(
            f"{file.name} is not in {places}, and {why}.\n{advice(file, homes[-1] / file.folder / published)}"
        )
    target = place_for(file, homes) / file.folder / published
    download(file, target)
    return target


def place_for(file: PublishedFile, homes: list[Path]) -> Path:
    """The first of the homes that a file can be put in, with a warning where that is not the first of all.

    Raises:
        PermissionError: none can be written to.
    """
    found = next((place for place in homes if writable(place / file.folder)), None)
    if found is None:
        raise PermissionError(
            f"{file.name} is missing, and there is nowhere to put it: "
            f"{' and '.join(map(str, homes))} cannot be written to. Set TITANS_DATA_HOME to a folder that can."
        )
    if found != homes[0]:
        warn_caller(
            f"{homes[0]} cannot be written to; {file.name} is downloaded to {found / file.place} instead. "
            "Later loads with this data home find it there."
        )
    return found


def writable(folder: Path) -> bool:
    """Whether ``folder`` could be made and written to: decided by the nearest folder above it that exists."""
    while not folder.exists() and folder != folder.parent:
        if folder.is_symlink():  # to a place that is not there, such as a disk that is not mounted
            return False
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
