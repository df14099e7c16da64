"""Reading bAbI: well-formed files, and errors that locate the fault in malformed ones."""

import gzip

import pytest

from titans_core.evals.babi import Story, labels, read_task

TASK = """\
1 Mary moved to the bathroom.
2 John went to the hallway.
3 Where is Mary? \tbathroom\t1
4 Mary went to the garden.
5 Where is Mary? \tgarden\t4
1 The office is north of the kitchen.
2 The kitchen is north of the hall.
3 What is north of the hall?\tkitchen\t2 1
"""
MARY = ("Mary moved to the bathroom.", "John went to the hallway.", "Mary went to the garden.")


def write(folder, text, name="qa.txt"):
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["qa.txt", "qa.txt.gz"])
def test_each_question_is_a_story_with_all_facts_before_it(tmp_path, name):
    assert read_task(write(tmp_path, TASK, name)) == [
        Story(MARY[:2], "Where is Mary?", "bathroom", (0,)),
        Story(MARY, "Where is Mary?", "garden", (2,)),
        Story(
            ("The office is north of the kitchen.", "The kitchen is north of the hall."),
            "What is north of the hall?",
            "kitchen",
            (1, 0),
        ),
    ]


def test_labels_are_all_answers(tmp_path):
    assert labels(read_task(write(tmp_path, TASK))) == {"bathroom", "garden", "kitchen"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "a number, a space and a sentence"),
        ("Mary left.", "a number, a space and a sentence"),
        ("6", "a number, a space and a sentence"),
        ("6  ", "a number, a space and a sentence"),
        ("-6 Mary left.", "a number, a space and a sentence"),
        ("7 Mary left.", "number 6, or 1 for a new story"),
        ("6 Where is Mary?\tgarden", "a question, its answer and its supporting lines"),
        ("6 Where is Mary?\tgarden\t4\t5", "a question, its answer and its supporting lines"),
        ("6 Where is Mary?\t\t4", "a question, its answer and its supporting lines"),
        ("6 Where is Mary?\tgarden\t6", r"supporting lines among the story's facts before it, \[1, 2, 4\]"),
        ("6 Where is Mary?\tgarden\t3", r"supporting lines among the story's facts before it, \[1, 2, 4\]"),
        ("6 Where is Mary?\tgarden\tfour", r"supporting lines among the story's facts before it, \[1, 2, 4\]"),
    ],
)
def test_a_malformed_line_is_named_with_file_and_number(tmp_path, line, message):
    lines = TASK.splitlines()
    lines.insert(5, line)
    with pytest.raises(ValueError, match=rf"qa\.txt, line 6: got .*, expected {message}"):
        read_task(write(tmp_path, "\n".join(lines)))


def test_a_file_that_begins_in_mid_story_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"line 1: got '2 John went to the hallway\.', expected number 1\."):
        read_task(write(tmp_path, TASK.partition("\n")[2]))


@pytest.mark.parametrize("text", ["", "1 Mary moved to the bathroom.\n"])
def test_a_file_without_a_question_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match=r"qa\.txt contains no question: a question line is"):
        read_task(write(tmp_path, text))


@pytest.mark.real_data
def test_the_published_files_are_read_whole(real_data):
    paths = sorted((real_data / "lm" / "babi").glob("*/qa*.txt.gz"))
    assert len(paths) == 14
    rooms = {"bathroom", "bedroom", "garden", "hallway", "kitchen", "office"}
    for path in paths:
        stories = read_task(path)
        assert len(stories) == (10_000 if path.parent.name == "en-10k" else 1000)
        assert labels(stories) == (
            {"Bill", "Fred", "Jeff", "Mary", "apple", "football", "milk"} if path.name.startswith("qa5") else rooms
        )
        support = {"qa1": {1}, "qa2": {2}, "qa3": {3}, "qa4": {1}, "qa5": {1}}[path.name[:3]]
        assert {len(story.support) for story in stories} == support
        # what the score counts on: no question names its answer
        assert not any(story.answer in story.question.rstrip("?").split() for story in stories)
