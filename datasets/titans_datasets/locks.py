"""Lock a file against other processes."""

from typing import IO, Any

__all__ = ["hold"]


def hold(stream: IO[Any], *, wait: bool) -> None:
    """Lock an open file until it is closed. On Windows, and on network file systems without locks, this does nothing.

    Args:
        stream: the open file.
        wait: wait until another process releases it.

    Raises:
        BlockingIOError: if another process holds it and ``wait`` is False.
    """
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return
