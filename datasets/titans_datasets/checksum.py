"""Verify that a file has exactly the published bytes."""

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

from titans_datasets.errors import ChecksumError
from titans_datasets.gzipped import DAMAGED

__all__ = ["digest", "is_packed", "verify"]

_BLOCK = 1 << 20
# (path, size, mtime, checksum) of files verified in this process, so that a second load does not read them again
_verified: set[tuple[str, int, int, str]] = set()


def is_packed(path: Path, file: str) -> bool:
    """Whether ``path`` is a gzip of the registered ``file`` rather than ``file`` itself."""
    return path.name.removesuffix(".part") == f"{file}.gz"


def _blocks(path: Path, unpack: bool) -> Iterator[bytes]:
    with gzip.open(path, "rb") if unpack else path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            yield block


def digest(path: Path, kind: str, *, unpack: bool = False) -> str:
    """Checksum of a file, as ``"<kind>:<hex>"``.

    Args:
        path: the file.
        kind: ``"sha256"``, or ``"git"`` for git's blob id, the sha1 of ``b"blob <size>\\0"`` and the bytes.
        unpack: compute the checksum of the decompressed bytes instead of the gzip file.

    Raises:
        ValueError: for another ``kind``.
        one of ``gzipped.DAMAGED``: for ``unpack`` on a damaged gzip.
    """
    if kind == "sha256":
        state = hashlib.sha256()
    elif kind == "git":
        # the size precedes the bytes: read the file twice instead of holding it in memory
        size = sum(map(len, _blocks(path, unpack)))
        state = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    else:
        raise ValueError(f"kind must be 'sha256' or 'git', got {kind!r}.")
    for block in _blocks(path, unpack):
        state.update(block)
    return f"{kind}:{state.hexdigest()}"


def verify(path: Path, file: str, checksum: str, what_to_do: str = "Delete the file and load again.") -> None:
    """Check ``path`` against the checksum registered for ``file``, once per process unless the file changes.

    Args:
        path: the local file.
        file: registered file name.
        checksum: registered checksum.
        what_to_do: last line of the error message.

    Raises:
        ChecksumError: if the checksums differ, or ``path`` is a damaged gzip.
    """
    stat = path.stat()
    fact = (str(path), stat.st_size, stat.st_mtime_ns, checksum)
    if fact in _verified:
        return
    unpack = is_packed(path, file)
    try:
        found = digest(path, checksum.partition(":")[0], unpack=unpack)
    except DAMAGED as error:
        found = f"none, the gzip is truncated or damaged ({error})"
    if found != checksum:
        what = "decompressed bytes" if unpack else "bytes"
        raise ChecksumError(
            f"{path} is not the published {file}: its {what} have the wrong checksum.\n"
            f"  expected {checksum}\n"
            f"  found    {found} ({stat.st_size} bytes on disk)\n"
            f"{what_to_do}"
        )
    _verified.add(fact)
