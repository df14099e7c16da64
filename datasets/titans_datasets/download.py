"""One file over HTTP: resumable, checked before it takes its place."""

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from titans_datasets.checksum import verify
from titans_datasets.errors import ChecksumError, OfflineError
from titans_datasets.locks import hold
from titans_datasets.sources.entries import PublishedFile

__all__ = ["advice", "download"]

_BLOCK = 1 << 16
_TIMEOUT = 30.0  # seconds without a byte
_ATTEMPTS = 4  # at a transfer that began and broke off
_BUSY = (408, 429, 500, 502, 503, 504)  # answers of a server that may give the file a little later
_PAUSE = 1.0  # seconds before the second attempt, doubled before each further one


class _BrokenOffError(Exception):
    """The connection ended before the last byte, or the server is busy: what came is kept, and the rest asked for."""


class _RefusedError(Exception):
    """An answer that is not the file: asking again will not help."""


class _UnreachableError(_RefusedError):
    """No connection at all: worth asking again only where there was one a moment ago."""


def advice(file: PublishedFile, target: Path) -> str:
    """How to bring the file by hand: the end of every message about a missing file."""
    command = "git hash-object --no-filters" if file.checksum.startswith("git:") else "sha256sum"
    of = "" if target.name == file.file else ", of the unpacked bytes"
    where = f"fetch {file.url} where there is a network and " if file.url else ""
    return (
        f"To bring it by hand, {where}put it at\n"
        f"  {target}\n"
        f"  checksum {file.checksum} (`{command}`{of})\n"
        f"or set TITANS_DATA_HOME to a folder that holds {file.place}."
    )


def download(file: PublishedFile, target: Path) -> None:
    """Fetch ``file.url`` to ``target``.

    Bytes are collected in ``<target>.part``; a part left by a transfer that broke off is continued where the server
    can do that (HTTP Range), else begun again. The part is checked, then renamed into place in one step: ``target`` is
    never half a file. Processes that download into one folder wait for each other. A progress bar is drawn when
    standard error is a terminal.

    Raises:
        OfflineError: the address cannot be reached, refuses, or keeps breaking off.
        ChecksumError: what came is not the published file; it is deleted.
        OSError: the folder cannot be written to.
    """
    part = target.with_name(f"{target.name}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(target.parent):
        if target.exists():
            return  # fetched by another process while this one waited
        found_a_part = part.exists()
        try:
            _collect(file, part, target)
        except ChecksumError:
            if not found_a_part:
                raise
            # the part found here may have been the wrong one: once more, from the first byte
            _collect(file, part, target)
        part.replace(target)


def _collect(file: PublishedFile, part: Path, target: Path) -> None:
    """Every byte into ``part``, and the right ones: a part with wrong bytes is deleted."""
    if file.url is None:
        raise ValueError(f"{file.name} is published nowhere as one file.\n{advice(file, target)}")
    try:
        _transfer_patiently(file.url, part)
    except (_BrokenOffError, _RefusedError) as error:
        raise OfflineError(
            f"Could not download {file.name} from {file.url}: {error}.\n{advice(file, target)}"
        ) from None  # the message holds the cause; a chain of socket errors would bury it
    try:
        verify(
            part,
            file.file,
            file.checksum,
            what_to_do=f"It came from {file.url} and is deleted. Load again; if this repeats, the address (or a proxy "
            f"in between) serves another file.\n{advice(file, target)}",
        )
    except ChecksumError:
        part.unlink()
        raise


def _transfer_patiently(url: str, part: Path) -> None:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _transfer(url, part)
        except (_BrokenOffError, _UnreachableError) as error:
            if attempt == _ATTEMPTS or (attempt == 1 and isinstance(error, _UnreachableError)):
                raise
            time.sleep(_PAUSE * 2 ** (attempt - 1))


def _transfer(url: str, part: Path) -> None:
    """One request: the bytes that ``part`` lacks, appended to it; all of them where the server knows no Range."""
    from http.client import HTTPException

    begin = part.stat().st_size if part.exists() else 0
    with _open(url, begin) as response:
        if response.status == 206 and not response.headers.get("Content-Range", "").startswith(f"bytes {begin}-"):
            part.unlink()
            raise _BrokenOffError("the server sent another range than the one asked for")
        if response.status == 416:
            return  # the file ends here, or before: its checksum will tell
        if response.status != 206:
            begin = 0
        length = response.headers.get("Content-Length")
        total = begin + int(length) if length is not None else None
        received = begin
        with part.open("ab" if begin else "wb") as sink, _progress(part.stem, begin, total) as bar:
            while True:
                try:
                    block = response.read(_BLOCK)
                except (OSError, HTTPException) as error:
                    raise _BrokenOffError(_broken_off(received, total, error)) from error
                if not block:
                    break
                sink.write(block)
                received += len(block)
                bar.update(len(block))
    if total is not None and received < total:
        raise _BrokenOffError(_broken_off(received, total, "connection closed"))


def _broken_off(received: int, total: int | None, why: object) -> str:
    return (
        f"the transfer broke off after {received} of {total if total is not None else 'unknown'} bytes ({why}); "
        "what came is kept, the next load continues there"
    )


def _open(url: str, begin: int) -> Any:
    """Response of status 200, 206 (from byte ``begin`` on) or 416 (there is no byte ``begin``)."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    request = Request(url, headers={"User-Agent": "titans_datasets"})
    if begin:
        request.add_header("Range", f"bytes={begin}-")
    try:
        return urlopen(request, timeout=_TIMEOUT)
    except HTTPError as error:
        if error.code == 416 and begin:
            return error
        kind = _BrokenOffError if error.code in _BUSY else _RefusedError
        raise kind(f"the server answered {error.code} {error.reason}") from error
    except URLError as error:
        raise _UnreachableError(f"no connection ({error.reason})") from error
    except (OSError, HTTPException) as error:
        raise _UnreachableError(f"no answer ({error})") from error


class _NoBar:
    def update(self, n: int) -> None:
        pass


@contextlib.contextmanager
def _progress(label: str, begin: int, total: int | None) -> Iterator[Any]:
    if not sys.stderr.isatty():
        yield _NoBar()
        return
    try:
        from tqdm import tqdm
    except ImportError:
        yield _NoBar()
        return
    with tqdm(desc=label, initial=begin, total=total, unit="B", unit_scale=True) as bar:
        yield bar


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Processes queue here: two that append to one part would spoil it."""
    path = folder / ".lock"
    try:
        lock = path.open("w")
    except PermissionError:  # it is of another user of a shared folder, and reading it is enough
        lock = path.open()
    with lock:
        hold(lock, wait=True)
        yield
