"""Does a published split leak? Overlap of intervals, shared k-mers, and what a lookup table would score.

    overlap     a test interval and a train interval hold the same bases of the genome, on either strand
    lookup      copy the label of the train interval that covers most of a test interval; needs no model at all
    k-mers      two sequences share k bases in a row, read on either strand; needs no coordinates
    groups      sequences joined by shared k-mers, directly or through others: what GroupKFold must keep together
    clean       test rows that share nothing with train: the rows on which a score means what it says

A shared k-mer need not be a copy of one place: common repeats (Alu, runs of CT) join sequences from all over a genome,
and show as one very large group. What a lookup gains by them is a feature that a model may rightly learn; coordinates
tell the two apart, k-mers do not.

Coordinates are 0-based half-open. Nothing here needs more than numpy.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "CleanScore",
    "IntervalAudit",
    "KmerAudit",
    "Lookup",
    "Spans",
    "SplitAudit",
    "audit_intervals",
    "audit_kmers",
    "best_overlap",
    "kmer_groups",
    "lookup_labels",
    "score_clean",
    "shared_kmers",
]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Words = NDArray[np.uint64]

_MAX_K = 64  # two words of 32 bases
_BATCH = 1 << 22  # letters packed at a time
_BUCKET = 1 << 24  # k-mers sorted at a time: about 1 GB
_INVALID = 4  # code of a letter other than A C G T

_CODES = np.full(256, _INVALID, dtype=np.uint8)
for _code, _letter in enumerate("ACGT"):
    _CODES[[ord(_letter), ord(_letter.lower())]] = _code


class Spans(NamedTuple):
    """Intervals as three columns of one length: names, and 0-based half-open coordinates."""

    chrom: ArrayLike
    start: ArrayLike
    end: ArrayLike


class Lookup(NamedTuple):
    """What copying labels from overlapping train intervals answers.

    Attributes:
        labels: [n_test], the copied label, or ``fallback``.
        found: bool [n_test], whether a train interval covers enough of the test interval.
        fallback: label given where none does: the commonest among the train intervals that no other train interval
            covers as much of. Known from train alone.
    """

    labels: NDArray
    found: Mask
    fallback: object


@dataclass(frozen=True)
class IntervalAudit:
    """Overlap of the official coordinates.

    Attributes:
        n_train, n_test: intervals.
        touching: part of test that shares at least one base with train, from 0 to 1.
        min_overlap: part of a test interval that a train interval must cover to be looked up.
        covered: part of test of which a train interval covers so much.
        covered_per_class: the same within each class of test.
        lookup_accuracy: accuracy on test of ``lookup_labels``.
        touch_accuracy: the same where one shared base is enough. Long intervals that overlap by a tenth can tell the
            label as well as copies do.
        commonest: accuracy of always answering the commonest class of test.
        fallback: label that the lookup gives where nothing is covered.
        clean: bool [n_test], true where a test interval shares no base with train.
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
            f"  {self.touching:.1%} of test shares bases with train; a train interval covers {self.min_overlap:.0%} or "
            f"more of {self.covered:.1%}\n"
            f"  so covered per class: {_per_class(self.covered_per_class)}\n"
            f"  lookup accuracy {self.lookup_accuracy:.1%} (where nothing is covered: {self.fallback!r}), "
            f"{self.touch_accuracy:.1%} where one shared base is enough; commonest class {self.commonest:.1%}"
        )


@dataclass(frozen=True)
class KmerAudit:
    """k bases in a row in common, on either strand.

    Attributes:
        k: bases.
        n: sequences looked at, of all parts of the split.
        shared: part of them that share a k-mer with any other one, from 0 to 1.
        shared_per_class: part of the test sequences of each class (of all sequences where there is no test part) that
            share a k-mer with any other sequence.
        shared_with_train: part of test that shares a k-mer with train; None where one of the two is not here.
        lookup_accuracy: accuracy on test of a vote: each k-mer of a test sequence that train holds gives one vote,
            divided as the labels of the train k-mers are; without any, the commonest label of the train sequences that
            share no k-mer with another one. None as before.
        commonest: accuracy of always answering the commonest class of test; None as before.
        n_groups, largest_group: groups of ``kmer_groups``, and sequences in the largest.
        groups: int64 [n], for ``GroupKFold``.
        clean: bool [n], false for test rows that share a k-mer with train; true for every row of other parts.
    """

    k: int
    n: int
    shared: float
    shared_per_class: Mapping[str, float]
    shared_with_train: float | None
    lookup_accuracy: float | None
    commonest: float | None
    n_groups: int
    largest_group: int
    groups: Ints = field(repr=False)
    clean: Mask = field(repr=False)

    def __str__(self) -> str:
        lines = [
            f"{self.k}-mers, either strand ({self.n} sequences here)",
            f"  {self.shared:.1%} share one with another sequence, per class: {_per_class(self.shared_per_class)}",
            f"  {self.n_groups} groups, the largest of {self.largest_group}"
            + (": so many are joined by a common repeat rather than by copies" if self.largest_group > 100 else ""),
        ]
        if self.shared_with_train is not None:
            lines.append(
                f"  {self.shared_with_train:.1%} of test shares one with train; lookup accuracy "
                f"{self.lookup_accuracy:.1%}, commonest class {self.commonest:.1%}"
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class SplitAudit:
    """Leak report of one data set; ``print`` it. A part is None where coordinates or sequences are not here."""

    name: str
    intervals: IntervalAudit | None
    kmers: KmerAudit | None

    @property
    def gain(self) -> float | None:
        """What a lookup in train scores above the commonest class: by covering, touching or k-mers, the largest.

        None where neither coordinates nor both parts' sequences are here to tell.
        """
        gains = []
        if self.intervals:
            best = max(self.intervals.lookup_accuracy, self.intervals.touch_accuracy)
            gains.append(best - self.intervals.commonest)
        if self.kmers and self.kmers.lookup_accuracy is not None and self.kmers.commonest is not None:
            gains.append(self.kmers.lookup_accuracy - self.kmers.commonest)
        return max(gains, default=None)

    @property
    def leaks(self) -> bool | None:
        """Whether a lookup gains 5 points of accuracy or more; None where nothing can be told."""
        return None if self.gain is None else self.gain >= 0.05

    def __str__(self) -> str:
        if self.gain is None:
            verdict = "cannot tell what test shares with train: they are not both here"
        elif self.leaks:
            verdict = (
                f"the split LEAKS: a lookup in train gains {100 * self.gain:.1f} points over the commonest class. "
                "Report the clean-subset or a grouped score beside the official one"
            )
        else:
            verdict = f"a lookup in train gains {100 * self.gain:.1f} points over the commonest class"
        return "\n".join([f"{self.name}: {verdict}", *(str(part) for part in (self.intervals, self.kmers) if part)])


@dataclass(frozen=True)
class CleanScore:
    """The official score, and what is left of it on test rows that train does not know.

    Attributes:
        n, n_clean: rows of test, and of its clean subset.
        accuracy, clean_accuracy: part of rows predicted right.
        clean_balanced_accuracy: mean over classes of the part predicted right: copying leaks is often easier for one
            class, so that the clean subset is one-sided.
    """

    n: int
    n_clean: int
    accuracy: float
    clean_accuracy: float
    clean_balanced_accuracy: float

    def __str__(self) -> str:
        return (
            f"accuracy {self.accuracy:.3f} on {self.n} test rows; on the {self.n_clean} clean ones "
            f"{self.clean_accuracy:.3f}, balanced {self.clean_balanced_accuracy:.3f}"
        )


def audit_intervals(
    train: Spans, train_labels: ArrayLike, test: Spans, test_labels: ArrayLike, *, min_overlap: float = 0.5
) -> IntervalAudit:
    """Overlap and lookup accuracy of a split given as coordinates. Arguments as of ``lookup_labels``."""
    labels = np.asarray(test_labels)
    lookup = lookup_labels(train, train_labels, test, min_overlap=min_overlap)
    touched = best_overlap(train, test)[1] > 0
    return IntervalAudit(
        n_train=len(np.asarray(train.start)),
        n_test=len(labels),
        touching=float(touched.mean()),
        min_overlap=min_overlap,
        covered=float(lookup.found.mean()),
        covered_per_class={str(c): float(lookup.found[labels == c].mean()) for c in np.unique(labels)},
        lookup_accuracy=float((lookup.labels == labels).mean()),
        touch_accuracy=float((lookup_labels(train, train_labels, test, min_overlap=0).labels == labels).mean()),
        commonest=_commonest(labels),
        fallback=str(lookup.fallback),
        clean=~touched,
    )


def audit_kmers(
    sequences: Sequence[str], labels: ArrayLike, split: ArrayLike | None = None, *, k: int = 40
) -> KmerAudit:
    """Shared k-mers of a list of sequences, and between its train and test parts where both are there.

    Args:
        sequences: n strings.
        labels: [n], class names or numbers.
        split: [n], part of each sequence: ``"train"``, ``"test"``, or others (``"dev"`` counts as neither).
        k: 1 to 64.
    """
    labels = np.asarray(labels)
    split = np.full(len(labels), "") if split is None else np.asarray(split)
    if not len(sequences) == len(labels) == len(split) > 0:
        raise ValueError(
            f"one label and one part per sequence are needed, and one sequence or more; got {len(sequences)} "
            f"sequences, {len(labels)} labels, {len(split)} parts."
        )
    train, test = split == "train", split == "test"
    ids = np.unique(labels, return_inverse=True)[1]
    found = _matches(sequences, k, train, ids)
    reported = test if test.any() else np.ones(len(labels), dtype=bool)
    of_class = {str(c): reported & (labels == c) for c in np.unique(labels[reported])}
    lookup = None
    if train.any() and test.any():
        alone = train & ~found.shared_in_reference
        fallback = np.bincount(ids[alone if alone.any() else train]).argmax()
        answers = np.where(found.in_reference, found.votes.argmax(axis=1), fallback)
        lookup = float((answers == ids)[test].mean())
    return KmerAudit(
        k=k,
        n=len(labels),
        shared=float(found.shared.mean()),
        shared_per_class={c: float(found.shared[rows].mean()) for c, rows in of_class.items()},
        shared_with_train=None if lookup is None else float(found.in_reference[test].mean()),
        lookup_accuracy=lookup,
        commonest=None if lookup is None else _commonest(labels[test]),
        n_groups=int(found.groups.max()) + 1,
        largest_group=int(np.bincount(found.groups).max()),
        groups=found.groups,
        clean=~(test & found.in_reference),
    )


def lookup_labels(train: Spans, train_labels: ArrayLike, test: Spans, *, min_overlap: float = 0.5) -> Lookup:
    """Label of the train interval that covers most of each test interval, if it covers enough.

    Args:
        train, test: coordinates; strands do not matter, as both strands are one piece of DNA.
        train_labels: [n_train].
        min_overlap: part of the test interval that must be covered by the one train interval, from 0 (one base) to 1;
            0.5 as ``bedtools intersect -f 0.5``. Of equal covers the train interval that begins first is taken.
    """
    if not 0 <= min_overlap <= 1:
        raise ValueError(f"min_overlap must be from 0 to 1, got {min_overlap}.")
    labels = np.asarray(train_labels)
    match, bases = best_overlap(train, test)
    found = bases >= np.maximum(min_overlap * _lengths(test), 1)
    among_train = best_overlap(train, train, exclude_self=True)[1]
    alone = among_train < np.maximum(min_overlap * _lengths(train), 1)
    # where every train interval has another upon it, all of them
    names, counts = np.unique(labels[alone] if alone.any() else labels, return_counts=True)
    fallback = names[counts.argmax()]
    return Lookup(np.where(found, labels[match], fallback), found, fallback)


def best_overlap(train: Spans, test: Spans, *, exclude_self: bool = False) -> tuple[Ints, Ints]:
    """For each test interval the train interval that shares most bases with it.

    Args:
        exclude_self: ``test`` is ``train``, and no interval counts as its own match.

    Returns:
        match: int64 [n_test], row of train; 0 where nothing overlaps.
        bases: int64 [n_test], bases shared with it; 0 where nothing overlaps.
    """
    _check_spans(train, "train")
    _check_spans(test, "test")
    # one axis for all chromosomes: each begins where the one before ends
    chroms = np.unique(np.concatenate([np.asarray(s.chrom, dtype=str) for s in (train, test)]), return_inverse=True)[1]
    size = max(int(np.max(np.asarray(s.end))) for s in (train, test))
    n_train = len(np.asarray(train.start))
    first = np.asarray(train.start, dtype=np.int64) + chroms[:n_train] * size
    order = np.argsort(first, kind="stable")
    starts, lengths = first[order], _lengths(train)[order]
    test_starts = np.asarray(test.start, dtype=np.int64) + chroms[n_train:] * size
    test_ends = test_starts + _lengths(test)
    # what overlaps begins before the end of the test interval, and not earlier than the longest train interval is long
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
        # the largest share last, of equal ones the first candidate: the last write stays
        by_share = np.lexsort((-candidate, shared))
        match[of[by_share]] = order[candidate[by_share]]
        bases[of[by_share]] = np.maximum(shared[by_share], 0)
    match[bases == 0] = 0
    return match, bases


def shared_kmers(sequences: Sequence[str], reference: Sequence[str] | None = None, *, k: int = 40) -> Mask:
    """Which sequences share k bases in a row with another one, on either strand.

    Args:
        sequences: n strings.
        reference: share with one of these; default with another one of ``sequences``.
        k: 1 to 64. A k-mer with a letter other than A C G T (either case) is not counted.

    Returns:
        bool [n]. ``~shared_kmers(test, train)`` is the clean subset of test.
    """
    if reference is None:
        return _matches(sequences, k).shared
    is_reference = np.arange(len(sequences) + len(reference)) >= len(sequences)
    return _matches([*sequences, *reference], k, is_reference).in_reference[: len(sequences)]


def kmer_groups(sequences: Sequence[str], *, k: int = 40) -> Ints:
    """Groups for sklearn's ``GroupKFold``: sequences joined by shared k-mers, on either strand.

    Two sequences that share a k-mer are in one group, and so are those joined through others (connected components).

    Returns:
        int64 [n], numbered from 0 by first appearance.
    """
    return _matches(sequences, k).groups


def score_clean(y_true: ArrayLike, y_pred: ArrayLike, clean: ArrayLike) -> CleanScore:
    """Accuracy on test and on its clean subset.

    Args:
        y_true, y_pred: [n] labels.
        clean: bool [n], such as ``IntervalAudit.clean`` or ``~shared_kmers(test, train)``.

    Raises:
        ValueError: lengths differ, or no row is clean.
    """
    true, predicted, clean = np.asarray(y_true), np.asarray(y_pred), np.asarray(clean, dtype=bool)
    if not true.shape == predicted.shape == clean.shape:
        raise ValueError(f"shapes differ: y_true {true.shape}, y_pred {predicted.shape}, clean {clean.shape}.")
    if not clean.any():
        raise ValueError("no test row is clean: there is nothing to score. Split the data anew by kmer_groups.")
    right = true == predicted
    per_class = [right[clean & (true == c)].mean() for c in np.unique(true[clean])]
    return CleanScore(
        len(true), int(clean.sum()), float(right.mean()), float(right[clean].mean()), float(np.mean(per_class))
    )


class _Matches(NamedTuple):
    """Per sequence: shares a k-mer with another one, with a reference one, and (a reference one) with another such.

    votes: [n, classes], for sequences that are no reference: votes of the labels of matching reference k-mers.
    """

    shared: Mask
    in_reference: Mask
    shared_in_reference: Mask
    groups: Ints
    votes: NDArray[np.float64]


def _matches(
    sequences: Sequence[str], k: int, is_reference: Mask | None = None, labels: Ints | None = None
) -> _Matches:
    """Runs of one canonical k-mer, found by sorting.

    A k-mer is packed without loss, 2 bits per base, into two words of 64 bits; the canonical one is the smaller of the
    k-mer and its reverse complement. A 64-bit mix of the two words is sorted, to bring equal k-mers together; that two
    neighbours are equal is then decided by the words themselves, so that no sharing is invented. What a collision of
    the mix could do is stand between two equal k-mers and hide one sharing: among 1e8 k-mers the odds that any two
    collide are below 3e-4.
    """
    if not 1 <= k <= _MAX_K:
        raise ValueError(f"k must be from 1 to {_MAX_K}, got {k}.")
    n = len(sequences)
    reference = np.zeros(n, dtype=bool) if is_reference is None else is_reference
    ids = np.zeros(n, dtype=np.int64) if labels is None else labels
    shared, in_reference, shared_in_reference = np.zeros((3, n), dtype=bool)
    votes = np.zeros((n, int(ids.max(initial=0)) + 1))
    groups = np.arange(n)
    for kmers in _buckets(sequences, k):
        run, owner = _repeated(*kmers)
        left, right = _neighbours(run, owner)
        shared[left] = shared[right] = True
        pairs = np.unique(left * n + right)
        groups = _join(groups, pairs // n, pairs % n)
        of_reference = reference[owner]
        if not of_reference.any():
            continue
        left, right = _neighbours(run[of_reference], owner[of_reference])
        shared_in_reference[left] = shared_in_reference[right] = True
        in_run = np.zeros((run[-1] + 1, votes.shape[1]))
        np.add.at(in_run, (run[of_reference], ids[owner[of_reference]]), 1)
        with_reference = in_run.sum(axis=1)
        asking = ~of_reference & (with_reference[run] > 0)
        in_reference[owner[asking]] = True
        np.add.at(votes, owner[asking], in_run[run[asking]] / with_reference[run[asking], None])
    return _Matches(shared, in_reference, shared_in_reference, np.unique(groups, return_inverse=True)[1], votes)


def _repeated(high: Words, low: Words, owner: NDArray[np.int32]) -> tuple[Ints, NDArray[np.int32]]:
    """Of the k-mers that occur more than once: number of the run of equal ones, and sequence."""
    as_before = np.zeros(len(high) + 1, dtype=bool)
    as_before[1:-1] = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    repeated = as_before[:-1] | as_before[1:]
    return np.cumsum(~as_before[:-1][repeated]) - 1, owner[repeated]


def _neighbours(run: Ints, owner: NDArray[np.int32]) -> tuple[Ints, Ints]:
    """Sequences that stand side by side in one run: every sequence of a run of two or more is in some such pair."""
    pair = (run[1:] == run[:-1]) & (owner[1:] != owner[:-1])
    return owner[:-1][pair].astype(np.int64), owner[1:][pair].astype(np.int64)


def _join(groups: Ints, left: Ints, right: Ints) -> Ints:
    """Connected components: ``groups[i]`` is the smallest row of the component of i, before and after."""
    while True:
        a, b = groups[left], groups[right]
        apart = a != b
        if not apart.any():
            return groups
        left, right, a, b = left[apart], right[apart], a[apart], b[apart]
        groups = groups.copy()
        np.minimum.at(groups, np.maximum(a, b), np.minimum(a, b))
        while (groups[groups] != groups).any():
            groups = groups[groups]


def _buckets(sequences: Sequence[str], k: int) -> Iterator[tuple[Words, Words, NDArray[np.int32]]]:
    """Canonical k-mers as two words, and the row of their sequence, in an order in which equal ones are neighbours.

    Memory is bounded: of very many k-mers each bucket holds those whose mix falls into it, packed anew.
    """
    total = sum(max(len(s) - k + 1, 0) for s in sequences)
    n_buckets = -(-total // _BUCKET)
    for bucket in range(n_buckets):
        parts = []
        for first, codes, owner in _letters(sequences):
            high, low, whole = _canonical(codes, k)
            # a k-mer that runs over the end of a sequence holds the separator, which is no base
            mix = _mix(high, low)
            keep = whole if n_buckets == 1 else whole & (mix % np.uint64(n_buckets) == bucket)
            parts.append((mix[keep], high[keep], low[keep], (owner[: len(keep)][keep] + first).astype(np.int32)))
        mixes, highs, lows, owners = (np.concatenate(column) for column in zip(*parts, strict=True))
        del parts
        order = np.argsort(mixes)
        yield highs[order], lows[order], owners[order]


def _letters(sequences: Sequence[str]) -> Iterator[tuple[int, NDArray[np.uint8], Ints]]:
    """Batches of sequences joined by a separator: row of the first, codes [L], and row of each code from that one."""
    begin = 0
    while begin < len(sequences):
        end, size = begin, 0
        while end < len(sequences) and (size == 0 or size + len(sequences[end]) <= _BATCH):
            size += len(sequences[end]) + 1
            end += 1
        text = "\n".join([*sequences[begin:end], ""]).encode("ascii", errors="replace")
        lengths = [len(s) + 1 for s in sequences[begin:end]]
        yield begin, _CODES[np.frombuffer(text, dtype=np.uint8)], np.repeat(np.arange(end - begin), lengths)
        begin = end


def _canonical(codes: NDArray[np.uint8], k: int) -> tuple[Words, Words, Mask]:
    """The smaller of each k-mer and its reverse complement: high word, low word, and whether it is all A C G T."""
    n = len(codes) - k + 1
    if n < 1:
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, bool)
    bad = np.concatenate([[0], np.cumsum(codes == _INVALID, dtype=np.int64)])
    whole = bad[k:] == bad[:-k]
    bases = (codes & 3).astype(np.uint64)
    front, back = k - k // 2, k // 2
    forward, backward = _packed(bases, front), _packed(bases, front, reverse=True)
    high, low = forward[:n], _packed(bases, back)[front : front + n]
    other_high, other_low = backward[back : back + n], _packed(bases, back, reverse=True)[:n]
    smaller = (other_high < high) | ((other_high == high) & (other_low < low))
    return np.where(smaller, other_high, high), np.where(smaller, other_low, low), whole


def _packed(bases: Words, width: int, *, reverse: bool = False) -> Words:
    """[L] bases to [L - width + 1] words of ``width`` bases (0 to 32) each, or of their reverse complement.

    Words of 1, 2, 4, ... bases are made of two of half the width, and put together to ``width``.
    """
    # complement: A 0 - T 3, C 1 - G 2
    piece, size = (np.uint64(3) - bases if reverse else bases), 1
    word, done = np.zeros(len(bases) + 1, dtype=np.uint64), 0
    while done < width:
        if width & size:
            word, done = _append(word, done, piece, size, reverse), done + size
        if done < width:
            piece, size = _append(piece, size, piece, size, reverse), 2 * size
    return word


def _append(first: Words, n_first: int, second: Words, n_second: int, reverse: bool) -> Words:
    """Words of ``n_first`` bases followed by the words of ``n_second`` bases that begin where those end."""
    after = second[n_first:]
    first = first[: len(after)]
    if reverse:  # the reverse complement of what follows comes first
        return (after << np.uint64(2 * n_first)) | first
    return (first << np.uint64(2 * n_second)) | after


def _mix(high: Words, low: Words) -> Words:
    """64 bits in which every bit of both words has a part (the finaliser of splitmix64)."""
    x = high * np.uint64(0x9E3779B97F4A7C15) + low
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _in_batches(counts: Ints) -> Iterator[slice]:
    """Rows cut so that the sum of ``counts`` in a piece stays near ``_BATCH``."""
    ends = np.cumsum(counts)
    begin = 0
    while begin < len(counts):
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + _BATCH, side="right")))
        yield slice(begin, end)
        begin = end


def _lengths(spans: Spans) -> Ints:
    return np.asarray(spans.end, dtype=np.int64) - np.asarray(spans.start, dtype=np.int64)


def _check_spans(spans: Spans, what: str) -> None:
    sizes = {len(np.asarray(column)) for column in spans}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(
            f"{what} must have chrom, start and end of one length, 1 or more; got lengths {sorted(sizes)}."
        )
    bad = np.flatnonzero((_lengths(spans) < 1) | (np.asarray(spans.start) < 0))
    if len(bad):
        i = bad[0]
        raise ValueError(
            f"{what} has {len(bad)} intervals without 0 <= start < end, first in row {i}: "
            f"{np.asarray(spans.start)[i]} to {np.asarray(spans.end)[i]}."
        )


def _commonest(labels: NDArray) -> float:
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))


def _per_class(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {part:.1%}" for name, part in parts.items())
