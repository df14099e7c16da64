"""A file that is written whole, or not at all."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["written_whole"]


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file of another name and the same ending, to write: renamed to ``path`` when all went well, and gone when not.

    Until then what is at ``path`` stays as it is; several may write at once, each its own. A link stays one, to a new
    file. What is no file, such as ``/dev/stdout``, is written itself.

    Raises:
        IsADirectoryError: a folder.
        FileNotFoundError: the folder to write in is not there.
    """
    path = Path(path)
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
