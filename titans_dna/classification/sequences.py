"""Input of the classifier: sequences from all kinds of sources, and batches of them."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from titans_dna.genomes.genome import Genome
from titans_dna.genomes.intervals import Interval
from titans_dna.genomes.sources import is_pair, is_source, open_source, read_regions, records, refuse_unordered
from titans_dna.genomes.tokenizer import PAD, encode_all

__all__ = ["Examples", "Reads", "read_sequences", "reads_of"]


def read_sequences(
    fasta: str | os.PathLike[str] | Genome, bed: str | os.PathLike[str] | Iterable[Interval] | None = None
) -> list[str]:
    """Read sequences as strings: all records of a FASTA file, or the intervals of ``bed`` on their strands.

    Unlike a path, the returned list can be split by ``cross_validate`` and ``GridSearchCV``.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is not a valid FASTA or BED file, or an interval ends beyond its chromosome.
    """
    return _named(fasta, bed)[0]


def _named(fasta: Any, bed: Any = None) -> tuple[list[str], list[str]]:
    """The sequences of :func:`read_sequences`, and their names for error messages."""
    genome = open_source(fasta)
    regions = read_regions(bed)
    if regions is None:
        regions, called = records(genome), "{chrom}"
    else:
        called = "{chrom}:{start}-{end}"
    names = [f"{called.format(chrom=r.chrom, start=r.start, end=r.end)} of {genome.path.name}" for r in regions]
    return [genome.fetch(region) for region in regions], names


@dataclass(frozen=True)
class Reads:
    """Encoded sequences, concatenated.

    Attributes:
        ids: ids of :mod:`titans_dna.genomes.tokenizer`, uint8 [total number of bases].
        ends: end of each sequence in ``ids``, exclusive, int64 [n].
    """

    ids: NDArray[np.uint8]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.ends, prepend=0)

    def batch(self, rows: NDArray[np.int64]) -> Tensor:
        """Ids ``[B, T]`` of the given sequences, padded on the right to the longest of them."""
        pieces = [torch.from_numpy(self.ids[(self.ends[i - 1] if i else 0) : self.ends[i]]) for i in rows]
        return torch.nn.utils.rnn.pad_sequence(pieces, batch_first=True, padding_value=PAD).long()


def reads_of(X: Any) -> Reads:
    """Encode sequences given in any form that the classifier accepts.

    Args:
        X: a list, array (``[n]`` or ``[n, 1]``) or Series of strings; a frame with one column; a FASTA file or a
            Genome; or a pair of intervals (BED file or list of Interval) and their FASTA file.

    Raises:
        TypeError, ValueError: X is something else or empty, a sequence is empty, or a letter is unknown; the message
            says where.
    """
    refuse_unordered(X)
    if isinstance(X, str | bytes) and not is_source(X):
        raise TypeError(
            f"X is a string ({X!r:.40}); give a list of sequences, or the path of a FASTA file with its suffix."
        )
    names = None
    if is_source(X):
        X, names = _named(X)
    elif is_pair(X):
        X, names = _named(X[1], X[0])
    elif hasattr(X, "ndim") or hasattr(X, "__array__"):  # polars frames only have the latter
        values = np.asarray(X)
        if values.ndim == 0 or values.ndim > 2 or (values.ndim == 2 and values.shape[1] != 1):
            raise ValueError(
                f"X must have shape [n] or [n, 1], got shape {values.shape}. Reshape your data: select the column of "
                "sequences, df['sequence'], or join single letters, [''.join(row) for row in X]."
            )
        X = values.reshape(-1).tolist()
    elif not isinstance(X, Iterable):
        raise TypeError(f"X must be a list of sequences or the path of a FASTA file, got {type(X).__name__}.")
    sequences = list(X)
    if any(isinstance(sequence, Interval) for sequence in sequences):
        raise TypeError("X contains intervals: give them together with their FASTA file, (intervals, 'genome.fa').")
    ids, lengths = encode_all(sequences, names=names)
    return Reads(ids, np.cumsum(lengths))


class Examples(Dataset):
    """Data set that returns batches ``(ids [B, T], label [B], weight [B])`` for lists of rows."""

    def __init__(
        self, reads: Reads, labels: NDArray[np.int64], weights: NDArray[np.float64], rows: NDArray[np.int64]
    ) -> None:
        self.reads, self.rows = reads, rows
        self.labels, self.weights = torch.from_numpy(labels), torch.from_numpy(weights).float()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> Tensor:
        """Length of each sequence in bases, int64 ``[n]``."""
        return torch.from_numpy(self.reads.lengths[self.rows])

    def __getitem__(self, places: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        rows = self.rows[places]
        return self.reads.batch(rows), self.labels[rows], self.weights[rows]
