"""A file that is written whole, or not at all."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["written_whole"]


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """A file of another name and the same ending, to write: renamed to ``path`` when all went well, and gone when not.

    Until then what is at ``path`` stays as it is; several may write at once, each its own. A link stays one, to a new
    file. What is no file, such as ``/dev/stdout``, is written itself.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        yield path
        return
    path = path.resolve()
    part = path.with_name(f"{path.stem}.{uuid.uuid4().hex}.part{path.suffix}")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
