"""Pretraining on genomes: bits per base on held-out sequence, compared with Markov models, and a probe for genes.

    python benchmarks/dna_language.py [--genomes yeast ecoli] [--models markov lmm gated-deltanet ...] [--seeds 0]

Held out: chromosome IV of yeast, and the last tenth of the chromosome of E. coli. All models have the same number of
steps and the same data, and by the width of their SwiGLU about the same size. In evaluation they read windows of 4,096
bases; "transformer" reads windows of the training length. The bits are also measured after mixing with Markov models
(``titans_dna.fit_mixture``). "markov" stands for Markov models of orders 0 to 12, with additive smoothing and
interpolated with lower orders, and for the mixture of all of them.

The probe, on yeast: logistic regression on embeddings of pieces of 300 bases (of the last layer, and of all layers)
distinguishes genes from intergenic sequence. It is trained on the chromosomes of ``fit`` and scored on IV (area under
the ROC curve); the baseline uses counts of canonical 1- to 6-mers. Finished cells are skipped. An interrupted training
continues from its last checkpoint, and a saved model is evaluated without training.
"""

import argparse
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cells import work
from dna_gue import counts
from lm_models import FRESH, FRESH_MAG, config_of
from records import RESULTS
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from titans_core import TitansConfig
from titans_datasets import load
from titans_dna import DNALanguageModel, Genome, Interval, fit_markov, fit_mixture, read_gff

FILE = RESULTS / "dna_language.jsonl"
CHECKPOINTS = RESULTS.parent / "checkpoints" / "dna_language"
MARKOV = "markov"
MODELS = (MARKOV, "lmm", "lmm, linear memory", FRESH, "gated-deltanet", "transformer", "mag", FRESH_MAG)
GENOMES = ("yeast", "ecoli")
PARAMETERS, STEPS, LENGTH, BATCH, CONTEXT = 700_000, 2000, 1024, 8, 4096
SIZE = dict(dim=128, num_layers=3, num_heads=4, window=512)  # only "mag" uses the window
# the configuration of DNALanguageModel with SIZE
BASE = TitansConfig(
    vocab_size=6, hidden=256, num_persistent=4, memory_depth=2, forget_to="start", chunk_size=16, **SIZE
)
PIECE, PIECES = 300, 2000


@functools.cache
def genome_of(name: str) -> tuple[Genome, list[Interval], list[Interval]]:
    """The genome, and its training and held-out intervals."""
    genome = Genome(load(name).fasta, cache_dir=Path(tempfile.gettempdir()) / "titans-genomes")
    if name == "yeast":
        held = [Interval("IV", 0, genome.lengths["IV"])]
    else:
        (chrom, length), *_ = genome.lengths.items()
        held = [Interval(chrom, length * 9 // 10, length)]
    chroms = {region.chrom for region in held}
    train = [Interval(chrom, 0, length) for chrom, length in genome.lengths.items() if chrom not in chroms]
    return genome, train + [Interval(r.chrom, 0, r.start) for r in held if r.start], held


def markov(name: str) -> dict[str, Any]:
    genome, train, held = genome_of(name)
    table = fit_markov(genome, 12, bed=train).bits_per_base(genome, regions=held).set_index("order")
    mixed = fit_mixture(genome, bed=train).bits_per_base(genome, regions=held, context=CONTEXT)
    found = {"orders": table.to_dict("list"), "mixed": mixed}
    if name == "yeast":
        found["probe_kmers"] = gene_auc(lambda where: counts([genome.fetch(piece) for piece in where]))
    return found


def trained(name: str, architecture: str, seed: int) -> DNALanguageModel:
    """The fitted model: loaded if it was saved, else trained, from the last checkpoint if there is one.

    Raises:
        ValueError: the saved model has other settings.
    """
    folder = CHECKPOINTS / f"{name}-{architecture}-{seed}"
    config = config_of(architecture, BASE, PARAMETERS)
    model = DNALanguageModel(
        architecture.split(",")[0],
        **SIZE,
        hidden=config.hidden,
        memory_depth=config.memory_depth,
        chunk_size=config.chunk_size,
        length=LENGTH,
        batch_size=BATCH,
        max_steps=STEPS,
        patience=STEPS,
        random_state=seed,
        verbose=0,
    )
    if (folder / "model").exists():
        saved = DNALanguageModel.load(folder / "model")
        if saved.get_params() != model.get_params():
            raise ValueError(f"{folder} has a model of other settings: remove it, and the model is trained anew.")
        return saved
    resumed = folder.exists()
    genome, train, _ = genome_of(name)
    model.fit(genome, bed=train, checkpoint_dir=folder)
    if resumed:
        model.seconds_ = None  # the total time is unknown
    model.save(folder / "model")
    return model


def run(key: tuple[str, str, int]) -> dict[str, Any]:
    name, architecture, seed = key
    if architecture == MARKOV:
        return markov(name)
    genome, train, held = genome_of(name)
    model = trained(name, architecture, seed)
    begun = time.perf_counter()
    context = None if architecture == "transformer" else CONTEXT
    bits = model.bits_per_base(genome, regions=held, context=context)
    reading = sum(map(len, held)) / (time.perf_counter() - begun)
    epochs = len(model.history_.epochs)
    return {
        "bits_per_base": bits,
        "mixed": fit_mixture(genome, model, bed=train).bits_per_base(genome, regions=held, context=context or LENGTH),
        **(probe(model) if name == "yeast" else {}),
        "bases_per_second_training": model.seconds_ and round(epochs * 100 * BATCH * LENGTH / model.seconds_),
        "bases_per_second_reading": round(reading),
        "seconds": model.seconds_ and round(model.seconds_, 1),
        "parameters": model.model_.num_parameters(),
        "steps": STEPS,
        "length": LENGTH,
        "batch": BATCH,
    }


@functools.cache
def pieces(held: bool) -> tuple[list[Interval], np.ndarray]:
    """Pieces of yeast inside and between genes, equally many of each, on random strands, and which are in genes."""
    genome, _, _ = genome_of("yeast")
    rng = np.random.default_rng(int(held))
    inside: dict[str, np.ndarray] = {chrom: np.zeros(n, dtype=bool) for chrom, n in genome.lengths.items()}
    for gene in read_gff(load("yeast").annotation, "gene"):
        inside[gene.chrom][gene.start : gene.end] = True
    found: list[Interval] = []
    for wanted in (True, False):
        places = []
        for chrom, is_gene in inside.items():
            if (chrom == "IV") == held and chrom != "Mito":
                total = np.concatenate(([0], np.cumsum(is_gene == wanted)))
                whole = np.flatnonzero(total[PIECE:] - total[:-PIECE] == PIECE)
                places += [(chrom, start) for start in whole[:: PIECE // 2].tolist()]
        chosen = rng.permutation(len(places))[: PIECES // (4 if held else 1)]
        found += [
            Interval(places[i][0], places[i][1], places[i][1] + PIECE, "+-"[rng.integers(2)]) for i in chosen.tolist()
        ]
        if wanted:
            genes = len(found)
    return found, np.arange(len(found)) < genes


def gene_auc(vectors: Callable[[list[Interval]], Any]) -> float:
    """AUC of a regression on vectors of pieces that distinguishes genes."""
    x = [vectors(pieces(held)[0]) for held in (False, True)]
    regression = make_pipeline(StandardScaler(), LogisticRegressionCV(Cs=np.geomspace(1e-5, 1, 6), max_iter=500))
    regression.fit(x[0], pieces(False)[1])
    return float(roc_auc_score(pieces(True)[1], regression.decision_function(x[1])))


def probe(model: DNALanguageModel) -> dict[str, float]:
    embed = functools.partial(model.embed, genome=genome_of("yeast")[0], both_strands=True)
    return {
        "probe_vectors": gene_auc(functools.partial(embed, layers="last")),
        "probe_vectors_all": gene_auc(functools.partial(embed, layers="all")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--genomes", nargs="+", choices=GENOMES, default=GENOMES)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--seeds", nargs="+", type=int, default=(0,))
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds:
        models = [model for model in args.models if model != MARKOV or seed == 0]  # Markov models have no seed
        cells = [(genome, model, seed) for genome in args.genomes for model in models]
        work(FILE, cells, ("genome", "model", "seed"), run)


if __name__ == "__main__":
    main()
