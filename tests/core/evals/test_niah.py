"""Laws of a needle in a haystack."""

import re

import numpy as np
import pytest

from titans_core.evals import evaluate, niah, words
from titans_core.evals.haystack import sentences
from titans_core.evals.needles import NOISE
from titans_core.evals.words import ADJECTIVES, NOUNS

NEEDLE = re.compile(r"One of the special magic (\w+)s for (\S+) is: (\S+)\.")
NOISY = r"\n?(The grass is green\. The sky is blue\. The sun is yellow\. Here we go\. There and back again\.)"
SETTINGS = [
    pytest.param({"value": value, "template": template, "in_book": in_book}, id=f"{value}-{name}-{where}")
    for value in niah.VALUES
    for name, template in (("ruler", niah.RULER), ("short", niah.SHORT))
    for where, in_book in (("noise", False), ("book", True))
]


def make(setting, book, n=12, length=700, encode=str.encode, seed=0):
    text = book if setting["in_book"] else None
    return niah.samples(n, length, encode, text=text, value=setting["value"], template=setting["template"], seed=seed)


def without_needle(sample, template, kind):
    """The haystack without the needle, and its part before the needle."""
    found = NEEDLE.search(sample.prompt)
    head, _, tail = template.filled(kind, found[2], found[3])
    assert sample.prompt.startswith(head)
    assert sample.prompt.endswith(tail)
    start, end = found.span()
    return sample.prompt[len(head) : start].strip(), sample.prompt[end : len(sample.prompt) - len(tail)].strip()


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_value_occurs_once_in_the_prompt_inside_its_needle(setting, book):
    for sample in make(setting, book):
        (found,) = NEEDLE.finditer(sample.prompt)
        kind, key, value = found.groups()
        assert (kind, (value,)) == (setting["value"], sample.answers)
        assert sample.prompt.casefold().count(value.casefold()) == 1
        before, after = without_needle(sample, setting["template"], kind)
        assert key not in before + after
        assert sample.prompt.count(key) == sample.text.count(key) > 1  # it is asked for


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_sample_is_as_long_as_allowed(setting, book, encode):
    pieces = book.split() if setting["in_book"] else setting["template"].noise
    longest = max(len(encode(" " + piece)) for piece in pieces)
    for length in (520, 733, 2000):
        for sample in make(setting, book, n=4, length=length, encode=encode):
            assert len(encode(sample.text)) == sample.length <= length
            assert sample.length > length - longest - 1


def test_in_noise_one_line_more_would_not_fit(encode):
    line = "\n" + " ".join(NOISE)
    for sample in niah.samples(6, 800, encode):
        assert len(encode(sample.text.replace(line, line + line, 1))) > 800


def test_around_the_needle_is_nothing_but_whole_noise():
    for sample in niah.samples(40, 1200, str.encode):
        before, after = without_needle(sample, niah.RULER, "number")
        for part in (before, after):
            assert re.fullmatch(f"({NOISY})*", part)


def test_around_the_needle_is_a_stretch_of_the_book(book):
    flat = " ".join(book.split())
    for sample in niah.samples(40, 1200, str.encode, text=book):
        before, after = without_needle(sample, niah.RULER, "number")
        assert f"{before} {after}".strip() in f"{flat} {flat}"
        assert before == "" or before.endswith(".") or after == ""  # between sentences, or after all that is there


@pytest.mark.parametrize("in_book", [False, True], ids=["noise", "book"])
def test_the_needle_is_at_its_depth(in_book, book):
    for sample in niah.samples(120, 4000, str.encode, text=book if in_book else None):
        before, after = without_needle(sample, niah.RULER, "number")
        count = (lambda part: len(sentences(part))) if in_book else (lambda part: len(re.findall(NOISY, part)))
        whole = count(before) + count(after)
        assert count(before) == int(whole * sample.depth / 100)


def test_depths_are_forty_from_end_to_end_and_all_are_used():
    assert niah.DEPTHS[:3] == (0, 3, 5)
    assert niah.DEPTHS[-1] == 100
    assert len(niah.DEPTHS) == 40
    assert {sample.depth for sample in niah.samples(500, 500, str.encode)} == set(niah.DEPTHS)


def test_the_words_around_are_rulers():
    sample = niah.samples(1, 2000, str.encode)[0]
    key = NEEDLE.search(sample.prompt)[2]
    assert sample.prompt.startswith(
        "A special magic number is hidden within the following text. Make sure to memorize it. "
        "I will quiz you about the number afterwards.\n"
    )
    assert sample.prompt.endswith(
        f"\nWhat is the special magic number for {key} mentioned in the provided text?"
        f" The special magic number for {key} mentioned in the provided text is"
    )
    assert sample.text == f"{sample.prompt} {sample.answers[0]}"


@pytest.mark.parametrize("setting", SETTINGS)
def test_same_seed_same_samples_and_a_shorter_list_is_its_beginning(setting, book):
    first, again, fewer, other = (make(setting, book, n, seed=seed) for n, seed in ((8, 5), (8, 5), (3, 5), (8, 6)))
    assert first == again
    assert fewer == first[:3]
    assert not {sample.answers for sample in first} & {sample.answers for sample in other}
    assert len({sample.answers for sample in first}) == 8


@pytest.mark.parametrize("digits", [1, 3, 7, 18])
def test_numbers_have_the_requested_digits(digits):
    answers = [sample.answers[0] for sample in niah.samples(60, 800, str.encode, digits=digits)]
    assert all(re.fullmatch(rf"[1-9]\d{{{digits - 1}}}", answer) for answer in answers)
    if digits == 1:
        assert set(answers) == set("123456789")


def test_a_value_that_the_haystack_holds_is_not_used():
    text = "There were 1 and 2 and 3 and 4 and 6 and 7 and 8 and 9 of them."
    assert {sample.answers for sample in niah.samples(5, 800, str.encode, text=text, digits=1)} == {("5",)}
    with pytest.raises(ValueError, match=r"already contains all 100 values drawn as a number.*Use more digits"):
        niah.samples(1, 800, str.encode, text=text + " And 5.", digits=1)


def test_the_short_template_leaves_half_of_256_bytes_to_the_haystack(book):
    for text in (None, book):
        for sample in niah.samples(50, 256, str.encode, template=niah.SHORT, text=text, digits=4):
            before, after = without_needle(sample, niah.SHORT, "number")
            assert len(before) + len(after) > 110


def test_a_reader_who_finds_the_needle_scores_1_and_one_who_does_not_scores_0():
    samples = niah.samples(20, 900, str.encode, value="uuid")

    def score(answer, sample):
        return niah.score(answer, sample.answers)

    assert evaluate(lambda prompt: f" {NEEDLE.search(prompt)[3].upper()}.", samples, score) == 1
    assert evaluate(lambda prompt: NEEDLE.search(prompt)[3][:-1], samples, score) == 0
    assert evaluate(lambda prompt: "", samples, score) == 0


def test_the_score_is_the_share_of_answers_found():
    assert niah.score("It is ABC.", ["abc"]) == 1
    assert niah.score("abc", ["abc", "def"]) == 0.5
    assert niah.score("ab c", ["abc"]) == 0
    for answers in ([], "abc"):
        with pytest.raises(ValueError, match="answers must be a sequence of at least one string"):
            niah.score("abc", answers)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_samples": 0}, "num_samples must be an integer >= 1, got 0"),
        ({"length": 800.5}, r"length must be an integer >= 1, got 800\.5"),
        ({"length": 100}, "length 100 leaves no room for a haystack: .* take 3.. tokens.* template=SHORT"),
        ({"length": 400}, "length 400 leaves no room for a haystack: .* first piece 90 more"),
        ({"value": "numbers"}, r"value must be one of .*, got 'numbers'"),
        ({"digits": 0}, "digits must be 1 to 18, got 0"),
        ({"digits": 19}, "digits must be 1 to 18, got 19"),
        ({"text": " \n"}, "text has no words"),
    ],
)
def test_impossible_samples_are_refused_with_a_plain_message(arguments, message):
    with pytest.raises(ValueError, match=message):
        niah.samples(**{"num_samples": 1, "length": 800, "encode": str.encode, **arguments})


def test_few_texts_are_encoded_whole(book):
    """At 16 thousand tokens the haystack dominates the time: words are tokenized once, and each sample about once."""
    longest = []

    def encode(text):
        longest.append(len(text))
        return text.encode()

    niah.samples(20, 16_000, encode, text=book)
    assert sum(n > 1000 for n in longest) <= 40


def test_there_are_many_keys_and_no_word_occurs_twice():
    assert len(set(ADJECTIVES)) * len(set(NOUNS)) == len(ADJECTIVES) * len(NOUNS) > 5000


@pytest.mark.real_data
@pytest.mark.parametrize("value", niah.VALUES)
def test_needles_in_a_novel(novel, value, encode):
    samples = niah.samples(30, 4096, encode, text=novel, value=value)
    for sample in samples:
        (found,) = NEEDLE.finditer(sample.prompt)
        assert sample.prompt.count(sample.answers[0]) == 1
        assert found[3] == sample.answers[0]
        assert 4096 - 30 < len(encode(sample.text)) == sample.length <= 4096
    assert np.unique([sample.prompt[120:200] for sample in samples]).size > 25  # each begins elsewhere


def test_a_word_that_is_hidden_is_never_its_own_key(monkeypatch):
    monkeypatch.setattr(words, "ADJECTIVES", ("amber",))
    monkeypatch.setattr(words, "NOUNS", ("fox", "owl"))
    for sample in niah.samples(20, 1500, str.encode, value="word"):
        assert sample.prompt.count(sample.answers[0]) == 1
