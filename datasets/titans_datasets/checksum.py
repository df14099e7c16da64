"""Verify that a file has exactly the published bytes."""

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

from titans_datasets.errors import ChecksumError, reading
from titans_datasets.gzipped import DAMAGED

__all__ = ["digest", "is_packed", "matches", "verify"]

_BLOCK = 1 << 20
# (path, size, mtime, checksum) of files verified in this process, so that a second load does not read them again
_verified: set[tuple[str, int, int, str]] = set()
# line ends here, those published, the bytes of the latter, a command that converts
_LINE_ENDS = (("CRLF", "LF", b"\n", "dos2unix"), ("LF", "CRLF", b"\r\n", "unix2dos"))


def is_packed(path: Path, file: str) -> bool:
    """Whether ``path`` is a gzip of the registered ``file`` rather than ``file`` itself."""
    return path.name.removesuffix(".part") == f"{file}.gz"


def _blocks(path: Path, unpack: bool, line_end: bytes | None = None) -> Iterator[bytes]:
    with gzip.open(path, "rb") if unpack else path.open("rb") as stream:
        blocks = iter(lambda: stream.read(_BLOCK), b"")
        yield from blocks if line_end is None else _with_line_ends(blocks, line_end)


def _with_line_ends(blocks: Iterator[bytes], line_end: bytes) -> Iterator[bytes]:
    """The same lines, all with ``line_end`` instead of LF or CRLF."""
    held = b""  # a CR at the end of a block may belong to an LF in the next
    for block in blocks:
        text = held + block
        held = b"\r" if text.endswith(b"\r") else b""
        yield text.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\n", line_end)
    yield held


def digest(path: Path, kind: str, *, unpack: bool = False, line_end: bytes | None = None) -> str:
    """Checksum of a file, as ``"<kind>:<hex>"``.

    Args:
        path: the file.
        kind: ``"sha256"``, or ``"git"`` for git's blob id, the sha1 of ``b"blob <size>\\0"`` and the bytes.
        unpack: compute the checksum of the decompressed bytes instead of the gzip file.
        line_end: compute it as if all lines ended so, ``b"\\n"`` or ``b"\\r\\n"``. None: of the bytes as they are.

    Raises:
        ValueError: for another ``kind``.
        one of ``gzipped.DAMAGED``: for ``unpack`` on a damaged gzip.
    """
    if kind == "sha256":
        state = hashlib.sha256()
    elif kind == "git":
        # the size precedes the bytes: read the file twice instead of holding it in memory
        size = sum(map(len, _blocks(path, unpack, line_end)))
        state = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    else:
        raise ValueError(f"kind must be 'sha256' or 'git', got {kind!r}.")
    for block in _blocks(path, unpack, line_end):
        state.update(block)
    return f"{kind}:{state.hexdigest()}"


def verify(path: Path, file: str, checksum: str, what_to_do: str = "Replace it with the published file.") -> None:
    """Check ``path`` against the checksum registered for ``file``, once per process unless the file changes.

    Args:
        path: the local file.
        file: registered file name.
        checksum: registered checksum.
        what_to_do: last line of the error message.

    Raises:
        ChecksumError: if the checksums differ, or ``path`` is a damaged gzip.
        OSError: if ``path`` cannot be read.
    """
    found = _other_digest(path, file, checksum)
    if found is not None:
        unpack = is_packed(path, file)
        what = "decompressed bytes" if unpack else "bytes"
        raise ChecksumError(
            f"{path} is not the published {file}: its {what} have the wrong checksum.\n"
            f"  expected {checksum}\n"
            f"  found    {found} ({path.stat().st_size} bytes on disk)\n"
            f"{_other_line_ends(path, checksum, unpack)}{what_to_do}"
        )


def matches(path: Path, file: str, checksum: str) -> bool:
    """Whether ``path`` has the registered checksum; see ``verify``."""
    return _other_digest(path, file, checksum) is None


def _other_digest(path: Path, file: str, checksum: str) -> str | None:
    """The checksum of ``path`` if it is not the registered one, or why it has none."""
    with reading(path):
        stat = path.stat()
        fact = (str(path), stat.st_size, stat.st_mtime_ns, checksum)
        if fact in _verified:
            return None
        try:
            found = digest(path, checksum.partition(":")[0], unpack=is_packed(path, file))
        except DAMAGED as error:
            return f"none, the gzip is truncated or damaged ({error})"
    if found != checksum:
        return found
    _verified.add(fact)
    return None


def _other_line_ends(path: Path, checksum: str, unpack: bool) -> str:
    """A line of the error message if only the line ends are not the published ones, else nothing."""
    for here, there, line_end, command in _LINE_ENDS:
        try:
            found = digest(path, checksum.partition(":")[0], unpack=unpack, line_end=line_end)
        except DAMAGED:
            return ""
        if found == checksum:
            first = " after unpacking it" if unpack else ""
            return (
                f"Only its line ends differ: {here} here, {there} in the published file. Git and some editors change "
                f"them; convert it with {command}{first}.\n"
            )
    return ""
