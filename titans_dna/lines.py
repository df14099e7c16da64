"""Tab-separated genome files read line by line, plain or gzip, with mistakes named by file and line."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["DAMAGED", "BadLineError", "fields", "is_gzip", "open_binary"]

# what reading a gzip raises that was cut short or changed on its way
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)


class BadLineError(ValueError):
    """A line that does not follow its format: ``<file>, line <number>: <what was expected and what came>``."""

    def __init__(self, path: Path, number: int, what: str) -> None:
        super().__init__(f"{path}, line {number}: {what}")
        self.path, self.number, self.what = path, number, what

    def __reduce__(self) -> tuple[type["BadLineError"], tuple[Path, int, str]]:
        return type(self), (self.path, self.number, self.what)


def is_gzip(path: Path) -> bool:
    """Whether the file begins as gzip does, whatever its name."""
    with path.open("rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


def open_binary(path: Path) -> BinaryIO:
    """The bytes of a file, unpacked where it is gzip (bgzip is gzip too)."""
    return gzip.open(path, "rb") if is_gzip(path) else path.open("rb")  # type: ignore[return-value]


def fields(
    path: Path, is_header: Callable[[str], bool], *, until: str | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Line number, counted from 1, and tab-separated fields of every line that is neither blank nor a header.

    Args:
        is_header: whether to skip a line.
        until: stop at a line that begins so (GFF3 files may end in FASTA).

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file is no text, or its gzip is cut short.
    """
    number = 0
    try:
        with open_binary(path) as stream:
            for number, raw in enumerate(stream, start=1):
                # some editors begin a file with a mark of its encoding
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if not line.strip() or is_header(line):
                    continue
                if until is not None and line.startswith(until):
                    return
                yield number, line.split("\t")
    except UnicodeDecodeError:
        raise BadLineError(path, number, "not UTF-8 text; expected a tab-separated text file, plain or gzip") from None
    except DAMAGED as error:
        raise ValueError(f"{path} is cut short or damaged after line {number} ({error}); fetch it again.") from error
