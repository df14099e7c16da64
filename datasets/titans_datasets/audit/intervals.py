"""Intervals: which bases of the genome test shares with train, and how well a lookup table would score.

Coordinates are 0-based half-open.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from titans_datasets.audit.labels import commonest, per_class

__all__ = ["IntervalAudit", "Lookup", "Spans", "audit_intervals", "best_overlap", "lookup_labels"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_BATCH = 1 << 22  # pairs of intervals compared at a time


class Spans(NamedTuple):
    """Intervals as three columns of equal length: names, and 0-based half-open coordinates."""

    chrom: ArrayLike
    start: ArrayLike
    end: ArrayLike


class Lookup(NamedTuple):
    """Answers obtained by copying labels from overlapping train intervals.

    Attributes:
        labels: [n_test], the copied label, or ``fallback``.
        found: bool [n_test], whether a train interval covers enough of the test interval.
        fallback: label used otherwise: the most common one among train intervals that no other train interval covers as
            much. It depends on train only.
    """

    labels: NDArray
    found: Mask
    fallback: object


@dataclass(frozen=True)
class IntervalAudit:
    """Overlap of the official coordinates.

    Attributes:
        n_train, n_test: number of intervals.
        touching: fraction of test intervals that share at least one base with train, from 0 to 1.
        min_overlap: fraction of a test interval that a train interval must cover for its label to be copied.
        covered: fraction of test intervals with at least that coverage.
        covered_per_class: the same within each class of test.
        lookup_accuracy: accuracy of ``lookup_labels`` on test.
        touch_accuracy: the same if one shared base is enough. Long intervals that overlap by a tenth can reveal the
            label as well as copies do.
        commonest: accuracy of always answering the most common class of test.
        fallback: label that the lookup returns if nothing is covered.
        clean: bool [n_test], True if a test interval shares no base with train.
    """

    n_train: int
    n_test: int
    touching: float
    min_overlap: float
    covered: float
    covered_per_class: Mapping[str, float]
    lookup_accuracy: float
    touch_accuracy: float
    commonest: float
    fallback: str
    clean: Mask = field(repr=False)

    def __str__(self) -> str:
        return (
            f"intervals ({self.n_train} train, {self.n_test} test)\n"
            f"  {self.touching:.1%} of test intervals share bases with train; in {self.covered:.1%}, a train interval "
            f"covers at least {self.min_overlap:.0%} of the test interval\n"
            f"  covered per class: {per_class(self.covered_per_class)}\n"
            f"  lookup accuracy {self.lookup_accuracy:.1%} (answer if not covered: {self.fallback!r}), "
            f"{self.touch_accuracy:.1%} if one shared base is enough; commonest class {self.commonest:.1%}"
        )


def audit_intervals(
    train: Spans, train_labels: ArrayLike, test: Spans, test_labels: ArrayLike, *, min_overlap: float = 0.5
) -> IntervalAudit:
    """Overlap and lookup accuracy of a split given as coordinates. Arguments and errors as for ``lookup_labels``."""
    labels, copied = _labels(test_labels, test, "test"), _labels(train_labels, train, "train")
    overlap, among_train = best_overlap(train, test), best_overlap(train, train, exclude_self=True)[1]
    lookup, touching = (_lookup(train, copied, test, overlap, among_train, least) for least in (min_overlap, 0))
    touched = overlap[1] > 0
    return IntervalAudit(
        n_train=len(np.asarray(train.start)),
        n_test=len(labels),
        touching=float(touched.mean()),
        min_overlap=min_overlap,
        covered=float(lookup.found.mean()),
        covered_per_class={str(c): float(lookup.found[labels == c].mean()) for c in np.unique(labels)},
        lookup_accuracy=float((lookup.labels == labels).mean()),
        touch_accuracy=float((touching.labels == labels).mean()),
        commonest=commonest(labels),
        fallback=str(lookup.fallback),
        clean=~touched,
    )


def lookup_labels(train: Spans, train_labels: ArrayLike, test: Spans, *, min_overlap: float = 0.5) -> Lookup:
    """Label of the train interval that covers most of each test interval, if it covers enough.

    Args:
        train, test: coordinates. Strands are ignored, because both strands are the same DNA.
        train_labels: [n_train].
        min_overlap: fraction of the test interval that this train interval must cover, from 0 (one base) to 1; 0.5 is
            that of ``bedtools intersect -f 0.5``. For equal coverage, the train interval that starts first is used.

    Raises:
        TypeError: if train or test is not a :class:`Spans`.
        ValueError: if the numbers of labels and intervals differ, coordinates are invalid, or min_overlap is out of
            range.
    """
    labels = _labels(train_labels, train, "train")
    overlap, among_train = best_overlap(train, test), best_overlap(train, train, exclude_self=True)[1]
    return _lookup(train, labels, test, overlap, among_train, min_overlap)


def _lookup(
    train: Spans, labels: NDArray, test: Spans, overlap: tuple[Ints, Ints], among_train: Ints, min_overlap: float
) -> Lookup:
    if not 0 <= min_overlap <= 1:
        raise ValueError(f"min_overlap must be from 0 to 1, got {min_overlap}.")
    match, bases = overlap
    found = _covered(bases, test, min_overlap)
    alone = ~_covered(among_train, train, min_overlap)
    # if every train interval is covered by another, use all of them
    names, counts = np.unique(labels[alone] if alone.any() else labels, return_counts=True)
    fallback = names[counts.argmax()]
    return Lookup(np.where(found, labels[match], fallback), found, fallback)


def _covered(bases: Ints, spans: Spans, least: float) -> Mask:
    """Whether shared bases are at least this fraction of an interval, and one."""
    # not bases >= least * length: 0.55 * 100 is a little more than 55
    return (bases >= 1) & (bases / _lengths(spans) >= least)


def best_overlap(train: Spans, test: Spans, *, exclude_self: bool = False) -> tuple[Ints, Ints]:
    """For each test interval, the train interval that shares most bases with it.

    Args:
        train, test: coordinates.
        exclude_self: ``test`` is ``train``, and no interval counts as its own match.

    Returns:
        match: int64 [n_test], row of train; 0 if nothing overlaps.
        bases: int64 [n_test], number of shared bases; 0 if nothing overlaps.
    """
    _check_spans(train, "train")
    _check_spans(test, "test")
    _check_names(train, test)
    # one axis for all chromosomes: each starts where the previous one ends
    chroms = np.unique(np.concatenate([np.asarray(s.chrom, dtype=str) for s in (train, test)]), return_inverse=True)[1]
    size = max(int(np.max(np.asarray(s.end))) for s in (train, test))
    n_train = len(np.asarray(train.start))
    first = np.asarray(train.start, dtype=np.int64) + chroms[:n_train] * size
    order = np.argsort(first, kind="stable")
    starts, lengths = first[order], _lengths(train)[order]
    test_starts = np.asarray(test.start, dtype=np.int64) + chroms[n_train:] * size
    test_ends = test_starts + _lengths(test)
    # overlapping intervals start before the test interval's end, and at most the longest length before its start
    low = np.searchsorted(starts, test_starts - lengths.max(), side="right")
    high = np.searchsorted(starts, test_ends, side="left")
    match, bases = np.zeros(len(test_starts), dtype=np.int64), np.zeros(len(test_starts), dtype=np.int64)
    for rows in _in_batches(high - low):
        counts = (high - low)[rows]
        of = np.repeat(np.arange(rows.start, rows.stop), counts)
        steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        candidate = low[of] + steps
        ends = starts[candidate] + lengths[candidate]
        shared = np.minimum(ends, test_ends[of]) - np.maximum(starts[candidate], test_starts[of])
        if exclude_self:
            shared[order[candidate] == of] = 0
        # sort so that the largest share (for ties, the first candidate) comes last: the last write wins
        by_share = np.lexsort((-candidate, shared))
        match[of[by_share]] = order[candidate[by_share]]
        bases[of[by_share]] = np.maximum(shared[by_share], 0)
    match[bases == 0] = 0
    return match, bases


def _in_batches(counts: Ints) -> Iterator[slice]:
    """Slices of rows, cut so that the sum of ``counts`` in each stays near ``_BATCH``."""
    ends = np.cumsum(counts)
    begin = 0
    while begin < len(counts):
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + _BATCH, side="right")))
        yield slice(begin, end)
        begin = end


def _lengths(spans: Spans) -> Ints:
    return np.asarray(spans.end, dtype=np.int64) - np.asarray(spans.start, dtype=np.int64)


def _labels(labels: ArrayLike, spans: Spans, what: str) -> NDArray:
    _check_spans(spans, what)
    found, n = np.asarray(labels), len(np.asarray(spans.start))
    if found.shape != (n,):
        raise ValueError(
            f"one label per interval is needed, but {what} has {n} intervals and labels of shape {found.shape}."
        )
    return found


def _check_names(train: Spans, test: Spans) -> None:
    """Raise a ValueError if the parts name the same chromosome differently, ``chr1`` and ``1``."""
    names, others = ({str(name) for name in np.unique(np.asarray(s.chrom, dtype=str))} for s in (train, test))
    if names & others:
        return
    alike = sorted(name for name in names if {name.removeprefix("chr"), f"chr{name}"} & others)
    if alike:
        raise ValueError(
            f"train names a chromosome {alike[0]!r}, but test has {min(others)!r}: use the same names in both."
        )


def _check_spans(spans: Spans, what: str) -> None:
    if not isinstance(spans, Spans):
        raise TypeError(
            f"{what} must be Spans(chrom, start, end), three columns; got {type(spans).__name__}. For a frame of "
            "intervals: Spans(frame['chrom'], frame['start'], frame['end'])."
        )
    sizes = {len(np.asarray(column)) for column in spans}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(
            f"{what} must have chrom, start and end of the same length, at least 1; got lengths {sorted(sizes)}."
        )
    bad = np.flatnonzero((_lengths(spans) < 1) | (np.asarray(spans.start) < 0))
    if len(bad):
        i = bad[0]
        raise ValueError(
            f"{what} has {len(bad)} intervals without 0 <= start < end, first in row {i}: "
            f"{np.asarray(spans.start)[i]} to {np.asarray(spans.end)[i]}."
        )
