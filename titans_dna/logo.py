"""A sequence logo: letters as tall as what they add to a score."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from titans_core.tokenizers import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_logo"]

_COLORS = {"A": "#2f9e44", "C": "#1c6dd0", "G": "#e8890c", "T": "#d6336c", "N": "0.6"}
_BASES = list("ACGT")


def plot_logo(scores: Any, start: int | None = None, stop: int | None = None, ax: "Axes | None" = None) -> "Axes":
    """Draw letters above the line where they add to the score, and below it where they take from it.

    Args:
        scores: a frame of ``attribute``: each letter of the sequence, as tall as its importance. Or a table ``[L, 4]``
            of numbers for A, C, G and T (an array, or a frame with these columns): all four letters at each position.
        start: the first position to draw, 0-based, and ``stop`` the one behind the last; default all. The rows of a
            frame are at the positions of its index, so that a part of it is drawn where it stands.
        stop: see ``start``.
        ax: where to draw; default a new figure.

    Raises:
        TypeError: a list of frames.
        ValueError: another shape or columns, a number that is not finite, or nothing from ``start`` to ``stop``.
        ImportError: without the package logomaker.
    """
    require("logomaker", "plot_logo", "interpret")
    heights = _heights(scores)
    first, last = (heights.index[0], heights.index[-1]) if len(heights) else (0, -1)
    heights = heights.loc[first if start is None else start : last if stop is None else stop - 1]
    if heights.empty or (start is not None and start < first):
        raise ValueError(f"nothing to draw from start={start} to stop={stop}: there are positions {first} to {last}.")
    if not np.isfinite(heights.to_numpy()).all():
        raise ValueError("scores has numbers that are not finite; a logo needs a height for each letter.")
    import logomaker
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(min(20, max(4, 0.15 * len(heights))), 2.2), layout="constrained")
    logomaker.Logo(heights, ax=ax, color_scheme=_COLORS)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_xlabel("position (0-based)")
    target = getattr(scores, "attrs", {}).get("target")
    ax.set_ylabel("importance" if target is None else f"importance for {target}")
    return ax


def _heights(scores: Any) -> pd.DataFrame:
    """A column for each letter, a row for each position."""
    if isinstance(scores, list) and scores and isinstance(scores[0], pd.DataFrame):
        raise TypeError(f"scores is a list of {len(scores)} frames: give one of them, scores[0].")
    if not isinstance(scores, pd.DataFrame):
        table = np.asarray(scores, dtype=float)
        if table.ndim != 2 or table.shape[1] != len(_BASES):
            raise ValueError(f"scores must be a frame of attribute, or a table [L, 4]; got shape {table.shape}.")
        return pd.DataFrame(table, columns=_BASES)
    if {"base", "importance"} <= set(scores.columns):
        there = scores["base"].to_numpy()[:, None] == np.array(list(_COLORS))
        return pd.DataFrame(np.where(there, scores[["importance"]], 0.0), _places(scores), columns=list(_COLORS))
    if set(_BASES) <= set(scores.columns):
        return scores[_BASES].astype(float).set_axis(_places(scores))
    raise ValueError(f"scores has the columns {list(scores.columns)}; expected base and importance, or A, C, G and T.")


def _places(scores: pd.DataFrame) -> pd.Index:
    """Positions of the rows: its index where that counts on by one, else from 0."""
    index = scores.index
    counts = len(index) and pd.api.types.is_integer_dtype(index) and bool((np.diff(index) == 1).all())
    return index if counts else pd.RangeIndex(len(index))
