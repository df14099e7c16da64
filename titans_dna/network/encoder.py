"""Encoder of sequences: convolutions detect short motifs, and the neural memory combines them.

    bases [B, T]  ->  stem: convolutions, then the maximum of every ``pool`` positions  ->  blocks of the memory (LMM)

With ``positions``, the distances of each base from both ends, encoded as sines and cosines of several periods, are
added after the first convolution.

Sequences are padded on the right. Positions after the end are zero after each convolution, as outside of the tensor,
and the memory is causal. A sequence therefore has the same features alone and in a batch.

A sequence can also be given as proportions of the four bases, ``[B, T, 4]`` without padding: its :func:`one_hot`
encoding, or a point between two sequences. If proportions at a position add up to less than 1, the rest is N.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titans_core import NeuralMemory, TitansConfig
from titans_core.models.blocks import Block
from titans_core.models.lmm import MemoryAlone
from titans_core.nn.dropout import Dropout
from titans_core.nn.eager import eager_on_cpu
from titans_core.nn.norms import RMSNorm
from titans_dna.genomes.tokenizer import PAD, N

__all__ = ["BASES", "Encoder", "EncoderConfig", "Places", "one_hot", "within"]

BASES = 4
# width of the second convolution
_SECOND = 5
_HEAD = 16
# maximum number of bases that the stem reads at a time on a CPU
_BASES = 1 << 14
# periods of the position encoding, in bases
_PERIODS = tuple(8.0 * 2**i for i in range(8))


@dataclass(frozen=True)
class EncoderConfig:
    """Configuration of an :class:`Encoder`.

    Attributes:
        dim: width, a multiple of 16 (the width of a head).
        num_layers: number of memory blocks.
        chunk_size: number of positions after the stem whose gradients are computed at the same memory state.
        kernel_size: width of the first convolution in bases; odd.
        pool: number of stem positions pooled into one position of the memory.
        dropout: dropout rate after each convolution.
        memory_depth: number of layers of the memory; 1 is a linear memory.
        positions: whether the network sees the distance of each base from both ends of the sequence.
    """

    dim: int
    num_layers: int
    chunk_size: int
    kernel_size: int
    pool: int
    dropout: float
    memory_depth: int
    positions: bool

    def memory(self) -> TitansConfig:
        """Configuration of the memory blocks."""
        return TitansConfig(
            architecture="lmm",
            dim=self.dim,
            num_layers=self.num_layers,
            num_heads=self.dim // _HEAD,
            hidden=2 * self.dim,
            num_persistent=4,
            memory_depth=self.memory_depth,
            chunk_size=self.chunk_size,
        )


class Encoder(nn.Module):
    """Ids ``[B, T]`` -> features ``[B, S, dim]``, one per ``pool`` bases, and their mask ``[B, S]``."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config, self.dim = config, config.dim
        self.stem = Stem(config)
        memory = config.memory()
        self.blocks = nn.ModuleList(Block(memory, MemoryAlone(memory)) for _ in range(config.num_layers))
        self.norm = RMSNorm(memory.dim)
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, NeuralMemory):  # the memory starts with a small contribution
                    module.weights[-1].mul_(0.1)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Encode ids ``[B, T]`` of :mod:`titans_dna.genomes.tokenizer`, or proportions of the bases ``[B, T, 4]``."""
        # tensors are large before pooling; on a CPU, reading a few sequences at a time keeps them in the caches and
        # takes three quarters of the time
        few = max(1, _BASES // max(1, ids.shape[1])) if eager_on_cpu(ids) else len(ids)
        parts = [self.stem(one_hot(part, self.norm.weight.dtype), within(part)) for part in ids.split(few)]
        x, mask = (torch.cat(part) for part in zip(*parts, strict=True))
        for block in self.blocks:
            x, _ = block(x)
        return self.norm(x), mask


class Places(nn.Module):
    """Position encoding: distances from the first and the last base, as waves, each mapped to ``dim``."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * len(_PERIODS), 2 * dim, bias=False)

    def forward(self, mask: Tensor) -> Tensor:
        """Encode the positions of a mask ``[B, T]``, padded on the right, as ``[B, T, dim]``."""
        bases = torch.arange(mask.shape[1], device=mask.device)
        angles = bases[:, None] * (2 * math.pi / torch.tensor(_PERIODS, device=mask.device))
        waves = torch.cat((angles.sin(), angles.cos()), dim=-1).to(self.linear.weight.dtype)
        from_first, from_last = self.linear(waves).chunk(2, dim=-1)
        last = (mask.sum(1, keepdim=True) - 1 - bases).clamp(min=0)
        return from_first + from_last[last]


class Stem(nn.Module):
    """Two convolutions, the second with a residual connection, and max pooling over ``pool`` positions."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.pool = config.pool
        widths = (BASES, config.dim, config.dim)
        kernels = (config.kernel_size, _SECOND)
        self.convs = nn.ModuleList(Conv(a, b, kernel) for (a, b), kernel in zip(pairwise(widths), kernels, strict=True))
        self.norms = nn.ModuleList(RMSNorm(config.dim) for _ in self.convs)
        self.places = Places(config.dim) if config.positions else None
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Map x ``[B, T, 4]`` and its mask ``[B, T]`` to features ``[B, S, dim]`` and their mask ``[B, S]``."""
        inside = mask[..., None]
        x = self._found(0, x)
        if self.places is not None:
            x = x + self.places(mask)
        x = x.where(inside, 0)
        x = x + self._found(1, x)
        beyond = -x.shape[1] % self.pool
        mask = F.pad(mask, (0, beyond)).unflatten(1, (-1, self.pool))
        x = F.pad(x, (0, 0, 0, beyond)).unflatten(1, (-1, self.pool))
        # amax shares the gradient among equal maxima, which are common in runs of one base
        x = x.where(mask[..., None], float("-inf")).amax(2)
        mask = mask.any(2)
        return x.where(mask[..., None], 0), mask

    def _found(self, layer: int, x: Tensor) -> Tensor:
        return self.dropout(F.gelu(self.norms[layer](self.convs[layer](x.mT).mT)))


class Conv(nn.Conv1d):
    """Convolution from ``[B, a, T]`` to ``[B, b, T]`` for inputs that are transposes of tensors ``[B, T, a]``.

    On a CPU, torch supports this memory layout only in 2 dimensions, and would copy the tensors in 1 dimension.
    """

    def __init__(self, a: int, b: int, kernel_size: int) -> None:
        super().__init__(a, b, kernel_size, padding=kernel_size // 2)

    def forward(self, x: Tensor) -> Tensor:
        kernel = self.weight.unsqueeze(2).contiguous(memory_format=torch.channels_last)
        return F.conv2d(x.unsqueeze(2), kernel, self.bias, padding=(0, self.kernel_size[0] // 2)).squeeze(2)


def one_hot(ids: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """One-hot encode ids ``[B, T]`` as ``[B, T, 4]`` (A, C, G, T); N and padding are all zeros.

    Proportions ``[B, T, 4]`` are returned unchanged, except for their type.
    """
    if ids.ndim == 3:
        return ids.to(dtype)
    return F.one_hot(ids.long().clamp(max=N), BASES + 1)[..., :BASES].to(dtype)


def within(ids: Tensor) -> Tensor:
    """Mask of the positions of ids ``[B, T]``, or of proportions ``[B, T, 4]``, that are not padding."""
    return ids != PAD if ids.ndim == 2 else torch.ones(ids.shape[:2], dtype=torch.bool, device=ids.device)
