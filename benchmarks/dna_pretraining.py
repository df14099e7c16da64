"""What pretraining adds: Matthews correlation on GUE of a network fine-tuned from pretrained or from fresh weights.

    python benchmarks/dna_pretraining.py [--tasks prom_core_tata mouse_2] [--seeds 0]

A ``DNALanguageModel`` learns to predict the next base on the training sequences of the task, never on dev or test. The
classifier gets it as ``pretrained`` and is trained with its defaults. "fresh" is the same except for the pretraining,
which is one batch at a learning rate near 0. Finished cells are skipped. Rows without "positions" are older: the
network had no encoding of positions then.
"""

import argparse
import time
from typing import Any

import torch
from cells import work
from dna_gue import TASKS
from records import RESULTS
from sklearn.metrics import matthews_corrcoef

from titans_datasets import load
from titans_dna import DNALanguageModel, TitansDNAClassifier

FILE = RESULTS / "dna_pretraining.jsonl"
FIELDS = ("weights", "task", "seed", "positions")
WEIGHTS = ("fresh", "pretrained")
BATCH, STEPS, LENGTH = 64, 1500, 300
READING = {"pretrained": {"max_steps": STEPS}, "fresh": {"max_steps": 1, "learning_rate": 1e-9}}
# as large as the classifier without ``pretrained``, but with a position for each base
SIZE = {"architecture": "lmm", "dim": 64, "num_layers": 2, "hidden": 128, "memory_depth": 1, "chunk_size": 16}


def run(key: tuple[Any, ...]) -> dict[str, Any]:
    weights, task, seed, positions = key
    train, dev, test = (load(task).part(part) for part in ("train", "dev", "test"))
    language = DNALanguageModel(
        **SIZE, **READING[weights], length=LENGTH, batch_size=BATCH, patience=STEPS, random_state=seed, verbose=0
    ).fit(list(train[0]))
    begun = time.perf_counter()
    model = TitansDNAClassifier(language, positions=positions, random_state=seed, verbose=0).fit(*train, validation=dev)
    return {
        "mcc": matthews_corrcoef(test[1], model.predict(test[0])),
        "mcc_dev": matthews_corrcoef(dev[1], model.predict(dev[0])),
        "nats_per_base": language.history_.epochs[language.history_.best_epoch].get("val_loss"),
        "seconds_pretraining": round(language.seconds_, 1),
        "seconds": round(time.perf_counter() - begun, 1),
        "epochs": len(model.history_.epochs),
        "parameters": sum(p.numel() for p in model.network_.parameters()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=("prom_core_tata", "mouse_2"))
    parser.add_argument("--seeds", nargs="+", type=int, default=(0,))
    args = parser.parse_args()
    torch.set_num_threads(1)
    cells = [(weights, task, seed, True) for seed in args.seeds for task in args.tasks for weights in WEIGHTS]
    work(FILE, cells, FIELDS, run)


if __name__ == "__main__":
    main()
