"""Saving and loading mixtures: weights, counts of the longest Markov model, and the language model in a subfolder."""

from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from titans_core.archive import ArchiveError, check_kind, load_archive, save_archive
from titans_dna.fine_tuning import digest_of
from titans_dna.intervals import Interval
from titans_dna.markov import MarkovModels, all_orders

if TYPE_CHECKING:
    from titans_dna.mixing import Mixture

__all__ = ["load", "save"]

_KIND, _MODEL = "Mixture", "language_model"
# counts are stored in the smallest integer type that holds them
_INTEGERS = (np.uint8, np.int16, np.int32, np.int64)


def save(mixture: "Mixture", path: str | Path) -> None:
    check_kind(path, _KIND)
    model, markov = mixture.model, mixture.markov
    if model is not None:
        model.save(Path(path) / _MODEL)
    longest = markov.counts[-1]
    stored = next(kind for kind in _INTEGERS if longest.max() <= np.iinfo(kind).max)
    content = {
        "model": None if model is None else digest_of(model.model_),
        "additive": markov.additive,
        "interpolated": markov.interpolated,
        "dtype": longest.dtype.name,
        "counted": [astuple(region) for region in mixture.counted],
        "marks": mixture.marks,
    }
    tensors = {"weights": mixture.weights, "counts": torch.from_numpy(longest.astype(stored))}
    save_archive(path, _KIND, content, tensors)


def load(path: str | Path) -> "Mixture":
    from titans_dna.language import DNALanguageModel
    from titans_dna.mixing import Mixture

    content, tensors = load_archive(path, _KIND)
    model = None
    if content["model"] is not None:
        model = DNALanguageModel.load(Path(path) / _MODEL)
        if digest_of(model.model_) != content["model"]:
            raise ArchiveError(
                f"{Path(path) / _MODEL} is not the language model that this mixture was saved with. Restore it, or fit "
                "and save the mixture again."
            )
    counts = all_orders(tensors["counts"].numpy().astype(content["dtype"]))
    markov = MarkovModels(counts, tuple(content["additive"]), tuple(content["interpolated"]))
    counted = tuple(Interval(*region) for region in content["counted"])
    return Mixture(model, markov, tensors["weights"], counted, content["marks"])
