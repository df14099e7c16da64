"""Configuration of a language model, and the model sizes of the paper."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from titans_core.checks import is_integer, is_number
from titans_core.ops.memory.api import check_forget_to

ARCHITECTURES = ("lmm", "mac", "mag", "mal", "transformer")


@dataclass(frozen=True)
class TitansConfig:
    """Configuration of a :class:`~titans_core.TitansLM`.

    Attributes:
        architecture: "lmm" (memory alone), "mac" (memory as a context, Fig. 2), "mag" (memory as a gate, Fig. 4), "mal"
            (memory as a layer, Fig. 5), or "transformer" (attention alone: the Transformer++ baseline).
        vocab_size: number of tokens in the vocabulary.
        dim: model width; must be a multiple of ``4 * num_heads``.
        num_layers: number of blocks.
        num_heads: number of heads, for attention and memory.
        hidden: width of the SwiGLU in each block.
        window: number of tokens that sliding-window attention sees ("mag", "mal").
        segment: number of tokens per segment ("mac").
        num_persistent: number of learned tokens before every sequence, in each block (Eq. 19). Unused in "transformer".
        memory_depth: number of layers of the memory; 1 is linear.
        memory_expansion: hidden width of a deep memory, as a multiple of the head width.
        chunk_size: number of tokens whose inner gradients are taken at the same memory weights.
        conv_size: length of the convolutions over queries, keys and values, in the memory and in the attention next to
            it (section 4.4). 0: none. Unused in "transformer".
        momentum: whether the memory uses past surprise.
        forget: whether the memory has a forget gate.
        forget_to: what forgetting pulls the memory towards: "zero" (Eq. 13), or "start", the initial memory. On streams
            much longer than the training sequences, a deep memory pulled towards zero stops learning.
        rope_base: base of the rotary frequencies of attention.
        tie_embeddings: whether the output layer shares the embedding's weights.
    """

    architecture: str = "mac"
    vocab_size: int = 32_000
    dim: int = 768
    num_layers: int = 12
    num_heads: int = 12
    hidden: int = 2048
    window: int = 512
    segment: int = 256
    num_persistent: int = 16
    memory_depth: int = 2
    memory_expansion: float = 2
    chunk_size: int = 64
    conv_size: int = 4
    momentum: bool = True
    forget: bool = True
    forget_to: str = "zero"
    rope_base: float = 10_000.0
    tie_embeddings: bool = True

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise ValueError(f"architecture must be one of {ARCHITECTURES}, got {self.architecture!r}.")
        check_forget_to(self.forget_to)
        least = {"conv_size": 0, "num_persistent": 0, "vocab_size": 2}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type in ("int", int):
                if not is_integer(value):
                    raise TypeError(f"{field.name} must be an integer, got {value!r}.")
                if value < least.get(field.name, 1):
                    raise ValueError(f"{field.name} must be at least {least.get(field.name, 1)}, got {value}.")
                object.__setattr__(self, field.name, int(value))  # NumPy integers too, as from parameter grids
        for name in ("momentum", "forget", "tie_embeddings"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}.")
        for name in ("memory_expansion", "rope_base"):
            value = getattr(self, name)
            if not is_number(value) or not 0 < float(value) < math.inf:
                raise ValueError(f"{name} must be a positive number, got {value!r}.")
            object.__setattr__(self, name, value if isinstance(value, int) else float(value))
        if self.dim % (4 * self.num_heads):
            raise ValueError(
                f"dim must be a multiple of 4 * num_heads, got dim={self.dim} and num_heads={self.num_heads}."
            )

    @classmethod
    def saved(cls, settings: Mapping[str, Any]) -> "TitansConfig":
        """Build a configuration from saved settings.

        Raises:
            ValueError: if there are settings that this version does not know.
        """
        unknown = sorted({*settings} - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"saved by a newer version, with the unknown settings {unknown}: upgrade titans-suite.")
        return cls(**settings)

    def differences(self, here: "TitansConfig") -> str:
        """Describe the settings in which this configuration ("there") differs from ``here``."""
        pairs = ((f.name, getattr(self, f.name), getattr(here, f.name)) for f in fields(self))
        return ", ".join(f"{name} {a!r} there and {b!r} here" for name, a, b in pairs if a != b)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "TitansConfig":
        """Build a configuration of the paper's section 5.1 by name, such as ``"mac-340m"``.

        Args:
            name: architecture and size, joined by a hyphen. Architectures: lmm, mac, mag, mal, transformer,
                gated-deltanet. Sizes: 170m, 340m, 400m, 760m. The size is the total number of parameters within 3 %,
                with tied embeddings counted once.
            changes: settings to override.

        Raises:
            ValueError: if the name is unknown; the message lists the known names.
        """
        if not isinstance(name, str):
            raise TypeError(f"preset must be a name such as 'mac-340m', got {name!r}.")
        architecture, _, size = name.lower().rpartition("-")
        if size not in _SIZES or architecture not in _HIDDEN:
            raise ValueError(f"preset must be one of {list(presets())}, got {name!r}.")
        dim, layers, heads = _SIZES[size]
        hidden = _HIDDEN[architecture][list(_SIZES).index(size)]
        base = cls(dim=dim, num_layers=layers, num_heads=heads, hidden=hidden)
        own = gated_deltanet(base) if architecture == "gated-deltanet" else replace(base, architecture=architecture)
        return replace(own, **changes)


def presets() -> tuple[str, ...]:
    """Return the names that :meth:`TitansConfig.preset` accepts."""
    return tuple(f"{architecture}-{size}" for architecture in _HIDDEN for size in _SIZES)


def gated_deltanet(config: TitansConfig) -> TitansConfig:
    """The Gated DeltaNet baseline: a linear memory without momentum or persistent memory, and with ``chunk_size=1``.

    It equals Gated DeltaNet's update with values scaled by ``1 - alpha`` (Appendix C).
    """
    return replace(
        config,
        architecture="lmm",
        memory_depth=1,
        momentum=False,
        forget_to="zero",
        chunk_size=1,
        num_persistent=0,
    )


# width, blocks, heads
_SIZES = {"170m": (768, 12, 12), "340m": (1024, 16, 16), "400m": (1024, 20, 16), "760m": (1280, 24, 20)}
# SwiGLU width by size, chosen so that all architectures of a size have the same number of parameters
_HIDDEN: dict[str, tuple[int, int, int, int]] = {
    "lmm": (3840, 4416, 4160, 5568),
    "mac": (2816, 3072, 2816, 3840),
    "mag": (2816, 3072, 2816, 3840),
    "mal": (2816, 3072, 2816, 3840),
    "transformer": (4224, 4864, 4608, 6080),
    "gated-deltanet": (3968, 4480, 4224, 5632),
}
