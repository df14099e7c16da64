"""Attribution: how much each base of a sequence contributes to a classifier's score of a class.

    gradients     integrated gradients (arXiv:1703.01365), with Captum: a background is changed gradually into the
                  sequence, and each base is credited with its part in the change of the score
    mutagenesis   each base is replaced by every other base, and the score is computed again

The score of a class is its log odds, ``log p / (1 - p)``. With two classes, this is the difference of their logits.
"""

import copy
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from tqdm.auto import tqdm

from titans_core.checks import at_least
from titans_core.extras import require
from titans_dna.classification.sequences import Reads, reads_of
from titans_dna.classifier import TitansDNAClassifier
from titans_dna.genomes.tokenizer import LETTERS
from titans_dna.network.encoder import BASES, one_hot

__all__ = ["BACKGROUNDS", "METHODS", "attribute"]

METHODS = ("gradients", "mutagenesis")
BACKGROUNDS = ("N", "composition")
# maximum number of bases in a batch of gradients, and in a batch of mutants
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
    """Compute how much each base of a sequence contributes to the log odds of a class.

    A sequence of 250 bases takes seconds on one CPU thread, so select the sequences to examine. With several sequences,
    a progress bar is shown unless the classifier has ``verbose=0``.

    Args:
        classifier: a fitted classifier. The score is the one used for prediction, including both strands if the
            classifier uses both.
        sequences: sequences, as in ``predict``.
        target: the class. None means the predicted class of each sequence.
        method: "gradients", which needs ``pip install 'titans-suite[interpret]'``, or "mutagenesis", which evaluates
            three changed sequences for each base.
        background: starting point of "gradients": "N" (unknown bases), or "composition" (the mean base composition of
            the sequence at each position). Ignored by "mutagenesis".
        steps: number of points between background and sequence at which gradients are computed.

    Returns:
        A list with one DataFrame per sequence, in order. Rows are positions (0-based); numbers are float32. Columns:

        base        the letter at this position: A, C, G, T or N
        A C G T     gradients: the contribution of the base; 0 if neither the sequence nor the background has it here.
                    mutagenesis: the change of the score if this base is placed here; 0 for the present letter
        importance  contribution of the present letter to the score. gradients: the sum of the row; the total over the
                    sequence is its score minus the score of the background. mutagenesis: minus the mean change caused
                    by the other bases

        ``attrs`` of each DataFrame has ``target`` (the class) and ``score`` (the log odds of the sequence). With
        "gradients" it also has ``gap``, the error of the sum of importances, which decreases with more ``steps``.

    Raises:
        NotFittedError: the classifier is not fitted.
        TypeError, ValueError: the classifier, a sequence, the class, the method or the background is invalid.
        ImportError: ``method="gradients"``, and Captum is not installed.
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
    """Log odds ``log p / (1 - p)`` of one class ``[...]``, from logits ``[..., classes]``."""
    others = torch.cat((logits[..., :target], logits[..., target + 1 :]), dim=-1)
    return logits[..., target] - others.logsumexp(-1)


@torch.inference_mode(False)
def _gradients(
    classifier: TitansDNAClassifier, ids: NDArray[np.uint8], target: int, background: str, steps: int
) -> tuple[NDArray[np.float64], float]:
    """Contributions of the bases of one sequence ``[T, 4]``, and the error of their sum."""
    from captum.attr import IntegratedGradients

    network, device = classifier._network_on_device()
    if next(network.parameters()).is_inference():  # loaded under inference mode; gradients need a copy
        network = copy.deepcopy(network)
    sequence = one_hot(torch.from_numpy(ids)[None].to(device))
    start = torch.zeros_like(sequence) if background == "N" else sequence.mean(1, keepdim=True).expand_as(sequence)
    credited, gap = IntegratedGradients(lambda shares: log_odds(network(shares), target)).attribute(
        sequence,
        start,
        n_steps=steps,
        internal_batch_size=max(1, _BATCH // len(ids)),
        return_convergence_delta=True,
    )
    return credited[0].cpu().double().numpy(), float(gap)


def _mutagenesis(
    classifier: TitansDNAClassifier, ids: NDArray[np.uint8], target: int, score: float
) -> NDArray[np.float64]:
    """Change of the score of one sequence, ids ``[T]``, when each base is placed at each position ``[T, 4]``."""
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
    """Mask of the bases that differ from the sequence, ``[T, 4]``: three per position, or all four at an N."""
    return np.arange(BASES) != ids[:, None]
