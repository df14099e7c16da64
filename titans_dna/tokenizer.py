"""One token per base: letters to small integers and back, and the other strand.

    id      0 1 2 3 4 5
    letter  A C G T N -      N: any base; 5 is PAD, beyond the end of a sequence in a batch

A base and its complement add up to 3; N and PAD are their own complement (``COMPLEMENT``). Rules for letters:

    a c g t n                  the same base, soft-masked (a repeat): ``encode(..., return_mask=True)`` keeps the fact
    R Y S W K M B D H V        IUPAC codes for "one of several bases" become N
    U                          T, only with ``rna=True``
    anything else              an error that names letter, position and sequence
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "COMPLEMENT",
    "LETTERS",
    "PAD",
    "VOCAB_SIZE",
    "EncodedBatch",
    "N",
    "decode",
    "encode",
    "encode_batch",
    "reverse_complement",
    "reverse_complement_ids",
]

LETTERS = "ACGTN-"
N = 4
PAD = 5
VOCAB_SIZE = 6
COMPLEMENT: NDArray[np.uint8] = np.array([3, 2, 1, 0, 4, 5], dtype=np.uint8)
COMPLEMENT.setflags(write=False)

_AMBIGUOUS = "RYSWKMBDHV"
_UNKNOWN = 255
# complements keep case; IUPAC codes complement the set of bases they stand for (R = A or G, Y = C or T)
_FORWARD = "ACGTNRYSWKMBDHV"
_REVERSE = "TGCANYRSWMKVHDB"
_STRANDS = bytes.maketrans((_FORWARD + _FORWARD.lower()).encode(), (_REVERSE + _REVERSE.lower()).encode())
_KNOWN = (_FORWARD + _FORWARD.lower()).encode()

Text = TypeVar("Text", str, bytes)


def _table(rna: bool) -> NDArray[np.uint8]:
    """[256] byte to id; ``_UNKNOWN`` where the byte is no letter for DNA."""
    table = np.full(256, _UNKNOWN, dtype=np.uint8)
    known = {letter: i for i, letter in enumerate("ACGTN")} | dict.fromkeys(_AMBIGUOUS, N) | ({"U": 3} if rna else {})
    for letter, i in known.items():
        table[[ord(letter), ord(letter.lower())]] = i
    return table


_DNA, _RNA = _table(rna=False), _table(rna=True)
_LOWER = np.zeros(256, dtype=bool)
_LOWER[ord("a") : ord("z") + 1] = True
_TO_LETTER = np.frombuffer(LETTERS.encode(), dtype=np.uint8)


class EncodedBatch(NamedTuple):
    """Sequences of different lengths in one array, padded on the right.

    Attributes:
        ids: uint8 [B, T], T the longest; ``PAD`` beyond the end of a sequence.
        lengths: int64 [B], bases of each sequence.
    """

    ids: NDArray[np.uint8]
    lengths: NDArray[np.int64]


@overload
def encode(
    sequence: str | bytes, *, rna: bool = ..., return_mask: Literal[False] = ..., where: str = ..., start: int = ...
) -> NDArray[np.uint8]: ...
@overload
def encode(
    sequence: str | bytes, *, rna: bool = ..., return_mask: Literal[True], where: str = ..., start: int = ...
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]: ...
def encode(
    sequence: str | bytes,
    *,
    rna: bool = False,
    return_mask: bool = False,
    where: str = "the sequence",
    start: int = 0,
) -> NDArray[np.uint8] | tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Ids of one sequence.

    Args:
        sequence: letters without white space; may be empty.
        rna: read U as T.
        return_mask: give also bool [L], true where the letter was lower case (soft-masked).
        where: what to call the sequence in an error.
        start: the position of its first letter there.

    Returns:
        uint8 [L], values 0 to 4; the caller owns it.

    Raises:
        TypeError: neither str nor bytes.
        ValueError: a letter outside the rules above; U without ``rna=True``. Positions are 0-based.
    """
    letters = np.frombuffer(_as_bytes(sequence, where), dtype=np.uint8)
    ids = (_RNA if rna else _DNA)[letters]
    if ids.size and ids.max() == _UNKNOWN:
        _refuse(sequence, int((ids == _UNKNOWN).argmax()), where, start)
    return (ids, _LOWER[letters]) if return_mask else ids


def encode_batch(sequences: Sequence[str | bytes], *, rna: bool = False, length: int | None = None) -> EncodedBatch:
    """Ids of several sequences, padded on the right to one length.

    Args:
        sequences: list, array or Series of str or bytes; each of one base or more.
        rna: read U as T.
        length: T, at least the longest; default the longest.

    Raises:
        TypeError: one string instead of a list of them, or an item that is no string (NaN, None, a Seq of Biopython).
        ValueError: no sequence at all, an empty one, one longer than ``length``, or an unknown letter; the message
            numbers sequences from 0.
    """
    if isinstance(sequences, str | bytes):
        raise TypeError("sequences is one string; give a list of sequences, or call encode for one.")
    refuse_record(sequences)
    flat, lengths = encode_all(sequences, rna=rna)
    longest = int(lengths.max())
    if length is not None and length < longest:
        raise ValueError(
            f"sequence {int(lengths.argmax())} has {longest} bases, length={length}; cut it or raise length."
        )
    ids = np.full((len(lengths), longest if length is None else length), PAD, dtype=np.uint8)
    ids[np.arange(ids.shape[1]) < lengths[:, None]] = flat
    return EncodedBatch(ids, lengths)


def encode_all(
    sequences: Sequence[str | bytes], *, rna: bool = False, names: Sequence[str] | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Ids of several sequences one behind the other, and the length of each; raises what :func:`encode_batch` does, and
    calls sequences by their ``names``, where they have such, not by their numbers."""
    pieces = [_as_bytes(sequence, f"sequence {i}") for i, sequence in enumerate(sequences)]
    if not pieces:
        raise ValueError("sequences is empty; give one sequence or more.")
    lengths = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
    if not lengths.all():
        raise ValueError(f"sequence {int(lengths.argmin())} is empty; drop it, or give it at least one base (N).")
    flat = (_RNA if rna else _DNA)[np.frombuffer(b"".join(pieces), dtype=np.uint8)]
    if flat.max() == _UNKNOWN:
        ends = np.cumsum(lengths)
        at = int((flat == _UNKNOWN).argmax())
        i = int(np.searchsorted(ends, at, side="right"))
        _refuse(list(sequences)[i], at - int(ends[i] - lengths[i]), f"sequence {i}" if names is None else names[i])
    return flat, lengths


def decode(ids: NDArray[np.integer]) -> str:
    """Letters of one sequence of ids [L], upper case; ``PAD`` is left out. What was an IUPAC code comes back as N.

    Raises:
        ValueError: ids of another shape, or outside 0 to 5.
    """
    ids = np.asarray(ids)
    if ids.ndim != 1 or (ids.size and (ids.min() < 0 or ids.max() >= VOCAB_SIZE)):
        raise ValueError(
            f"ids must be of shape [L] with values 0 to {PAD}, got shape {list(ids.shape)}"
            + (f" with values {ids.min()} to {ids.max()}." if ids.size else ".")
        )
    return _TO_LETTER[ids[ids != PAD].astype(np.intp)].tobytes().decode()


def reverse_complement(sequence: Text) -> Text:
    """The other strand, read in its own direction: letters complemented, order reversed. Case and IUPAC codes are kept.

    Raises:
        TypeError: neither str nor bytes; for ids there is ``reverse_complement_ids``.
        ValueError: a letter that has no complement in DNA, such as U.
    """
    letters = _as_bytes(sequence, "the sequence")
    if letters.translate(None, _KNOWN):
        _refuse(sequence, next(i for i, letter in enumerate(letters) if letter not in _KNOWN), "the sequence")
    other = letters.translate(_STRANDS)[::-1]
    return other.decode() if isinstance(sequence, str) else other


def reverse_complement_ids(ids: NDArray[np.uint8], lengths: NDArray[np.int64] | None = None) -> NDArray[np.uint8]:
    """The other strand of ids [..., L], reversed along the last axis.

    Args:
        ids: ids of one or more sequences.
        lengths: int64 [B] with ids [B, T], the bases of each row: only those are reversed and the padding stays on
            the right. Without it all of the last axis is reversed, padding with it.

    Raises:
        ValueError: lengths do not fit ids.
    """
    ids = np.asarray(ids)
    if lengths is None:
        return COMPLEMENT[ids[..., ::-1]]
    lengths = np.asarray(lengths)
    if ids.ndim != 2 or lengths.shape != ids.shape[:1] or (lengths.size and lengths.max() > ids.shape[1]):
        raise ValueError(
            f"lengths must be [B] with values up to T for ids [B, T]; got lengths {list(lengths.shape)}"
            f"{f' up to {lengths.max()}' if lengths.size else ''}, ids {list(ids.shape)}."
        )
    source = lengths[:, None] - 1 - np.arange(ids.shape[1])
    other = COMPLEMENT[np.take_along_axis(ids, np.maximum(source, 0), axis=1)]
    return np.where(source >= 0, other, np.uint8(PAD))


def _as_bytes(sequence: str | bytes, where: str) -> bytes:
    if isinstance(sequence, str):
        # one byte per letter also where a letter is not ASCII, so that positions in errors hold
        return sequence.encode("ascii", errors="replace")
    if isinstance(sequence, bytes):
        return sequence
    advice = f" Give {_as_string(sequence)}." if _is_biological(sequence) else ""
    raise TypeError(f"{where} must be str or bytes, got {type(sequence).__name__} ({sequence!r:.40}).{advice}")


def refuse_record(sequences: Any) -> None:
    """Raises TypeError for one sequence of Biopython's, which would be read as many, of one letter each."""
    if _is_biological(sequences):
        kind = type(sequences).__name__
        raise TypeError(f"one sequence, a {kind}: give a list of strings, [{_as_string(sequences)}].")


def _is_biological(sequence: Any) -> bool:
    """A Seq or a SeqRecord, without importing Biopython; asked of the type, as frames have columns of any name."""
    return callable(getattr(type(sequence), "reverse_complement", None))


def _as_string(sequence: Any) -> str:
    return "str(record.seq)" if hasattr(sequence, "seq") else "str(sequence)"


def _refuse(sequence: str | bytes, position: int, where: str, start: int = 0) -> NoReturn:
    letter = sequence[position] if isinstance(sequence, str) else chr(sequence[position])
    at = f"{where} has {letter!r} at position {start + position} (0-based)"
    if letter in "Uu":
        raise ValueError(f"{at}: U instead of T. RNA? Write T for it, sequence.replace('U', 'T'); encode has rna=True.")
    if letter.isspace():
        raise ValueError(f"{at}: white space. Join the lines and strip the sequence first.")
    if letter in "-.*":
        raise ValueError(f"{at}: a gap or stop, not a base. Remove it, or write N where a base is unknown.")
    raise ValueError(f"{at}; known are A C G T N, IUPAC codes ({' '.join(_AMBIGUOUS)}) and their lower case.")
