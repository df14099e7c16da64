"""A pretrained language model as the encoder of a classifier.

full      all weights are trained
frozen    no weights are trained
gradual   blocks are unfrozen one by one, starting with the last; all are trained in the second half of training

A trained model can also receive the distance of each base from both ends of the sequence, added to the embedding. These
inputs start at zero, so training starts from the pretrained function.
"""

import copy
import os
from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titans_core import TitansConfig, TitansLM
from titans_dna.genomes.tokenizer import VOCAB_SIZE, N
from titans_dna.network.encoder import Places, within

__all__ = ["FINETUNE", "NOT_STORED", "LanguageEncoder", "network_of"]

FINETUNE = ("full", "frozen", "gradual")
# replaces ``pretrained`` in the saved parameters of a classifier
NOT_STORED = "not stored"


def network_of(pretrained: Any) -> TitansLM:
    """Return the network of a fitted ``DNALanguageModel``, given as an object or as the folder of a saved one.

    Raises:
        TypeError: ``pretrained`` is something else.
        ValueError: the model is not fitted, or has another vocabulary.
    """
    if pretrained == NOT_STORED:
        raise ValueError(
            "this classifier was fine-tuned from a language model that was not saved with it. To fit it again, set "
            "one: set_params(pretrained=...)."
        )
    if isinstance(pretrained, str | os.PathLike):
        from titans_dna.language import DNALanguageModel

        pretrained = DNALanguageModel.load(os.fspath(pretrained))
    network = getattr(pretrained, "model_", None)
    if hasattr(pretrained, "get_params") and not any(name.endswith("_") for name in vars(pretrained)):
        raise ValueError(
            f"pretrained is a {type(pretrained).__name__} that is not fitted: fit it, or give the folder of a saved "
            "model. In GridSearchCV, which clones models and so loses their weights, give the folder written by save()."
        )
    if not isinstance(network, TitansLM):
        raise TypeError(
            "pretrained must be a fitted DNALanguageModel or the folder of a saved one, got "
            f"{type(pretrained).__name__}."
        )
    if network.config.vocab_size < VOCAB_SIZE:
        raise ValueError(
            f"pretrained has a vocabulary of {network.config.vocab_size} tokens, but DNA needs {VOCAB_SIZE}. Give a "
            "DNALanguageModel."
        )
    return network


class LanguageEncoder(nn.Module):
    """Language model as encoder: ids ``[B, T]`` -> hidden states after each base ``[B, T, dim]``, and their mask.

    As in pretraining, an N is placed before the sequence. Instead of ids, proportions of the four bases ``[B, T, 4]``
    are accepted (:mod:`titans_dna.network.encoder`).

    Args:
        model: the language model; it is copied.
        finetune: one of ``FINETUNE``.
        steps: total number of training batches, used by "gradual".
        positions: whether positions are an input. Ignored with "frozen", because their weights must be trained.
    """

    step: Tensor

    def __init__(self, model: TitansLM, finetune: str, steps: int, positions: bool) -> None:
        super().__init__()
        self.model = copy.deepcopy(model).train()
        self.model.add_module("head", nn.Identity())
        self.dim, self.finetune, self.steps = model.config.dim, finetune, steps
        self.places = Places(self.dim) if positions and finetune != "frozen" else None
        if self.places is not None:
            nn.init.zeros_(self.places.linear.weight)
        # a buffer, so that a resumed training continues unfreezing where it stopped
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.thaw()

    @classmethod
    def of(cls, config: dict[str, Any], positions: bool) -> "LanguageEncoder":
        """Create an untrained encoder into which saved weights are loaded."""
        return cls(TitansLM(TitansConfig.saved(config)), "full", 1, positions)

    @property
    def about(self) -> dict[str, Any]:
        """Configuration of the language model, for :meth:`of`."""
        return asdict(self.model.config)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        mask = within(ids)
        with torch.set_grad_enabled(torch.is_grad_enabled() and (self.finetune != "frozen" or ids.requires_grad)):
            x = self._embedded(ids)
            if self.places is not None:
                x = x + F.pad(self.places(mask), (0, 0, 1, 0))
            hidden, _ = self.model.hidden_of(x)
        return hidden[:, 1:], mask

    def _embedded(self, ids: Tensor) -> Tensor:
        """Embeddings of an N and the sequence ``[B, 1 + T, dim]``; proportions give the mean of the bases and N."""
        if ids.ndim == 2:
            return self.model.embedding(F.pad(ids, (1, 0), value=N))
        shares, table = F.pad(ids, (0, 0, 1, 0)), self.model.embedding.weight
        return shares @ table[:N] + (1 - shares.sum(-1, keepdim=True)) * table[N]

    def begin_batch(self) -> None:
        """Call once before each training batch, even if it is read in parts."""
        self.thaw()
        self.step += 1

    def thaw(self) -> None:
        """Unfreeze the parts that should be trained at this step."""
        parts = self.parts()
        learning = {"full": len(parts), "frozen": 0}.get(self.finetune)
        if learning is None:
            learning = 1 + int(self.step) * 2 * len(parts) // max(1, self.steps)
        for i, part in enumerate(parts):
            for parameter in part.parameters():
                parameter.requires_grad_(i < learning)

    def parts(self) -> list[nn.Module]:
        """Parts of the network, from output to input."""
        inputs = [self.model.embedding] if self.places is None else [nn.ModuleList((self.model.embedding, self.places))]
        return [self.model.norm, *reversed(self.model.blocks), *inputs]
