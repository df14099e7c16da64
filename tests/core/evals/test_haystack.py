"""Laws of splitting a text into sentences and filling a context with it."""

import pytest

from titans_core.evals.haystack import Haystack, most_that_fit, sentences


def test_sentences_hold_every_word_in_order(book):
    assert " ".join(sentences(book)).split() == book.split()


@pytest.mark.real_data
def test_sentences_hold_every_word_of_a_novel_in_order(novel):
    found = sentences(novel)
    assert " ".join(found).split() == novel.split()
    assert 10 < len(novel.split()) / len(found) < 25


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It rains. It pours!  Does it?", ["It rains.", "It pours!", "Does it?"]),
        ("It\nrains.\nIt pours.", ["It rains.", "It pours."]),
        ("CHAPTER I\n\nIt rains.", ["CHAPTER I", "It rains."]),
        ("“It rains.” “So?” he said.", ["“It rains.”", "“So?” he said."]),
        ("Mr. Lorry met Dr. Manette. They spoke.", ["Mr. Lorry met Dr. Manette.", "They spoke."]),
        (" \n \n ", []),
    ],
)
def test_where_a_sentence_ends(text, found):
    assert sentences(text) == found


def test_short_sentences_can_be_left_out():
    assert sentences("CHAPTER I\n\nNo. It rains on us. So it does.", min_words=3) == ["It rains on us.", "So it does."]


def test_a_window_goes_round_and_holds_more_than_was_asked(encode):
    haystack = Haystack([["aa", "bb"], ["cc"], ["dd"]], " ", encode)
    window = haystack.window(2, 40)
    assert window.pieces[:5] == ["dd", "aa", "bb", "cc", "dd"]
    assert window.begins[:4] == [0, 1, 3, 4]
    assert sum(window.tokens) > 40


@pytest.mark.parametrize("encode", [str.encode, lambda text: ["begin", *text.split()]], ids=["bytes", "words"])
def test_a_piece_counts_as_the_tokens_it_adds_to_a_text(encode):
    window = Haystack([["aa", "bb,", "cc"], ["d."]], " ", encode).window(0, 40)
    text = "It is so." + "".join(f" {piece}" for piece in window.pieces)
    assert len(encode(text)) == len(encode("It is so.")) + sum(window.tokens)


@pytest.mark.parametrize("limit", [*range(3, 60), 400])
def test_as_many_pieces_as_fit_and_not_one_more(limit, encode):
    """Where token counts of pieces add up and where they do not, whatever was declared."""
    pieces = [("word " * (1 + i % 3)).strip() + "." for i in range(200)]
    bare = len(encode("?"))

    def build(k):
        return " ".join([*pieces[:k], "?"])

    k, tokens = most_that_fit(build, bare, [len(encode(" " + p)) - len(encode("")) for p in pieces], limit, encode)
    assert len(encode(build(k))) == tokens <= limit
    if encode.__name__ != "by_fours":
        assert len(encode(build(k + 1))) > limit
    for wrong in (1, 100):  # a wrong count may leave room, and never takes too much
        k, tokens = most_that_fit(build, bare, [wrong] * 200, limit, encode)
        assert len(encode(build(k))) == tokens <= limit


def test_the_whole_text_is_encoded_once_where_counts_add_up():
    encoded = []

    def encode(text):
        encoded.append(text)
        return text.encode()

    assert most_that_fit(lambda k: "ab" * k, 0, [2] * 1000, 777, encode) == (388, 776)
    assert len(encoded) == 1


@pytest.mark.parametrize("count", [8, 20])
def test_wrong_counts_are_corrected_by_measured_ones(count):
    encoded = []

    def encode(text):
        encoded.append(text)
        return text.encode()

    k, tokens = most_that_fit(lambda k: "0123456789" * k, 0, [count] * 2000, 7777, encode)
    assert 7777 - count < 10 * k == tokens <= 7777
    assert len(encoded) <= 10
