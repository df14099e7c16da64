"""What a language model is built from, and the sizes of the paper."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any

from titans_core.ops.memory.api import check_forget_to

ARCHITECTURES = ("lmm", "mac", "mag", "mal", "transformer")


@dataclass(frozen=True)
class TitansConfig:
    """Everything a :class:`~titans_core.TitansLM` is built from.

    Attributes:
        architecture: "lmm" (memory alone), "mac" (memory as a context, Fig. 2), "mag" (memory as a gate, Fig. 4),
            "mal" (memory as a layer, Fig. 5), or "transformer" (attention alone: the baseline Transformer++).
        vocab_size: tokens of the vocabulary.
        dim: width.
        num_layers: blocks.
        num_heads: heads of attention and of memory.
        hidden: width of the SwiGLU of each block.
        window: tokens that sliding-window attention sees ("mag", "mal").
        segment: tokens of a segment ("mac").
        num_persistent: learned tokens before every sequence (Eq. 19), in each block; not in "transformer".
        memory_depth: layers of the memory; 1 is linear.
        memory_expansion: hidden width of a deep memory, in multiples of a head's width.
        chunk_size: tokens that share one gradient point of the memory.
        conv_size: length of the convolutions over queries, keys and values, of memory and of the attention beside it
            (section 4.4); 0: none. Not in "transformer".
        momentum: whether the memory has past surprise.
        forget: whether the memory forgets.
        forget_to: what forgetting draws the memory to: "zero" (Eq. 13), or "start", what it was before the sequence. In
            streams much longer than what was trained on, a deep memory that is drawn to zero stops to learn.
        rope_base: of the rotary positions of attention.
        tie_embeddings: whether the output layer has the embedding's weights.
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
                if isinstance(value, bool) or not isinstance(value, Integral):
                    raise TypeError(f"{field.name} must be an integer, got {value!r}.")
                if value < least.get(field.name, 1):
                    raise ValueError(f"{field.name} must be at least {least.get(field.name, 1)}, got {value}.")
                object.__setattr__(self, field.name, int(value))  # numpy's too: they come from grids and searches
        for name in ("momentum", "forget", "tie_embeddings"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}.")
        for name in ("memory_expansion", "rope_base"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
                raise ValueError(f"{name} must be a positive number, got {value!r}.")
            object.__setattr__(self, name, value if isinstance(value, int) else float(value))
        if self.dim % (4 * self.num_heads):
            raise ValueError(
                f"dim must be a multiple of 4 * num_heads, got dim={self.dim} and num_heads={self.num_heads}."
            )

    @classmethod
    def saved(cls, settings: Mapping[str, Any]) -> "TitansConfig":
        """A configuration that was saved.

        Raises:
            ValueError: settings that this version does not know.
        """
        unknown = sorted({*settings} - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"it was saved by a newer version, whose models have the settings {unknown}: upgrade.")
        return cls(**settings)

    def differences(self, here: "TitansConfig") -> str:
        """In words, where this configuration ("there") is not the other ("here")."""
        pairs = ((f.name, getattr(self, f.name), getattr(here, f.name)) for f in fields(self))
        return ", ".join(f"{name} {a!r} there and {b!r} here" for name, a, b in pairs if a != b)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "TitansConfig":
        """A configuration of the paper's section 5.1 by name: ``"mac-340m"``.

        Args:
            name: architecture and size: lmm, mac, mag, mal, transformer or gated-deltanet; 170m, 340m, 400m or 760m.
                Sizes are parameters in all, tied embeddings counted once, within 3 %.
            changes: settings to replace.

        Raises:
            ValueError: an unknown name; the message lists those there are.
        """
        if not isinstance(name, str):
            raise TypeError(f"preset must be a name such as 'mac-340m', got {name!r}.")
        architecture, _, size = name.lower().rpartition("-")
        if size not in _SIZES or architecture not in _HIDDEN:
            raise ValueError(f"preset must be one of {list(presets())}, got {name!r}.")
        dim, layers, heads = _SIZES[size]
        hidden = _HIDDEN[architecture][list(_SIZES).index(size)]
        base: dict[str, Any] = dict(dim=dim, num_layers=layers, num_heads=heads, hidden=hidden)
        if architecture == "gated-deltanet":
            return replace(gated_deltanet(cls(architecture="lmm", **base)), **changes)
        return cls(architecture=architecture, **{**base, **changes})


def presets() -> tuple[str, ...]:
    """The names that :meth:`TitansConfig.preset` knows."""
    return tuple(f"{architecture}-{size}" for architecture in _HIDDEN for size in _SIZES)


def gated_deltanet(config: TitansConfig) -> TitansConfig:
    """The baseline Gated DeltaNet: a linear memory without momentum, a fresh gradient at each token, no persistent
    memory. It equals Gated DeltaNet's update with its values scaled by ``1 - alpha`` (Appendix C)."""
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
# the SwiGLU's width by size, so that every architecture of a size has as many parameters
_HIDDEN: dict[str, tuple[int, int, int, int]] = {
    "lmm": (3840, 4416, 4160, 5568),
    "mac": (2816, 3072, 2816, 3840),
    "mag": (2816, 3072, 2816, 3840),
    "mal": (2816, 3072, 2816, 3840),
    "transformer": (4224, 4864, 4608, 6080),
    "gated-deltanet": (3968, 4480, 4224, 5632),
}
