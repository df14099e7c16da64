"""Labelled sequences with their official split."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from titans_datasets.audit import IntervalAudit, Spans, SplitAudit, audit_intervals, audit_kmers
from titans_datasets.sources.dna import how_to_rebuild
from titans_datasets.sources.entries import SequenceInfo

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DNADataset", "from_frames"]


@dataclass(frozen=True, eq=False)
class DNADataset:
    """Labelled sequences of a data set.

    Attributes:
        name: as in ``list_dna_datasets()``.
        sequences: n strings.
        labels: int64 [n], index into ``classes``.
        split: [n], official part of each sequence: ``"train"``, ``"dev"``, ``"test"``; ``"all"`` if there is no
            official split.
        classes: class names, sorted.
        intervals: official coordinates of all parts if available, with columns region, start, end (0-based half-open),
            strand, split, class. Its rows match ``sequences`` only if these were rebuilt from the coordinates.
        missing: number of official rows per part whose sequences are not available.
    """

    name: str
    sequences: list[str]
    labels: NDArray[np.int64]
    split: NDArray[np.str_]
    classes: tuple[str, ...]
    intervals: "pd.DataFrame | None" = None
    missing: Mapping[str, int] = field(default_factory=dict)

    def part(self, name: str) -> tuple[list[str], NDArray[np.int64]]:
        """Sequences and labels of one official part.

        Raises:
            ValueError: if there is no such part, or it is not available; the message says how to get it.
        """
        rows = np.flatnonzero(self.split == name)
        if not len(rows):
            here = ", ".join(dict.fromkeys(self.split.tolist()))
            hint = f" {how_to_rebuild(self.name)}" if name in self.missing else ""
            raise ValueError(f"{self.name} has no part {name!r} available, only {here}.{hint}")
        return [self.sequences[i] for i in rows], self.labels[rows]

    def audit(self, k: int = 40, *, verbose: int = 1) -> SplitAudit:
        """Report what test shares with train. Read it before trusting a score.

        Official coordinates, if known, are compared completely; k-mers only among the available sequences.

        Args:
            k: number of consecutive bases that count as shared, 1 to 64.
            verbose: 0 prints nothing.

        Returns:
            The report; ``str`` of it is the printed text.
        """
        report = SplitAudit(
            self.name,
            None if self.intervals is None else _audit_frame(self.intervals),
            audit_kmers(self.sequences, np.array(self.classes)[self.labels], self.split, k=k),
        )
        if verbose:
            print(report)
        return report

    def __len__(self) -> int:
        return len(self.sequences)

    def __repr__(self) -> str:
        lengths = [len(s) for s in self.sequences]
        bases = f"{min(lengths)}" if min(lengths) == max(lengths) else f"{min(lengths)} to {max(lengths)}"
        parts = []
        for part in dict.fromkeys(self.split.tolist()):
            counts = np.bincount(self.labels[self.split == part], minlength=len(self.classes))
            of_class = ", ".join(f"{c} {n}" for c, n in zip(self.classes, counts, strict=True))
            parts.append(f"{part} {counts.sum()} ({of_class})")
        absent = [f"{n} of {part} are not available" for part, n in self.missing.items()]
        return f"DNADataset({self.name!r}: {len(self)} sequences of {bases} bases; {'; '.join(parts + absent)})"


def from_frames(
    entry: SequenceInfo,
    frames: Mapping[str, "pd.DataFrame"],
    *,
    intervals: "pd.DataFrame | None" = None,
    missing: Mapping[str, int] | None = None,
) -> DNADataset:
    """Build a data set from frames of seq and label per part. A label i means ``entry.file_classes[i]``."""
    name, classes, file_classes = entry.name, entry.classes, entry.file_classes
    ids = {c: i for i, c in enumerate(classes)} | {str(i): classes.index(c) for i, c in enumerate(file_classes)}
    labels = np.concatenate([frame["label"].astype(str).to_numpy(dtype=object) for frame in frames.values()])
    unknown = sorted(set(labels) - ids.keys())
    if unknown:
        raise ValueError(f"{name} has labels {unknown[:5]}; expected {classes}, or numbers 0 to {len(classes) - 1}.")
    return DNADataset(
        name,
        [s for frame in frames.values() for s in frame["seq"].str.upper()],
        np.fromiter((ids[label] for label in labels), dtype=np.int64, count=len(labels)),
        np.concatenate([np.full(len(frame), part) for part, frame in frames.items()]),
        classes,
        intervals,
        missing or {},
    )


def _audit_frame(frame: "pd.DataFrame") -> IntervalAudit:
    train, test = (frame[frame["split"] == part] for part in ("train", "test"))
    return audit_intervals(
        Spans(train["region"], train["start"], train["end"]),
        train["class"],
        Spans(test["region"], test["start"], test["end"]),
        test["class"],
    )
