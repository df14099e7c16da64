"""What can go wrong between asking for a data set and holding it."""

__all__ = ["ChecksumError", "OfflineError"]


class ChecksumError(ValueError):
    """A file is not the published one: its checksum differs, or it is a gzip that does not unpack.

    The message names the file, the checksum expected, the one found, and what to do.
    """


class OfflineError(OSError):
    """A file could not be fetched: no network, a refusing server, or a transfer that kept breaking off.

    The message names the address, the path to put the file at by hand, and its checksum.
    """
