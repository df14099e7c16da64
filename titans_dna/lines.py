"""Reading tab-separated genome files line by line, plain or gzip; errors name file and line."""

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["DAMAGED", "BadLineError", "fields", "is_gzip", "open_binary"]

# exceptions raised when reading a truncated or damaged gzip or bgzip file
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, struct.error)


class BadLineError(ValueError):
    """A line violates its file format: ``<file>, line <number>: <what was found and what was expected>``."""

    def __init__(self, path: Path, number: int, what: str) -> None:
        super().__init__(f"{path}, line {number}: {what}")
        self.path, self.number, self.what = path, number, what

    def __reduce__(self) -> tuple[type["BadLineError"], tuple[Path, int, str]]:
        return type(self), (self.path, self.number, self.what)


def is_gzip(path: Path) -> bool:
    """Whether the content of the file is gzip, whatever its name."""
    with path.open("rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


def open_binary(path: Path) -> BinaryIO:
    """Open a file for reading bytes, decompressing gzip (including bgzip)."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name the file in it.")
    return gzip.open(path, "rb") if is_gzip(path) else path.open("rb")  # type: ignore[return-value]


def fields(
    path: Path, is_header: Callable[[str], bool], *, until: str | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number (1-based) and the tab-separated fields of every line that is not blank or a header.

    Args:
        path: path of the file.
        is_header: function that tells whether to skip a line.
        until: stop at a line with this prefix (GFF3 files may end with FASTA).

    Raises:
        FileNotFoundError, IsADirectoryError: the file does not exist, or is a folder.
        ValueError: the file is not text, or its gzip data is truncated or damaged.
    """
    number = 0
    try:
        with open_binary(path) as stream:
            for number, raw in enumerate(stream, start=1):
                # some editors write a byte order mark
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if not line.strip() or is_header(line):
                    continue
                if until is not None and line.startswith(until):
                    return
                yield number, line.split("\t")
    except UnicodeDecodeError:
        raise BadLineError(path, number, "not UTF-8 text; expected a tab-separated text file, plain or gzip") from None
    except DAMAGED as error:
        raise ValueError(f"{path} is truncated or damaged after line {number} ({error}); download it again.") from error
