"""Sequence logos: the height of a letter is its contribution to a score."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from titans_core.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_logo"]

_COLORS = {"A": "#2f9e44", "C": "#1c6dd0", "G": "#e8890c", "T": "#d6336c", "N": "0.6"}
_BASES = list("ACGT")


def plot_logo(scores: Any, start: int | None = None, stop: int | None = None, ax: "Axes | None" = None) -> "Axes":
    """Plot a sequence logo: letters above the axis increase the score, letters below it decrease it.

    Args:
        scores: a DataFrame from ``attribute``, of which each letter of the sequence is drawn with its importance; or a
            table ``[L, 4]`` for A, C, G and T (an array, or a DataFrame with these columns), of which all four letters
            are drawn at each position.
        start: first position to draw (0-based). Default: the first. Positions of a DataFrame are those of its index,
            so a slice of it is drawn at its original positions.
        stop: end of the positions to draw, exclusive. Default: all.
        ax: axes to draw on. Default: those of a new figure.

    Raises:
        TypeError: ``scores`` is a list of DataFrames.
        ValueError: ``scores`` has another shape or other columns, or a number that is not finite; or there is no
            position from ``start`` to ``stop``.
        ImportError: logomaker is not installed.
    """
    require("logomaker", "plot_logo", "interpret")
    heights = _heights(scores)
    first, last = (heights.index[0], heights.index[-1]) if len(heights) else (0, -1)
    heights = heights.loc[first if start is None else start : last if stop is None else stop - 1]
    if heights.empty or (start is not None and start < first):
        raise ValueError(f"nothing to draw from start={start} to stop={stop}: scores has positions {first} to {last}.")
    if not np.isfinite(heights.to_numpy()).all():
        raise ValueError("scores has values that are not finite (NaN or infinite); remove or replace them.")
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
    """Heights: a column for each letter, a row for each position."""
    if isinstance(scores, list) and scores and isinstance(scores[0], pd.DataFrame):
        raise TypeError(f"scores is a list of {len(scores)} frames; give one of them, such as scores[0].")
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
    """Positions of the rows: the index if it consists of consecutive integers, else numbers from 0."""
    index = scores.index
    counts = len(index) and pd.api.types.is_integer_dtype(index) and bool((np.diff(index) == 1).all())
    return index if counts else pd.RangeIndex(len(index))
