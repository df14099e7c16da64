"""Windows for pretraining: where they may lie, how they are sampled, and the batches made of them.

    regions (minus the holdout)  ->  tiles of ``length`` bases; those that are mostly unknown are left out
    one tile in twenty           ->  validation, read at its own position
    the others                   ->  training: each is shifted at random, without crossing a validation tile or a gap,
                                     and read on a random strand

Sampling depends only on the seed and the epoch, so a run resumed at an epoch continues exactly.
"""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from titans_core.train.batches import EpochBatches
from titans_dna.genomes.genome import Genome
from titans_dna.genomes.intervals import Interval
from titans_dna.genomes.sources import merged
from titans_dna.genomes.tokenizer import PAD, N, encode

__all__ = ["IGNORE", "Drawn", "Draws", "Tiles", "Windows", "batch_of", "loaders", "plan"]

IGNORE = -100
# one tile in 20 is for validation, at most 256
_VALIDATION, _MOST_VALIDATION = 20, 256
# tiles with a larger fraction of N are left out
_MAX_N = 0.5

Drawn = tuple[int, int, bool]  # tile, shift in bases, whether the other strand is read


@dataclass(frozen=True, eq=False)
class Tiles:
    """Positions of windows.

    Attributes:
        chroms: chromosome names, indexed by ``chrom``.
        chrom, start, end: chromosome and 0-based half-open position of each tile, int64 [n].
        low, high: limits for shifting each tile, int64 [n].
        digest: fingerprint of the sequence of all tiles of the plan.
    """

    chroms: tuple[str, ...]
    chrom: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    digest: str

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: NDArray[np.int64]) -> "Tiles":
        """Select tiles by index."""
        parts = {name: getattr(self, name)[rows] for name in ("chrom", "start", "end", "low", "high")}
        return replace(self, **parts)

    def intervals(self) -> list[Interval]:
        """The tiles as intervals on strand ``"+"``."""
        places = zip(self.chrom.tolist(), self.start.tolist(), self.end.tolist(), strict=True)
        return [Interval(self.chroms[chrom], start, end, "+") for chrom, start, end in places]

    @property
    def names(self) -> set[str]:
        """Names of the chromosomes that have tiles."""
        return {self.chroms[number] for number in np.unique(self.chrom)}

    @property
    def bases(self) -> int:
        """Number of bases in all tiles."""
        return int((self.end - self.start).sum())


def plan(
    genome: Genome, length: int, regions: Sequence[Interval] | None, holdout: Sequence[str]
) -> tuple[Tiles, Tiles]:
    """Choose tiles for training and for validation, reading the sequence once, window by window.

    A single tile is used for training; there is then no validation.

    Raises:
        ValueError: a chromosome is unknown; a region ends beyond its chromosome; a letter is not a base; or nothing is
            left to train on.
    """
    walked = None if regions is None else merged(genome.regions(None, holdout, regions))
    names = {name: i for i, name in enumerate(genome.lengths)}
    digest = hashlib.sha256()
    places = array("q")
    for place, sequence in genome.windows(length, holdout=holdout, regions=walked):
        ids = encode(sequence, where=f"{place.chrom} of {genome.path.name}", start=place.start)
        if np.count_nonzero(ids == N) <= _MAX_N * len(ids):
            digest.update(f"{place.chrom}:{place.start}:{sequence.upper()};".encode())
            places.extend((names[place.chrom], place.start, place.end))
    if not places:
        raise ValueError(f"{genome.path.name}: every window is more than half unknown (N); nothing to train on.")
    chrom, start, end = np.array(places, dtype=np.int64).reshape(-1, 3).T
    total = len(start)
    held = np.zeros(total, dtype=bool)
    count = min(max(1, total // _VALIDATION), _MOST_VALIDATION) if total > 1 else 0
    held[((np.arange(count) + 0.5) * total / max(count, 1)).astype(np.int64)] = True
    # a stretch ends if the next tile is not adjacent, or if one of the two is for validation
    cut = (chrom[1:] != chrom[:-1]) | (start[1:] != end[:-1]) | held[1:] | held[:-1]
    stretch = np.concatenate(([0], np.cumsum(cut)))
    firsts = np.flatnonzero(np.concatenate(([True], cut)))
    lasts = np.append(firsts[1:], total) - 1
    tiles = Tiles(
        tuple(genome.lengths), chrom, start, end, start[firsts][stretch], end[lasts][stretch], digest.hexdigest()
    )
    return tiles.take(np.flatnonzero(~held)), tiles.take(np.flatnonzero(held))


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Data set of batches, each requested by a list of :data:`Drawn` and read from the genome on demand."""

    def __init__(self, genome: Genome, tiles: Tiles, length: int) -> None:
        self.genome, self.tiles, self.length = genome, tiles, length

    def place(self, drawn: Drawn) -> Interval:
        """Position of a drawn window: ``length`` bases, or the whole stretch if that is shorter."""
        tile, shift, flipped = drawn
        t = self.tiles
        low, high = int(t.low[tile]), int(t.high[tile])
        end = min(max(int(t.start[tile]) + shift, low) + self.length, high)
        start = max(end - self.length, low)
        return Interval(t.chroms[t.chrom[tile]], start, end, "-" if flipped else "+")

    def __getitem__(self, batch: list[Drawn]) -> tuple[Tensor, Tensor]:
        return batch_of([self.genome.ids(self.place(drawn)) for drawn in batch])


def batch_of(sequences: Sequence[NDArray[np.uint8]]) -> tuple[Tensor, Tensor]:
    """Make input tokens and target bases, int64 [B, T], placing an N before each sequence.

    Targets are :data:`IGNORE` where the next base is unknown or missing.
    """
    T = max(map(len, sequences))
    tokens = np.full((len(sequences), T), PAD, dtype=np.int64)
    targets = np.full((len(sequences), T), IGNORE, dtype=np.int64)
    tokens[:, 0] = N
    for i, ids in enumerate(sequences):
        tokens[i, 1 : len(ids)] = ids[:-1]
        targets[i, : len(ids)] = np.where(ids < N, ids.astype(np.int64), IGNORE)
    return torch.from_numpy(tokens), torch.from_numpy(targets)


class Draws(EpochBatches[Drawn]):
    """Sampler of batches of windows: ``batches`` random ones per epoch, or all tiles in order with ``seed=None``.

    An epoch visits all tiles in random order, repeatedly if there are few.
    """

    def __init__(self, tiles: int, length: int, batch_size: int, batches: int | None = None, seed: int | None = None):
        super().__init__(-(-tiles // batch_size) if batches is None else batches, seed)
        self.tiles, self.length, self.batch_size = tiles, length, batch_size

    def _order(self) -> Iterator[list[Drawn]]:
        drawn = self._drawn()
        return (drawn[i : i + self.batch_size] for i in range(0, len(drawn), self.batch_size))

    def _drawn(self) -> list[Drawn]:
        if self.seed is None:
            return [(i, 0, False) for i in range(self.tiles)]
        rng = np.random.default_rng((self.seed, self.epoch))
        n = self.batches * self.batch_size
        orders = [rng.permutation(self.tiles) for _ in range(-(-n // self.tiles))]
        order = np.concatenate(orders)[:n].tolist()
        # in both directions; otherwise the first bases of a stretch would hardly ever be drawn
        half = self.length // 2
        shifts, flips = rng.integers(-half, self.length - half, n).tolist(), (rng.random(n) < 0.5).tolist()
        return list(zip(order, shifts, flips, strict=True))


def loaders(
    genome: Genome, parts: tuple[Tiles, Tiles], length: int, batch_size: int, batches: int, seed: int
) -> tuple[DataLoader, DataLoader | None]:
    """Data loaders for training and, if there are validation tiles, for validation (else None)."""
    train, val = parts
    # ``batch_size=None``: an item of the data set is already a batch
    draws = Draws(len(train), length, batch_size, batches, seed)
    training = DataLoader(Windows(genome, train, length), batch_size=None, sampler=draws)
    if not len(val):
        return training, None
    held = Draws(len(val), length, batch_size)
    return training, DataLoader(Windows(genome, val, length), batch_size=None, sampler=held)
