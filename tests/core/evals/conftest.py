"""A generated book, and three ways to count tokens."""

import gzip
import json
import re

import numpy as np
import pytest


def by_bytes(text):
    return text.encode()


def by_words(text):
    """A start token, then words and punctuation: counts of pieces add up, except for the start token."""
    return [0, *(1 for _ in re.finditer(r"\w+|[^\w\s]", text))]


def by_fours(text):
    """Four characters per token from the start: tokens cross the borders of pieces, so counts never add up."""
    return [0] * -(-len(text) // 4)


@pytest.fixture(params=[by_bytes, by_words, by_fours], ids=lambda encode: encode.__name__)
def encode(request):
    return request.param


@pytest.fixture(scope="session")
def book():
    """About 400 different sentences of 6 to 15 made-up words, in paragraphs."""
    rng = np.random.default_rng(0)
    syllables = ["ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu"]
    words = ["".join(rng.choice(syllables, 3)) for _ in range(400)]
    made = []
    for i in range(400):
        made.append(" ".join(rng.choice(words, rng.integers(6, 16))).capitalize() + ".")
        made.append("\n\n" if i % 10 == 9 else "\n")
    return "".join(made)


@pytest.fixture(scope="session")
def novel(real_data):
    with gzip.open(real_data / "lm" / "gutenberg" / "books.jsonl.gz", "rt", encoding="utf-8") as lines:
        return json.loads(next(lines))["text"]
