"""bAbI task files: short stories with questions.

    1 Mary moved to the bathroom.
    2 John went to the hallway.
    3 Where is Mary? <tab>bathroom<tab>1

A line is a number, a space and a fact, or a question with its answer and the numbers of the supporting lines. Number 1
starts a new story.

Source: Weston et al. 2015, "Towards AI-complete question answering" (arXiv:1502.05698).
"""

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Story:
    """A question with all facts before it.

    Attributes:
        facts: sentences in order, without earlier questions.
        question: the question.
        answer: one word in tasks 1 to 5.
        support: 0-based indices in ``facts`` of the facts that the answer follows from.
    """

    facts: tuple[str, ...]
    question: str
    answer: str
    support: tuple[int, ...]


def read_task(path: str | Path) -> list[Story]:
    """Read the stories of a task file, one per question, in file order. ``.gz`` files are decompressed.

    Raises:
        ValueError: if a line does not have this format (the message has file and line), or there is no question.
    """
    path = Path(path).expanduser()
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    stories = list(_stories(text.splitlines(), path))
    if not stories:
        raise ValueError(
            f"{path} contains no question: a question line is 'number question<tab>answer<tab>supporting lines'."
        )
    return stories


def labels(stories: Iterable[Story]) -> frozenset[str]:
    """All answers that occur in the stories, as needed by :func:`titans_core.evals.babilong.score`."""
    return frozenset(story.answer for story in stories)


def _stories(lines: Iterable[str], path: Path) -> Iterator[Story]:
    facts: list[str] = []
    places: dict[int, int] = {}  # line number of a fact -> its index in `facts`
    number = 0
    for at, line in enumerate(lines, start=1):
        problem = f"{path}, line {at}: got {line!r}, expected"
        digits, _, rest = line.partition(" ")
        if not (digits.isascii() and digits.isdigit() and rest.strip()):
            raise ValueError(f"{problem} a number, a space and a sentence.")
        if int(digits) == 1:
            facts, places, number = [], {}, 0
        number += 1
        if int(digits) != number:
            raise ValueError(f"{problem} number {number}" + (", or 1 for a new story." if number > 1 else "."))
        if "\t" not in rest:
            places[number] = len(facts)
            facts.append(rest.strip())
            continue
        fields = [field.strip() for field in rest.split("\t")]
        if len(fields) != 3 or not all(fields):
            raise ValueError(f"{problem} a question, its answer and its supporting lines with a tab between each.")
        question, answer, support = fields
        if not all(s.isascii() and s.isdigit() and int(s) in places for s in support.split(" ")):
            raise ValueError(f"{problem} supporting lines among the story's facts before it, {sorted(places)}.")
        yield Story(tuple(facts), question, answer, tuple(places[int(s)] for s in support.split(" ")))
