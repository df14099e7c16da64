"""The neural long-term memory as a function: reference definition, fast exact backends, and one public entry point."""

from titans_core.ops.memory.api import neural_memory, read_memory
from titans_core.ops.memory.state import MemoryState

__all__ = ["MemoryState", "neural_memory", "read_memory"]
