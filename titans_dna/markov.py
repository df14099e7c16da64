"""Order-k Markov models: a fast baseline for genome language models.

    additive       P(x | k bases before) = (c(x) + a) / (n + 4 a)
    interpolated   P_k(x)                = (c(x) + t P_k-1(x)) / (n + t)      t: in units of counts, P_-1 = 1/4

``c`` are counts over both strands of the training sequence, and ``n`` is their sum over the four bases. ``a`` and ``t``
are chosen for each order on a validation part (one part in twenty), which is added to the counts afterwards. The
interpolated model backs off to shorter contexts where counts are low; it is MacKay and Peto's hierarchical Dirichlet
model with one strength per order. A base with fewer than k known bases before it (at the start of a sequence, or after
an N) is predicted from the known ones.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from titans_dna.genomes.genome import Genome
from titans_dna.genomes.intervals import Interval
from titans_dna.genomes.sources import intervals_of, merged, open_source, part_of, read_regions
from titans_dna.genomes.tokenizer import N

__all__ = ["MarkovModels", "fit_markov"]

MOST = 12
# candidate values of ``a`` and ``t``
_STRENGTHS = tuple(float(x) for x in np.geomspace(1e-3, 1e3, 19))
_BLOCK, _PART, _VALIDATION_EVERY = 1 << 20, 1 << 10, 20
_JOINED = 1 << 16
# regions of at most this many bases are counted together
SHORT = 1 << 12
# approximate number of validation bases
_ENOUGH = 1 << 18
# from this order on, 32 bits are enough for a count
_LONG_WORDS = 10

Counts = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, eq=False, repr=False)
class MarkovModels:
    """All Markov models of orders 0 to ``order``.

    Attributes:
        counts: for each order k, integers [4^k, 4]: how often each base follows each context. The row of a context is
            its number to base 4 (A 0, C 1, G 2, T 3), with the nearest base as the last digit.
        additive: ``a`` of each order.
        interpolated: ``t`` of each order.
    """

    counts: tuple[Counts, ...]
    additive: tuple[float, ...]
    interpolated: tuple[float, ...]

    def __repr__(self) -> str:
        return f"MarkovModels(orders 0 to {self.order})"

    @property
    def order(self) -> int:
        return len(self.counts) - 1

    def bits_per_base(
        self,
        source: Any,
        *,
        chroms: Iterable[str] | None = None,
        regions: Any = None,
    ) -> pd.DataFrame:
        """Compute the mean bits per known base: a DataFrame with the columns ``order, additive, interpolated``.

        Args:
            source: path of a FASTA file, a Genome, or a list of sequences.
            chroms: names of the chromosomes to score. Default: all.
            regions: intervals (or a BED file) to score instead of whole chromosomes. Each is read separately, so bases
                in two regions count twice.

        Raises:
            ValueError: a chromosome is unknown, or there is no known base.
        """
        genome = open_source(source)
        total = np.zeros((self.order + 1, 2))
        bases = 0
        for ids, fresh in _blocks(genome, intervals_of(genome, chroms, regions), self.order):
            bits, n = _bits(ids, fresh, self.counts, self.additive, self.interpolated)
            total += bits
            bases += n
        if bases == 0:
            raise ValueError(f"{genome.path.name} has no known base (A, C, G or T) to score; check the selection.")
        mean = total / bases
        return pd.DataFrame({"order": range(self.order + 1), "additive": mean[:, 0], "interpolated": mean[:, 1]})

    def probabilities(
        self, ids: NDArray[np.uint8], orders: Collection[int]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Interpolated P(A, C, G, T) for each base of a sequence, [L, orders, 4], and context counts, [L].

        A context count is how often the context of the highest order occurred in training; 0 if the context has an
        unknown base.
        """
        code, known = _contexts(ids, self.order)
        found: list[NDArray[np.float64]] = []
        mixed: Any = np.full((len(ids), 4), 0.25)
        for k, table in enumerate(self.counts):
            rows = table[code & (4**k - 1)]
            seen, usable = rows.sum(axis=1, dtype=np.int64), known >= k
            mixed = np.where(usable[:, None], _mixed(rows, seen[:, None], mixed, self.interpolated[k]), mixed)
            if k in orders:
                found.append(mixed)
        return np.stack(found, axis=1), np.where(usable, seen, 0)


def fit_markov(
    source: Any,
    order: int = MOST,
    *,
    bed: Any = None,
    holdout: Iterable[str] | None = None,
) -> MarkovModels:
    """Fit Markov models: count both strands, and choose the strengths.

    Args:
        source: path of a FASTA file, a Genome, or a list of sequences.
        order: highest order, 0 to 12. Memory use is 21 * 4^order bytes (360 MB for 12).
        bed: restrict counting to these regions.
        holdout: names of the chromosomes to exclude.

    Raises:
        ValueError: the order is out of range; a chromosome is unknown; or nothing is left to count.
    """
    if isinstance(order, bool) or not isinstance(order, int | np.integer) or not 0 <= order <= MOST:
        raise ValueError(f"order must be an integer from 0 to {MOST}, got {order!r}.")
    genome, given = open_source(source), read_regions(bed)
    regions = genome.regions(None, holdout, given)
    if given is not None:
        regions = merged(regions)
    top = np.zeros((4**order, 4), dtype=_integers(order))
    kept: list[tuple[NDArray[np.uint8], int]] = []
    # small enough that some parts are for validation
    size = min(_PART, max(1, sum(map(len, regions)) // (2 * _VALIDATION_EVERY)))
    position = 0
    for ids, fresh in _blocks(genome, regions, order):
        part = (position + np.arange(len(ids) - fresh)) // size
        position += len(part)
        held = np.concatenate((np.zeros(fresh, dtype=bool), part % _VALIDATION_EVERY == _VALIDATION_EVERY // 2))
        _count(ids, fresh, ~held, top)
        # keep each validation part with the bases before it, and their number
        edges = np.flatnonzero(np.diff(held, prepend=False, append=False)).reshape(-1, 2).tolist()
        kept += [(ids[max(0, start - order) : end], min(start, order)) for start, end in edges]
    if not top.any():
        raise ValueError(f"{genome.path.name} has no base with {order} known bases before it to count; lower order.")
    tables = all_orders(top)
    spread = kept[:: max(1, sum(len(ids) for ids, _ in kept) // _ENOUGH)]
    additive, interpolated = _strengths(spread, tables) if kept else ((1.0,) * (order + 1),) * 2
    for ids, _ in kept:
        _count(ids, 0, np.ones(len(ids), dtype=bool), top)
    return MarkovModels(all_orders(top) if kept else tables, additive, interpolated)


def _blocks(genome: Genome, regions: Sequence[Interval], order: int) -> Iterator[tuple[NDArray[np.uint8], int]]:
    """Yield ids of the regions in blocks, each preceded by up to ``order`` earlier ids, and the number of those.

    Short regions, which may be very many, are joined into one block, separated by N.
    """
    for short, some in groupby(regions, key=lambda region: len(region) <= SHORT):
        if short:
            yield from ((ids, 0) for ids in _joined(genome.ids(region) for region in some))
            continue
        for region in some:
            tail = np.empty(0, dtype=np.uint8)
            for first in range(0, len(region), _BLOCK):
                ids = genome.ids(part_of(region, first, min(first + _BLOCK, len(region))))
                yield np.concatenate((tail, ids)), len(tail)
                tail = np.concatenate((tail, ids))[max(0, len(tail) + len(ids) - order) :]


def _joined(sequences: Iterable[NDArray[np.uint8]]) -> Iterator[NDArray[np.uint8]]:
    parts, size = list[NDArray[np.uint8]](), 0
    for ids in sequences:
        parts += [np.array([N], dtype=np.uint8), ids]
        size += len(ids)
        if size > _JOINED:
            yield np.concatenate(parts[1:])
            parts, size = [], 0
    if parts:
        yield np.concatenate(parts[1:])


def _contexts(ids: NDArray[np.uint8], order: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """For each base, its ``order`` previous bases as a number to base 4, and how many of them are known."""
    n = len(ids)
    digits = np.where(ids < N, ids, 0).astype(np.int32)
    code = np.zeros(n, dtype=np.int32)  # times 4, as an index into a table, it still fits in 32 bits
    for lag in range(1, min(order, n - 1) + 1):
        code[lag:] += digits[:-lag] << 2 * (lag - 1)
    at = np.arange(n)
    unknown = np.maximum.accumulate(np.where(ids < N, -1, at))
    before = np.concatenate(([-1], unknown[:-1])) if n else unknown
    return code, np.minimum(at - before - 1, order)


def _count(ids: NDArray[np.uint8], fresh: int, wanted: NDArray[np.bool_], top: Counts) -> None:
    """Count the words of ``order + 1`` bases that end at ``wanted`` positions, from ``fresh`` on, on both strands."""
    order = _order(top)
    code, known = _contexts(ids, order)
    use = (ids < N) & (known == order) & wanted
    use[:fresh] = False
    # the reverse complement of a word
    digits = 3 - np.where(ids < N, ids, 0).astype(np.int32)
    other = digits << 2 * order
    for lag in range(1, min(order, len(ids) - 1) + 1):
        other[lag:] += digits[:-lag] << 2 * (order - lag)
    flat = top.reshape(-1)
    np.add.at(flat, code[use] * 4 + ids[use], 1)
    np.add.at(flat, other[use], 1)


def all_orders(top: Counts) -> tuple[Counts, ...]:
    """Counts of all orders: each is the sum of the next higher over its farthest base, the leading digit."""
    tables = [top]
    for order in reversed(range(_order(top))):
        tables.insert(0, tables[0].reshape(4, -1, 4).sum(axis=0, dtype=_integers(order)))
    return tuple(tables)


def _order(table: Counts) -> int:
    return (len(table).bit_length() - 1) // 2


def _integers(order: int) -> type[np.signedinteger[Any]]:
    """Integer type for counts: counts of short words may exceed 32 bits."""
    return np.int64 if order < _LONG_WORDS else np.int32


def _lookups(
    ids: NDArray[np.uint8], wanted: NDArray[np.bool_], tables: Sequence[Counts]
) -> Iterator[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """Yield, for each order and the known ``wanted`` bases: counts of the base and of its context, and if that is
    known."""
    order = len(tables) - 1
    code, known = _contexts(ids, order)
    scored = (ids < N) & wanted
    code, known, base = code[scored], known[scored], ids[scored]
    for k, table in enumerate(tables):
        rows = table[code & (4**k - 1)]
        yield rows[np.arange(len(base)), base].astype(np.float64), rows.sum(axis=1, dtype=np.float64), known >= k


def _bits(
    ids: NDArray[np.uint8],
    fresh: int,
    tables: Sequence[Counts],
    additive: Sequence[float],
    interpolated: Sequence[float],
) -> tuple[NDArray[np.float64], int]:
    """Sums of bits [orders, 2] over the known bases of a block, and the number of these bases."""
    bits = np.zeros((len(tables), 2))
    plain: Any = 0.25
    mixed: Any = 0.25
    n = 0
    for k, (c, of, known) in enumerate(_lookups(ids, np.arange(len(ids)) >= fresh, tables)):
        plain = np.where(known, _additive(c, of, additive[k]), plain)
        mixed = np.where(known, _mixed(c, of, mixed, interpolated[k]), mixed)
        bits[k] = -np.log2(plain).sum(), -np.log2(mixed).sum()
        n = len(c)
    return bits, n


def _strengths(
    parts: Sequence[tuple[NDArray[np.uint8], int]], tables: Sequence[Counts]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Strengths that minimise the bits on ``parts``, chosen order by order, from the lowest; of equals, the largest.

    A part is ids, and the number of those at its begin that are only the context of the others.
    """
    ids = np.concatenate([x for part, _ in parts for x in (part, np.array([N], dtype=np.uint8))])
    wanted = np.concatenate([np.arange(len(part) + 1) >= lead for part, lead in parts])
    choices = _STRENGTHS[::-1]
    additive, interpolated = [], []
    mixed: Any = 0.25
    for c, of, known in _lookups(ids, wanted, tables):
        additive.append(min(choices, key=lambda a: -np.log2(_additive(c, of, a)[known]).sum()))
        best = min(choices, key=lambda t: -np.log2(_mixed(c, of, mixed, t)[known]).sum())
        mixed = np.where(known, _mixed(c, of, mixed, best), mixed)
        interpolated.append(best)
    return tuple(additive), tuple(interpolated)


def _additive(c: NDArray[Any], of: NDArray[Any], strength: float) -> NDArray[Any]:
    return (c + strength) / (of + 4 * strength)


def _mixed(c: NDArray[Any], of: NDArray[Any], lower: Any, strength: float) -> NDArray[Any]:
    return (c + strength * lower) / (of + strength)
