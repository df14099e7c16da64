"""A pretrained language model as the encoder of a classifier.

full      all of it learns
frozen    none of it learns
gradual   block after block begins to learn, the last one first; all of it does in the second half of training

One that learns may also be told how far from either end of the sequence a base is, beside which base it is. At first
that says nothing: training begins with what was pretrained.
"""

import copy
import os
from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titans_core import TitansConfig, TitansLM
from titans_core.train import digest
from titans_dna.encoder import Places, within
from titans_dna.tokenizer import VOCAB_SIZE, N

__all__ = ["FINETUNE", "NOT_STORED", "LanguageEncoder", "network_of"]

FINETUNE = ("full", "frozen", "gradual")
# stands for a language model in the arguments of a classifier that was saved without it
NOT_STORED = "not stored"


def digest_of(network: nn.Module) -> str:
    """A fingerprint of the weights of a language model."""
    return digest(*(parameter.detach().float().cpu().numpy() for parameter in network.parameters()))


def network_of(pretrained: Any) -> TitansLM:
    """The network of a fitted ``DNALanguageModel``, or of the folder that its ``save`` wrote.

    Raises:
        TypeError: something else.
        ValueError: not fitted, or a model over other tokens.
    """
    if pretrained == NOT_STORED:
        raise ValueError(
            "this classifier was made from a language model that was not saved with it. To fit it again, give it one: "
            "set_params(pretrained=...)."
        )
    if isinstance(pretrained, str | os.PathLike):
        from titans_dna.language import DNALanguageModel

        pretrained = DNALanguageModel.load(os.fspath(pretrained))
    network = getattr(pretrained, "model_", None)
    if hasattr(pretrained, "get_params") and not any(name.endswith("_") for name in vars(pretrained)):
        raise ValueError(
            f"pretrained is a {type(pretrained).__name__} that is not fitted: fit it, or give the folder of one. "
            "(GridSearchCV unfits the values of its grid: there, too, give the folder that save() wrote.)"
        )
    if not isinstance(network, TitansLM):
        raise TypeError(
            f"pretrained must be a fitted DNALanguageModel or the folder of one, got {type(pretrained).__name__}."
        )
    if network.config.vocab_size < VOCAB_SIZE:
        raise ValueError(
            f"pretrained knows {network.config.vocab_size} tokens; {VOCAB_SIZE} are those of titans_dna.tokenizer."
        )
    return network


class LanguageEncoder(nn.Module):
    """Ids ``[B, T]`` -> the language model's hidden state behind each base ``[B, T, dim]``, and where they are real.

    As in pretraining, an N stands before the sequence. Shares of the bases ``[B, T, 4]`` may take the place of ids
    (:mod:`titans_dna.encoder`).

    Args:
        model: is copied.
        finetune: one of ``FINETUNE``.
        steps: batches of the whole training, by which "gradual" goes.
        positions: whether it is told where a base is. It has to learn that: one that is frozen is not told.
    """

    step: Tensor

    def __init__(self, model: TitansLM, finetune: str, steps: int, positions: bool) -> None:
        super().__init__()
        self.model = copy.deepcopy(model).train()
        self.model.head = nn.Identity()
        self.dim, self.finetune, self.steps = model.config.dim, finetune, steps
        self.places = Places(self.dim) if positions and finetune != "frozen" else None
        if self.places is not None:
            nn.init.zeros_(self.places.linear.weight)
        # part of a checkpoint: a resumed training goes on thawing where it was
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.thaw()

    @classmethod
    def of(cls, config: dict[str, Any], positions: bool) -> "LanguageEncoder":
        """An untrained one, to take saved weights."""
        return cls(TitansLM(TitansConfig.saved(config)), "full", 1, positions)

    @property
    def about(self) -> dict[str, Any]:
        """What :meth:`of` needs of the language model."""
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
        """Of an N and the sequence ``[B, 1 + T, dim]``; of shares, the mixture of the bases' and N's."""
        if ids.ndim == 2:
            return self.model.embedding(F.pad(ids, (1, 0), value=N))
        shares, table = F.pad(ids, (0, 0, 1, 0)), self.model.embedding.weight
        return shares @ table[:N] + (1 - shares.sum(-1, keepdim=True)) * table[N]

    def begin_batch(self) -> None:
        """Before a batch of the training, however many parts it is read in."""
        self.thaw()
        self.step += 1

    def thaw(self) -> None:
        """Let those parts learn whose time has come."""
        parts = self.parts()
        learning = {"full": len(parts), "frozen": 0}.get(self.finetune)
        if learning is None:
            learning = 1 + int(self.step) * 2 * len(parts) // max(1, self.steps)
        for i, part in enumerate(parts):
            for parameter in part.parameters():
                parameter.requires_grad_(i < learning)

    def parts(self) -> list[nn.Module]:
        """From the output to the input."""
        inputs = [self.model.embedding] if self.places is None else [nn.ModuleList((self.model.embedding, self.places))]
        return [self.model.norm, *reversed(self.model.blocks), *inputs]
