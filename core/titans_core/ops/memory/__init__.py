"""The neural long-term memory as a function: a definition, an exact fast form, and one door to both."""

from titans_core.ops.memory.api import neural_memory, read_memory
from titans_core.ops.memory.state import MemoryState

__all__ = ["MemoryState", "neural_memory", "read_memory"]
