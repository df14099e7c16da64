"""A file of variant scores, written as they are computed, so that an interrupted call can be resumed.

It is a tab-separated table with the columns ``number`` (0-based index among the variants to be scored), ``chrom, start,
ref, alt`` and ``score``, in the order of computation. The first line, after ``#``, identifies the call.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from titans_core.train.fingerprint import differences
from titans_datasets.locks import hold
from titans_dna.genomes.vcf import Variant

__all__ = ["KeptScores", "kept_scores"]

_ABOUT = "# titans_dna scores of variants "
_COLUMNS = ("number", "chrom", "start", "ref", "alt", "score")


class KeptScores:
    """An open file of scores.

    Attributes:
        found: scores read from the file, by index of the variant.
    """

    def __init__(self, stream: TextIO, found: dict[int, float]) -> None:
        self.found, self._stream = found, stream

    def add(self, number: int, variant: Variant, score: float) -> None:
        self._stream.write("\t".join((*_place(number, variant), repr(score))) + "\n")
        self._stream.flush()


@contextmanager
def kept_scores(
    path: str | os.PathLike[str], identity: Mapping[str, Any], variants: Sequence[Variant]
) -> Iterator[KeptScores]:
    """Open the file of scores at ``path``, creating it if needed, and read the scores it has.

    Args:
        path: path of the file.
        identity: identifies the call.
        variants: the variants to be scored.

    Raises:
        FileNotFoundError, IsADirectoryError: the folder does not exist, or ``path`` is a folder.
        ValueError: the file holds scores of another call (the message says what differs), is not a file of scores, or
            is being written by another program.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        raise IsADirectoryError(f"checkpoint {path} is a folder; give the path of a file in it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} of checkpoint {path.name} does not exist; create it first.")
    head = f"{_ABOUT}{json.dumps(dict(identity), default=int)}\n" + "\t".join(_COLUMNS) + "\n"
    found: dict[int, float] = {}
    with path.open("a+", encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
        try:
            hold(stream, wait=False)
        except BlockingIOError:
            raise ValueError(f"another program is writing to {path}: wait for it, or give another file.") from None
        stream.seek(0)
        text = stream.read()
        if head.startswith(text):  # empty, or interrupted while writing the header
            stream.truncate(0)
            stream.write(head)
        else:
            _check(path, text.split("\n"), identity)
            text = text[: text.rfind("\n") + 1]  # if the program was killed, the last line may be incomplete
            found = dict(_row(path, line, variants) for line in text.split("\n")[2:-1])
            stream.truncate(len(text.encode(errors="surrogateescape")))
        yield KeptScores(stream, found)


def _check(path: Path, lines: list[str], identity: Mapping[str, Any]) -> None:
    try:
        if not lines[0].startswith(_ABOUT) or tuple(lines[1].split("\t")) != _COLUMNS:
            raise ValueError
        there = json.loads(lines[0].removeprefix(_ABOUT))
    except (ValueError, IndexError):
        raise ValueError(f"{path} was not written by score_variants: give another file.") from None
    if differ := differences(there, identity):
        raise ValueError(f"{path} holds scores of another call: {differ}. {_advice(path)}")


def _place(number: int, variant: Variant) -> tuple[str, ...]:
    return str(number), variant.chrom, str(variant.start), variant.ref, variant.alt


def _row(path: Path, line: str, variants: Sequence[Variant]) -> tuple[int, float]:
    try:
        *place, score = line.split("\t")
        number = int(place[0])
        if number < 0 or tuple(place) != _place(number, variants[number]):
            raise ValueError
        return number, float(score)
    except (ValueError, IndexError):
        raise ValueError(f"{path} has an invalid line, {line!r:.60}. {_advice(path)}") from None


def _advice(path: Path) -> str:
    return f"Give another file, or delete {path} to start again."
