"""Laws of BABILong: facts hidden in a book."""

import re

import numpy as np
import pytest

from titans_core.evals import babi, babilong, evaluate
from titans_core.evals.haystack import sentences

ROOMS = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
PEOPLE = ("Daniel", "John", "Mary", "Sandra")
MOVE = re.compile(rf"({'|'.join(PEOPLE)}) (?:went back|went|moved|travelled|journeyed) to the (\w+)\.")


@pytest.fixture(scope="module")
def stories():
    """Stories like those of task 1."""
    rng = np.random.default_rng(1)
    made = []
    for _ in range(60):
        moves = [(PEOPLE[rng.integers(4)], ROOMS[rng.integers(6)]) for _ in range(rng.integers(2, 11))]
        person = moves[rng.integers(len(moves))][0]
        last = max(i for i, (who, _) in enumerate(moves) if who == person)
        facts = tuple(f"{who} moved to the {room}." for who, room in moves)
        made.append(babi.Story(facts, f"Where is {person}?", moves[last][1], (last,)))
    return made


def solve(prompt):
    """The last place of the person in the question."""
    context, _, question = prompt.rpartition("\nQuestion: Where is ")
    person = question.partition("?")[0]
    return [room for who, room in MOVE.findall(context) if who == person][-1]


def exact(answer, sample):
    return babilong.score(answer, sample.answer, ROOMS, sample.story.question)


def stretch(background):
    """The source of the background: the book's longer sentences, twice in a row."""
    book = " ".join(sentences(background, babilong.MIN_WORDS))
    return f"{book} {book}"


def facts_between(sample, flat):
    """Split the context into facts, each with the preceding sentences of the book; nothing may be left over."""
    rest, passed = sample.prompt.partition("\nQuestion:")[0], []
    for fact in sample.story.facts:
        before, _, rest = rest.partition(fact)
        passed.append(before.strip())
    passed.append(rest.strip())
    assert " ".join(part for part in passed if part) in flat
    return passed


def test_without_background_the_prompt_is_the_story(stories):
    for story, sample in zip(stories, babilong.samples(stories, None, str.encode), strict=True):
        assert sample.prompt == f"{' '.join(story.facts)}\nQuestion: {story.question}\nAnswer:"
        assert sample.text == f"{sample.prompt} {story.answer}"
        assert sample.length == len(sample.text)


def test_facts_keep_their_order_and_the_rest_is_a_stretch_of_the_book(stories, book):
    flat = stretch(book)
    for sample in babilong.samples(stories, 2000, str.encode, background=book):
        assert all(part == "" or part.endswith(".") for part in facts_between(sample, flat))


def test_taking_the_background_out_leaves_the_story(stories, book):
    own = set(sentences(book))
    for sample in babilong.samples(stories, 2000, str.encode, background=book):
        context = sample.prompt.partition("\nQuestion:")[0]
        assert tuple(s for s in sentences(context) if s not in own) == sample.story.facts


def test_a_sample_is_as_long_as_allowed(stories, book, encode):
    one = max(len(encode(s)) for s in sentences(book))
    for length in (500, 777, 3000):
        for sample in babilong.samples(stories, length, encode, background=book):
            assert len(encode(sample.text)) == sample.length <= length
            assert sample.length >= length - one - 1


def test_each_place_between_two_sentences_is_as_likely_as_another():
    story = babi.Story(("Mary moved to the garden.",), "Where is Mary?", "garden", (0,))
    book = " ".join(["It rained all day long."] * 20)
    (alone,) = babilong.samples([story], None, str.encode)
    length = alone.length + 3 * len(" It rained all day long.")  # three sentences leave four places
    contexts = [
        sample.prompt.partition("\nQuestion:")[0]
        for sample in babilong.samples([story] * 2000, length, str.encode, background=book)
    ]
    before = [len(sentences(context.partition("Mary")[0])) for context in contexts]
    assert {len(sentences(context)) for context in contexts} == {4}
    assert np.bincount(before, minlength=4) / 2000 == pytest.approx(0.25, abs=0.04)


def test_the_answer_follows_from_the_facts(stories, book):
    samples = babilong.samples(stories, 1500, str.encode, background=book)
    assert evaluate(solve, samples, exact) == 1
    assert evaluate(lambda prompt: "garden", samples, exact) == np.mean([s.answer == "garden" for s in stories])


def test_same_seed_same_samples_and_a_shorter_list_is_its_beginning(stories, book):
    def make(n, seed, length=900):
        return babilong.samples(stories[:n], length, str.encode, background=book, seed=seed)

    assert make(10, 5) == make(10, 5)
    assert make(3, 5) == make(10, 5)[:3]
    assert all(a.prompt != b.prompt for a, b in zip(make(10, 5), make(10, 6), strict=True))


def test_a_mixture_draws_each_of_its_lengths(stories, book):
    samples = babilong.samples(stories, [None, 1000, 2000], str.encode, background=book)
    bare = babilong.samples(stories, None, str.encode)
    kinds = [
        0 if sample == short else 1 if sample.length <= 1000 else 2 for sample, short in zip(samples, bare, strict=True)
    ]
    assert np.bincount(kinds).min() > 10
    assert all(sample.length > 1800 for sample, kind in zip(samples, kinds, strict=True) if kind == 2)


def test_a_curriculum_begins_without_background_and_keeps_what_came_before():
    assert babilong.curriculum(2000, 500) == [[None], [None, 500], [None, 500, 1000], [None, 500, 1000, 2000]]
    assert babilong.curriculum(700, 500)[-1] == [None, 500, 700]
    assert babilong.curriculum(500, 500) == [[None], [None, 500]]
    for shortest, longest in ((0, 500), (501, 500)):
        with pytest.raises(ValueError, match="shortest must be at least 1 and at most longest"):
            babilong.curriculum(longest, shortest)


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("garden", 1),
        (" The Garden.", 1),
        ("Mary is in the garden. Then she left for the office.", 1),
        ("garden or office", 0),
        ("in the office", 0),
        ("", 0),
        ("Yes. The garden", 0),
        ("gardener", 0),
    ],
)
def test_only_the_answer_may_be_named(answer, right):
    assert babilong.score(answer, "garden", ROOMS) == right


def test_an_answer_may_repeat_what_the_question_names():
    answer, question = "The kitchen is north of the hallway", "What is north of the hallway?"
    assert babilong.score(answer, "kitchen", ROOMS, question) == 1
    assert babilong.score(answer, "kitchen", ROOMS) == 0
    assert babilong.score(answer + " and office", "kitchen", ROOMS, question) == 0


def test_a_score_that_could_never_be_1_is_refused():
    with pytest.raises(ValueError, match="answer 'attic' is not one of the labels"):
        babilong.score("attic", "attic", ROOMS)
    with pytest.raises(ValueError, match=r"question 'Is it the garden\?' contains the answer 'garden'"):
        babilong.score("garden", "garden", ROOMS, "Is it the garden?")


def test_impossible_samples_are_refused_with_a_plain_message(stories, book):
    with pytest.raises(ValueError, match=r"story 0 takes \d+ tokens with its \d+ facts.*length is 40\. .*fewer facts"):
        babilong.samples(stories, 40, str.encode, background=book)
    with pytest.raises(ValueError, match=r"background has no sentence of at least 5 words.*length=None"):
        babilong.samples(stories, 2000, str.encode, background="Chapter 1")
    with pytest.raises(ValueError, match="length is an empty sequence"):
        babilong.samples(stories, [], str.encode, background=book)


@pytest.mark.real_data
def test_task_1_in_a_novel_is_solved_by_its_rule(real_data, novel, encode):
    stories = babi.read_task(real_data / "lm" / "babi" / "en" / "qa1_single-supporting-fact_test.txt.gz")
    samples = babilong.samples(stories[:200], 4096, encode, background=novel)
    assert evaluate(solve, samples, exact) == 1
    flat = stretch(novel)
    for sample in samples:
        assert len(encode(sample.text)) == sample.length <= 4096
        facts_between(sample, flat)


@pytest.mark.real_data
@pytest.mark.parametrize("task", ["qa2_two-supporting-facts", "qa3_three-supporting-facts", "qa5_three-arg-relations"])
def test_the_right_answer_scores_1_and_every_other_label_0(real_data, task):
    stories = babi.read_task(real_data / "lm" / "babi" / "en" / f"{task}_test.txt.gz")
    labels = babi.labels(stories)
    for story in stories:
        right = [label for label in labels if babilong.score(label, story.answer, labels, story.question)]
        assert right == [story.answer]
