"""The public names of the package, what importing it loads, and ``evaluate``."""

import subprocess
import sys

import pytest

import titans_core.evals as evals


def test_public_names():
    assert evals.__all__ == ["babi", "babilong", "evaluate", "mqar", "niah"]
    assert all(hasattr(evals, name) for name in evals.__all__)
    assert set(evals.__all__) <= set(dir(evals))
    with pytest.raises(AttributeError, match="no attribute 'perplexity'"):
        evals.perplexity  # noqa: B018


def test_only_recall_needs_torch():
    code = (
        "import sys; from titans_core.evals import babi, babilong, evaluate, niah; "
        "assert not {'torch', 'pandas'} & set(sys.modules); "
        "from titans_core.evals import mqar; assert 'torch' in sys.modules and 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_evaluate_returns_the_mean_score():
    prompts = []

    def generate(prompt):
        prompts.append(prompt)
        return prompt.upper()

    samples = [evals.niah.Sample(prompt, ("b",), 0, 1) for prompt in "abcb"]
    assert evals.evaluate(generate, iter(samples), lambda answer, s: evals.niah.score(answer, s.answers)) == 0.5
    assert prompts == list("abcb")


def test_nothing_to_evaluate_is_an_error():
    with pytest.raises(ValueError, match="samples is empty"):
        evals.evaluate(str, [], lambda answer, sample: 1.0)
