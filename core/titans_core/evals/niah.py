"""One needle in a haystack: RULER's niah_single_1, 2 and 3, which the paper calls S-NIAH-PK, -N and -W.

    RULER            paper   haystack   value    call
    niah_single_1    PK      noise      number   samples(500, length, encode)
    niah_single_2    N       essays     number   samples(500, length, encode, text=book)
    niah_single_3    W       essays     uuid     samples(500, length, encode, text=book, value="uuid")

Source: Hsieh et al. 2024, RULER (arXiv:2404.06654): its templates, noise, forty depths and score. As there, essays are
cut at a word, and a needle stands between sentences, or between lines of noise. Differences: the essays are the given
text, from a random sentence on; needles in noise also use the forty depths; the word list is ours; and the answer's own
tokens count towards the length, where RULER reserves 128 (to match that, pass ``length - 128``).
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from titans_core.checks import at_least
from titans_core.evals.haystack import Encode, Haystack, Window, most_that_fit, sentences
from titans_core.evals.needles import RULER, SHORT, Template
from titans_core.evals.words import word

__all__ = ["DEPTHS", "RULER", "SHORT", "VALUES", "Sample", "Template", "samples", "score"]

DEPTHS = tuple(int(d) for d in np.round(np.linspace(0, 100, 40)))
VALUES = ("number", "word", "uuid")

_ATTEMPTS = 100


@dataclass(frozen=True)
class Sample:
    """A prompt and its expected answer.

    Attributes:
        prompt: text up to the start of the answer.
        answers: the expected values: one.
        depth: depth of the needle: the percentage of the haystack's sentences (RULER's noise: lines) before it.
        length: number of tokens of :attr:`text`.
    """

    prompt: str
    answers: tuple[str, ...]
    depth: int
    length: int

    @property
    def text(self) -> str:
        """Prompt, a space and the answer, for training."""
        return f"{self.prompt} {self.answers[0]}"


def samples(
    num_samples: int,
    length: int,
    encode: Encode,
    *,
    text: str | None = None,
    value: str = "number",
    digits: int = 7,
    template: Template = RULER,
    seed: int = 0,
) -> list[Sample]:
    """Create samples that fill ``length`` tokens, answer included, up to one more word (in noise: line or sentence).

    Sample i depends only on the seed and i, not on the number of samples.

    Args:
        num_samples: number of samples.
        length: maximum number of tokens, counted by ``encode`` on the whole text of a sample, including the answer.
        encode: function from text to token ids; ``str.encode`` for bytes.
        text: the haystack, repeated if it is too short. None: RULER's noise.
        value: kind of hidden value: "number", "word" or "uuid".
        digits: number of digits of a number, 1 to 18; the first is not 0.
        template: :data:`RULER`, or :data:`SHORT` for byte models.
        seed: seed of the samples.

    Raises:
        ValueError: if arguments are out of range, the text has no sentence, the length leaves no room for a haystack,
            or the haystack already contains every value drawn.
    """
    at_least("num_samples", num_samples)
    at_least("length", length)
    if value not in VALUES:
        raise ValueError(f"value must be one of {VALUES}, got {value!r}.")
    if not 1 <= digits <= 18:
        raise ValueError(f"digits must be 1 to 18, got {digits}.")
    if text is None:
        haystack = Haystack([[noise] for noise in template.noise], template.joint, encode)
    else:
        haystack = Haystack([sentence.split() for sentence in sentences(text)], " ", encode)
    if not haystack.sentences:
        raise ValueError("text has no words: pass the text of a book, or None for RULER's noise.")
    draw = {"number": lambda rng: _number(rng, digits), "word": word, "uuid": _uuid}[value]

    made = []
    for i in range(num_samples):
        rng = np.random.default_rng([seed, i])
        start = 0 if text is None else int(rng.integers(len(haystack.sentences)))
        window = haystack.window(start, length)
        around = " ".join([template.head, *window.pieces, template.tail]).casefold()
        key = _fresh(rng, word, around, "key")
        answer = _fresh(rng, draw, around + key, value)
        depth = DEPTHS[rng.integers(len(DEPTHS))]
        filled = template.filled(kind=value, key=key, value=answer)
        made.append(_hide(filled, answer, depth, window, haystack.joint, length, encode))
    return made


def score(prediction: str, answers: Sequence[str]) -> float:
    """Fraction of the answers that the prediction contains, ignoring case (RULER's ``string_match_all``)."""
    if isinstance(answers, str) or not answers:
        raise ValueError(f"answers must be a sequence of at least one string, got {answers!r}.")
    text = prediction.casefold()
    return sum(answer.casefold() in text for answer in answers) / len(answers)


def _hide(
    filled: tuple[str, str, str],
    answer: str,
    depth: int,
    window: Window,
    joint: str,
    length: int,
    encode: Encode,
) -> Sample:
    """Build a sample with as much of the window as fits, plus head, needle and tail."""
    head, needle, tail = filled

    def prompt(k: int) -> str:
        # `depth` percent of the sentences that start within k pieces precede the needle
        begun = bisect_left(window.begins, k)
        before = begun * depth // 100
        at = window.begins[before] if before < begun else k
        return head + joint.join([*window.pieces[:at], needle, *window.pieces[at:k]]) + tail

    def whole(k: int) -> str:
        return f"{prompt(k)} {answer}"

    bare = len(encode(whole(0)))
    k, tokens = most_that_fit(whole, bare, window.tokens, length, encode) if bare <= length else (0, bare)
    if k == 0:
        raise ValueError(
            f"length {length} leaves no room for a haystack: needle, question and answer take {bare} tokens, and its "
            f"first piece {window.tokens[0]} more. Use a greater length, or template=SHORT."
        )
    return Sample(prompt(k), (answer,), depth, tokens)


def _fresh(rng: np.random.Generator, draw: Callable[[np.random.Generator], str], around: str, what: str) -> str:
    """Draw a string that does not occur in ``around``."""
    for _ in range(_ATTEMPTS):
        drawn = draw(rng)
        if drawn.casefold() not in around:
            return drawn
    raise ValueError(
        f"the haystack already contains all {_ATTEMPTS} values drawn as a {what}, the last {drawn!r}, so the needle "
        "would not be unique. Use more digits, another kind of value or another text."
    )


def _number(rng: np.random.Generator, digits: int) -> str:
    return str(rng.integers(10 ** (digits - 1), 10**digits))


def _uuid(rng: np.random.Generator) -> str:
    return str(UUID(bytes=rng.bytes(16), version=4))
