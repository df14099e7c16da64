"""bAbI's facts at random places between the sentences of a book: BABILong.

    stories = babi.read_task("qa1_single-supporting-fact_test.txt")
    asked = babilong.samples(stories, 4096, encode, background=book)
    babilong.score(said, asked[0].answer, babi.labels(stories), asked[0].story.question)

Source: Kuratov et al. 2024, BABILong (arXiv:2406.10149): facts keep their order, each place between two sentences is as
likely as another, the score is that of its fine-tuned models. What differs: background is whole sentences, so a
sample may be shorter than its length by less than one; question and answer count within the length; the prompt is
plain, without instructions or examples, for models trained on it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from titans_core.evals.babi import Story
from titans_core.evals.haystack import Encode, Haystack, most_that_fit, sentences

# Shorter ones are headings and exclamations, which would tell a fact from its background by length alone.
MIN_WORDS = 5


@dataclass(frozen=True)
class Sample:
    """A story in its background.

    Attributes:
        story: what is asked and told; ``story.facts`` stand in the prompt in this order.
        prompt: context, question, and "Answer:".
        length: tokens of :attr:`text`.
    """

    story: Story
    prompt: str
    length: int

    @property
    def answer(self) -> str:
        return self.story.answer

    @property
    def text(self) -> str:
        """Prompt, a space and the answer: what a model can be trained on."""
        return f"{self.prompt} {self.answer}"


def samples(
    stories: Iterable[Story],
    length: int | Sequence[int | None] | None,
    encode: Encode,
    *,
    background: str = "",
    seed: int = 0,
) -> list[Sample]:
    """One sample for each story, in their order, of at most ``length`` tokens; one more sentence would not fit.

    Background begins at a random sentence of the book, and goes round at its end. Sample i depends on the seed, i and
    its story alone.

    Args:
        stories: of :func:`titans_core.evals.babi.read_task`.
        length: tokens as ``encode`` counts them on the whole text of a sample, answer included. None is the story
            without background, however long. Of several, each sample draws one: a stage of :func:`curriculum`.
        encode: text to token ids; ``str.encode`` for bytes.
        background: the text of a book; sentences of fewer than 5 words are left out.

    Raises:
        ValueError: for a story that alone is longer than its length, or a length without background.
    """
    lengths = [length] if length is None or isinstance(length, int) else list(length)
    if not lengths:
        raise ValueError("length is an empty sequence: give at least one, or None for no background.")
    pieces = sentences(background, MIN_WORDS)
    if not pieces and any(limit is not None for limit in lengths):
        raise ValueError(
            f"background has no sentence of at least {MIN_WORDS} words, and length is {length}. Give the text of a "
            "book, or length=None for the stories alone."
        )
    haystack = Haystack([[piece] for piece in pieces], " ", encode)
    made = []
    for i, story in enumerate(stories):
        rng = np.random.default_rng([seed, i])
        limit = lengths[rng.integers(len(lengths))]
        if limit is None:
            prompt = _prompt(story, [], [0] * len(story.facts))
            made.append(Sample(story, prompt, len(encode(f"{prompt} {story.answer}"))))
        else:
            made.append(_sample(rng, i, story, haystack, limit, encode))
    return made


def curriculum(longest: int, shortest: int) -> list[list[int | None]]:
    """The lengths to mix at each stage of training: no background first, then one length more at each, doubled.

    ``curriculum(2000, 500)`` is ``[[None], [None, 500], [None, 500, 1000], [None, 500, 1000, 2000]]``. Stages that keep
    what came before are the paper's; doubling, and beginning with the stories alone, is ours.
    """
    if not 1 <= shortest <= longest:
        raise ValueError(f"shortest must be at least 1 and at most longest, got {shortest} and {longest}.")
    lengths: list[int | None] = [None]
    stages = [lengths]
    step = shortest
    while True:
        lengths = [*lengths, min(step, longest)]
        stages.append(lengths)
        if step >= longest:
            return stages
        step *= 2


def score(prediction: str, answer: str, labels: Iterable[str], question: str = "") -> float:
    """1 where the prediction's first sentence names the answer and no other label, else 0; case does not matter.

    Labels that the question names do not count: a sentence may repeat the question, and bAbI never asks for what
    its question names. A label is looked for as a whole word.

    Args:
        labels: all answers of the task, of :func:`titans_core.evals.babi.labels`.
        question: of the story; without it, a label of the question in the prediction counts as a second answer.

    Raises:
        ValueError: where no prediction could be right: the answer is not a label, or the question names it.
    """
    words = {label.casefold() for label in labels}
    target = answer.casefold()
    if target not in words:
        raise ValueError(f"answer {answer!r} is none of the labels {sorted(words)}: give the labels of its task.")
    asked = _named(words, question)
    if target in asked:
        raise ValueError(f"the question {question!r} names the answer {answer!r}: give the question of this answer.")
    first, _, _ = prediction.partition(".")
    return float(_named(words, first) - asked == {target})


def _named(words: Iterable[str], text: str) -> set[str]:
    return {word for word in words if re.search(rf"\b{re.escape(word)}\b", text.casefold())}


def _prompt(story: Story, pieces: Sequence[str], places: Sequence[int]) -> str:
    """Fact j stands before piece ``places[j]``; places do not fall."""
    context: list[str] = []
    done = 0
    for fact, place in zip(story.facts, places, strict=True):
        context += [*pieces[done:place], fact]
        done = place
    context += pieces[done:]
    return f"{' '.join(context)}\nQuestion: {story.question}\nAnswer:"


def _sample(rng: np.random.Generator, i: int, story: Story, haystack: Haystack, length: int, encode: Encode) -> Sample:
    pieces, tokens, _ = haystack.window(int(rng.integers(len(haystack.sentences))), length)
    where = np.sort(rng.random(len(story.facts)))

    def prompt(k: int) -> str:
        return _prompt(story, pieces[:k], [int(w * (k + 1)) for w in where])

    def whole(k: int) -> str:
        return f"{prompt(k)} {story.answer}"

    bare = len(encode(whole(0)))
    if bare > length:
        raise ValueError(
            f"story {i} takes {bare} tokens with its {len(story.facts)} facts, question and answer, and length is "
            f"{length}. Give a greater length, or only stories with fewer facts."
        )
    k, total = most_that_fit(whole, bare, tokens, length, encode)
    return Sample(story, prompt(k), total)
