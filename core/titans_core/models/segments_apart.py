"""MAC under ``torch.compile`` with dynamic lengths: its segments are compiled one by one.

This is a module of its own because the mark imports ``torch._dynamo``, which takes a second.
"""

from titans_core.models.mac import MemoryAsContext
from titans_core.ops.memory.lengths import between_graphs

segments_apart = between_graphs(
    MemoryAsContext._segments, "with dynamic lengths, MAC compiles its segments one by one: do not use fullgraph=True"
)
