"""Text that fills a context: split into pieces, counted once, with as many pieces as fit."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

# Function from text to token ids; `str.encode` counts bytes.
Encode = Callable[[str], Sequence[int]]

_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(
    r"(?:(?<=[.!?])|(?<=[.!?][\"'”’)]))"
    r"(?<!\bMr\.)(?<!\bMrs\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bSt\.)"
    r" (?=[\"'“‘(]?[A-Z0-9])"
)


def sentences(text: str, min_words: int = 1) -> list[str]:
    """Split a text into sentences, in order, with single spaces. The end of a paragraph ends a sentence.

    A sentence ends at a full stop, exclamation or question mark, optionally with a closing quote or bracket, if a space
    and a capital or digit follow; not after Mr., Mrs., Ms., Dr. or St. Sentences of fewer than ``min_words`` words
    (mostly headings) are skipped.
    """
    found = []
    for paragraph in _PARAGRAPH.split(text):
        for sentence in _SENTENCE.split(" ".join(paragraph.split())):
            if sentence and sentence.count(" ") + 1 >= min_words:
                found.append(sentence)
    return found


class Window(NamedTuple):
    """A stretch of haystack: ``pieces``, their token counts, and the indices in ``pieces`` at which sentences start."""

    pieces: list[str]
    tokens: list[int]
    begins: list[int]


class Haystack:
    """Sentences made of pieces. Each distinct piece is tokenised once, when first needed.

    Args:
        sentences: at least one, each of at least one piece. The first follows the last, so a haystack has no end.
        joint: separator between two pieces.
        encode: function from text to token ids.
    """

    def __init__(self, sentences: Sequence[Sequence[str]], joint: str, encode: Encode) -> None:
        self.sentences = sentences
        self.joint = joint
        self._encode = encode
        self._tokens: dict[str, int] = {}
        # pieces are counted after a full stop, so that tokens added to every text (begin token, space) cancel out
        self._opening = len(encode("."))

    def window(self, start: int, tokens: int) -> Window:
        """Sentences from index ``start`` on, until they have more than ``tokens`` tokens in total."""
        window, total = Window([], [], []), 0
        while total <= tokens:
            window.begins.append(len(window.pieces))
            for piece in self.sentences[start % len(self.sentences)]:
                window.pieces.append(piece)
                window.tokens.append(self._count(piece))
                total += window.tokens[-1]
            start += 1
        return window

    def _count(self, piece: str) -> int:
        if piece not in self._tokens:
            counted = len(self._encode("." + self.joint + piece)) - self._opening
            self._tokens[piece] = max(counted, 1)
        return self._tokens[piece]


def most_that_fit(
    build: Callable[[int], str], bare: int, counts: Sequence[int], limit: int, encode: Encode
) -> tuple[int, int]:
    """How many pieces fit within ``limit`` tokens, and the number of tokens of the resulting text.

    The counts of the pieces give a first guess. The whole text is then encoded to check it. If tokens span pieces, the
    search continues from the measured length. At most two or three whole texts are encoded, usually one.

    Args:
        build: returns the text with its first k pieces.
        bare: number of tokens of ``build(0)``, at most ``limit``.
        counts: approximate number of tokens of each piece.
        limit: maximum number of tokens.
        encode: function from text to token ids.
    """
    totals = np.concatenate(([0], np.cumsum(counts)))

    def look(room: int) -> int:
        return int(np.searchsorted(totals, room, side="right")) - 1

    fits, tokens, too_many = 0, bare, len(totals)
    k = look(limit - bare)
    while fits < k < too_many:
        measured = len(encode(build(k)))
        nearer = look(int(totals[k]) + limit - measured)
        if measured <= limit:
            fits, tokens = k, measured
            k = min(nearer, too_many - 1)
        else:
            too_many = k
            k = max(nearer, fits + 1)
    return fits, tokens
