"""Scores of variants in a file, written as they are found, so that a call that was interrupted goes on.

A table, tab-separated: ``number`` (of the variant among those that are scored, from 0), ``chrom, start, ref, alt`` and
``score``, in the order in which they were found. Its first line, behind ``#``, says of which call they are.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from titans_datasets.locks import hold
from titans_dna.vcf import Variant

__all__ = ["KeptScores", "kept_scores"]

_ABOUT = "# titans_dna scores of variants "
_COLUMNS = ("number", "chrom", "start", "ref", "alt", "score")


class KeptScores:
    """An open file of scores.

    Attributes:
        found: what was in it, by number of the variant.
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
    """The file at ``path``, made where there is none; of one that a call of this identity left, the scores are read.

    Args:
        variants: those that are scored.

    Raises:
        FileNotFoundError, IsADirectoryError: no folder to keep it in, or a folder in its place.
        ValueError: the file of another call, or no such file; the message says what differs, and what to do. Or one
            that another program is writing.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"checkpoint {path} is a folder; name a file in it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}: make it first, to keep {path.name} in it.")
    head = f"{_ABOUT}{json.dumps(dict(identity))}\n" + "\t".join(_COLUMNS) + "\n"
    found: dict[int, float] = {}
    with path.open("a+", encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
        try:
            hold(stream, wait=False)
        except BlockingIOError:
            raise ValueError(f"another program is writing to {path}: wait for it, or give another file.") from None
        stream.seek(0)
        text = stream.read()
        if head.startswith(text):  # nothing yet
            stream.truncate(0)
            stream.write(head)
        else:
            _check(path, text.split("\n"), identity)
            text = text[: text.rfind("\n") + 1]  # of a program that was killed the last line may be cut off
            found = dict(_row(path, line, variants) for line in text.split("\n")[2:-1])
            stream.truncate(len(text.encode(errors="surrogateescape")))
        yield KeptScores(stream, found)


def _check(path: Path, lines: list[str], identity: Mapping[str, Any]) -> None:
    try:
        if not lines[0].startswith(_ABOUT) or tuple(lines[1].split("\t")) != _COLUMNS:
            raise ValueError
        there = json.loads(lines[0].removeprefix(_ABOUT))
    except (ValueError, IndexError):
        raise ValueError(f"{path} was not left by score_variants: give another file.") from None
    differ = [name for name in sorted({*there, *identity}) if there.get(name) != identity.get(name)]
    if differ:
        said = [
            f"the {name} differs"
            if str(identity.get(name)).startswith("sha256:")
            else f"{name} is {there.get(name)} there and {identity.get(name)} here"
            for name in differ
        ]
        raise ValueError(f"{path} holds scores of another call: {'; '.join(said)}. {_instead(path)}")


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
        raise ValueError(f"{path} has a line that is no score, {line!r:.60}. {_instead(path)}") from None


def _instead(path: Path) -> str:
    return f"Give another file, or delete {path} to start anew."
