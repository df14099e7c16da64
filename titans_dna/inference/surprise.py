"""Surprise of a language model at each base of a region, read as one stream."""

import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from titans_core import TitansLM
from titans_dna.genomes.genome import Genome
from titans_dna.genomes.intervals import Interval
from titans_dna.inference.memory_surprise import listening
from titans_dna.network.likelihood import log_probabilities, of_bases
from titans_dna.network.stream import PIECE, stream

__all__ = ["bits_of", "surprise_of"]


def bits_of(network: TitansLM, hidden: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Bits of each base, ``-log2 P``, float32 [B, P]; NaN where no base is known (at N, or after the end)."""
    return of_bases(log_probabilities(network, hidden), following, math.nan) / -math.log(2)


def surprise_of(
    network: TitansLM, genome: Genome, interval: Interval, memory: bool, piece: int = PIECE
) -> dict[str, NDArray[np.float32]]:
    """Surprise at each base, float32 [L], in the interval's direction: ``bits`` and, if requested, ``memory``."""
    found = {name: np.full(len(interval), math.nan, dtype=np.float32) for name in ("bits", *["memory"] * memory)}
    with listening(network) if memory else nullcontext() as recorded:
        for read in stream(network, genome, [interval], piece=piece):
            place = slice(read.first, read.first + read.tokens.shape[1])
            bits = bits_of(network, read.hidden, read.following)[0].cpu().numpy()
            found["bits"][place] = bits[: len(interval) - read.first]
            if recorded is not None:
                # memory surprise belongs to the token read at column j, which is base first + j - 1
                of = _mean(recorded, read.tokens.shape[1])
                skip = 1 if read.first == 0 else 0
                found["memory"][place.start - 1 + skip : place.stop - 1] = of[skip:]
    return found


def _mean(recorded: Any, tokens: int) -> NDArray[np.float32]:
    """Mean over memories and heads, [T]; clears ``recorded``."""
    each = [torch.cat(calls, dim=1)[0, -tokens:].mean(-1) for calls in recorded]
    for calls in recorded:
        calls.clear()
    return torch.stack(each).mean(0).cpu().numpy()
