"""Warnings that point at the caller's line, outside these packages."""

import sys
import warnings

__all__ = ["warn_caller"]

PACKAGES = ("titans_core", "titans_datasets", "titans_dna", "titans_ts")


def warn_caller(message: str | Warning) -> None:
    """Issue a warning at the innermost line outside these packages; text is a UserWarning."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in PACKAGES:
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, stacklevel=depth)
