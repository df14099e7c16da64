"""A track: one number for each base of a region, to look at, and to write for a genome browser."""

import gzip
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from titans_core.files import written_whole
from titans_dna.sources import read_regions

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
    """Write a track as bedGraph: ``chrom start end value``, 0-based half-open, sorted; neighbours of one value joined.

    Bases without a value (NaN) are left out. The file is written whole, or not at all.

    Args:
        track: as ``DNALanguageModel.surprise`` returns it.
        path: of the file; one that ends in ``.gz`` is packed.
        column: which of its columns; default the first behind ``chrom, start, end``.
        digits: decimals kept.
        header: begin with a ``track`` line, by which genome browsers name it; bedGraphToBigWig wants none.

    Raises:
        ValueError: no such column, or intervals that overlap.
        FileNotFoundError: the folder to write in is not there.
    """
    column = _column(track, column)
    frame = track[track[column].notna()]
    # as text: a categorical column would be sorted by its categories, in whatever order they are
    frame = frame.assign(chrom=frame["chrom"].astype(str)).sort_values(["chrom", "start"], kind="stable")
    value = frame[column].round(digits).to_numpy() + 0  # -0.0 is 0.0
    chrom, start, end = (frame[name].to_numpy() for name in _COLUMNS)
    over = np.flatnonzero((chrom[1:] == chrom[:-1]) & (start[1:] < end[:-1]))
    if len(over):
        one, two = (f"{chrom[i]}:{start[i]}-{end[i]}" for i in (over[0], over[0] + 1))
        raise ValueError(
            f"bedGraph has one value a base, and {two} overlaps {one}. Write tracks into files of their own."
        )
    joined = (chrom[1:] == chrom[:-1]) & (start[1:] == end[:-1]) & (value[1:] == value[:-1])
    first = np.flatnonzero(np.concatenate(([True], ~joined))) if len(frame) else np.empty(0, dtype=np.int64)
    last = np.append(first[1:], len(frame)) - 1 if len(frame) else first
    path = Path(path).expanduser()
    opened = gzip.open if path.suffix == ".gz" else open
    with written_whole(path) as part, opened(part, "wt") as sink:
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
    """Draw a track of one region, averaged over windows, above genes.

    Args:
        track: as ``DNALanguageModel.surprise`` returns it, of one chromosome.
        column: which of its columns; default the first behind ``chrom, start, end``.
        genes: intervals to draw as bars, as ``read_gff`` returns them, a frame of them or a BED file; those of other
            places are left out.
        window: bases in an average; default so many that about 4,000 points are drawn.
        ax: where to draw; default a new figure.

    Raises:
        TypeError: genes that are no intervals.
        ValueError: an empty track, several chromosomes, or no such column.
    """
    column = _column(track, column)
    if track["chrom"].nunique() != 1:
        raise ValueError(f"a plot shows one chromosome, the track has {track['chrom'].nunique()}; select one of them.")
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(10, 2.5), layout="constrained")
    if window is not None and window < 1:
        raise ValueError(f"window must be at least 1 base, got {window}.")
    window = max(1, len(track) // _MOST_POINTS) if window is None else window
    start, value = track["start"].to_numpy(), track[column].to_numpy(dtype=float)
    group = (start - start.min()) // window
    means = pd.DataFrame({"at": start, "value": value}).groupby(group).mean()
    ax.plot(means["at"], means["value"], lw=0.8)
    low, high = start.min(), track["end"].max()
    shown = [
        g for g in read_regions(genes) or () if g.chrom == track["chrom"].iloc[0] and g.start < high and g.end > low
    ]
    for strand, height in (("+", -0.04), ("-", -0.09), (".", -0.065)):
        spans = [(max(g.start, low), min(g.end, high) - max(g.start, low)) for g in shown if g.strand == strand]
        place = ax.get_xaxis_transform()
        ax.broken_barh(spans, (height, 0.04), transform=place, clip_on=False, color="0.4" if strand == "-" else "0.2")
    if shown:
        ax.tick_params(axis="x", pad=14)
    ax.set_xlim(low, high)
    ax.set_xlabel(f"{track['chrom'].iloc[0]} (0-based)")
    ax.set_ylabel(column if window == 1 else f"{column}, mean of {window}")
    return ax


def _column(track: pd.DataFrame, column: str | None) -> str:
    values = [name for name in track.columns if name not in _COLUMNS]
    if len(values) == len(track.columns) or not values or (column is not None and column not in values):
        raise ValueError(f"the track has the columns {list(track.columns)}; expected chrom, start, end and {column!r}.")
    return values[0] if column is None else column
