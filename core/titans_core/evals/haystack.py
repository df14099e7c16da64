"""Text that fills a context: cut in pieces, counted once, and as many as fit."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

# Text to token ids; `str.encode` counts bytes.
Encode = Callable[[str], Sequence[int]]

_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(
    r"(?:(?<=[.!?])|(?<=[.!?][\"'”’)]))"
    r"(?<!\bMr\.)(?<!\bMrs\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bSt\.)"
    r" (?=[\"'“‘(]?[A-Z0-9])"
)


def sentences(text: str, min_words: int = 1) -> list[str]:
    """The sentences of a text in their order, white space made single; a paragraph's end is a sentence's end.

    Rules, no model: a stop, perhaps a closing quote, a space, and a capital or digit; not after Mr., Mrs., Ms., Dr.,
    St. Sentences of fewer than ``min_words`` words (headings, mostly) are left out.
    """
    found = []
    for paragraph in _PARAGRAPH.split(text):
        for sentence in _SENTENCE.split(" ".join(paragraph.split())):
            if sentence and sentence.count(" ") + 1 >= min_words:
                found.append(sentence)
    return found


class Window(NamedTuple):
    """A stretch of haystack: ``pieces``, the tokens of each, and the places in ``pieces`` where a sentence begins."""

    pieces: list[str]
    tokens: list[int]
    begins: list[int]


class Haystack:
    """Sentences in pieces that are added one by one; each different piece is counted once, when first needed.

    Args:
        sentences: at least one, of at least one piece each. After the last comes the first: a haystack has no end.
        joint: what stands between two pieces.
        encode: text to token ids.
    """

    def __init__(self, sentences: Sequence[Sequence[str]], joint: str, encode: Encode) -> None:
        self.sentences = sentences
        self.joint = joint
        self._encode = encode
        self._tokens: dict[str, int] = {}
        # counted behind a full stop: tokens that open any text (a begin mark, SentencePiece's space) cancel
        self._opening = len(encode("."))

    def window(self, start: int, tokens: int) -> Window:
        """Sentences from number ``start`` on, until together they have more than ``tokens``."""
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
    """How many pieces a text can hold within ``limit`` tokens, and the tokens it then has.

    The counts of the pieces say where to look; the whole text is encoded to be sure, and where tokens run across
    pieces the search goes on from what was measured. Two or three whole texts are encoded at most, as a rule one.

    Args:
        build: the text with its first k pieces.
        bare: the tokens of ``build(0)``, at most ``limit``.
        counts: tokens of each piece, about.
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
