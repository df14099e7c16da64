"""Reading tab-separated genome files line by line, plain or gzip; errors name file and line."""

from collections.abc import Callable, Iterator
from pathlib import Path

from titans_datasets.gzipped import DAMAGED, open_binary

__all__ = ["BadLineError", "fields"]

_OLD_MAC = r"lines end in carriage returns alone (old Mac): convert them to line feeds, as with `tr '\r' '\n'`"


class BadLineError(ValueError):
    """A line violates its file format: ``<file>, line <number>: <what was found and what was expected>``."""

    def __init__(self, path: Path, number: int, what: str) -> None:
        super().__init__(f"{path}, line {number}: {what}")
        self.path, self.number, self.what = path, number, what

    def __reduce__(self) -> tuple[type["BadLineError"], tuple[Path, int, str]]:
        return type(self), (self.path, self.number, self.what)


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
        ValueError: the file is not text; its lines end in carriage returns alone; or its gzip data is truncated or
            damaged.
    """
    number = 0
    try:
        with open_binary(path) as stream:
            for number, raw in enumerate(stream, start=1):
                if not raw.endswith(b"\n") and b"\r" in raw.rstrip():  # a header would hide all that follows it
                    raise BadLineError(path, number, _OLD_MAC)
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
