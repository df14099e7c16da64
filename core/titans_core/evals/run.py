"""Run a model on samples and score it."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar


class Prompted(Protocol):
    """A sample with a prompt."""

    @property
    def prompt(self) -> str: ...


SampleT = TypeVar("SampleT", bound=Prompted)


def evaluate(
    generate: Callable[[str], str], samples: Iterable[SampleT], score: Callable[[str, SampleT], float]
) -> float:
    """Mean score of a model's continuations, in [0, 1].

    Args:
        generate: the model: takes a prompt and returns its continuation (without the prompt).
        samples: from :func:`titans_core.evals.niah.samples` or :func:`titans_core.evals.babilong.samples`.
        score: takes a continuation and its sample and returns a score from 0 to 1; for needles
            ``lambda answer, sample: niah.score(answer, sample.answers)``.

    Raises:
        ValueError: if there are no samples.
    """
    scores = [score(generate(sample.prompt), sample) for sample in samples]
    if not scores:
        raise ValueError("samples is empty: there is nothing to evaluate. (A generator can be read only once.)")
    return sum(scores) / len(scores)
