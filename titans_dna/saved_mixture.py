"""Saving and loading mixtures: weights, counts of the longest Markov model, and the language model."""

from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from titans_core.archive import load_archive, save_archive, unpacking
from titans_dna.genomes.intervals import Interval
from titans_dna.markov import MarkovModels, all_orders

if TYPE_CHECKING:
    from titans_dna.mixing import Mixture

__all__ = ["load", "save"]

_KIND, _MODEL = "Mixture", "language_model."  # kind of the archive; prefix of the tensors of the language model
# counts are stored in the smallest integer type that holds them
_INTEGERS = (np.uint8, np.int16, np.int32, np.int64)


def save(mixture: "Mixture", path: str | Path) -> None:
    model, markov = mixture.model, mixture.markov
    described, weights = (None, {}) if model is None else model._archived()
    longest = markov.counts[-1]
    stored = next(kind for kind in _INTEGERS if longest.max() <= np.iinfo(kind).max)
    content = {
        "model": described,
        "additive": markov.additive,
        "interpolated": markov.interpolated,
        "dtype": longest.dtype.name,
        "counted": [astuple(region) for region in mixture.counted],
        "marks": mixture.marks,
    }
    tensors = {"weights": mixture.weights, "counts": torch.from_numpy(longest.astype(stored))}
    save_archive(path, _KIND, content, tensors | {_MODEL + name: tensor for name, tensor in weights.items()})


def load(kind: "type[Mixture]", path: str | Path) -> "Mixture":
    from titans_dna.language import DNALanguageModel

    content, tensors = load_archive(path, _KIND)
    with unpacking(path):
        model = None
        if content["model"] is not None:
            weights = {name.removeprefix(_MODEL): x for name, x in tensors.items() if name.startswith(_MODEL)}
            model = DNALanguageModel._restored(path, content["model"], weights)
        counts = all_orders(tensors["counts"].numpy().astype(content["dtype"]))
        markov = MarkovModels(counts, tuple(content["additive"]), tuple(content["interpolated"]))
        counted = tuple(Interval(*region) for region in content["counted"])
        return kind(model, markov, tensors["weights"], counted, content["marks"])
