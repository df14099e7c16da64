"""bAbI facts at random places between the sentences of a book: BABILong.

    stories = babi.read_task("qa1_single-supporting-fact_test.txt")
    samples = babilong.samples(stories, 4096, encode, background=book)
    babilong.score(prediction, samples[0].answer, babi.labels(stories), samples[0].story.question)

Source: Kuratov et al. 2024, BABILong (arXiv:2406.10149). As there, facts keep their order, every place between two
sentences is equally likely, and scoring is that of its fine-tuned models. Differences: the background consists of whole
sentences, so a sample may be up to one sentence shorter than its length; question and answer count towards the length;
the prompt has no instructions or examples, because it is meant for models trained on it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from titans_core.evals.babi import Story
from titans_core.evals.haystack import Encode, Haystack, most_that_fit, sentences

# Shorter sentences are headings and exclamations, which would differ from the background by length alone.
MIN_WORDS = 5


@dataclass(frozen=True)
class Sample:
    """A story in its background.

    Attributes:
        story: facts, question and answer. The prompt contains ``story.facts`` in order.
        prompt: context, question, and "Answer:".
        length: number of tokens of :attr:`text`.
    """

    story: Story
    prompt: str
    length: int

    @property
    def answer(self) -> str:
        return self.story.answer

    @property
    def text(self) -> str:
        """Prompt, a space and the answer, for training."""
        return f"{self.prompt} {self.answer}"


def samples(
    stories: Iterable[Story],
    length: int | Sequence[int | None] | None,
    encode: Encode,
    *,
    background: str = "",
    seed: int = 0,
) -> list[Sample]:
    """Create one sample per story, in order, with as many sentences as fit in ``length`` tokens.

    The background starts at a random sentence of the book and wraps around at its end. Sample i depends only on the
    seed, i and its story.

    Args:
        stories: stories from :func:`titans_core.evals.babi.read_task`.
        length: maximum number of tokens of a sample, counted by ``encode`` on its whole text, including the answer.
            None: the story without background. If several are given, each sample draws one, as in a stage of
                :func:`curriculum`.
        encode: function from text to token ids; ``str.encode`` for bytes.
        background: text of a book. Sentences of fewer than 5 words are skipped.
        seed: seed of the samples.

    Raises:
        ValueError: if a story alone is longer than its length, or a length is given without background.
    """
    lengths = [length] if length is None or isinstance(length, int | np.integer) else list(length)
    if not lengths:
        raise ValueError("length is an empty sequence: pass at least one length, or None for no background.")
    pieces = sentences(background, MIN_WORDS)
    if not pieces and any(limit is not None for limit in lengths):
        raise ValueError(
            f"background has no sentence of at least {MIN_WORDS} words, but length is {length}. Pass the text of a "
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
    """Lengths to mix at each stage of training: first no background, then one more length per stage, each doubled.

    ``curriculum(2000, 500)`` is ``[[None], [None, 500], [None, 500, 1000], [None, 500, 1000, 2000]]``. Keeping earlier
    lengths is the paper's method; doubling, and starting without background, is ours.
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
    """1 if the prediction's first sentence contains the answer and no other label, else 0. Case is ignored.

    Labels in the question do not count, because a sentence may repeat the question, and bAbI never asks for something
    that its question names. Labels are matched as whole words.

    Args:
        prediction: the model's continuation.
        answer: the correct answer.
        labels: all answers of the task, from :func:`titans_core.evals.babi.labels`.
        question: question of the story. Without it, a label of the question in the prediction counts as a second
            answer.

    Raises:
        ValueError: if no prediction could be correct: the answer is not a label, or the question contains it.
    """
    words = {label.casefold() for label in labels}
    target = answer.casefold()
    if target not in words:
        raise ValueError(f"answer {answer!r} is not one of the labels {sorted(words)}: pass the labels of its task.")
    in_question = _named(words, question)
    if target in in_question:
        raise ValueError(f"the question {question!r} contains the answer {answer!r}: pass the question of this answer.")
    first, _, _ = prediction.partition(".")
    return float(_named(words, first) - in_question == {target})


def _named(words: Iterable[str], text: str) -> set[str]:
    return {word for word in words if re.search(rf"\b{re.escape(word)}\b", text.casefold())}


def _prompt(story: Story, pieces: Sequence[str], places: Sequence[int]) -> str:
    """Build the prompt: fact j precedes piece ``places[j]``; places are in ascending order."""
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
            f"story {i} takes {bare} tokens with its {len(story.facts)} facts, question and answer, but length is "
            f"{length}. Use a greater length, or only stories with fewer facts."
        )
    k, total = most_that_fit(whole, bare, tokens, length, encode)
    return Sample(story, prompt(k), total)
