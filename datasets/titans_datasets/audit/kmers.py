"""Which sequences share k consecutive bases, on either strand, and how well a lookup table would score."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from titans_datasets.audit.labels import commonest, per_class
from titans_datasets.audit.packing import MAX_K, Words, sorted_kmers, whole_sequences

__all__ = ["KmerAudit", "audit_kmers", "kmer_groups", "shared_kmers"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class KmerAudit:
    """Sequences that share k consecutive bases, on either strand.

    Attributes:
        k: number of bases.
        n: number of sequences, in all parts of the split.
        shared: fraction of them that share a k-mer with any other, from 0 to 1.
        shared_per_class: fraction of each class's test sequences (of all sequences if there is no test part) that share
            a k-mer with any other sequence.
        shared_with_train: fraction of test that shares a k-mer with train; None if either part is missing.
        lookup_accuracy: accuracy on test of a vote. Each k-mer of a test sequence that occurs in train gives one vote,
            divided according to the labels of the train k-mers. Without any, the answer is the most common label of the
            train sequences that share no k-mer with another one. None if either part is missing.
        commonest: accuracy of always answering the most common class of test. None if either part is missing.
        n_groups, largest_group: number of groups of ``kmer_groups``, and size of the largest.
        without: number of sequences without any k-mer, because they are shorter or full of unknown letters. They count
            as sharing one only if they are equal, on either strand.
        groups: int64 [n], for ``GroupKFold``.
        clean: bool [n], False for test rows that share a k-mer with train; True for all rows of other parts.
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
    without: int
    groups: Ints = field(repr=False)
    clean: Mask = field(repr=False)

    def __str__(self) -> str:
        which = "per class" if self.shared_with_train is None else "per class of test"
        lines = [
            f"{self.k}-mers, either strand ({self.n} sequences here)",
            f"  {self.shared:.1%} share a {self.k}-mer with another sequence, {which}: "
            + per_class(self.shared_per_class),
            f"  {self.n_groups} groups, the largest with {self.largest_group} sequences"
            + (": a repeat that many have, or copies of one place" if self.largest_group > 100 else ""),
        ]
        if self.without:
            lines.append(
                f"  {self.without} have no {self.k}-mer (too short or with unknown letters): compared as a whole only"
            )
        if self.shared_with_train is not None:
            lines.append(
                f"  {self.shared_with_train:.1%} of test shares a {self.k}-mer with train; lookup accuracy "
                f"{self.lookup_accuracy:.1%}, commonest class {self.commonest:.1%}"
            )
        return "\n".join(lines)


def audit_kmers(
    sequences: Sequence[str], labels: ArrayLike, split: ArrayLike | None = None, *, k: int = 40
) -> KmerAudit:
    """Shared k-mers in a list of sequences, and between its train and test parts if both are present.

    Args:
        sequences: n strings.
        labels: [n], class names or numbers.
        split: [n], part of each sequence: ``"train"``, ``"test"``, or others (``"dev"`` counts as neither).
        k: 1 to 64.

    Raises:
        TypeError: if ``sequences`` is a single string, or an item is not a string.
        ValueError: if the numbers of sequences, labels and parts differ, a part is named like "Train", none of
            several is "train" or "test", a sequence has blanks, or k is out of range.
    """
    labels = np.asarray(labels)
    split = np.full(len(labels), "") if split is None else np.asarray(split)
    if not len(sequences) == len(labels) == len(split) > 0:
        raise ValueError(
            f"one label and one part per sequence are needed, and at least one sequence; got {len(sequences)} "
            f"sequences, {len(labels)} labels, {len(split)} parts."
        )
    parts = sorted({str(part) for part in split.tolist()})
    near = [part for part in parts if part.strip().lower() in ("train", "test", "training", "testing")]
    if not {"train", "test"}.issuperset(near) or (len(parts) > 1 and not near):
        raise ValueError(f"split has the parts {parts[:8]}: rename the parts to compare to 'train' and 'test'.")
    train, test = split == "train", split == "test"
    ids = np.unique(labels, return_inverse=True)[1]
    found = _matches(_strings("sequences", sequences), k, train, ids)
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
        commonest=None if lookup is None else commonest(labels[test]),
        n_groups=int(found.groups.max()) + 1,
        largest_group=int(np.bincount(found.groups).max()),
        without=found.without,
        groups=found.groups,
        clean=~(test & found.in_reference),
    )


def shared_kmers(sequences: Sequence[str], reference: Sequence[str] | None = None, *, k: int = 40) -> Mask:
    """Which sequences share k consecutive bases with another one, on either strand.

    Args:
        sequences: n strings.
        reference: compare with these instead of with the other ``sequences``.
        k: 1 to 64. A k-mer with a letter other than A C G T (either case; U counts as T) is ignored. Sequences without
            any k-mer count as sharing one if they are equal, on either strand.

    Returns:
        bool [n]. ``~shared_kmers(test, train)`` is the clean subset of test.

    Raises:
        TypeError: if a list is a single string, or an item is not a string.
        ValueError: if a sequence has blanks, or k is out of range.
    """
    sequences = _strings("sequences", sequences)
    if reference is None:
        return _matches(sequences, k).shared
    reference = _strings("reference", reference)
    is_reference = np.arange(len(sequences) + len(reference)) >= len(sequences)
    return _matches([*sequences, *reference], k, is_reference).in_reference[: len(sequences)]


def kmer_groups(sequences: Sequence[str], *, k: int = 40) -> Ints:
    """Groups for sklearn's ``GroupKFold``: sequences connected by shared k-mers, on either strand.

    Two sequences that share a k-mer are in one group, and so are those connected through others (connected components).

    Returns:
        int64 [n], numbered from 0 by first appearance.
    """
    return _matches(_strings("sequences", sequences), k).groups


class _Matches(NamedTuple):
    """Whether each sequence shares a k-mer with another one, with a reference, and (references) with another reference.

    votes: [n, classes], for sequences that are not references: votes of the labels of matching reference k-mers.
    without: number of sequences without any k-mer.
    """

    shared: Mask
    in_reference: Mask
    shared_in_reference: Mask
    groups: Ints
    votes: NDArray[np.float64]
    without: int


def _matches(
    sequences: Sequence[str], k: int, is_reference: Mask | None = None, labels: Ints | None = None
) -> _Matches:
    """Find runs of equal canonical k-mers by sorting.

    A k-mer is packed without loss, 2 bits per base, into two 64-bit words. The canonical one is the smaller of the
    k-mer and its reverse complement. A 64-bit hash of the two words is sorted to bring equal k-mers together.
    Neighbours are then compared by the words themselves, so no false match is possible. A hash collision could only
    separate two equal k-mers
    and hide one match: among 1e8 k-mers, the probability that any two collide is below 3e-4.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= MAX_K:
        raise ValueError(f"k must be an integer from 1 to {MAX_K}, got {k!r}.")
    k, n = int(k), len(sequences)
    reference = np.zeros(n, dtype=bool) if is_reference is None else is_reference
    ids = np.zeros(n, dtype=np.int64) if labels is None else labels
    shared, in_reference, shared_in_reference = np.zeros((3, n), dtype=bool)
    votes = np.zeros((n, int(ids.max(initial=0)) + 1))
    pairs = [np.empty(0, dtype=np.int64)]
    whole = whole_sequences(sequences, k)
    for run, owner in chain([whole], (_repeated(*kmers) for kmers in sorted_kmers(sequences, k))):
        left, right = _neighbours(run, owner)
        shared[left] = shared[right] = True
        pairs.append(np.unique(left * n + right))
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
    groups = _components(np.unique(np.concatenate(pairs)), n)
    return _Matches(shared, in_reference, shared_in_reference, groups, votes, len(whole[1]))


def _strings(name: str, sequences: Sequence[str]) -> list[str]:
    """Convert any sequence of strings to a list. A single string would be read as sequences of one letter."""
    if isinstance(sequences, str):
        raise TypeError(f"{name} is a single string: pass a list of sequences.")
    if isinstance(sequences, Mapping) or hasattr(sequences, "columns"):
        raise TypeError(f"{name} is a {type(sequences).__name__}: pass a list of sequences, or one column.")
    found = list(sequences)  # indexing a Series looks up labels, not positions
    other = next((i for i, sequence in enumerate(found) if not isinstance(sequence, str)), None)
    if other is not None:
        raise TypeError(f"{name.removesuffix('s')} {other} (0-based) is not a string: {found[other]!r:.40}.")
    blank = next((i for i, sequence in enumerate(found) if sequence and sequence.split(maxsplit=1) != [sequence]), None)
    if blank is not None:
        raise ValueError(
            f"{name.removesuffix('s')} {blank} (0-based) has a blank before, in or after it: {found[blank]!r:.60}. "
            "Remove the blanks."
        )
    return found


def _repeated(high: Words, low: Words, owner: NDArray[np.int32]) -> tuple[Ints, NDArray[np.int32]]:
    """For k-mers that occur more than once: the number of their run of equal k-mers, and their sequence."""
    as_before = np.zeros(len(high) + 1, dtype=bool)
    as_before[1:-1] = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    repeated = as_before[:-1] | as_before[1:]
    return np.cumsum(~as_before[:-1][repeated]) - 1, owner[repeated]


def _neighbours(run: Ints, owner: NDArray[np.int32]) -> tuple[Ints, Ints]:
    """Pairs of adjacent sequences in a run. Every sequence of a run of two or more is in some pair."""
    pair = (run[1:] == run[:-1]) & (owner[1:] != owner[:-1])
    return owner[:-1][pair].astype(np.int64), owner[1:][pair].astype(np.int64)


def _components(pairs: Ints, n: int) -> Ints:
    """Connected components of n rows, from pairs ``left * n + right``, numbered by first appearance."""
    graph = coo_matrix((np.ones(len(pairs), dtype=bool), (pairs // n, pairs % n)), shape=(n, n))
    _, first, label = np.unique(connected_components(graph, directed=False)[1], return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[label]
