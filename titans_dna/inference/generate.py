"""Generation of DNA with a language model."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from titans_core import LMState, TitansLM
from titans_core.models.generate import Generation
from titans_dna.genomes.tokenizer import N, decode
from titans_dna.network.likelihood import log_probabilities

__all__ = ["written"]


class _Bases(Generation):
    """A network restricted to the outputs A, C, G and T; N and padding are not trained as outputs."""

    def __init__(self, network: TitansLM) -> None:
        self.network = network

    def __call__(self, ids: Tensor, state: LMState | None = None) -> tuple[Tensor, LMState]:
        hidden, state = self.hidden(ids, state)
        return log_probabilities(self.network, hidden), state

    def hidden(self, ids: Tensor, state: LMState | None = None) -> tuple[Tensor, LMState]:
        return self.network.hidden(ids, state)


def written(
    network: TitansLM, prompt: NDArray[np.uint8], n_bases: int, n_sequences: int, temperature: float, seed: int
) -> list[str]:
    """Generate sequences of ``n_bases`` after a prompt with ids ``[L]``, which is read once, after one N."""
    device, bases = network.embedding.weight.device, _Bases(network)
    ids = torch.tensor([[N, *prompt.tolist()]], device=device)
    options: dict[str, Any] = {"temperature": temperature, "generator": torch.Generator(device).manual_seed(seed)}
    if ids.shape[1] > 1:
        options["state"] = bases.read(ids[:, :-1]).select(torch.zeros(n_sequences, dtype=torch.long))
    last = ids[:, -1:].expand(n_sequences, -1)
    new = [token for token, _ in bases.stream(last, n_bases, **options)]
    return [decode(row) for row in torch.stack(new, dim=1).cpu().numpy()]
