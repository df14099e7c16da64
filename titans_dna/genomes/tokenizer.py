"""Tokenizer with one token per base, and reverse complements.

    id      0 1 2 3 4 5
    letter  A C G T N -      N: any base; 5 is PAD, after the end of a sequence in a batch

The ids of a base and its complement add up to 3; N and PAD are their own complements (``COMPLEMENT``). Letters:

    a c g t n                  soft-masked bases (repeats), same ids; ``encode(..., return_mask=True)`` returns the mask
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
    "encode_all",
    "encode_batch",
    "refuse_record",
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
# complements keep case; the complement of an IUPAC code is the code of the complements (R = A or G, Y = C or T)
_FORWARD = "ACGTNRYSWKMBDHV"
_REVERSE = "TGCANYRSWMKVHDB"
_STRANDS = bytes.maketrans((_FORWARD + _FORWARD.lower()).encode(), (_REVERSE + _REVERSE.lower()).encode())
_KNOWN = (_FORWARD + _FORWARD.lower()).encode()

Text = TypeVar("Text", str, bytes)


def _table(rna: bool) -> NDArray[np.uint8]:
    """Table [256] from byte to id; ``_UNKNOWN`` for bytes that are not accepted letters."""
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
        ids: uint8 [B, T], where T is the largest length unless given; ``PAD`` after the end of a sequence.
        lengths: int64 [B], number of bases of each sequence.
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
    """Encode one sequence.

    Args:
        sequence: letters without white space; may be empty.
        rna: read U as T.
        return_mask: also return bool [L], True where the letter was lower case (soft-masked).
        where: name of the sequence in error messages.
        start: position of its first letter in error messages.

    Returns:
        uint8 [L], values 0 to 4; a new array.

    Raises:
        TypeError: the sequence is neither str nor bytes.
        ValueError: a letter is not accepted, or is U without ``rna=True``. Positions in the message are 0-based.
    """
    letters = np.frombuffer(_as_bytes(sequence, where), dtype=np.uint8)
    ids = (_RNA if rna else _DNA)[letters]
    if ids.size and ids.max() == _UNKNOWN:
        _refuse(sequence, int((ids == _UNKNOWN).argmax()), where, start)
    return (ids, _LOWER[letters]) if return_mask else ids


def encode_batch(sequences: Sequence[str | bytes], *, rna: bool = False, length: int | None = None) -> EncodedBatch:
    """Encode several sequences, padded on the right to one length.

    Args:
        sequences: list, array or Series of str or bytes, each with at least one base.
        rna: read U as T.
        length: the padded length T. Default: that of the longest sequence.

    Raises:
        TypeError: ``sequences`` is a single string, or an item is not a string (NaN, None, a Biopython Seq).
        ValueError: there is no sequence; a sequence is empty or longer than ``length``; or a letter is not accepted.
            Sequences are numbered from 0 in the message.
    """
    if isinstance(sequences, str | bytes):
        raise TypeError("sequences is a string; give a list of sequences, or use encode for one sequence.")
    refuse_record(sequences)
    flat, lengths = encode_all(sequences, rna=rna)
    longest = int(lengths.max())
    if length is not None and length < longest:
        raise ValueError(
            f"sequence {int(lengths.argmax())} has {longest} bases, but length={length}; cut it or raise length."
        )
    ids = np.full((len(lengths), longest if length is None else length), PAD, dtype=np.uint8)
    ids[np.arange(ids.shape[1]) < lengths[:, None]] = flat
    return EncodedBatch(ids, lengths)


def encode_all(
    sequences: Sequence[str | bytes], *, rna: bool = False, names: Sequence[str] | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Encode several sequences into one concatenated array; also return their lengths. Raises the errors of
    :func:`encode_batch`, in which sequences are called by their ``names``, if given, instead of their numbers."""
    pieces = [_as_bytes(sequence, f"sequence {i}") for i, sequence in enumerate(sequences)]
    if not pieces:
        raise ValueError("sequences is empty; give at least one sequence.")
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
    """Decode ids [L] of one sequence to upper-case letters. ``PAD`` is omitted; IUPAC codes come back as N.

    Raises:
        TypeError: ids are not integers.
        ValueError: ids have another shape, or are outside 0 to 5.
    """
    ids = np.asarray(ids)
    if ids.size and not np.issubdtype(ids.dtype, np.integer):
        raise TypeError(f"ids must be integers, got an array of {ids.dtype}. Probabilities need argmax(-1) first.")
    if ids.ndim != 1 or (ids.size and (ids.min() < 0 or ids.max() >= VOCAB_SIZE)):
        raise ValueError(
            f"ids must have shape [L] with values 0 to {PAD}, got shape {list(ids.shape)}"
            + (f" with values {ids.min()} to {ids.max()}." if ids.size else ".")
        )
    return _TO_LETTER[ids[ids != PAD].astype(np.intp)].tobytes().decode()


def reverse_complement(sequence: Text, *, where: str = "the sequence", start: int = 0) -> Text:
    """Return the reverse complement of a sequence. Case and IUPAC codes are kept.

    Args:
        sequence: str or bytes.
        where, start: name of the sequence and position of its first base in it, for error messages.

    Raises:
        TypeError: the sequence is neither str nor bytes; for ids, use ``reverse_complement_ids``.
        ValueError: a letter has no complement in DNA, such as U.
    """
    letters = _as_bytes(sequence, where)
    if letters.translate(None, _KNOWN):
        _refuse(sequence, next(i for i, letter in enumerate(letters) if letter not in _KNOWN), where, start)
    other = letters.translate(_STRANDS)[::-1]
    return other.decode() if isinstance(sequence, str) else other


def reverse_complement_ids(ids: NDArray[np.uint8], lengths: NDArray[np.int64] | None = None) -> NDArray[np.uint8]:
    """Return the reverse complement of ids [..., L], reversed along the last axis.

    Args:
        ids: ids of one or more sequences.
        lengths: int64 [B] for ids [B, T]: number of bases of each row. Only these are reversed, and padding stays on
            the right. None reverses the whole last axis, including padding.

    Raises:
        ValueError: ``lengths`` does not fit ``ids``.
    """
    ids = np.asarray(ids)
    if lengths is None:
        return COMPLEMENT[ids[..., ::-1]]
    lengths = np.asarray(lengths)
    if ids.ndim != 2 or lengths.shape != ids.shape[:1] or (lengths.size and lengths.max() > ids.shape[1]):
        raise ValueError(
            f"lengths must have shape [B] with values up to T for ids [B, T]; got shape {list(lengths.shape)}"
            f"{f' up to {lengths.max()}' if lengths.size else ''}, ids {list(ids.shape)}."
        )
    source = lengths[:, None] - 1 - np.arange(ids.shape[1])
    other = COMPLEMENT[np.take_along_axis(ids, np.maximum(source, 0), axis=1)]
    return np.where(source >= 0, other, np.uint8(PAD))


def _as_bytes(sequence: str | bytes, where: str) -> bytes:
    if isinstance(sequence, str):
        # one byte per letter, even if it is not ASCII, so that positions in errors are right
        return sequence.encode("ascii", errors="replace")
    if isinstance(sequence, bytes):
        return sequence
    advice = f" Give {_as_string(sequence)}." if _is_biological(sequence) else ""
    raise TypeError(f"{where} must be str or bytes, got {type(sequence).__name__} ({sequence!r:.40}).{advice}")


def refuse_record(sequences: Any) -> None:
    """Raise TypeError for a single Biopython sequence, which would be read as many sequences of one letter."""
    if _is_biological(sequences):
        kind = type(sequences).__name__
        raise TypeError(f"got one {kind} instead of a list of sequences: give [{_as_string(sequences)}].")


def _is_biological(sequence: Any) -> bool:
    """Whether this is a Seq or a SeqRecord. The type is checked, because frames may have columns of any name."""
    return callable(getattr(type(sequence), "reverse_complement", None))


def _as_string(sequence: Any) -> str:
    return "str(record.seq)" if hasattr(sequence, "seq") else "str(sequence)"


def _refuse(sequence: str | bytes, position: int, where: str, start: int = 0) -> NoReturn:
    letter = sequence[position] if isinstance(sequence, str) else chr(sequence[position])
    at = f"{where} has {letter!r} at position {start + position} (0-based)"
    if letter in "Uu":
        base = "T" if letter == "U" else "t"
        raise ValueError(
            f"{at}: U instead of T. For RNA, use sequence.replace({letter!r}, {base!r}), or encode(..., rna=True)."
        )
    if letter.isspace():
        raise ValueError(f"{at}: white space. Join the lines and strip the sequence first.")
    if letter in "-.*":
        raise ValueError(f"{at}: a gap or stop, not a base. Remove it, or write N for an unknown base.")
    raise ValueError(f"{at}; accepted are A C G T N, IUPAC codes ({' '.join(_AMBIGUOUS)}) and their lower case.")
