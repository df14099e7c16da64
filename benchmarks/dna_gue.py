"""GUE: Matthews correlation on the official test sets, one recipe for all tasks, compared with two baselines.

    python benchmarks/dna_gue.py [--models titans cnn kmers without-kmers] [--tasks tf_0 ...] [--seeds 0 1 2]

The classifier has its defaults; "without-kmers" is the same with ``kmers=0``, for one seed. The baselines are a small
convolutional network (``dna_cnn.py``) and logistic regression on counts of canonical 1- to 6-mers. The official dev set
chooses the epoch of the networks and the regularisation of the regression. Scores are of the official test set and of
its clean subset, the sequences that share no 40 consecutive bases with train on either strand. Finished cells are
skipped.
"""

import argparse
import time
from itertools import product
from typing import Any

import numpy as np
import torch
from cells import work
from dna_cnn import predict_by_cnn
from records import RESULTS
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import matthews_corrcoef
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from titans_datasets import load
from titans_datasets.audit import shared_kmers
from titans_dna import TitansDNAClassifier, encode, reverse_complement

FILE = RESULTS / "dna_gue.jsonl"
FIELDS = ("model", "task", "seed")
MODELS = ("kmers", "cnn", "titans")
ABLATED = "without-kmers"
OF_ONE_SEED = ("kmers", ABLATED)
STRENGTHS = (0.01, 0.1, 1.0)  # values of C for the regression; the best on dev is used
TASKS = (
    "prom_core_tata", "tf_0", "mouse_0", "prom_300_tata", "tf_1", "tf_2", "tf_3", "mouse_2", "prom_core_notata",
    "prom_core_all",
)  # fmt: skip


def counts(sequences: list[str], longest: int = 6, canonical: bool = True) -> np.ndarray:
    """Counts of k-mers, k = 1 .. longest, ``[N, features]``. ``canonical`` merges reverse complements."""
    blocks = []
    for k in range(1, longest + 1):
        words = ["".join(letters) for letters in product("ACGT", repeat=k)]
        smallest = {word: min(word, str(reverse_complement(word))) if canonical else word for word in words}
        column = {word: i for i, word in enumerate(sorted(set(smallest.values())))}
        table = np.array([column[smallest[word]] for word in words])
        powers = 4 ** np.arange(k)[::-1]
        found = np.zeros((len(sequences), len(column)), dtype=np.float32)
        for row, sequence in enumerate(sequences):
            ids = encode(sequence).astype(np.int64)
            windows = np.lib.stride_tricks.sliding_window_view(ids, k)
            known = (windows < 4).all(1)
            np.add.at(found[row], table[windows[known] @ powers], 1)
        blocks.append(found)
    return np.concatenate(blocks, axis=1)


def run(key: tuple[Any, ...]) -> dict[str, Any]:
    name, task, seed = key
    data = load(task)
    parts = {part: data.part(part) for part in ("train", "dev", "test")}
    begun = time.perf_counter()
    extra: dict[str, Any]
    if name == "kmers":
        predicted, chosen = _kmers(parts)
        extra = {"C": chosen}
    elif name == "cnn":
        predicted, extra = predict_by_cnn(parts["train"], parts["dev"], parts["test"][0], seed)
    else:
        model = TitansDNAClassifier(**({"kmers": 0} if name == ABLATED else {}), random_state=seed, verbose=0)
        model.fit(*parts["train"], validation=parts["dev"])
        predicted, dev = model.predict(parts["test"][0]), model.predict(parts["dev"][0])
        extra = {
            "mcc_dev": matthews_corrcoef(parts["dev"][1], dev),
            "parameters": sum(p.numel() for p in model.network_.parameters()),
            "epochs": len(model.history_.epochs),
        }
    seconds = round(time.perf_counter() - begun, 1)
    test, labels = parts["test"]
    clean = ~shared_kmers(test, parts["train"][0])
    scores = {
        "mcc": matthews_corrcoef(labels, predicted),
        "mcc_clean": matthews_corrcoef(labels[clean], predicted[clean]),
    }
    return {**scores, **extra, "seconds": seconds, "tests": len(test), "tests_clean": int(clean.sum())}


def regression(strength: float) -> Pipeline:
    """Logistic regression on :func:`counts`."""
    return make_pipeline(MaxAbsScaler(), LogisticRegression(C=strength, max_iter=300))


def _kmers(parts: dict[str, Any]) -> tuple[np.ndarray, float]:
    x = {part: counts(sequences) for part, (sequences, _) in parts.items()}
    scores = {}
    for strength in STRENGTHS:
        model = regression(strength).fit(x["train"], parts["train"][1])
        dev = matthews_corrcoef(parts["dev"][1], model.predict(x["dev"]))
        scores[strength] = (dev, model.predict(x["test"]))
    best = max(scores, key=lambda c: scores[c][0])
    return scores[best][1], best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=(*MODELS, ABLATED), default=(*MODELS, ABLATED))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds:
        for model in args.models:
            if model not in OF_ONE_SEED or seed == 0:
                work(FILE, [(model, task, seed) for task in args.tasks], FIELDS, run)


if __name__ == "__main__":
    main()
