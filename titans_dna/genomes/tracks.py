"""Tracks: one number per base of a region, to plot or to export to a genome browser."""

import gzip
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from titans_core.files import written_whole
from titans_core.warn import warn_caller
from titans_dna.genomes.sources import read_regions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_track", "write_bedgraph"]

_COLUMNS = ("chrom", "start", "end")
_MOST_POINTS = 4000


def write_bedgraph(
    track: pd.DataFrame,
    path: str | os.PathLike[str],
    column: str | None = None,
    digits: int = 3,
    *,
    header: bool = True,
) -> None:
    """Write a track to a bedGraph file: ``chrom start end value``, 0-based half-open, sorted.

    Adjacent bases with equal values are joined, and bases without a value (NaN) are omitted. If writing fails, no
    partial file is left.

    Args:
        track: a DataFrame as returned by ``DNALanguageModel.surprise``; intervals may be longer than one base.
        path: path of the file; it is compressed if the name ends in ``.gz``.
        column: the column to write. Default: the first one other than ``chrom, start, end``.
        digits: number of decimals.
        header: start with a ``track`` line, in which genome browsers look for the name. Set it to False for
            bedGraphToBigWig.

    Raises:
        ValueError: a column does not exist, has no numbers or infinite ones; a row is not an interval; or intervals
            overlap.
        FileNotFoundError: the folder does not exist.
    """
    track, column = _checked(track, column)
    frame = track[track[column].notna()]
    # text, because categories would be sorted in their own order
    frame = frame.assign(chrom=frame["chrom"].astype(str)).sort_values(["chrom", "start"], kind="stable")
    value = frame[column].round(digits).to_numpy() + 0  # -0.0 is 0.0
    chrom, start, end = (frame[name].to_numpy() for name in _COLUMNS)
    over = np.flatnonzero((chrom[1:] == chrom[:-1]) & (start[1:] < end[:-1]))
    if len(over):
        one, two = (f"{chrom[i]}:{start[i]}-{end[i]}" for i in (over[0], over[0] + 1))
        raise ValueError(f"bedGraph allows one value per base, but {two} overlaps {one}. Write them to separate files.")
    joined = (chrom[1:] == chrom[:-1]) & (start[1:] == end[:-1]) & (value[1:] == value[:-1])
    first = np.flatnonzero(np.concatenate(([True], ~joined))) if len(frame) else np.empty(0, dtype=np.int64)
    last = np.append(first[1:], len(frame)) - 1 if len(frame) else first
    path = Path(path).expanduser()
    opened = gzip.open if path.suffix == ".gz" else open
    with written_whole(path) as part, opened(part, "wt", encoding="utf-8") as sink:
        if header:
            sink.write(f'track type=bedGraph name="{column}"\n')
        rows = pd.DataFrame({"c": chrom[first], "s": start[first], "e": end[last], "v": value[first]})
        rows.to_csv(sink, sep="\t", header=False, index=False, lineterminator="\n")


def plot_track(
    track: pd.DataFrame,
    column: str | None = None,
    *,
    genes: Any = None,
    window: int | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Plot a track of one region, averaged in windows, with genes below it.

    Args:
        track: a DataFrame as returned by ``DNALanguageModel.surprise``, of one chromosome.
        column: the column to plot. Default: the first one other than ``chrom, start, end``.
        genes: intervals to draw as bars, as returned by ``read_gff``, or a frame of them, or a BED file. Genes outside
            the region are ignored; a warning tells if all are of other chromosomes.
        window: number of bases per average. Default: chosen so that at most some 4,000 points are drawn. A row of
            several bases counts as often, in the window of its first base.
        ax: axes to draw on. Default: those of a new figure.

    Raises:
        TypeError: genes are not intervals.
        ValueError: the track is empty or has several chromosomes; a column does not exist, has no numbers or infinite
            ones; a row is not an interval; or ``window`` is below 1.
    """
    track, column = _checked(track, column)
    if track["chrom"].nunique() != 1:
        raise ValueError(f"plot_track needs a track of one chromosome, got {track['chrom'].nunique()}; select one.")
    if window is not None and window < 1:
        raise ValueError(f"window must be at least 1 base, got {window}.")
    shown = read_regions(genes) or ()
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(10, 2.5), layout="constrained")
    start, low, high = track["start"], track["start"].min(), track["end"].max()
    window = max(1, (high - low) // _MOST_POINTS) if window is None else window
    group = (start - low) // window
    value = track[column].astype(float)
    bases = (track["end"] - start).where(value.notna())
    sums = pd.DataFrame({"value": value * bases, "bases": bases}).groupby(group).sum()
    # a single point makes no line
    marker = "." if len(sums) == 1 else None
    ax.plot(start.groupby(group).mean(), sums["value"] / sums["bases"], lw=0.8, marker=marker)
    chrom, named = track["chrom"].iloc[0], sorted({g.chrom for g in shown})
    if named and chrom not in named:
        warn_caller(
            f"the track is of {chrom!r}, but the genes are of {named[:8]}{', ...' * (len(named) > 8)}, so none is "
            "drawn. If the names mean the same chromosome, rename one of them."
        )
    shown = [g for g in shown if g.chrom == chrom and g.start < high and g.end > low]
    for strand, height in (("+", -0.04), ("-", -0.09), (".", -0.065)):
        spans = [(max(g.start, low), min(g.end, high) - max(g.start, low)) for g in shown if g.strand == strand]
        place = ax.get_xaxis_transform()
        ax.broken_barh(spans, (height, 0.04), transform=place, clip_on=False, color="0.4" if strand == "-" else "0.2")
    if shown:
        ax.tick_params(axis="x", pad=14)
    ax.set_xlim(low, high)
    ax.set_xlabel(f"{chrom} (0-based)")
    ax.set_ylabel(column if window == 1 else f"{column} (mean of {window} bases)")
    return ax


def _checked(track: pd.DataFrame, column: str | None) -> tuple[pd.DataFrame, str]:
    """The track as a frame of pandas without an index of its own, and the name of the column of values."""
    if not isinstance(track, pd.DataFrame) and hasattr(track, "to_pandas"):  # a frame of polars
        track = track.to_pandas()
    values = [name for name in track.columns if name not in _COLUMNS]
    if not set(_COLUMNS) <= set(track.columns) or not values or (column is not None and column not in values):
        wanted = "a column of values" if column is None else repr(column)
        raise ValueError(f"the track has the columns {list(track.columns)}; expected chrom, start, end and {wanted}.")
    column = values[0] if column is None else column
    for name in ("start", "end", column):
        if not pd.api.types.is_numeric_dtype(track[name]):
            raise ValueError(
                f"the track's column {name!r} has no numbers (its type is {track[name].dtype}). Convert it with "
                "astype, or name the column of values: column=."
            )
    places = track[["start", "end"]].to_numpy(float, na_value=np.nan)
    if not (np.isfinite(places) & (places == np.floor(places))).all():
        raise ValueError("the track has positions that are not whole numbers. Drop or correct these rows.")
    bad = track[track["chrom"].isna() | (track["start"] < 0) | (track["end"] <= track["start"])]
    if len(bad):
        chrom, start, end = bad[list(_COLUMNS)].iloc[0]
        raise ValueError(
            f"the track has {len(bad)} rows without a chromosome or without 0 <= start < end (0-based, end exclusive), "
            f"the first {chrom}:{start}-{end}. Drop or correct these rows."
        )
    infinite = track[np.isinf(track[column].to_numpy(float, na_value=np.nan))]
    if len(infinite):
        chrom, start, end = infinite[list(_COLUMNS)].iloc[0]
        raise ValueError(
            f"the track has {len(infinite)} infinite values in its column {column!r}, the first at "
            f"{chrom}:{start}-{end}. Genome browsers read none: drop these rows, or make them NaN."
        )
    return track.reset_index(drop=True).astype({"start": np.int64, "end": np.int64}), column
