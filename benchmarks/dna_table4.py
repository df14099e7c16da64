"""Table 4: five sets of GenomicBenchmarks, accuracy on the official test set and on its clean subset.

    python benchmarks/dna_table4.py [--genome GRCh38.fa.gz] [--sets ...] [--seeds 0 1 2]
    python benchmarks/dna_table4.py --generated     without the genome: random bases, as many as in the human genome

The sequences are the official ones from the data home, or are cut from the genome by the official coordinates. The
classifier has its defaults: ``fit`` sets aside a tenth of the training set for early stopping, and the test set is
read once. The clean subset consists of the test sequences that share no 40 consecutive bases, on either strand, with a
training sequence.

``--generated`` runs all steps from FASTA to scores, but trains for one epoch on 4,000 sequences. The time per epoch is
scaled to the bases of the full set; the accuracy is that of guessing. Each set runs in its own process, which gives its
peak memory. Finished cells are skipped.
"""

import argparse
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cells import work
from records import RESULTS, resident_mib

from titans_datasets import info, load
from titans_datasets.audit import score_clean
from titans_datasets.cache import data_home
from titans_datasets.dna.benchmarks import official_intervals
from titans_dna import TitansDNAClassifier

FILE, GENERATED = RESULTS / "dna_table4.jsonl", RESULTS / "dna_table4_generated.jsonl"
SETS = (
    "human_enhancers_cohn",
    "human_enhancers_ensembl",
    "human_ensembl_regulatory",
    "human_nontata_promoters",
    "human_ocr_ensembl",
)
ROWS = 4000
LINES = 100_000  # lines of random bases written at once


def run(key: tuple[str, int], genome: str | None, rows: int | None) -> dict[str, Any]:
    """Run :func:`score` in its own process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(score, *key, genome, rows).result()


def score(name: str, seed: int, genome: str | None, rows: int | None) -> dict[str, Any]:
    torch.set_num_threads(1)
    begun = time.perf_counter()
    data = load(name, genome=genome)
    read = time.perf_counter() - begun
    (X, y), (X_test, y_test) = data.part("train"), data.part("test")
    clean = data.audit(verbose=0).kmers.clean[data.split == "test"]
    audited = time.perf_counter() - begun - read
    bases = sum(map(len, X))
    model = TitansDNAClassifier(random_state=seed, verbose=0)
    if rows is not None:
        some = np.random.default_rng(0).permutation(len(X))[:rows]
        X, y = [X[i] for i in some], y[some]
        model.set_params(max_epochs=1)
    model.fit(X, y)
    parts = score_clean(y_test, model.predict(X_test), clean)
    epochs = len(model.history_.epochs)
    return {
        "accuracy": parts.accuracy,
        "clean_accuracy": parts.clean_accuracy,
        "clean_balanced_accuracy": parts.clean_balanced_accuracy,
        "tests": parts.n,
        "clean_tests": parts.n_clean,
        "epochs": epochs,
        "seconds_per_epoch": round(model.seconds_ / epochs * bases / sum(map(len, X)), 1),
        "seconds_to_read": round(read, 1),
        "seconds_to_audit": round(audited, 1),
        "training_bases": bases,
        "trained_on": len(X),
        "genome_bytes": Path(genome).stat().st_size if genome else None,
        "parameters": sum(p.numel() for p in model.network_.parameters()),
        "peak_mib": round(resident_mib("VmHWM")),
    }


def generate(path: Path, names: tuple[str, ...]) -> None:
    """Write random bases; each chromosome is as long as the official coordinates of these sets require."""
    ends: dict[str, int] = {}
    for name in names:
        intervals = official_intervals(info(name), data_home(), download=True)
        assert intervals is not None
        for region, end in intervals.groupby("region")["end"].max().items():
            ends[str(region)] = max(ends.get(str(region), 0), int(end))
    rng, letters = np.random.default_rng(0), np.frombuffer(b"ACGT", np.uint8)
    width = 100
    with path.open("wb") as stream:
        for region, end in ends.items():
            stream.write(f">{region}\n".encode())
            for _ in range(0, end, width * LINES):
                lines = np.full((LINES, width + 1), ord("\n"), np.uint8)
                lines[:, :width] = letters[rng.integers(0, 4, (LINES, width), dtype=np.uint8)]
                stream.write(lines.tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--genome", help="FASTA of GRCh38; default: the official sequences from the data home")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument("--generated", action="store_true", help="use random bases; needs 3 GB of disk")
    args = parser.parse_args()
    sets = tuple(args.sets)
    if not args.generated:
        for seed in args.seeds:
            work(FILE, [(name, seed) for name in sets], ("set", "seed"), partial(run, genome=args.genome, rows=None))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "genome.fa"
        generate(path, sets)
        work(GENERATED, [(name, 0) for name in sets], ("set", "seed"), partial(run, genome=str(path), rows=ROWS))


if __name__ == "__main__":
    main()
