"""The leak report of a data set, and the score on the rows of test that train does not know."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from titans_datasets.audit.intervals import IntervalAudit
from titans_datasets.audit.kmers import KmerAudit

__all__ = ["CleanScore", "SplitAudit", "score_clean"]


@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        gain = "unknown" if self.gain is None else f"{self.gain:.3f}"
        return f"SplitAudit({self.name!r}: leaks {self.leaks}, gain {gain})"


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


def score_clean(y_true: ArrayLike, y_pred: ArrayLike, clean: ArrayLike) -> CleanScore:
    """Accuracy on test and on its clean subset.

    Args:
        y_true, y_pred: [n] labels.
        clean: bool [n], such as ``IntervalAudit.clean`` or ``~shared_kmers(test, train)``.

    Raises:
        ValueError: lengths differ, labels are text on one side only, or no row is clean.
    """
    true, predicted, clean = np.asarray(y_true), np.asarray(y_pred), np.asarray(clean, dtype=bool)
    if not true.shape == predicted.shape == clean.shape:
        raise ValueError(f"shapes differ: y_true {true.shape}, y_pred {predicted.shape}, clean {clean.shape}.")
    if not clean.any():
        raise ValueError("no test row is clean: there is nothing to score. Split the data anew by kmer_groups.")
    if _is_text(true) != _is_text(predicted):
        kinds = " and ".join(
            f"{name} {'text' if _is_text(labels) else 'numbers'} ({labels.ravel()[:1].tolist()[0]!r})"
            for name, labels in (("y_true", true), ("y_pred", predicted))
        )
        raise ValueError(f"labels are of two kinds, and none would be right: {kinds}. Make them one kind.")
    right = true == predicted
    per_class = [right[clean & (true == c)].mean() for c in np.unique(true[clean])]
    return CleanScore(
        len(true), int(clean.sum()), float(right.mean()), float(right[clean].mean()), float(np.mean(per_class))
    )


def _is_text(labels: NDArray[Any]) -> bool:
    return labels.dtype.kind in "US" or any(isinstance(label, str | bytes) for label in labels.flat)
