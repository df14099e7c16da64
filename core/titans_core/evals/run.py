"""A model between samples and their score."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar


class Asked(Protocol):
    """A sample that is asked by its prompt."""

    @property
    def prompt(self) -> str: ...


SampleT = TypeVar("SampleT", bound=Asked)


def evaluate(
    generate: Callable[[str], str], samples: Iterable[SampleT], score: Callable[[str, SampleT], float]
) -> float:
    """The mean score of what a model says to each prompt, in [0, 1].

    Args:
        generate: the model: a prompt in, its continuation out (without the prompt).
        samples: of :func:`titans_core.evals.niah.samples` or :func:`titans_core.evals.babilong.samples`.
        score: a continuation and its sample in, 0 to 1 out; for needles
            ``lambda said, sample: niah.score(said, sample.answers)``.

    Raises:
        ValueError: for no samples.
    """
    scores = [score(generate(sample.prompt), sample) for sample in samples]
    if not scores:
        raise ValueError("samples is empty: there is nothing to evaluate. (A generator can be read only once.)")
    return sum(scores) / len(scores)
