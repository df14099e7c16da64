"""How much shared memory the kernels need, and on which devices they run.

A block of threads can have 227 KB on data centre GPUs from Hopper on, which is enough for every supported shape, 163 KB
on an A100, and 99 KB on consumer GPUs since Ampere.
"""

import torch

CHUNKS = (16, 32, 64, 128)
OLDEST = 8  # major compute capability of Ampere: earlier GPUs have no bfloat16 products

# Kilobytes for each of CHUNKS, by number of layers, bfloat16 tokens, and width of keys and values: what the largest of
# the five kernels takes with its smallest choice, on Hopper or Ampere, whichever needs more. Compiled ahead of time by
# benchmarks/memory_kernels.py.
KILOBYTES = {
    (1, True): {32: (4, 8, 24, 80), 64: (6, 14, 32, 96), 128: (12, 26, 56, 128)},
    (1, False): {32: (4, 8, 24, 80), 64: (8, 16, 32, 96), 128: (16, 32, 64, 128)},
    (2, True): {32: (6, 10, 28, 96), 64: (12, 16, 32, 112), 128: (24, 30, 60, 128)},
    (2, False): {32: (6, 8, 24, 80), 64: (12, 16, 32, 96), 128: (24, 32, 64, 128)},
}


def kilobytes(layers: int, bf16: bool, width: int, chunk_size: int) -> int:
    """Shared memory that a supported shape needs, in KB."""
    of_width = KILOBYTES[layers, bf16]
    needed = of_width[min(size for size in of_width if size >= width)]
    return next(amount for size, amount in zip(CHUNKS, needed, strict=True) if size >= chunk_size)


def lacking(device: torch.device, layers: int, bf16: bool, width: int, chunk_size: int) -> str | None:
    """What a device lacks to run a supported shape, or None."""
    if is_older(device):
        return f"the kernels need an NVIDIA GPU of compute capability {OLDEST}.0 (Ampere) or newer"
    _, has, _ = _device(device)
    needs = kilobytes(layers, bf16, width, chunk_size)
    if has < 1024 * needs:
        return (
            f"chunks of {chunk_size} {'bfloat16' if bf16 else 'float32'} tokens of width {width} need {needs} KB of "
            f"shared memory, and this device has {has // 1024}; smaller chunks need less"
        )
    return None


def is_older(device: torch.device) -> bool:
    """Whether a GPU is older than Ampere, or not of NVIDIA."""
    return _device(device)[0] < OLDEST


def processors(device: torch.device) -> int:
    """The number of multiprocessors of a GPU."""
    return _device(device)[2]


@torch.compiler.assume_constant_result  # the device query cannot be traced
def _device(device: torch.device) -> tuple[int, int, int]:
    """Major compute capability, 0 with ROCm, bytes of shared memory that a block can request, and multiprocessors."""
    found = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        return 0, 0, found.multi_processor_count
    memory: int = found.shared_memory_per_block_optin  # type: ignore[attr-defined]
    return found.major, memory, found.multi_processor_count
