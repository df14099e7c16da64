"""Which engine a backend runs on."""

from titans_core.ops.memory.groups import Groups
from titans_core.ops.memory.pieces import Engine


def engine_of(backend: str) -> type[Engine]:
    """The engine of backend "chunk". The definition, "naive", has none."""
    return {"chunk": Groups}[backend]
