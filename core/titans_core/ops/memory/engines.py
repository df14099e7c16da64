"""Which engine a backend runs on."""

from titans_core.ops.memory.groups import Groups
from titans_core.ops.memory.pieces import Engine


def engine_of(backend: str) -> type[Engine]:
    """The engine of "chunk" or "triton". The definition, "naive", has none."""
    if backend == "triton":
        from titans_core.ops.memory.triton.engine import Kernels

        return Kernels
    return {"chunk": Groups}[backend]
