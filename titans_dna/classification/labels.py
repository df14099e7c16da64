"""Labels, sample and class weights, and the choice of validation sequences."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

__all__ = ["class_weights", "read_groups", "read_labels", "sample_weights", "stratified_cut", "validation_cut"]

# types of labels that arrive as objects or in a pandas extension type
_KINDS = {"integer": np.int64, "boolean": np.bool_, "floating": np.float64}


def read_labels(y: Any, n: int, what: str) -> NDArray[Any]:
    """Check labels, one per sequence, and return them as an array ``[n]``."""
    if y is None:
        raise ValueError(
            f"requires {what} to be passed, but the target {what} is None: give the class of each sequence."
        )
    given = np.asarray(y, dtype=object).reshape(-1)  # as objects: NaN among strings would become "nan"
    missing = np.flatnonzero(pd.isna(given))
    if len(missing):
        raise ValueError(f"{what} has {len(missing)} missing labels, the first at {missing[0]} (0-based). Drop them.")
    texts = np.fromiter((isinstance(label, str | bytes) for label in given), bool, len(given))
    if texts.any() and not texts.all():
        raise TypeError(
            f"{what} mixes text and numbers, {given[texts][0]!r} and {given[~texts][0]!r}: convert all to one type, "
            "such as [str(label) for label in y]."
        )
    if any(isinstance(label, str) and isinstance(label, Enum) for label in given):
        # NumPy would take the names of the members, cut off at the length of their values
        y = given = np.array([getattr(label, "value", label) for label in given], dtype=object)
    if getattr(getattr(y, "dtype", None), "kind", "") == "T":  # scikit-learn does not know NumPy's StringDType
        y = given.astype(str)
    kind = _KINDS.get(pd.api.types.infer_dtype(given))
    dtype = getattr(y.iloc[:, 0] if isinstance(y, pd.DataFrame) and y.shape[1] == 1 else y, "dtype", None)
    boxed = dtype is not None and (pd.api.types.is_extension_array_dtype(dtype) or pd.api.types.is_object_dtype(dtype))
    names = column_or_1d(np.asarray(y, dtype=kind) if boxed and kind else y, warn=True)
    if len(names) != n:
        raise ValueError(
            f"X has {n} sequences, but {what} has {len(names)} labels: inconsistent lengths. Give one label each."
        )
    if names.dtype.kind in "mM":
        raise ValueError(f"{what} has dates or times as labels ({names[0]}); give strings or integers.")
    check_classification_targets(names)
    return names


def read_groups(groups: Any, n: int) -> NDArray[np.int64]:
    """Convert groups, one per sequence, to numbers from 0, ``[n]``."""
    names = np.asarray(groups, dtype=object)
    if names.shape != (n,):
        raise ValueError(f"groups must have one entry for each of the {n} sequences, got shape {list(names.shape)}.")
    codes, _ = pd.factorize(names)
    missing = np.flatnonzero(codes < 0)
    if len(missing):
        raise ValueError(
            f"groups has {len(missing)} missing entries, the first at {missing[0]} (0-based). Give each sequence that "
            "is alone in its group a unique name."
        )
    return codes.astype(np.int64)


def sample_weights(given: Any, n: int) -> NDArray[np.float64]:
    if given is None:
        return np.ones(n)
    shape = np.shape(given)
    if len(shape) != 1 and shape[1:] != (1,):
        got = f"shape {list(shape)}" if shape else f"{given!r:.40}"
        raise ValueError(f"sample_weight must be {n} numbers, one for each sequence; got {got}.")
    try:
        weights = column_or_1d(given).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight must be {n} numbers, one for each sequence: {error}.") from error
    bad = np.flatnonzero(~((weights >= 0) & np.isfinite(weights)))
    if len(weights) != n or len(bad) or not weights.any():
        got = f"{len(weights)} of them" if len(weights) != n else f"{weights[bad[0]]} at {bad[0]}" if len(bad) else "0s"
        raise ValueError(f"sample_weight must be {n} numbers of at least 0, not all 0; got {got}.")
    return weights


def class_weights(
    given: Any, classes: NDArray[Any], labels: NDArray[np.int64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weight of each class, [classes].

    Args:
        given: None (1 each), "balanced" (``n / (classes * n of the class)``, counting sequences by weight), or a
            mapping from class to weight, in which classes may be missing (weight 1).
        classes: class names.
        labels: index of the class of each sequence.
        weights: weight of each sequence.

    Raises:
        ValueError: ``given`` is something else, names an unknown class, or has negative, infinite or only zero weights.
    """
    if given is None:
        return np.ones(len(classes))
    if isinstance(given, str) and given == "balanced":
        counts = np.bincount(labels, weights, len(classes))
        return counts.sum() / (len(classes) * np.where(counts > 0, counts, np.inf))
    if not isinstance(given, Mapping):
        raise ValueError(f"class_weight must be None, 'balanced' or a dict from class to weight, got {given!r}.")
    known = classes.tolist()
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(f"class_weight has the unknown classes {unknown}; y has the classes {known}.")
    try:
        weights = np.array([given.get(name, 1.0) for name in known], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"class_weight must have numbers as values, got {dict(given)}.") from error
    if not np.isfinite(weights).all() or weights.min() < 0 or not weights.any():
        raise ValueError(f"class_weight must be at least 0 for each class, and not 0 for all; got {dict(given)}.")
    return weights


def validation_cut(
    labels: NDArray[np.int64], groups: NDArray[np.int64] | None, fraction: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], str]:
    """Split rows into training and validation rows (of whole groups, if given).

    The third result says why the fraction is too small, for use if no validation rows result. Whether that happens does
    not depend on the seed."""
    if groups is None:
        return *stratified_cut(labels, fraction, seed), "rounds to 0 sequences in each class"
    return *_grouped_cut(labels, groups, fraction, seed), "is less than half of any group"


def stratified_cut(
    labels: NDArray[np.int64], fraction: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split rows: set aside this fraction of each class, rounded, but never a whole class. Both parts are sorted."""
    rng = np.random.default_rng(seed)
    cut = []
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        cut.append(rng.permutation(rows)[: min(len(rows) - 1, round(len(rows) * fraction))])
    off = np.sort(np.concatenate(cut))
    return np.setdiff1d(np.arange(len(labels)), off), off


def _grouped_cut(
    labels: NDArray[np.int64], groups: NDArray[np.int64], fraction: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split rows as :func:`stratified_cut`, but keep groups together.

    Groups are visited in random order. A group is moved from one part to the other if that brings the class fractions
    of the validation part closer to the target (in squared error), until no move helps.
    """
    counts = np.zeros((groups.max() + 1, labels.max() + 1), dtype=np.int64)
    np.add.at(counts, (groups, labels), 1)
    counts = counts[:, counts.any(0)]  # classes of weight 0 have no rows here
    order = np.random.default_rng(seed).permutation(len(counts))
    total, taken = counts.sum(0), np.zeros(counts.shape[1], dtype=np.int64)
    chosen, changed = np.zeros(len(counts), dtype=bool), True
    while changed:
        changed = False
        for group in order:
            then = taken - counts[group] if chosen[group] else taken + counts[group]
            before, after = (((part / total - fraction) ** 2).sum() for part in (taken, then))
            if after < before and (then < total).all():
                taken, changed = then, True
                chosen[group] = not chosen[group]
    off = chosen[groups]
    return np.flatnonzero(~off), np.flatnonzero(off)
