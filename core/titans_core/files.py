"""A file that is written whole, or not at all."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["written_whole"]


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """A file of another name, to write: renamed to ``path`` when all went well, and gone when not.

    Until then what is at ``path`` stays as it is; several may write at once, each its own.
    """
    path = Path(path)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
