"""GenomicBenchmarks: official coordinates, and those sequences that are available locally."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from titans_datasets.dna.dataset import DNADataset, from_frames
from titans_datasets.dna.files import either, labelled, local, published, read_parquet, registered, searched
from titans_datasets.dna.rebuild import GenomePaths, cut, paths_by_class
from titans_datasets.errors import ChecksumError
from titans_datasets.sources.dna import how_to_rebuild
from titans_datasets.sources.dna_files import ADDRESS
from titans_datasets.sources.entries import SequenceInfo
from titans_datasets.warn import warn_caller

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load_benchmark", "official_intervals"]


def load_benchmark(entry: SequenceInfo, genome: GenomePaths | None, home: Path, download: bool) -> DNADataset:
    """Load a GB set, cut from ``genome``, or without one the parts whose sequences are available."""
    name = entry.name
    intervals = official_intervals(entry, home, download and genome is not None)
    if genome is not None:
        if intervals is None:
            raise FileNotFoundError(
                f"the official coordinates of {name} are not in {either(searched(home, 'gb_intervals'))}: load with "
                f"download=True, or store the .csv.gz files of {ADDRESS['gb_intervals']}/{name} there as "
                "<part>/<class>.csv.gz."
            )
        sequences = cut(intervals, paths_by_class(entry, genome), entry)
        frame = intervals[["split", "class"]].assign(seq=sequences)
        parts = {part: frame[frame["split"] == part] for part in ("train", "test")}
        rows = np.concatenate([np.flatnonzero(intervals["split"] == part) for part in parts])
        return from_frames(
            entry,
            {part: frame.rename(columns={"class": "label"}) for part, frame in parts.items()},
            intervals=intervals.iloc[rows].reset_index(drop=True),
        )
    frames, absent = {}, []
    for part in ("train", "test"):
        rows_here = labelled(f"gb/{name}/{part}", home, download)
        if rows_here is None:  # a stratified sample for smoke tests
            absent.append(part)
            rows_here = labelled(f"gb/{name}/{part}_500perclass", home, download=False)
        if rows_here is not None:
            frames[part] = rows_here
    fetch = "" if download else _fetchable(name, absent)
    if not frames:
        raise FileNotFoundError(
            f"no sequences of {name} in {either(searched(home, f'gb/{name}'))}. {fetch}{how_to_rebuild(name)}"
        )
    official = {part: sum(counts[part == "test"] for counts in entry.counts.values()) for part in ("train", "test")}
    for part, found in frames.items():
        if len(found) > official[part]:
            raise ValueError(
                f"{home / 'dna' / 'gb' / name} has {len(found)} {part} sequences of {name}, but the official set has "
                f"{official[part]}. Replace the file."
            )
    missing = {part: n - len(frames.get(part, ())) for part, n in official.items() if n != len(frames.get(part, ()))}
    if missing:
        if intervals is None and download:  # small, and they show the overlap even if train sequences are missing
            with contextlib.suppress(OSError, ChecksumError):  # not to be had, or there is no room for them
                intervals = official_intervals(entry, home, download)
        lacking = ", ".join(f"{n} of {official[part]} {part} sequences" for part, n in missing.items())
        warn_caller(f"{name}: {lacking} are not available. {fetch}{how_to_rebuild(name)}")
    return from_frames(entry, frames, intervals=intervals, missing=missing)


def _fetchable(name: str, parts: Iterable[str]) -> str:
    """A sentence on those parts that are published as a file; empty if there is none."""
    found = " and ".join(part for part in parts if registered(f"gb/{name}/{part}"))
    return f"Load with download=True to fetch the {found} sequences. " if found else ""


def official_intervals(entry: SequenceInfo, home: Path, download: bool) -> "pd.DataFrame | None":
    """Official coordinates in the order of the published files, or None."""
    import pandas as pd

    columns = ["region", "start", "end", "strand", "split", "class"]
    at_hand = local(f"gb_intervals/{entry.name}.parquet", home)
    if at_hand is not None:
        frame = read_parquet(at_hand).reset_index(drop=True)
        _check_intervals(frame, columns, entry, at_hand)
        frame = frame[columns]
    else:
        pieces = []
        for part in ("train", "test"):
            for label in entry.counts:
                path = published(f"gb_intervals/{entry.name}/{part}/{label}.csv.gz", home, download, missing_ok=True)
                if path is None:
                    return None
                pieces.append(pd.read_csv(path, dtype={"region": str}).assign(split=part, **{"class": label}))
        frame = pd.concat(pieces, ignore_index=True)[columns]
    # without a strand (human_ensembl_regulatory), the published sequences are on the forward strand
    text = frame[["region", "strand", "split", "class"]].astype(object).where(frame.notna(), "+").astype(str)
    return frame.assign(**{column: text[column] for column in text})


def _check_intervals(frame: "pd.DataFrame", columns: list[str], entry: SequenceInfo, path: Path) -> None:
    """Raise a ValueError unless a table can be the official coordinates; warn if it has another number of rows."""

    def refuse(what: str) -> None:
        raise ValueError(f"{path} does not have the official coordinates of {entry.name}: {what}. Replace it.")

    if lacking := [column for column in columns if column not in frame]:
        refuse(f"it lacks the columns {lacking}")
    for column in ("start", "end"):
        if frame[column].dtype.kind not in "iu":
            refuse(f"{column} has the type {frame[column].dtype}, not integers")
    for column, allowed in {"split": ["train", "test"], "class": list(entry.classes), "strand": ["+", "-"]}.items():
        known = frame[column].isin(allowed) | (frame[column].isna() if column == "strand" else False)
        if not known.all():
            refuse(f"{column} {frame[column][~known].iloc[0]!r} is not one of {allowed}")
    reversed_ = (frame["start"] < 0) | (frame["end"] <= frame["start"])
    if reversed_.any():
        refuse(f"row {int(reversed_.to_numpy().argmax())} (0-based) is empty or begins before its chromosome")
    expected = sum(map(sum, entry.counts.values()))
    if len(frame) != expected:
        warn_caller(f"{path} has {len(frame)} intervals; {entry.name} has {expected}.")
