"""The leak report of a data set, and the score on test rows that share nothing with train."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from titans_datasets.audit.intervals import IntervalAudit
from titans_datasets.audit.kmers import KmerAudit

__all__ = ["CleanScore", "SplitAudit", "score_clean"]


@dataclass(frozen=True, repr=False)
class SplitAudit:
    """Leak report of a data set; ``print`` it. A part is None if coordinates or sequences are not available."""

    name: str
    intervals: IntervalAudit | None
    kmers: KmerAudit | None

    @property
    def gain(self) -> float | None:
        """Accuracy that a lookup in train gains over the most common class: the best of covering, touching and k-mers.

        None if neither coordinates nor the sequences of both parts are available.
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
        """Whether a lookup gains at least 5 points of accuracy; None if unknown."""
        return None if self.gain is None else self.gain >= 0.05

    def __str__(self) -> str:
        if self.gain is None:
            verdict = "unknown whether test shares anything with train: the sequences of both are not available"
        elif self.leaks:
            verdict = (
                f"the split LEAKS: a lookup in train gains {100 * self.gain:.1f} points over the commonest class. "
                "Report a clean-subset or grouped score next to the official one"
            )
        else:
            verdict = f"a lookup in train gains {100 * self.gain:.1f} points over the commonest class"
        return "\n".join([f"{self.name}: {verdict}", *(str(part) for part in (self.intervals, self.kmers) if part)])

    def __repr__(self) -> str:
        gain = "unknown" if self.gain is None else f"{self.gain:.3f}"
        return f"SplitAudit({self.name!r}: leaks {self.leaks}, gain {gain})"


@dataclass(frozen=True)
class CleanScore:
    """The official score, and the score on test rows that share nothing with train.

    Attributes:
        n, n_clean: number of rows of test, and of its clean subset.
        accuracy, clean_accuracy: fraction of rows predicted correctly.
        clean_balanced_accuracy: mean over classes of the fraction predicted correctly. One class often has more leaks
            than the other, so the clean subset can be unbalanced.
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
        ValueError: if lengths differ, only one side's labels are text, or no row is clean.
    """
    true, predicted, clean = np.asarray(y_true), np.asarray(y_pred), np.asarray(clean, dtype=bool)
    if not true.shape == predicted.shape == clean.shape:
        raise ValueError(f"shapes differ: y_true {true.shape}, y_pred {predicted.shape}, clean {clean.shape}.")
    if not clean.any():
        raise ValueError("no test row is clean, so there is nothing to score. Make a new split with kmer_groups.")
    if _is_text(true) != _is_text(predicted):
        kinds = " and ".join(
            f"{name} {'text' if _is_text(labels) else 'numbers'} ({labels.ravel()[:1].tolist()[0]!r})"
            for name, labels in (("y_true", true), ("y_pred", predicted))
        )
        raise ValueError(f"labels have two types and can never be equal: {kinds}. Convert them to the same type.")
    right = true == predicted
    per_class = [right[clean & (true == c)].mean() for c in np.unique(true[clean])]
    return CleanScore(
        len(true), int(clean.sum()), float(right.mean()), float(right[clean].mean()), float(np.mean(per_class))
    )


def _is_text(labels: NDArray[Any]) -> bool:
    return labels.dtype.kind in "US" or any(isinstance(label, str | bytes) for label in labels.flat)
