"""A sequence read by the neural memory: convolutions find short motifs, the memory how they go together.

    bases [B, T]  ->  stem: convolutions, then the maximum of every ``pool`` positions  ->  blocks of the memory (LMM)

With ``positions`` each base also says, behind the first convolution, how far from either end it is, in waves of many
lengths (sines and cosines).

Sequences are padded on the right. Positions beyond the end are zero after each convolution, as positions beyond T are,
and the memory is causal: a sequence has the same features in a batch as alone.

A sequence may also be given as shares of the four bases, ``[B, T, 4]`` without padding: :func:`one_hot` of it, or what
lies between two sequences. What a position lacks to 1 is N.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titans_core import NeuralMemory, TitansConfig
from titans_core.models.blocks import Block, norm
from titans_core.models.lmm import MemoryAlone
from titans_core.nn.dropout import Dropout
from titans_core.nn.eager import eager_on_cpu
from titans_core.nn.norms import RMSNorm
from titans_dna.tokenizer import PAD, N

__all__ = ["Encoder", "EncoderConfig", "one_hot", "within"]

BASES = 4
# width of the second convolution
_SECOND = 5
_HEAD = 16
# that the stem reads at a time
_BASES = 1 << 14
# of the waves that say where a place is, in bases
_PERIODS = tuple(8.0 * 2**i for i in range(8))


@dataclass(frozen=True)
class EncoderConfig:
    """What an :class:`Encoder` is built from.

    Attributes:
        dim: width, a multiple of 16, the width of a head.
        num_layers: blocks of the memory.
        chunk_size: positions behind the stem that share one gradient point of the memory.
        kernel_size: bases that a filter of the first convolution sees; odd.
        pool: positions of the stem that become one position of the memory.
        dropout: behind each convolution.
        memory_depth: layers of the memory; 1 is linear.
        positions: whether the network is told how far from either end of the sequence a base is.
    """

    dim: int = 64
    num_layers: int = 2
    chunk_size: int = 8
    kernel_size: int = 9
    pool: int = 2
    dropout: float = 0.2
    memory_depth: int = 2
    positions: bool = False

    def memory(self) -> TitansConfig:
        """Of the blocks."""
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
    """Ids ``[B, T]`` -> features ``[B, S, dim]``, one for every ``pool`` bases, and where they are real ``[B, S]``."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config, self.dim = config, config.dim
        self.stem = Stem(config)
        memory = config.memory()
        self.blocks = nn.ModuleList(Block(memory, MemoryAlone(memory)) for _ in range(config.num_layers))
        self.norm = norm(memory)
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, NeuralMemory):  # a memory starts with little to say of its own
                    module.weights[-1].mul_(0.1)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """ids ``[B, T]``, integers of :mod:`titans_dna.tokenizer`; or shares of the bases ``[B, T, 4]``."""
        # before the pooling tensors are large. A CPU reads a few sequences at a time, whose tensors fit its caches and
        # whose memory is used again: that takes three quarters of the time of all at once
        few = max(1, _BASES // max(1, ids.shape[1])) if eager_on_cpu(ids) else len(ids)
        parts = [self.stem(one_hot(part, self.norm.weight.dtype), within(part)) for part in ids.split(few)]
        x, mask = (torch.cat(part) for part in zip(*parts, strict=True))
        for block in self.blocks:
            x, _ = block(x)
        return self.norm(x), mask


class Places(nn.Module):
    """Where each base is: its distances from the first and from the last one, in waves, each mapped to ``dim``."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * len(_PERIODS), 2 * dim, bias=False)

    def forward(self, mask: Tensor) -> Tensor:
        """mask ``[B, T]`` of sequences padded on the right -> ``[B, T, dim]``."""
        bases = torch.arange(mask.shape[1], device=mask.device)
        angles = bases[:, None] * (2 * math.pi / torch.tensor(_PERIODS, device=mask.device))
        waves = torch.cat((angles.sin(), angles.cos()), dim=-1).to(self.linear.weight.dtype)
        from_first, from_last = self.linear(waves).chunk(2, dim=-1)
        last = (mask.sum(1, keepdim=True) - 1 - bases).clamp(min=0)
        return from_first + from_last[last]


class Stem(nn.Module):
    """Two convolutions, the second residual, and a maximum over every ``pool`` positions."""

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
        """x ``[B, T, 4]``, mask ``[B, T]`` -> features ``[B, S, dim]`` and their mask ``[B, S]``."""
        inside = mask[..., None]
        x = self._found(0, x)
        if self.places is not None:
            x = x + self.places(mask)
        x = x.where(inside, 0)
        x = x + self._found(1, x)
        beyond = -x.shape[1] % self.pool
        mask = F.pad(mask, (0, beyond)).unflatten(1, (-1, self.pool))
        x = F.pad(x, (0, 0, 0, beyond)).unflatten(1, (-1, self.pool))
        # of equal ones, as runs of one base have them, each gets its share of a gradient
        x = x.where(mask[..., None], float("-inf")).amax(2)
        mask = mask.any(2)
        return x.where(mask[..., None], 0), mask

    def _found(self, layer: int, x: Tensor) -> Tensor:
        return self.dropout(F.gelu(self.norms[layer](self.convs[layer](x.mT).mT)))


class Conv(nn.Conv1d):
    """A convolution of ``[B, a, T]`` to ``[B, b, T]``, as wide as it was, the transposes of tensors ``[B, T, .]``: on a
    CPU torch has such a form for pictures only, and would transpose there and back."""

    def __init__(self, a: int, b: int, kernel_size: int) -> None:
        super().__init__(a, b, kernel_size, padding=kernel_size // 2)

    def forward(self, x: Tensor) -> Tensor:
        kernel = self.weight.unsqueeze(2).contiguous(memory_format=torch.channels_last)
        return F.conv2d(x.unsqueeze(2), kernel, self.bias, padding=(0, self.kernel_size[0] // 2)).squeeze(2)


def one_hot(ids: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Ids ``[B, T]`` -> ``[B, T, 4]``: A, C, G, T; an N is none of them, nor is what lies beyond the end.

    Shares ``[B, T, 4]`` stay what they are.
    """
    if ids.ndim == 3:
        return ids.to(dtype)
    return F.one_hot(ids.long().clamp(max=N), BASES + 1)[..., :BASES].to(dtype)


def within(ids: Tensor) -> Tensor:
    """Which positions of ids ``[B, T]``, or of shares ``[B, T, 4]``, are in the sequence, not beyond its end."""
    return ids != PAD if ids.ndim == 2 else torch.ones(ids.shape[:2], dtype=torch.bool, device=ids.device)
