"""Embeddings of sequences: moments of the hidden states over their bases."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from titans_core import TitansLM
from titans_dna.genomes.genome import Genome
from titans_dna.genomes.intervals import Interval
from titans_dna.network.stream import hooked, stream

__all__ = ["LAYERS", "embed"]

LAYERS = ("last", "all")


def embed(
    network: TitansLM, genome: Genome, intervals: Sequence[Interval], batch_size: int, layers: str
) -> NDArray[np.float32]:
    """Mean over its bases of the input of the output layer, for each interval, float32 [N, dim].

    With ``layers="all"``, means of the outputs of all blocks as well, followed by the standard deviations: float32
    [N, 2 * (num_layers + 1) * dim]. Padding and the N before the sequence are excluded. Sums are in float64.
    """
    blocks = list(network.blocks) if layers == "all" else []
    width = (len(blocks) + 1) * network.config.dim
    sums, squares = np.zeros((2, len(intervals), width))
    outputs: dict[nn.Module, Tensor] = {}  # latest output of each block, in order

    def hear(block: nn.Module, given: Any, out: Any) -> None:
        outputs[block] = out[0]

    with hooked(blocks, hear):
        for piece in stream(network, genome, intervals, batch_size=batch_size):
            # column j has base first + j - 1, which exists if 1 <= first + j <= length
            lengths = np.array([len(intervals[i]) for i in piece.rows])
            position = piece.first + np.arange(piece.tokens.shape[1])
            real = (position >= 1) & (position <= lengths[:, None])
            for layer, output in enumerate([*outputs.values(), piece.hidden]):
                part = slice(layer * network.config.dim, (layer + 1) * network.config.dim)
                hidden = output.cpu().double().numpy()  # one layer at a time, to limit memory
                sums[piece.rows, part] += np.einsum("bp,bpd->bd", real, hidden)
                if blocks:
                    squares[piece.rows, part] += np.einsum("bp,bpd,bpd->bd", real, hidden, hidden)
    lengths = np.array([[len(interval)] for interval in intervals])
    mean = sums / lengths
    if not blocks:
        return mean.astype(np.float32)
    deviation = np.sqrt(np.maximum(squares / lengths - mean**2, 0))
    return np.concatenate((mean, deviation), axis=1).astype(np.float32)
