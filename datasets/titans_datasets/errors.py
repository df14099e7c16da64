"""Errors raised while a data set is obtained."""

import contextlib
import os
from collections.abc import Iterator

__all__ = ["ChecksumError", "OfflineError", "explained", "reading"]


class ChecksumError(ValueError):
    """A file is not the published one: its checksum differs, or it is a damaged gzip.

    The message has the file, the expected and the found checksum, and what to do.
    """


class OfflineError(OSError):
    """A file could not be downloaded: no network, a refusing server, or a transfer that was interrupted repeatedly.

    The message has the address, the path to put the file at by hand, and its checksum.
    """


@contextlib.contextmanager
def explained(what: str, remedy: str) -> Iterator[None]:
    """Say in errors of the operating system what failed and what to do. Their type is kept."""
    try:
        yield
    except OfflineError:
        raise
    except OSError as error:
        why = error.strerror if error.filename is not None and str(error.filename) in what else error
        raise type(error)(f"{what} ({why}). {remedy}") from error


def reading(path: str | os.PathLike[str]) -> contextlib.AbstractContextManager[None]:
    """``explained`` for looking up or reading ``path``."""
    return explained(
        f"{path} cannot be read", "Allow this user to read it, or set TITANS_DATA_HOME to a folder that can be read."
    )
