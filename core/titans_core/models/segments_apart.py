"""MAC under ``torch.compile`` with dynamic lengths: its segments are compiled one by one.

This is a module of its own because the mark imports ``torch._dynamo``, which takes a second.
"""

import torch

from titans_core.models.mac import MemoryAsContext
from titans_core.ops.memory.lengths import TOLD

_WHY = {"reason": "with dynamic lengths, MAC compiles its segments one by one: do not use fullgraph=True"}

# not compiled itself; what it calls is
segments_apart = torch.compiler.disable(MemoryAsContext._segments, recursive=False, **(_WHY if TOLD else {}))
