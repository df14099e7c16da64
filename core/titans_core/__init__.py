"""Neural long-term memory and language models of the Titans paper (arXiv:2501.00663).

Public names are imported on first access, so ``import titans_core`` alone does not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from titans_core.models import LMState, TitansConfig, TitansLM
    from titans_core.nn import NeuralMemory, NeuralMemoryState
    from titans_core.ops.memory import MemoryState, neural_memory

__all__ = ["LMState", "MemoryState", "NeuralMemory", "NeuralMemoryState", "TitansConfig", "TitansLM", "neural_memory"]

_HOME = {
    "LMState": "titans_core.models",
    "MemoryState": "titans_core.ops.memory",
    "NeuralMemory": "titans_core.nn",
    "NeuralMemoryState": "titans_core.nn",
    "TitansConfig": "titans_core.models",
    "TitansLM": "titans_core.models",
    "neural_memory": "titans_core.ops.memory",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
