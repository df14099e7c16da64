"""Write a file completely, or not at all; hold a folder against other processes."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["UNFINISHED", "held", "written_whole"]

# pattern for the names of the temporary files, which a killed process leaves behind
UNFINISHED = f"*.{'[0-9a-f]' * 32}.part*"


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Context manager that yields a temporary path to write to, and renames it to ``path`` on success.

    If an exception is raised, the temporary file is deleted. An existing file at ``path`` stays until the rename.
    Several processes may write at once, each to its own temporary file. A symbolic link stays, and its target is
    replaced. Something that is not a regular file, such as ``/dev/stdout``, is written directly.

    Raises:
        IsADirectoryError: if ``path`` is a folder.
        FileNotFoundError: if the parent folder does not exist.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name the file to write in it.")
    if path.exists() and not path.is_file():
        yield path
        return
    target = path.resolve()
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent}: make it first, to write {target.name} in it.")
    part = target.with_name(f"{target.stem}.{uuid.uuid4().hex}.part{path.suffix}")
    try:
        yield part
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def held(folder: Path, *, wait: bool) -> Iterator[None]:
    """Hold a folder against others that hold it. On Windows, and on network file systems without locks: do nothing.

    Raises:
        BlockingIOError: if another process holds it and ``wait`` is False.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass
        yield
    finally:
        os.close(opened)
