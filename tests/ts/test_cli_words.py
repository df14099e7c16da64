"""The command line rewords messages of Python: each phrase that it replaces is one that a message has."""

import ast
from itertools import pairwise
from pathlib import Path

import pytest

import titans_core
import titans_ts
from titans_ts.cli import words as cli_words

LONGEST = 12  # characters in place of a value


@pytest.fixture(scope="module")
def messages():
    """All texts in the code that a command line can reach: each is a list of its parts, with a value between two."""
    own = Path(cli_words.__file__)
    found = []
    for package in (titans_ts, titans_core):
        for path in Path(package.__file__).parent.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())) if path != own else ():
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append([node.value])
                elif isinstance(node, ast.JoinedStr):
                    text = "".join(part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
                    found.append(text.split("\0"))
    return found


def holds(parts, phrase):
    if any(phrase in part for part in parts):
        return True
    for before, after in pairwise(parts):
        begins = max(n for n in range(len(phrase)) if before.endswith(phrase[:n]))
        ends = max(n for n in range(len(phrase) - begins + 1) if after.startswith(phrase[len(phrase) - n :]))
        if ends and begins + ends >= max(len(phrase) - LONGEST, len(phrase) // 2):
            return True
    return False


@pytest.mark.parametrize("phrase", cli_words._OPTIONS)
def test_each_phrase_is_one_of_a_message(messages, phrase):
    assert any(holds(parts, phrase) for parts in messages)


@pytest.mark.parametrize("phrase", ["Drop or convert them; or, if", "set the zone: ds.dt", "exogenous season='auto's"])
def test_a_phrase_that_no_message_has_is_found_out(messages, phrase):
    assert not any(holds(parts, phrase) for parts in messages)
