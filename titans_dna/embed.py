"""A vector for each sequence: moments, over its bases, of the hidden states behind them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from titans_core import TitansLM
from titans_dna.genome import Genome
from titans_dna.intervals import Interval
from titans_dna.stream import hooked, stream

__all__ = ["LAYERS", "embed"]

LAYERS = ("last", "all")


def embed(
    network: TitansLM, genome: Genome, intervals: Sequence[Interval], batch_size: int, layers: str
) -> NDArray[np.float32]:
    """Of each interval the mean over its bases of what the output layer reads behind them, float32 [N, dim].

    With ``layers="all"`` of what every block puts out too, and behind the means the standard deviations: float32
    [N, 2 * (num_layers + 1) * dim]. Neither padding nor the N before the sequence counts. Sums are in float64.
    """
    blocks = list(network.blocks) if layers == "all" else []
    width = (len(blocks) + 1) * network.config.dim
    sums, squares = np.zeros((2, len(intervals), width))
    heard: dict[nn.Module, Tensor] = {}  # what each block last put out, in their order

    def hear(block: nn.Module, given: Any, out: Any) -> None:
        heard[block] = out[0]

    with hooked(blocks, hear):
        for piece in stream(network, genome, intervals, batch_size=batch_size):
            # the token at column j is the base first + j - 1; it is real where first + j <= length
            lengths = np.array([len(intervals[i]) for i in piece.rows])
            position = piece.first + np.arange(piece.tokens.shape[1])
            real = (position >= 1) & (position <= lengths[:, None])
            for layer, output in enumerate([*heard.values(), piece.hidden]):
                part = slice(layer * network.config.dim, (layer + 1) * network.config.dim)
                hidden = output.double().cpu().numpy()  # one layer at a time: of all, it would be large
                sums[piece.rows, part] += np.einsum("bp,bpd->bd", real, hidden)
                if blocks:
                    squares[piece.rows, part] += np.einsum("bp,bpd,bpd->bd", real, hidden, hidden)
    lengths = np.array([[len(interval)] for interval in intervals])
    mean = sums / lengths
    if not blocks:
        return mean.astype(np.float32)
    deviation = np.sqrt(np.maximum(squares / lengths - mean**2, 0))
    return np.concatenate((mean, deviation), axis=1).astype(np.float32)
