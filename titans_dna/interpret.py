"""Which bases a classifier goes by: what each base of a sequence adds to the score of a class.

    gradients     integrated gradients (arXiv:1703.01365), by Captum: a background becomes the sequence bit by bit, and
                  each base is credited with its part in the change of the score
    mutagenesis   each base is replaced by each other one, and the score asked again

The score of a class is its log odds, ``log p / (1 - p)``: of two classes, the difference of their logits.
"""

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from tqdm.auto import tqdm

from titans_core.checks import at_least
from titans_core.tokenizers import require
from titans_dna.classifier import TitansDNAClassifier
from titans_dna.classifier_data import Reads, reads_of
from titans_dna.encoder import BASES, one_hot
from titans_dna.tokenizer import LETTERS

__all__ = ["BACKGROUNDS", "METHODS", "attribute"]

METHODS = ("gradients", "mutagenesis")
BACKGROUNDS = ("N", "composition")
# bases in a batch with gradients, and in a table of mutants
_BATCH, _MUTANTS = 1 << 14, 1 << 22


def attribute(
    classifier: TitansDNAClassifier,
    sequences: Any,
    target: Any = None,
    method: str = "gradients",
    *,
    background: str = "N",
    steps: int = 128,
) -> list[pd.DataFrame]:
    """What each base of a sequence adds to the log odds of a class.

    A sequence of 250 bases takes seconds on one CPU thread: give those to look at, not all there are. Of several a bar
    shows how far it is, unless the classifier has ``verbose=0``.

    Args:
        classifier: fitted. The score is the one it predicts by: with both strands where it reads both.
        sequences: as in its ``predict``.
        target: the class; None: of each sequence the one that is predicted.
        method: "gradients", which needs ``pip install 'titans-suite[interpret]'``, or "mutagenesis", which reads three
            changed sequences for each base.
        background: what gradients begin from: "N", unknown bases, or "composition", the mean of the sequence's bases at
            every position. Mutagenesis has none.
        steps: points between background and sequence at which a gradient is taken.

    Returns:
        A frame for each sequence, in their order, a row for each position (0-based), float32:

        base        the letter there: A, C, G, T or N
        A C G T     gradients: what the base is credited with; 0 for one that neither the sequence nor the background
                    has there. mutagenesis: change of the score where this base is put there; 0 for the letter there
        importance  what the letter adds to the score. gradients: the sum of the row; over the sequence they add up to
                    its score less that of the background. mutagenesis: the mean change by other bases, negative

        ``attrs`` of a frame: ``target``, the class; ``score``, the log odds of the sequence; and of gradients ``gap``,
        what the importances add up to beyond what they should: it falls with more ``steps``.

    Raises:
        NotFittedError: before ``fit``.
        TypeError, ValueError: no classifier, bad sequences, an unknown class, method or background.
        ImportError: gradients without Captum.
    """
    if not isinstance(classifier, TitansDNAClassifier):
        raise TypeError(f"classifier must be a TitansDNAClassifier, got {type(classifier).__name__}.")
    check_is_fitted(classifier, "network_")
    for name, value, choices in (("method", method, METHODS), ("background", background, BACKGROUNDS)):
        if value not in choices:
            raise ValueError(f"{name} must be one of {choices}, got {value!r}.")
    at_least("steps", steps)
    if method == "gradients":
        require("captum", "method='gradients'", "interpret")
    reads = reads_of(sequences)
    logits = classifier._logits(reads)
    classes = classifier.classes_.tolist()
    if target is not None and target not in classes:
        raise ValueError(f"target must be one of {classes}, got {target!r}.")
    targets = logits.argmax(1).tolist() if target is None else [classes.index(target)] * len(reads)

    frames = []
    rows = list(zip(reads.ends, reads.lengths, targets, strict=True))
    silent = len(rows) == 1 or not classifier.verbose
    for i, (end, length, at) in enumerate(tqdm(rows, desc="Attributions", disable=silent)):
        ids = reads.ids[end - length : end]
        about = {"target": classes[at], "score": float(log_odds(torch.from_numpy(logits[i]), at))}
        if method == "gradients":
            table, about["gap"] = _gradients(classifier, ids, at, background, steps)
            importance = table.sum(1)
        else:
            table = _mutagenesis(classifier, ids, at, about["score"])
            importance = -table.sum(1) / _others(ids).sum(1)
        frame = pd.DataFrame(table, columns=list(LETTERS[:BASES]))
        frame.insert(0, "base", [LETTERS[letter] for letter in ids])
        frame["importance"] = importance
        frame = frame.astype(dict.fromkeys(frame.columns[1:], np.float32)).rename_axis(index="position")
        frame.attrs = about
        frames.append(frame)
    return frames


def log_odds(logits: Tensor, target: int) -> Tensor:
    """Logits ``[..., classes]`` -> ``log p / (1 - p)`` of one class ``[...]``."""
    others = torch.cat((logits[..., :target], logits[..., target + 1 :]), dim=-1)
    return logits[..., target] - others.logsumexp(-1)


def _gradients(
    classifier: TitansDNAClassifier, ids: NDArray[np.uint8], target: int, background: str, steps: int
) -> tuple[NDArray[np.float64], float]:
    """What each base of one sequence is credited with ``[T, 4]``, and by how much the sum is off."""
    from captum.attr import IntegratedGradients

    network, device = classifier._placed()
    sequence = one_hot(torch.from_numpy(ids)[None].to(device))
    start = torch.zeros_like(sequence) if background == "N" else sequence.mean(1, keepdim=True).expand_as(sequence)
    credited, gap = IntegratedGradients(lambda shares: log_odds(network(shares), target)).attribute(
        sequence,
        start,
        n_steps=steps,
        internal_batch_size=max(1, _BATCH // len(ids)),
        return_convergence_delta=True,
    )
    return credited[0].double().cpu().numpy(), float(gap)


def _mutagenesis(
    classifier: TitansDNAClassifier, ids: NDArray[np.uint8], target: int, score: float
) -> NDArray[np.float64]:
    """Change of the score of one sequence, ids ``[T]``, by each base at each position ``[T, 4]``."""
    table = np.zeros((len(ids), BASES))
    places, bases = np.nonzero(_others(ids))
    size = max(1, _MUTANTS // len(ids))
    for begin in range(0, len(places), size):
        part = slice(begin, begin + size)
        mutants = np.tile(ids, (len(places[part]), 1))
        mutants[np.arange(len(mutants)), places[part]] = bases[part]
        logits = classifier._logits(Reads(mutants.reshape(-1), np.arange(1, len(mutants) + 1) * len(ids)))
        table[places[part], bases[part]] = log_odds(torch.from_numpy(logits), target).numpy() - score
    return table


def _others(ids: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """The bases that are not there, ``[T, 4]``: three, or at an N all four."""
    return np.arange(BASES) != ids[:, None]
