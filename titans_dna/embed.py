"""A vector for each sequence: the mean of the last hidden states over its bases."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from titans_core import TitansLM
from titans_dna.genome import Genome
from titans_dna.intervals import Interval
from titans_dna.stream import stream

__all__ = ["embed"]


def embed(network: TitansLM, genome: Genome, intervals: Sequence[Interval], batch_size: int) -> NDArray[np.float32]:
    """Mean over the bases of each interval of what the output layer reads behind them, float32 [N, dim].

    Neither padding nor the N before the sequence is part of the mean. The mean is summed in float64.
    """
    sums = np.zeros((len(intervals), network.config.dim))
    for piece in stream(network, genome, intervals, batch_size=batch_size):
        # the token at column j is the base first + j - 1; it is real where first + j <= length
        lengths = np.array([len(intervals[i]) for i in piece.rows])
        position = piece.first + np.arange(piece.tokens.shape[1])
        real = (position >= 1) & (position <= lengths[:, None])
        hidden = piece.hidden.double().cpu().numpy()
        sums[piece.rows] += np.einsum("bp,bpd->bd", real, hidden)
    return (sums / np.array([[len(interval)] for interval in intervals])).astype(np.float32)
