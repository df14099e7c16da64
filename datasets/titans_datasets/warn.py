"""Warnings that point at the caller's line, however many of this package's functions lie between."""

import sys
import warnings

__all__ = ["warn_caller"]


def warn_caller(message: str) -> None:
    """A UserWarning at the innermost line outside this package."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "titans_datasets":
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, stacklevel=depth)
