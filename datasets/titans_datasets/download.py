"""Download one file over HTTP: resumable, and verified before it is moved into place."""

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from titans_datasets.checksum import verify
from titans_datasets.errors import ChecksumError, OfflineError, explained
from titans_datasets.locks import hold
from titans_datasets.sources.entries import PublishedFile

__all__ = ["advice", "download"]

_BLOCK = 1 << 16
_TIMEOUT = 30.0  # seconds without a byte
_ATTEMPTS = 4  # for a transfer that started and was interrupted
_BUSY = (408, 429, 500, 502, 503, 504)  # status codes after which a retry may succeed
_PAUSE = 1.0  # seconds before the second attempt; doubled before each further one


class _InterruptedError(Exception):
    """The connection ended early, or the server is busy. What was received is kept, and the rest is requested again."""


class _RefusedError(Exception):
    """A response that is not the file; retrying will not help."""


class _UnreachableError(_RefusedError):
    """No connection at all; worth retrying only if there was a connection just before."""


def advice(file: PublishedFile, target: Path) -> str:
    """Explain how to provide the file by hand; the end of every message about a missing file."""
    command = "git hash-object --no-filters" if file.checksum.startswith("git:") else "sha256sum"
    of = "" if target.name == file.file else ", of the decompressed bytes"
    where = f"download {file.url} on a machine with network access and " if file.url else ""
    return (
        f"To provide it by hand, {where}put it at\n"
        f"  {target}\n"
        f"  checksum {file.checksum} (`{command}`{of})\n"
        f"or set TITANS_DATA_HOME to a folder that contains {file.place}."
        f"{_origin(file)}{_unpacked(file, target)}"
    )


def _origin(file: PublishedFile) -> str:
    """A line on what an unpublished file was made from."""
    if not file.origin:
        return ""
    return (
        f"\nIt was made from {file.origin}. A file that you make from that serves here only if it has the checksum; "
        "otherwise read it with json or open()."
    )


def _unpacked(file: PublishedFile, target: Path) -> str:
    """A line on a copy beside ``target``, unpacked or as another table, that does not serve for it; empty if there is
    none."""
    plain = target.with_name(file.file.removesuffix(".gz"))
    if plain.name == file.file:
        return ""
    copy = next((path for path in (plain, *map(plain.with_suffix, (".txt", ".csv"))) if path.is_file()), None)
    if copy is None:
        return ""
    form = "not unpacked" if copy == plain else "not in another form"
    return f"\n{copy} is there, but it could not be verified: the file {file.file} itself is expected, {form}."


def download(file: PublishedFile, target: Path) -> None:
    """Download ``file.url`` to ``target``.

    Bytes are written to ``<target>.part``. A part left by an interrupted transfer is continued if the server supports
    it (HTTP Range), otherwise the download starts again. The part is verified and then renamed, so ``target`` is never
    incomplete. Processes that download to the same folder wait for each other. A progress bar is shown if standard
    error is a terminal.

    Raises:
        OfflineError: if the address cannot be reached, refuses, or the transfer keeps being interrupted.
        ChecksumError: if the downloaded file is not the published one; it is deleted.
        OSError: if the folder is not writable, or something else than a file has the place of the file.
    """
    part = target.with_name(f"{target.name}.part")
    remedy = "Move away what is in its place, or set TITANS_DATA_HOME to a folder that can be written to."
    if target.is_dir():
        raise IsADirectoryError(f"{file.name} cannot be stored: {target} is a folder. {remedy}")
    with explained(f"{file.name} cannot be stored as {target}", remedy):
        _download(file, part, target)


def _download(file: PublishedFile, part: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(target.parent):
        if target.exists():
            return  # downloaded by another process while this one waited
        found_a_part = part.exists()
        try:
            _collect(file, part, target)
        except ChecksumError:
            if not found_a_part:
                raise
            # the existing part may have been wrong: download again from the first byte
            _collect(file, part, target)
        part.replace(target)


def _collect(file: PublishedFile, part: Path, target: Path) -> None:
    """Download all bytes into ``part`` and verify them; a part with wrong bytes is deleted."""
    if file.url is None:
        raise ValueError(f"{file.name} is not published as a single file.\n{advice(file, target)}")
    try:
        _transfer_patiently(file.url, part)
    except (_InterruptedError, _RefusedError) as error:
        raise OfflineError(
            f"Could not download {file.name} from {file.url}: {error}.\n{advice(file, target)}"
        ) from None  # the message contains the cause; a chain of socket errors would hide it
    try:
        verify(
            part,
            file.file,
            file.checksum,
            what_to_do=f"It was downloaded from {file.url} and is now deleted. Load again; if this repeats, the "
            f"address (or a proxy) serves another file.\n{advice(file, target)}",
        )
    except ChecksumError:
        part.unlink()
        raise


def _transfer_patiently(url: str, part: Path) -> None:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _transfer(url, part)
        except (_InterruptedError, _UnreachableError) as error:
            if attempt == _ATTEMPTS or (attempt == 1 and isinstance(error, _UnreachableError)):
                raise
            time.sleep(_PAUSE * 2 ** (attempt - 1))


def _transfer(url: str, part: Path) -> None:
    """Send one request and append the bytes that ``part`` lacks; all bytes if the server does not support Range."""
    from http.client import HTTPException

    begin = part.stat().st_size if part.exists() else 0
    with _open(url, begin) as response:
        if response.status == 206 and not response.headers.get("Content-Range", "").startswith(f"bytes {begin}-"):
            part.unlink(missing_ok=True)
            raise _InterruptedError("the server sent another range than requested")
        if response.status == 416:
            return  # the part already has the whole file, or too much; the checksum will show which
        if response.status != 206:
            begin = 0
        length = _length(response.headers.get("Content-Length"))
        total = begin + length if length is not None else None
        received = begin
        with part.open("ab" if begin else "wb") as sink, _progress(part.stem, begin, total) as bar:
            while True:
                try:
                    block = response.read(_BLOCK)
                except (OSError, HTTPException) as error:
                    raise _InterruptedError(_interrupted(received, total, error)) from error
                if not block:
                    break
                sink.write(block)
                received += len(block)
                bar.update(len(block))
    if total is not None and received < total:
        raise _InterruptedError(_interrupted(received, total, "connection closed"))


def _length(header: str | None) -> int | None:
    """Number of bytes in a Content-Length header; None if there is none, or it is not a number of bytes."""
    try:
        length = int(header or "")
    except ValueError:
        return None
    return length if length >= 0 else None


def _interrupted(received: int, total: int | None, why: object) -> str:
    return (
        f"the transfer was interrupted after {received} of {total if total is not None else 'unknown'} bytes ({why}); "
        "the received bytes are kept, and the next load continues from there"
    )


def _open(url: str, begin: int) -> Any:
    """Response with status 200, 206 (from byte ``begin`` on) or 416 (there is no byte ``begin``)."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, build_opener

    request = Request(url, headers={"User-Agent": "titans_datasets"})
    if begin:
        request.add_header("Range", f"bytes={begin}-")
    try:
        # urlopen would remember the proxies of its first call, and a proxy that is set after a failure would not help
        return build_opener().open(request, timeout=_TIMEOUT)
    except HTTPError as error:
        if error.code == 416 and begin:
            return error
        kind = _InterruptedError if error.code in _BUSY else _RefusedError
        raise kind(f"the server answered {error.code} {error.reason}") from error
    except URLError as error:
        raise _UnreachableError(f"no connection ({error.reason})") from error
    except (OSError, HTTPException) as error:
        raise _UnreachableError(f"no answer ({error})") from error
    except ValueError as error:
        # the address is ours, so it is that of the proxy, or where the server redirects to
        raise _RefusedError(f"the address of the proxy, or that of a redirection, is wrong ({error})") from error


class _NoBar:
    def update(self, n: int) -> None:
        pass


def _watched() -> bool:
    """Whether standard error is a terminal. Without a console there is none, and a log in its place may lack isatty."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # ValueError: it is closed
        return False


@contextlib.contextmanager
def _progress(label: str, begin: int, total: int | None) -> Iterator[Any]:
    if not _watched():
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
    """Make processes wait for each other: two that append to one part would corrupt it."""
    path = folder / ".lock"
    try:
        lock = path.open("w")
    except PermissionError:  # in a shared folder it may belong to another user; read access is enough
        lock = path.open()
    with lock:
        hold(lock, wait=True)
        yield
