"""The network: Simba's block with the neural memory along time and EinFFT across channels."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titans_core import NeuralMemory
from titans_ts.einfft import EinFFT

MIXERS = ("einfft", "mlp")


@dataclass(frozen=True)
class SimbaConfig:
    """Everything the network is built from.

    Attributes:
        h: forecast horizon, in steps.
        input_size: lookback, in steps.
        num_series: series that are mixed with each other; None treats each alone, with the same weights for all.
        patch_size: steps in a patch; patches overlap by half.
        dim: width of a patch's embedding.
        num_layers: blocks.
        num_heads: heads of the memory.
        chunk_size: patches that share one gradient point of the memory.
        mixer: across channels: "einfft" or "mlp".
        dropout: on the residual branches and before the head.
    """

    h: int
    input_size: int
    num_series: int | None = None
    patch_size: int = 16
    dim: int = 32
    num_layers: int = 2
    num_heads: int = 4
    chunk_size: int = 4
    mixer: str = "einfft"
    dropout: float = 0.1


class Simba(nn.Module):
    """Forecasts from windows: normalise, cut into patches, memory and mixing in turn, a linear head and a linear path.

    Each series of a window is one lane: a sequence of patches of its own, with weights shared by all lanes. Mixing is
    over the channels of a lane's embedding; with ``num_series``, over the channels of all lanes together, in blocks of
    one series, so that the Fourier transform runs across series.
    """

    def __init__(self, config: SimbaConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_size = min(config.patch_size, config.input_size)
        self.stride = max(1, self.patch_size // 2)
        # the last patch ends at the newest step; the first is filled up with the oldest value
        self.num_patches = -(-(config.input_size - self.patch_size) // self.stride) + 1
        self.padding = (self.num_patches - 1) * self.stride + self.patch_size - config.input_size

        self.embed = nn.Linear(self.patch_size, config.dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.dim)
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(self.num_patches * config.dim, config.h)
        # a linear forecast beside the deep one, which then has only the rest to learn; it starts at 0
        self.direct = nn.Linear(config.input_size, config.h, bias=False)
        nn.init.zeros_(self.direct.weight)

    def forward(self, x: Tensor) -> Tensor:
        """x ``[B, input_size, N]`` -> forecasts ``[B, h, N]``, in the units of x. NaN in a lane stays in that lane
        (of its window, when series are mixed)."""
        center = x.mean(dim=1, keepdim=True)
        scale = (x.var(dim=1, keepdim=True, correction=0) + 1e-5).sqrt()
        lanes = ((x - center) / scale).mT
        padded = F.pad(lanes, (self.padding, 0), mode="replicate")
        z = self.embed(padded.unfold(-1, self.patch_size, self.stride))  # [B, N, P, dim]
        for block in self.blocks:
            z = block(z)
        y = self.head(self.dropout(self.norm(z).flatten(-2))) + self.direct(lanes)
        return y.mT * scale + center


class Block(nn.Module):
    """``x + Drop(Memory(LN x))`` along time, then ``x + Drop(Mixer(LN x))`` across channels (Simba's order)."""

    def __init__(self, config: SimbaConfig) -> None:
        super().__init__()
        self.memory_norm = nn.LayerNorm(config.dim)
        self.memory = NeuralMemory(config.dim, num_heads=config.num_heads, chunk_size=config.chunk_size)
        self.mixer_norm = nn.LayerNorm(config.dim)
        self.mixes_series = config.num_series is not None
        channels, blocks = config.dim, 4
        if config.num_series is not None:
            channels, blocks = config.dim * config.num_series, config.num_series
        self.mixer = _mixer(config.mixer, channels, blocks)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x ``[B, N, P, dim]`` -> the same shape."""
        B, N = x.shape[:2]
        time = self.memory(self.memory_norm(x).flatten(0, 1))[0].unflatten(0, (B, N))
        x = x + self.dropout(time)
        z = self.mixer_norm(x)
        if self.mixes_series:
            mixed = self.mixer(z.transpose(1, 2).flatten(2)).unflatten(-1, (N, -1)).transpose(1, 2)
        else:
            mixed = self.mixer(z.flatten(0, 1)).unflatten(0, (B, N))
        return x + self.dropout(mixed)


def _mixer(kind: str, channels: int, num_blocks: int) -> nn.Module:
    if kind == "einfft":
        return EinFFT(channels, num_blocks)
    if kind == "mlp":
        return nn.Sequential(nn.Linear(channels, 2 * channels), nn.GELU(), nn.Linear(2 * channels, channels))
    raise ValueError(f"mixer must be one of {MIXERS}, got {kind!r}.")


@torch.no_grad()
def forecast(network: nn.Module, windows: Tensor, batch_size: int = 256) -> Tensor:
    """Forecasts of many windows ``[W, input_size, N]`` -> ``[W, h, N]``, a batch at a time."""
    return torch.cat([network(batch) for batch in windows.split(batch_size)])
