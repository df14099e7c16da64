"""Files that may be gzip (including bgzip), which is recognised by content, whatever their name."""

import gzip
import struct
import zlib
from io import BufferedReader
from pathlib import Path

__all__ = ["DAMAGED", "is_gzip", "open_binary"]

# exceptions raised when reading a truncated or damaged gzip or bgzip file; struct.error is of Biopython
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, struct.error)


def is_gzip(path: Path) -> bool:
    """Whether the content of the file is gzip."""
    with path.open("rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


def open_binary(path: Path) -> gzip.GzipFile | BufferedReader:
    """Open a file for reading bytes, decompressing gzip."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name the file in it.")
    return gzip.open(path, "rb") if is_gzip(path) else path.open("rb")
