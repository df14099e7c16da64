"""Packed tokens, and windows of them that make whole batches."""

import pytest

from titans_core.train.prepare import prepare
from titans_core.train.tokens import PackedTokens


@pytest.fixture(scope="session")
def corpus():
    return "".join(f"line {i} of the text\n" for i in range(64))


@pytest.fixture(scope="session")
def prepared(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "a.txt").write_text(corpus)
    prepare(folder / "a.txt", folder / "out", val_fraction=0.2, verbose=0)
    return folder / "out"


@pytest.fixture
def windows(prepared):
    found = PackedTokens(prepared, length=16)
    assert len(found) // 12 == 5
    return found


@pytest.fixture(scope="session")
def tokens(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    lines = (f"The {i}th line says {'abc' * (i % 7)}, and {i * i} is its square." for i in range(600))
    (folder / "text.txt").write_text("\n".join(lines))
    prepare([folder / "text.txt"], folder / "tokens", val_fraction=0.1, verbose=0)
    return folder / "tokens"
