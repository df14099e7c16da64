"""Cross-validation within official test sets of GenomicBenchmarks, with random folds and with folds grouped by 40-mers.

    python benchmarks/dna_crossval.py [--sets human_nontata_promoters ...] [--models kmers cnn titans] [--folds 0 1 2]

Five stratified folds. "grouped" keeps sequences that share 40 consecutive bases, on either strand, in one fold, so no
sequence is scored by a model that has read part of it. The classifier has its defaults. A random tenth of each training
part stops the networks and chooses the regularisation of the regression. Sets whose sequences all have a meaningful
strand (promoters, on the strand of their gene) are also run with the given strand alone (``reverse_complement="none"``,
and k-mers not merged with their reverse complements). Finished cells are skipped.
"""

import argparse
import functools
import time
from typing import Any

import numpy as np
import torch
from cells import work
from dna_cnn import predict_by_cnn
from dna_gue import MODELS, STRENGTHS, counts, regression
from records import RESULTS
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from titans_datasets import load
from titans_datasets.audit import kmer_groups
from titans_dna import TitansDNAClassifier

FILE = RESULTS / "dna_crossval.jsonl"
FIELDS = ("model", "set", "split", "fold")
SETS = ("human_nontata_promoters", "human_enhancers_cohn", "drosophila_enhancers_stark")
# sets whose sequences have a meaningful strand
STRANDED = ("human_nontata_promoters",)
GIVEN = {"kmers, the given strand": "kmers", "titans, the given strand": "titans"}
SPLITS = ("random", "grouped")
FOLDS = 5


@functools.cache
def data_of(name: str) -> tuple[list[str], np.ndarray]:
    sequences, labels = load(name).part("test")
    return list(sequences), np.asarray(labels)


@functools.cache
def folds_of(name: str, split: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training rows and test rows of each fold."""
    sequences, labels = data_of(name)
    if split == "random":
        return list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(sequences, labels))
    folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=0)
    return list(folds.split(sequences, labels, kmer_groups(sequences)))


@functools.cache
def table_of(name: str, canonical: bool) -> np.ndarray:
    return counts(data_of(name)[0], canonical=canonical)


def run(key: tuple[Any, ...]) -> dict[str, Any]:
    model, name, split, fold = key
    sequences, labels = data_of(name)
    train, test = folds_of(name, split)[fold]
    shuffled = np.random.default_rng(fold).permutation(train)
    dev, rest = shuffled[: len(train) // 10], shuffled[len(train) // 10 :]
    begun, extra = time.perf_counter(), {}
    kind, given = GIVEN.get(model, model), model in GIVEN
    if kind == "kmers":
        found = _regression(table_of(name, not given), labels, rest, dev, train)[test]
    else:
        parts = [([sequences[i] for i in rows], labels[rows]) for rows in (rest, dev, test)]
        if kind == "cnn":
            found, _ = predict_by_cnn(parts[0], parts[1], parts[2][0], fold)
        else:
            strand = {"reverse_complement": "none"} if given else {}
            classifier = TitansDNAClassifier(**strand, random_state=fold, verbose=0)
            found = classifier.fit(*parts[0], validation=parts[1]).predict(parts[2][0])
            history = classifier.history_
            extra = {"epochs": len(history.epochs), "best_epoch": history.best_epoch}
    return {
        "accuracy": float(accuracy_score(labels[test], found)),
        "balanced_accuracy": float(balanced_accuracy_score(labels[test], found)),
        "seconds": round(time.perf_counter() - begun, 1),
        "tests": len(test),
        **extra,
    }


def _regression(x: np.ndarray, y: np.ndarray, rest: np.ndarray, dev: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Classes of all rows, by a regression on ``train``; ``C`` is the best on ``dev`` after training on ``rest``."""

    def fitted(strength: float, rows: np.ndarray) -> Any:
        return regression(strength).fit(x[rows], y[rows])

    best = max(STRENGTHS, key=lambda c: fitted(c, rest).score(x[dev], y[dev]))
    return fitted(best, train).predict(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=(*MODELS, *GIVEN), default=(*MODELS, *GIVEN))
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--folds", nargs="+", type=int, choices=range(FOLDS), default=range(FOLDS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    for model in args.models:
        for fold in args.folds:
            sets = [name for name in args.sets if model not in GIVEN or name in STRANDED]
            work(FILE, [(model, name, split, fold) for name in sets for split in SPLITS], FIELDS, run)


if __name__ == "__main__":
    main()
