"""The engine of each backend."""

from titans_core.ops.memory.groups import Groups
from titans_core.ops.memory.pieces import Engine


def engine_of(backend: str) -> type[Engine]:
    """Return the engine of "chunk" or "triton". The reference definition, "naive", has none."""
    if backend == "triton":
        from titans_core.ops.memory.triton.engine import Kernels

        return Kernels
    return {"chunk": Groups}[backend]
