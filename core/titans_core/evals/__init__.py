"""Long-context evaluations: recall of pairs (MQAR), a needle in a haystack (S-NIAH), facts in a book (BABILong).

Each module has functions that create seeded samples and score answers. :func:`evaluate` runs a model on the samples.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from titans_core.evals import babi, babilong, mqar, niah
    from titans_core.evals.run import evaluate

__all__ = ["babi", "babilong", "evaluate", "mqar", "niah"]


def __getattr__(name: str) -> Any:
    if name == "evaluate":
        return import_module("titans_core.evals.run").evaluate
    if name in __all__:
        return import_module(f"titans_core.evals.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
