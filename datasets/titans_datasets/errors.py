"""Errors raised while a data set is obtained."""

__all__ = ["ChecksumError", "OfflineError"]


class ChecksumError(ValueError):
    """A file is not the published one: its checksum differs, or it is a damaged gzip.

    The message has the file, the expected and the found checksum, and what to do.
    """


class OfflineError(OSError):
    """A file could not be downloaded: no network, a refusing server, or a transfer that was interrupted repeatedly.

    The message has the address, the path to put the file at by hand, and its checksum.
    """
