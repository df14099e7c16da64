"""Moved to :mod:`titans_core.archive`."""

from titans_core.archive import ArchiveError, load_archive, save_archive

__all__ = ["ArchiveError", "load_archive", "save_archive"]
