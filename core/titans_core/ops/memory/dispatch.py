"""Backend selection."""

import functools
import importlib.util
import os
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from titans_core.ops.memory.chunk import chunk_memory
from titans_core.ops.memory.naive import naive_memory
from titans_core.ops.memory.state import MemoryState
from titans_core.warn import warn_caller

BACKENDS = ("naive", "chunk", "triton")

_HAS_TRITON = importlib.util.find_spec("triton") is not None

Run = Callable[..., tuple[Tensor, MemoryState]]


def resolve_backend(backend: str, q: Tensor, weights: Sequence[Tensor], chunk_size: int) -> str:
    """Return the backend to run. "auto" gives "triton" on CUDA where it can run, else "chunk".

    If "auto" cannot run the kernels on CUDA, a warning gives the reason, once per reason.

    Args:
        backend: "auto", or one of ``BACKENDS``.
        q: queries, as passed to :func:`titans_core.neural_memory`.
        weights: memory weights, one tensor ``[..., d_in, d_out]`` per layer.
        chunk_size: number of tokens per chunk.

    Raises:
        ValueError: if the name is unknown, or "triton" cannot run; the message gives the reason.
    """
    check_backend(backend)
    if backend in ("naive", "chunk"):
        return backend
    if backend == "auto" and not q.is_cuda:
        return "chunk"
    reason = why_not_triton(q, weights, chunk_size)
    if reason is None:
        return "triton"
    if backend == "triton":
        raise ValueError(f"backend='triton' cannot run here: {reason}. Use backend='chunk' or 'auto'.")
    if not torch.compiler.is_compiling():
        _warn(reason)
    return "chunk"


@functools.cache
def _warn(reason: str) -> None:
    warn_caller(f"The Triton kernels cannot run here; using backend='chunk' instead: {reason}.")


def why_not_triton(q: Tensor, weights: Sequence[Tensor], chunk_size: int) -> str | None:
    """Return why the memory's kernels cannot run on these inputs, or None if they can."""
    if (reason := why_no_kernels(q.device)) is not None:
        return reason
    from titans_core.ops.memory.triton.launch import unsupported

    return unsupported(q, weights, chunk_size)


def why_no_kernels(device: torch.device) -> str | None:
    """Return why no Triton kernels can be launched on tensors of a device, or None if they can."""
    if not _HAS_TRITON:
        return "Triton is not installed (pip install 'titans-suite[triton]', Linux only)"
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the tensors are on {device}, and the kernels need a CUDA device"
    from titans_core.ops.memory.triton.version import LEAST, too_old

    if (version := too_old()) is not None:
        return f"the kernels need Triton {LEAST} or newer, which newer PyTorch installs; found {version}"
    return None


def backend_of(name: str) -> Run:
    """Return the function that runs a backend, given the name from :func:`resolve_backend`."""
    if name == "triton":
        from titans_core.ops.memory.triton.memory import triton_memory

        return triton_memory
    return naive_memory if name == "naive" else chunk_memory


def check_backend(backend: str) -> None:
    """Raise a ValueError unless ``backend`` is "auto" or one of ``BACKENDS``."""
    if backend not in ("auto", *BACKENDS):
        raise ValueError(f"backend must be 'auto' or one of {sorted(BACKENDS)}, got {backend!r}.")
