"""bAbI task files: short stories with questions.

    1 Mary moved to the bathroom.
    2 John went to the hallway.
    3 Where is Mary? <tab>bathroom<tab>1

A line is a number, a space and a fact, or a question with its answer and the numbers of the lines that support it. A
number 1 begins a new story.

Source: Weston et al. 2015, "Towards AI-complete question answering" (arXiv:1502.05698).
"""

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Story:
    """One question, and all that was told before it.

    Attributes:
        facts: sentences in their order, without earlier questions.
        answer: one word in tasks 1 to 5.
        support: 0-based places in ``facts`` of those that the answer follows from.
    """

    facts: tuple[str, ...]
    question: str
    answer: str
    support: tuple[int, ...]


def read_task(path: str | Path) -> list[Story]:
    """The stories of a task file, one for each question, in the order of the file. ``.gz`` is unpacked.

    Raises:
        ValueError: for a line that is not as above, with file and line number, or a file without a question.
    """
    path = Path(path)
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    stories = list(_stories(text.splitlines(), path))
    if not stories:
        raise ValueError(
            f"{path} holds no question: a question line is 'number question<tab>answer<tab>supporting lines'."
        )
    return stories


def labels(stories: Iterable[Story]) -> frozenset[str]:
    """Everything that is an answer in some story: what :func:`titans_core.evals.babilong.score` looks for."""
    return frozenset(story.answer for story in stories)


def _stories(lines: Iterable[str], path: Path) -> Iterator[Story]:
    facts: list[str] = []
    places: dict[int, int] = {}  # the number of a fact's line -> its place in `facts`
    number = 0
    for at, line in enumerate(lines, start=1):
        came = f"{path}, line {at}: got {line!r}, expected"
        digits, _, rest = line.partition(" ")
        if not (digits.isascii() and digits.isdigit() and rest.strip()):
            raise ValueError(f"{came} a number, a space and a sentence.")
        if int(digits) == 1:
            facts, places, number = [], {}, 0
        number += 1
        if int(digits) != number:
            raise ValueError(f"{came} number {number}" + (", or 1 for a new story." if number > 1 else "."))
        if "\t" not in rest:
            places[number] = len(facts)
            facts.append(rest.strip())
            continue
        fields = [field.strip() for field in rest.split("\t")]
        if len(fields) != 3 or not all(fields):
            raise ValueError(f"{came} a question, its answer and its supporting lines with a tab between each.")
        question, answer, support = fields
        if not all(s.isascii() and s.isdigit() and int(s) in places for s in support.split(" ")):
            raise ValueError(f"{came} supporting lines among the story's facts before it, {sorted(places)}.")
        yield Story(tuple(facts), question, answer, tuple(places[int(s)] for s in support.split(" ")))
