"""Warnings that point at the line that called this library."""

import sys
import warnings

# this library, and the packages through which it calls itself
_BETWEEN = (
    "titans_core",
    "titans_datasets",
    "titans_dna",
    "titans_ts",
    "torch",
    "lightning",
    "transformers",
    "accelerate",
    "optuna",
)


def warn_caller(message: str | Warning) -> None:
    """Issue a warning at the innermost line outside these packages; text is a UserWarning."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _BETWEEN:
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, stacklevel=depth)
