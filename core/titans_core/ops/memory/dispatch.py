"""Which backend runs: the one visible place where it is chosen."""

import functools
import importlib.util
import os
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.torch_version import TorchVersion

from titans_core.ops.memory.chunk import chunk_memory
from titans_core.ops.memory.naive import naive_memory
from titans_core.ops.memory.state import MemoryState

BACKENDS = ("naive", "chunk", "triton")

_HAS_TRITON = importlib.util.find_spec("triton") is not None
# the oldest that the kernels were run with; earlier CUDA builds of torch bring an older one
_LEAST_TRITON = "3.6"

Run = Callable[..., tuple[Tensor, MemoryState]]


def resolve_backend(backend: str, q: Tensor, v: Tensor, weights: Sequence[Tensor], chunk_size: int) -> str:
    """The backend that runs: for "auto", "triton" on CUDA where it can run, else "chunk".

    Where "auto" cannot run the kernels on CUDA, a warning says why and what runs instead, once for each reason.

    Args:
        backend: "auto", or one of ``BACKENDS``.
        q, v: queries and values, as given to :func:`titans_core.neural_memory`.
        weights: of the memory, one tensor ``[..., d_in, d_out]`` a layer.
        chunk_size: tokens of a chunk.

    Raises:
        ValueError: an unknown name, or "triton" where it cannot run; the message has the reason.
    """
    check_backend(backend)
    if backend in ("naive", "chunk"):
        return backend
    if backend == "auto" and not q.is_cuda:
        return "chunk"
    reason = why_not_triton(q, v, weights, chunk_size)
    if reason is None:
        return "triton"
    if backend == "triton":
        raise ValueError(f"backend='triton' cannot run here: {reason}. backend='chunk' can, or 'auto'.")
    if not torch.compiler.is_compiling():
        _warn(reason)
    return "chunk"


@functools.cache
def _warn(reason: str) -> None:
    # in the name of who called the door, neural_memory
    warnings.warn(f"The Triton kernels cannot run here, backend 'chunk' runs instead: {reason}.", stacklevel=4)


def why_not_triton(q: Tensor, v: Tensor, weights: Sequence[Tensor], chunk_size: int) -> str | None:
    """Why the kernels cannot run on these, or None if they can."""
    if not _HAS_TRITON:
        return "Triton is not installed (pip install 'titans-suite[triton]', Linux only)"
    if not q.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the tensors are on {q.device}, and the kernels need a CUDA device"
    if (version := _too_old()) is not None:
        return f"they need Triton {_LEAST_TRITON} or newer, as newer PyTorch brings it, not {version}"
    from titans_core.ops.memory.triton.launch import unsupported

    return unsupported(q, v, weights, chunk_size)


@torch.compiler.assume_constant_result  # not every PyTorch can trace the comparison
def _too_old() -> str | None:
    """The version of a Triton that lacks what the kernels' tuning asks of it."""
    import triton

    return triton.__version__ if TorchVersion(triton.__version__) < _LEAST_TRITON else None


def backend_of(name: str) -> Run:
    """The function that runs a backend, by the name that :func:`resolve_backend` returned."""
    if name == "triton":
        from titans_core.ops.memory.triton.memory import triton_memory

        return triton_memory
    return naive_memory if name == "naive" else chunk_memory


def check_backend(backend: str) -> None:
    """Raises a ValueError for a backend that there is not."""
    if backend not in ("auto", *BACKENDS):
        raise ValueError(f"backend must be 'auto' or one of {sorted(BACKENDS)}, got {backend!r}.")
