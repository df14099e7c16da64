"""Windows for pretraining: where they may lie, which are drawn in an epoch, and what the network is given of them.

    regions (minus the holdout)  ->  tiles of ``length`` bases; those that are mostly unknown are left out
    one tile in twenty           ->  validation, read as it lies
    the others                   ->  training: each is shifted at random, within the stretch between two validation
                                     tiles, and read on a random strand

What is drawn in an epoch depends on the seed and the epoch alone, so that a run resumed at an epoch is the same run.
"""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from titans_core.train.processes import processes
from titans_dna.genome import Genome
from titans_dna.intervals import Interval
from titans_dna.sources import merged
from titans_dna.tokenizer import PAD, N, encode

__all__ = ["IGNORE", "Drawn", "Draws", "Tiles", "Windows", "batch_of", "loaders", "plan"]

IGNORE = -100
# one tile in so many is for validation, up to so many tiles
_VALIDATION, _MOST_VALIDATION = 20, 256
# a tile with a larger part of letters other than A C G T is left out
_MAX_N = 0.5

Drawn = tuple[int, int, bool]  # tile, shift in bases, whether the other strand is read


@dataclass(frozen=True, eq=False)
class Tiles:
    """Places of windows.

    Attributes:
        chroms: names, by the number in ``chrom``.
        chrom, start, end: of each tile, int64 [n]; 0-based half-open.
        low, high: the stretch in which a tile may be shifted, int64 [n].
        digest: of the sequence of all tiles, a fingerprint of the data.
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
        """Some of them."""
        parts = {name: getattr(self, name)[rows] for name in ("chrom", "start", "end", "low", "high")}
        return replace(self, **parts)

    def intervals(self) -> list[Interval]:
        """The tiles as they lie, on strand ``"+"``."""
        places = zip(self.chrom.tolist(), self.start.tolist(), self.end.tolist(), strict=True)
        return [Interval(self.chroms[chrom], start, end, "+") for chrom, start, end in places]

    @property
    def names(self) -> set[str]:
        """Chromosomes that tiles lie on."""
        return {self.chroms[number] for number in np.unique(self.chrom)}

    @property
    def bases(self) -> int:
        """Bases in all tiles."""
        return int((self.end - self.start).sum())


def plan(
    genome: Genome, length: int, regions: Sequence[Interval] | None, holdout: Sequence[str]
) -> tuple[Tiles, Tiles]:
    """Tiles for training and for validation. The sequence is read once, one window at a time.

    Of a source with a single tile nothing is kept for validation.

    Raises:
        ValueError: an unknown chromosome, a region off its end, a letter that is no base, or nothing left to train on.
    """
    walked = None if regions is None else merged(regions)
    names = {name: i for i, name in enumerate(genome.lengths)}
    digest = hashlib.sha256()
    places = array("q")
    for place, sequence in genome.windows(length, holdout=holdout, regions=walked):
        ids = encode(sequence, where=f"{place.chrom} of {genome.path.name}", start=place.start)
        if np.count_nonzero(ids == N) <= _MAX_N * len(ids):
            digest.update(f"{place.chrom}:{place.start}:{sequence.upper()};".encode())
            places.extend((names[place.chrom], place.start, place.end))
    if not places:
        raise ValueError(f"{genome.path.name}: more than half of every window is unknown (N); nothing to train on.")
    chrom, start, end = np.array(places, dtype=np.int64).reshape(-1, 3).T
    total = len(start)
    held = np.zeros(total, dtype=bool)
    count = min(max(1, total // _VALIDATION), _MOST_VALIDATION) if total > 1 else 0
    held[((np.arange(count) + 0.5) * total / max(count, 1)).astype(np.int64)] = True
    # a stretch ends where the next tile is not adjacent, or is of the other part
    cut = (chrom[1:] != chrom[:-1]) | (start[1:] != end[:-1]) | held[1:] | held[:-1]
    stretch = np.concatenate(([0], np.cumsum(cut)))
    firsts = np.flatnonzero(np.concatenate(([True], cut)))
    lasts = np.append(firsts[1:], total) - 1
    tiles = Tiles(
        tuple(genome.lengths), chrom, start, end, start[firsts][stretch], end[lasts][stretch], digest.hexdigest()
    )
    return tiles.take(np.flatnonzero(~held)), tiles.take(np.flatnonzero(held))


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Batches cut from a genome as they are asked for, by a list of :data:`Drawn`."""

    def __init__(self, genome: Genome, tiles: Tiles, length: int) -> None:
        self.genome, self.tiles, self.length = genome, tiles, length

    def place(self, drawn: Drawn) -> Interval:
        """Where a drawn window lies: ``length`` bases, or all of a stretch that is shorter."""
        tile, shift, flipped = drawn
        t = self.tiles
        low, high = int(t.low[tile]), int(t.high[tile])
        end = min(max(int(t.start[tile]) + shift, low) + self.length, high)
        start = max(end - self.length, low)
        return Interval(t.chroms[t.chrom[tile]], start, end, "-" if flipped else "+")

    def __getitem__(self, batch: list[Drawn]) -> tuple[Tensor, Tensor]:
        return batch_of([self.genome.ids(self.place(drawn)) for drawn in batch])


def batch_of(sequences: Sequence[NDArray[np.uint8]]) -> tuple[Tensor, Tensor]:
    """Tokens to read and the bases that follow them, int64 [B, T]: each sequence is read behind one N.

    Where no base is known to follow, the target is :data:`IGNORE`.
    """
    T = max(map(len, sequences))
    tokens = np.full((len(sequences), T), PAD, dtype=np.int64)
    targets = np.full((len(sequences), T), IGNORE, dtype=np.int64)
    tokens[:, 0] = N
    for i, ids in enumerate(sequences):
        tokens[i, 1 : len(ids)] = ids[:-1]
        targets[i, : len(ids)] = np.where(ids < N, ids.astype(np.int64), IGNORE)
    return torch.from_numpy(tokens), torch.from_numpy(targets)


class Draws(Sampler[list[Drawn]]):
    """Batches of windows: ``batches`` of them, drawn anew in each epoch; or with ``seed=None`` every tile in order.

    An epoch goes through all tiles in random order, again and again where they are few. Lightning calls
    :meth:`set_epoch`. Of several processes that train together each has its part of every batch.
    """

    def __init__(self, tiles: int, length: int, batch_size: int, batches: int | None = None, seed: int | None = None):
        self.tiles, self.length, self.batch_size, self.seed, self.epoch = tiles, length, batch_size, seed, 0
        self.batches = -(-tiles // batch_size) if batches is None else batches

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[Drawn]]:
        # a generator, so that the epoch is looked up at the first batch: a resumed run sets it after asking for this
        drawn = self._drawn()
        rank, world = processes()
        for i in range(self.batches):
            batch = drawn[i * self.batch_size : (i + 1) * self.batch_size]
            yield batch[rank::world] if len(batch) >= world else batch

    def _drawn(self) -> list[Drawn]:
        if self.seed is None:
            return [(i, 0, False) for i in range(self.tiles)]
        rng = np.random.default_rng((self.seed, self.epoch))
        n = self.batches * self.batch_size
        orders = [rng.permutation(self.tiles) for _ in range(-(-n // self.tiles))]
        order = np.concatenate(orders)[:n].tolist()
        # to both sides: else the first base of a stretch would hardly ever be drawn
        half = self.length // 2
        shifts, flips = rng.integers(-half, self.length - half, n).tolist(), (rng.random(n) < 0.5).tolist()
        return list(zip(order, shifts, flips, strict=True))


def loaders(
    genome: Genome, parts: tuple[Tiles, Tiles], length: int, batch_size: int, batches: int, seed: int
) -> tuple[DataLoader, DataLoader | None]:
    """Batches for training and, where there are tiles for it, for validation."""
    train, val = parts
    # a list of windows is one item: a batch is cut out by one call
    draws = Draws(len(train), length, batch_size, batches, seed)
    training = DataLoader(Windows(genome, train, length), batch_size=None, sampler=draws)
    if not len(val):
        return training, None
    held = Draws(len(val), length, batch_size)
    return training, DataLoader(Windows(genome, val, length), batch_size=None, sampler=held)
