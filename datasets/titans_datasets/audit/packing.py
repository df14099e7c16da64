"""k-mers as machine words, 2 bits per base, equal for both strands, in sorted order."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from titans_datasets.strands import reverse_complement

__all__ = ["MAX_K", "Words", "sorted_kmers", "whole_sequences"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Words = NDArray[np.uint64]

MAX_K = 64  # two words of 32 bases
_BATCH = 1 << 22  # letters packed at a time
_BUCKET = 1 << 24  # k-mers sorted at a time, using about 1 GB
_INVALID = 4  # code of a letter other than A C G T

_CODES = np.full(256, _INVALID, dtype=np.uint8)
for _code, _letters_of in enumerate(("Aa", "Cc", "Gg", "TtUu")):
    _CODES[[ord(_letter) for _letter in _letters_of]] = _code


def sorted_kmers(sequences: Sequence[str], k: int) -> Iterator[tuple[Words, Words, NDArray[np.int32]]]:
    """Canonical k-mers as two words with the row of their sequence, ordered so that equal k-mers are adjacent.

    Memory is bounded to about 1 GB: if there are very many k-mers, they are split into buckets by hash, and packed
    again for each bucket.
    """
    total = sum(max(len(s) - k + 1, 0) for s in sequences)
    n_buckets = -(-total // _BUCKET)
    for bucket in range(n_buckets):
        parts = []
        for codes, owner in _letters(sequences, k):
            high, low = _canonical(codes, k)
            mix, keep = _mix(high, low), _known(codes, k)
            if n_buckets > 1:
                keep &= mix % np.uint64(n_buckets) == bucket
            parts.append((mix[keep], high[keep], low[keep], owner[: len(keep)][keep]))
        mixes, highs, lows, owners = (np.concatenate(column) for column in zip(*parts, strict=True))
        del parts
        order = np.argsort(mixes)
        yield highs[order], lows[order], owners[order]


def whole_sequences(sequences: Sequence[str], k: int) -> tuple[Ints, NDArray[np.int32]]:
    """Sequences without any k-mer: a number that is the same for equal ones, and their row.

    Equality ignores strand and case. Equal sequences are adjacent.
    """
    holds = np.zeros(len(sequences), dtype=bool)
    for codes, owner in _letters(sequences, k):
        known = _known(codes, k)
        holds[owner[: len(known)][known]] = True
    rows = np.flatnonzero(~holds).astype(np.int32)
    texts = [sequences[row].upper().replace("U", "T") for row in rows.tolist()]
    # not np.unique: its array of texts gives each the room of the longest
    seen = dict[str, int]()
    numbers = np.array(
        [seen.setdefault(min(text, reverse_complement(text)), len(seen)) for text in texts], dtype=np.int64
    )
    order = np.argsort(numbers, kind="stable")
    return numbers[order], rows[order]


def _letters(sequences: Sequence[str], k: int) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int32]]]:
    """Batches of sequences joined by a separator: codes [L], and the row of each.

    A long sequence is cut into overlapping pieces, so that each of its k-mers is in one of them.
    """
    texts, rows, size = list[str](), list[int](), 0
    for row, sequence in enumerate(sequences):
        for first in range(0, max(1, len(sequence) - k + 1), _BATCH):
            piece = sequence[first : first + _BATCH + k - 1]
            if texts and size + len(piece) > _BATCH:
                yield _joined(texts, rows)
                texts, rows, size = [], [], 0
            texts.append(piece)
            rows.append(row)
            size += len(piece) + 1
    if texts:
        yield _joined(texts, rows)


def _joined(texts: list[str], rows: list[int]) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    letters = "\n".join([*texts, ""]).encode("ascii", errors="replace")
    owner = np.repeat(np.array(rows, dtype=np.int32), [len(text) + 1 for text in texts])
    return _CODES[np.frombuffer(letters, dtype=np.uint8)], owner


def _known(codes: NDArray[np.uint8], k: int) -> Mask:
    """Which k-mers have only A C G T. One across the end of a sequence contains the separator, so it does not count."""
    bad = np.concatenate([[0], np.cumsum(codes == _INVALID, dtype=np.int64)])
    return bad[k:] == bad[:-k]


def _canonical(codes: NDArray[np.uint8], k: int) -> tuple[Words, Words]:
    """The smaller of each k-mer and its reverse complement: high word, low word."""
    n = len(codes) - k + 1
    if n < 1:
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    bases = (codes & 3).astype(np.uint64)
    front, back = k - k // 2, k // 2
    forward, backward = _packed(bases, front), _packed(bases, front, reverse=True)
    high, low = forward[:n], _packed(bases, back)[front : front + n]
    other_high, other_low = backward[back : back + n], _packed(bases, back, reverse=True)[:n]
    smaller = (other_high < high) | ((other_high == high) & (other_low < low))
    return np.where(smaller, other_high, high), np.where(smaller, other_low, low)


def _packed(bases: Words, width: int, *, reverse: bool = False) -> Words:
    """[L] bases to [L - width + 1] words of ``width`` bases (0 to 32) each, or of their reverse complements.

    Words of 1, 2, 4, ... bases are combined from two of half the width, and then put together to ``width``.
    """
    # complement: A 0 - T 3, C 1 - G 2
    piece, size = (np.uint64(3) - bases if reverse else bases), 1
    word, done = np.zeros(len(bases) + 1, dtype=np.uint64), 0
    while done < width:
        if width & size:
            word, done = _append(word, done, piece, size, reverse), done + size
        if done < width:
            piece, size = _append(piece, size, piece, size, reverse), 2 * size
    return word


def _append(first: Words, n_first: int, second: Words, n_second: int, reverse: bool) -> Words:
    """Words of ``n_first`` bases, each followed by the word of ``n_second`` bases that starts where it ends."""
    after = second[n_first:]
    first = first[: len(after)]
    if reverse:  # the reverse complement of the second word comes first
        return (after << np.uint64(2 * n_first)) | first
    return (first << np.uint64(2 * n_second)) | after


def _mix(high: Words, low: Words) -> Words:
    """A 64-bit hash of both words (the finaliser of splitmix64)."""
    x = high * np.uint64(0x9E3779B97F4A7C15) + low
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
