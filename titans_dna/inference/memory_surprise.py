"""Recording the surprise of a language model's memories while it reads."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from titans_core import NeuralMemory, TitansLM
from titans_core.nn import momentary_surprise
from titans_dna.network.stream import hooked

__all__ = ["listening"]


@contextmanager
def listening(network: TitansLM) -> Iterator[list[list[Tensor]]]:
    """Record the surprise of each memory within the context: a list per memory, to which ``[B, T, H]`` is appended.

    Persistent tokens, if any, come before the first token.

    Raises:
        ValueError: the network has no memory.
    """

    def hear(memory: Any, given: tuple[Any, ...], out: Any) -> None:
        recorded[memory].append(momentary_surprise(memory, given[0], given[1] if len(given) > 1 else None))

    memories = [module for module in network.modules() if isinstance(module, NeuralMemory)]
    if not memories:
        raise ValueError(f"architecture {network.config.architecture!r} has no memory, so memory=True is not possible.")
    recorded: dict[NeuralMemory, list[Tensor]] = {memory: [] for memory in memories}
    with hooked(memories, hear):
        yield list(recorded.values())
