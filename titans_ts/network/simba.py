"""The network: Simba blocks with the neural memory along time and EinFFT across channels."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titans_core import NeuralMemory
from titans_core.nn.dropout import Dropout
from titans_ts.network.einfft import EinFFT

WIDTH = 512
FLOOR = 0.1  # smallest deviation of a lookback, in standard deviations of its series
MIXERS = ("einfft", "mlp", "none")


@dataclass(frozen=True)
class SimbaConfig:
    """Configuration of the network.

    Attributes:
        h: forecast horizon, in steps.
        input_size: lookback, in steps.
        num_series: number of series that are mixed with each other; None treats each series alone, with shared weights.
        patch_size: steps in a patch; patches overlap by half.
        dim: width of a patch's embedding.
        num_layers: number of blocks.
        num_heads: heads of the memory.
        memory_depth: layers of the memory; 1 is linear.
        chunk_size: patches in a chunk of the memory; their gradients are taken at the same weights.
        mixer: mixer across channels: "einfft", "mlp" or "none".
        dropout: dropout rate on the residual branches and before the head.
        outputs: numbers per step: 1 for a point forecast, else quantiles or distribution parameters.
        hist: number of columns known only in the lookback.
        futr: number of columns known in the lookback and the horizon.
        stat: number of static columns.
        reach: number of neighbouring steps on each side whose futr columns a step of the horizon also uses.
        masked: whether NaN in a window marks unknown values; the network then gets the mask as input.
        normalise: normalise each window by its own mean and standard deviation.
        least_variance: added to the variance of a window. A likelihood, which is computed in units of the window, needs
            a larger value, so that a flat lookback does not make the unit vanish.
    """

    h: int
    input_size: int
    num_series: int | None = None
    patch_size: int = 16
    dim: int = 32
    num_layers: int = 2
    num_heads: int = 4
    memory_depth: int = 2
    chunk_size: int = 4
    mixer: str = "einfft"
    dropout: float = 0.1
    outputs: int = 1
    hist: int = 0
    futr: int = 0
    stat: int = 0
    reach: int = 0
    masked: bool = False
    normalise: bool = True
    least_variance: float = 1e-5

    @property
    def together(self) -> bool:
        """Whether the series of a window are mixed with each other."""
        return self.num_series is not None


def default_patch(input_size: int) -> int:
    """Steps in a patch: a twelfth of the lookback, even, from 16 to 64. Up to 768 steps give at most 23 patches."""
    return min(64, max(16, 2 * -(-input_size // 24)))


def default_reach(patch_size: int) -> int:
    """The default ``reach``: half a patch."""
    return max(1, patch_size // 2)


class Simba(nn.Module):
    """The forecasting network: normalise windows, cut them into patches, apply blocks of memory and mixer, then a
    linear head, in parallel with a linear path.

    Each series of a window is a lane: a sequence of patches, with weights shared by all lanes. The mixer works on the
    channels of a lane's embedding; with ``num_series``, on the channels of all lanes together, in one block per series,
    so that the Fourier transform runs across series. Exogenous columns of the lookback are cut into the same patches;
    those of the horizon are combined with the code of a lane, step by step, in :class:`FutureHead`.
    """

    def __init__(self, config: SimbaConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_size = min(config.patch_size, config.input_size)
        self.stride = max(1, self.patch_size // 2)
        # the last patch ends at the newest step; the first is padded with the oldest value
        self.num_patches = -(-(config.input_size - self.patch_size) // self.stride) + 1
        self.padding = (self.num_patches - 1) * self.stride + self.patch_size - config.input_size

        rows = 1 + config.masked + config.hist + config.futr
        self.embed = nn.Linear(rows * self.patch_size, config.dim)
        self.embed_static = nn.Linear(config.stat, config.dim, bias=False) if config.stat else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.dim)
        self.dropout = Dropout(config.dropout)
        self.head = WideLinear(self.num_patches * config.dim, config.h * config.outputs)
        self.future = FutureHead(config, self.head.in_features) if config.futr else None
        # a parallel linear forecast, so that the deep part learns only the rest; it starts at 0
        self.direct = WideLinear(config.input_size, config.h * config.outputs, bias=False)
        nn.init.zeros_(self.direct.weight)

    def forward(
        self, x: Tensor, hist: Tensor | None = None, futr: Tensor | None = None, stat: Tensor | None = None
    ) -> Tensor:
        """Forecasts in the units of x. Unless ``masked``, NaN affects its own lane, or its own window if series are
        mixed.

        Args:
            x: windows ``[B, input_size, N]``.
            hist: ``[B, input_size, N, hist]``.
            futr: ``[B, input_size + h, N, futr]``; N may be 1, for columns that all series share.
            stat: ``[B, N, stat]``.

        Returns:
            ``[B, h, N]``, or with several ``outputs`` ``[B, h, N, outputs]``.
        """
        y, center, scale = self.normalised(x, hist, futr, stat)
        y = y * scale.unsqueeze(-1) + center.unsqueeze(-1)
        return y.squeeze(-1) if self.config.outputs == 1 else y

    def normalised(
        self, x: Tensor, hist: Tensor | None = None, futr: Tensor | None = None, stat: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As :meth:`forward`, but in units of each window: ``[B, h, N, outputs]``; also the mean and the standard
        deviation of the windows, ``[B, 1, N]`` each."""
        known = ~x.isnan()
        center, scale = _level(x, known, self.config)
        lanes = ((x - center) / scale).mT
        if self.config.masked:
            lanes = lanes.where(known.mT, 0.0)
        z = self.embed(self._patches(lanes, known, hist, futr))  # [B, N, P, dim]
        if self.embed_static is not None:
            z = z + self.embed_static(_given(stat, "stat"))[:, :, None]
        for block in self.blocks:
            z = block(z)
        code = self.dropout(self.norm(z).flatten(-2))
        y = (self.head(code) + self.direct(lanes)).unflatten(-1, (self.config.h, -1))
        if self.future is not None:
            y = y + self.future(code, _given(futr, "futr"), scale)
        return y.transpose(1, 2), center, scale

    def _patches(self, lanes: Tensor, known: Tensor, hist: Tensor | None, futr: Tensor | None) -> Tensor:
        """The lookback of target, mask and exogenous columns, cut into patches: ``[B, N, P, rows * patch_size]``."""
        config = self.config
        rows = [lanes.unsqueeze(2)]
        if config.masked:
            rows.append(known.mT.unsqueeze(2).to(lanes.dtype))
        if config.hist:
            rows.append(_given(hist, "hist").permute(0, 2, 3, 1))
        if config.futr:
            past = _given(futr, "futr")[:, : config.input_size].permute(0, 2, 3, 1)
            rows.append(past.expand(-1, lanes.shape[1], -1, -1))
        table = torch.cat(rows, dim=2) if len(rows) > 1 else rows[0]  # [B, N, rows, L]
        padded = F.pad(table.flatten(1, 2), (self.padding, 0), mode="replicate").unflatten(1, table.shape[1:3])
        return padded.unfold(-1, self.patch_size, self.stride).transpose(2, 3).flatten(-2)


def _level(x: Tensor, known: Tensor, config: SimbaConfig) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the known values of each lane, ``[B, 1, N]``."""
    if not config.normalise:
        return torch.zeros_like(x[:, :1]), torch.ones_like(x[:, :1])
    if not config.masked:
        variance = x.var(dim=1, keepdim=True, correction=0)
        return x.mean(dim=1, keepdim=True), (variance + config.least_variance).sqrt()
    center, count = mean_of_known(x, known)
    square = (x - center).where(known, 0.0).square().sum(dim=1, keepdim=True)
    # few values give a poor estimate of the deviation: the unknown share of a lookback adds that share of one value at
    # a distance of 1, the deviation of the whole series
    missing = 1 - count / x.shape[1]
    return center, ((square + missing) / (count + missing) + config.least_variance).sqrt()


def mean_of_known(x: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of the known values of each lane, 0 if there is none, and their number, ``[B, 1, N]`` each."""
    count = known.sum(dim=1, keepdim=True, dtype=x.dtype)
    return x.where(known, 0.0).sum(dim=1, keepdim=True) / count.clamp(min=1), count


def _given(columns: Tensor | None, name: str) -> Tensor:
    if columns is None:
        raise ValueError(f"the network was built with {name} columns: pass {name} in every call.")
    return columns


class WideLinear(nn.Linear):
    """A linear layer whose outputs change no faster in training than with :data:`WIDTH` inputs.

    Adam changes each weight by about the learning rate, and so an output by that times the number of inputs, which is
    unstable for lookbacks of many thousand steps. Inputs are scaled down, and initial weights are scaled up.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__(in_features, out_features, bias)
        self.shrink = min(1.0, WIDTH / in_features)
        with torch.no_grad():
            self.weight.div_(self.shrink)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * self.shrink if self.shrink < 1 else x)


class FutureHead(nn.Module):
    """The effect of known future columns on the forecast, as the sum of two paths that start at 0.

    One hidden layer combines the columns of each step and its neighbours with the code of the lane. A linear path uses
    the columns minus their means over the lookback; its output is in units of the series, whatever the unit of the
    window. Steps after the horizon are unknown and replaced by these means.
    """

    def __init__(self, config: SimbaConfig, code: int) -> None:
        super().__init__()
        self.h, self.reach = config.h, min(config.reach, config.input_size)
        self.code = WideLinear(code, config.dim)
        self.step = nn.Linear(config.futr, config.dim, bias=False)
        self.out = nn.Linear(config.dim, config.outputs, bias=False)
        nn.init.zeros_(self.out.weight)
        self.near = self.direct = None
        if self.reach:
            width = 2 * self.reach + 1
            self.near = nn.Conv1d(config.futr, config.dim, width, bias=False)
            self.direct = nn.Conv1d(config.futr, config.outputs, width, bias=False)
            nn.init.zeros_(self.direct.weight)

    def forward(self, code: Tensor, futr: Tensor, scale: Tensor) -> Tensor:
        """code ``[B, N, C]``, futr ``[B, input_size + h, N or 1, futr]`` and the standard deviation of the windows
        ``[B, 1, N]`` -> ``[B, N, h, outputs]``."""
        code = self.code(code).unsqueeze(2)
        steps = self.step(futr[:, -self.h :]).transpose(1, 2)  # [B, N or 1, h, dim]
        if self.near is None or self.direct is None:
            return self.out(F.gelu(code + steps))
        away = futr[:, -self.h - self.reach :] - futr[:, : -self.h].mean(dim=1, keepdim=True)
        lanes = F.pad(away.permute(0, 2, 3, 1), (0, self.reach))
        near, moved = (path(lanes.flatten(0, 1)).unflatten(0, lanes.shape[:2]).mT for path in (self.near, self.direct))
        y: Tensor = self.out(F.gelu(code + steps + near))
        return y + moved / (scale.mT.unsqueeze(-1) + FLOOR)


class Block(nn.Module):
    """``x + Drop(Memory(LN x))`` along time, then ``x + Drop(Mixer(LN x))`` across channels (Simba's order)."""

    def __init__(self, config: SimbaConfig) -> None:
        super().__init__()
        self.memory_norm = nn.LayerNorm(config.dim)
        self.memory = NeuralMemory(config.dim, config.num_heads, config.memory_depth, chunk_size=config.chunk_size)
        self.mixes_series = config.num_series is not None
        channels, blocks = config.dim, 4
        if config.num_series is not None:
            channels, blocks = config.dim * config.num_series, config.num_series
        self.mixer = _mixer(config.mixer, channels, blocks)
        self.mixer_norm = None if self.mixer is None else nn.LayerNorm(config.dim)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x ``[B, N, P, dim]`` -> the same shape."""
        B, N = x.shape[:2]
        time = self.memory(self.memory_norm(x).flatten(0, 1))[0].unflatten(0, (B, N))
        x = x + self.dropout(time)
        if self.mixer is None or self.mixer_norm is None:
            return x
        z = self.mixer_norm(x)
        if self.mixes_series:
            mixed = self.mixer(z.transpose(1, 2).flatten(2)).unflatten(-1, (N, -1)).transpose(1, 2)
        else:
            mixed = self.mixer(z.flatten(0, 1)).unflatten(0, (B, N))
        return x + self.dropout(mixed)


def _mixer(kind: str, channels: int, num_blocks: int) -> nn.Module | None:
    if kind == "none":
        return None
    if kind == "einfft":
        if channels % num_blocks:  # only without series mixing, where the channels are dim
            raise ValueError(f"dim must be a multiple of {num_blocks} with mixer='einfft', got {channels}.")
        return EinFFT(channels, num_blocks)
    if kind == "mlp":
        return nn.Sequential(nn.Linear(channels, 2 * channels), nn.GELU(), nn.Linear(2 * channels, channels))
    raise ValueError(f"mixer must be one of {MIXERS}, got {kind!r}.")
