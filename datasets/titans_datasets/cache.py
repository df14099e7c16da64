"""Where data files are stored locally, and how to obtain one."""

import os
from collections.abc import Iterable
from pathlib import Path

from titans_datasets.checksum import verify
from titans_datasets.download import advice, download
from titans_datasets.errors import reading
from titans_datasets.sources.entries import PublishedFile
from titans_datasets.warn import warn_caller

__all__ = [
    "data_home",
    "is_file",
    "obstacle",
    "obtain",
    "place_of_copies",
    "remedy",
    "searched",
    "user_cache",
    "with_cache",
    "writable",
]


def user_cache() -> Path:
    """``$XDG_CACHE_HOME/titans_datasets``, or ``~/.cache/titans_datasets`` if that is not set."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _expanded(base, "set XDG_CACHE_HOME or TITANS_DATA_HOME") / "titans_datasets"


def _expanded(path: str | os.PathLike[str], remedy: str) -> Path:
    """Absolute path with ``~`` expanded."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:  # no such user, or a user without a home
        raise ValueError(f"{path} has no meaning here ({error}): {remedy}.") from None


def data_home(path: str | os.PathLike[str] | None = None) -> Path:
    """The folder for data files: time series in its ``ts/``, DNA in ``dna/``, text in ``lm/``.

    Args:
        path: the folder. None: the environment variable ``TITANS_DATA_HOME``, or if that is not set,
            ``titans_datasets`` in the user's cache (``$XDG_CACHE_HOME``, ``~/.cache``).

    Returns:
        Absolute path with ``~`` expanded. It need not exist; nothing is created.
    """
    chosen = path if path is not None else os.environ.get("TITANS_DATA_HOME") or user_cache()
    return _expanded(chosen, "give a path without ~")


def obtain(file: PublishedFile, home: Path, *, allow_download: bool = True) -> Path:
    """Return the path of a verified file, and download it if it is missing.

    The file is looked for in ``home`` as ``<place>`` and ``<place>.gz``. If ``home`` is not writable, the user's cache
    is searched too, and downloads go there, with a warning.

    Raises:
        FileNotFoundError: if it is missing, and ``allow_download`` is False or it is not published as a single file.
        OfflineError: if it is missing and cannot be downloaded.
        ChecksumError: if the local or downloaded file does not have the published bytes.
        PermissionError: if it is missing, and neither ``home`` nor the user's cache is writable.
        OSError: if a folder or file cannot be read, or a folder has the place of the file.
    """
    # stored under its published name: weather.csv.gz contains weather.csv
    packed = file.url is not None and file.url.endswith(f"{file.file}.gz")
    published = f"{file.file}.gz" if packed else file.file
    homes = searched(home, file.folder)
    paths = [place / file.folder / name for place in homes for name in (file.file, f"{file.file}.gz")]
    for path in paths:
        if is_file(path):
            verify(path, file.file, file.checksum, remedy(path, file))
            return path
    if file.url is None or not allow_download:
        places = " or ".join(str(place / file.folder) for place in homes)
        why = (
            "it is not published as a single file"
            if file.url is None
            else "download=False. Load it once with download=True"
        )
        raise FileNotFoundError(
            f"{file.name} is not in {places}, and {why}.\n"
            f"{obstacle(paths)}{advice(file, homes[-1] / file.folder / published)}"
        )
    target = place_for(file, homes) / file.folder / published
    download(file, target)
    return target


def is_file(path: Path) -> bool:
    """Whether there is a file, or a link to one. Raises an OSError with advice if this cannot be found out."""
    with reading(path):
        return path.is_file()


def obstacle(paths: Iterable[Path]) -> str:
    """A line of messages about a missing file: which folder or broken link has its place; empty if none."""
    for path in paths:
        if path.is_dir():
            return f"{path} is a folder, but a file is expected there: move it away.\n"
        if path.is_symlink():
            return (
                f"{path} is a link to {path.readlink()}, which is not there: restore that file, or remove the link.\n"
            )
    return ""


def remedy(path: Path, file: PublishedFile) -> str:
    """What to do about a local file with other bytes than the published; the end of the error message."""
    if not writable(path.parent):
        elsewhere = "and load again with download=True" if file.url else f"that contains {file.place}"
        return (
            f"{path.parent} cannot be written to: have the file replaced there, or set TITANS_DATA_HOME to another "
            f"folder {elsewhere}."
        )
    if file.url is None:
        return f"It cannot be downloaded, as it is not published as a single file.\n{advice(file, path)}"
    if _cached(path):
        return "Delete the file and load again with download=True."
    return (
        "It is not in the user's cache, so it may be your own: move it away and load again with download=True, which "
        f"downloads {file.url}."
    )


def _cached(path: Path) -> bool:
    try:
        return path.is_relative_to(user_cache())
    except ValueError:  # the user has no cache
        return False


def with_cache(home: Path) -> list[Path]:
    """The home, and the user's cache if the user has one and may read it."""
    try:
        cache = user_cache()
        found = not cache.exists() or os.access(cache, os.R_OK | os.X_OK)
    except (ValueError, OSError):
        return [home]
    return list(dict.fromkeys([home, cache])) if found else [home]


def searched(home: Path, folder: str) -> list[Path]:
    """Where files of a folder of the data home are: in ``home``; if that is not writable, in the user's cache too."""
    return [home] if writable(home / folder) else with_cache(home)


def place_of_copies(folder: str) -> Path:
    """A folder for what is made of data files: in the data home, or in the user's cache if that is not writable."""
    return searched(data_home(), folder)[-1] / folder


def place_for(file: PublishedFile, homes: list[Path]) -> Path:
    """Return the first of the homes that is writable, with a warning if it is not ``homes[0]``.

    Raises:
        PermissionError: if none is writable.
    """
    found = next((place for place in homes if writable(place / file.folder)), None)
    if found is None:
        folders = " and ".join(str(place / file.folder) for place in homes)
        raise PermissionError(
            f"{file.name} is missing and cannot be stored: {folders} cannot be written to. Set TITANS_DATA_HOME to a "
            "writable folder."
        )
    if found != homes[0]:
        warn_caller(
            f"{homes[0] / file.folder} cannot be written to; {file.name} is downloaded to {found / file.place} "
            "instead. Later loads with this data home will find it there."
        )
    return found


def writable(folder: Path) -> bool:
    """Whether ``folder`` can be created and written to, judged by its nearest existing parent folder.

    A folder that nobody may write to is left alone by a superuser too, whom its mode does not stop.
    """
    try:
        while not folder.exists() and folder != folder.parent:
            if folder.is_symlink():  # a broken link, for example to a disk that is not mounted
                return False
            folder = folder.parent
        allowed = folder.is_dir() and folder.stat().st_mode & 0o222
        return bool(allowed) and os.access(folder, os.W_OK | os.X_OK)
    except OSError:  # below a folder that cannot be read
        return False
