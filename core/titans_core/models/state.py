"""Where a language model stands in a text: to go on from, to branch, to keep on disk."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from titans_core.files import written_whole
from titans_core.models.config import TitansConfig
from titans_core.models.mac import ContextState
from titans_core.models.mag import GatedState
from titans_core.models.mal import LayeredState
from titans_core.nn import NeuralMemoryState
from titans_core.nn.attention import AttentionState, SegmentState
from titans_core.ops.memory import MemoryState
from titans_core.ops.memory.state import map_state

FORMAT = 1
_KINDS = {
    kind.__name__: kind
    for kind in (ContextState, GatedState, LayeredState, NeuralMemoryState, MemoryState, AttentionState, SegmentState)
}


@dataclass(frozen=True)
class LMState:
    """What a :class:`~titans_core.TitansLM` carries from one call to the next. Immutable: one state can be gone on
    from many times ("read a book once, ask many times").

    Attributes:
        config: of the model that left it.
        blocks: the state of each block.
        tokens: how many tokens of each sequence were read.
    """

    config: TitansConfig
    blocks: tuple[Any, ...]
    tokens: int

    @property
    def batch_size(self) -> int:
        """Number of sequences."""
        return len(next(tensors(self.blocks)))

    @property
    def nbytes(self) -> int:
        """Memory that the state takes, in bytes; a tensor that is there twice counts once."""
        return sum({(t.data_ptr(), t.shape): t.numel() * t.element_size() for t in tensors(self.blocks)}.values())

    def detach(self) -> "LMState":
        """The same state, cut from the graph."""
        return map_state(Tensor.detach, self)

    def to(self, device: torch.device | str) -> "LMState":
        """The same state on another device."""
        return map_state(lambda t: t.to(device), self)

    def select(self, rows: Tensor | Sequence[int]) -> "LMState":
        """The sequences of these numbers ``[N]``, in this order; a sequence may come twice or not at all.

        Raises:
            ValueError: no numbers of sequences.
        """
        chosen = torch.as_tensor(rows)
        if chosen.ndim != 1 or chosen.is_floating_point() or chosen.dtype == torch.bool or not len(chosen):
            raise ValueError(f"rows must be numbers of sequences, such as [0, 2], got {rows!r}.")
        on_cpu = chosen.device.type == "cpu"  # elsewhere it would have to be waited for
        if on_cpu and (chosen.min() < 0 or chosen.max() >= self.batch_size):
            raise ValueError(f"rows must be from 0 to {self.batch_size - 1}, got {chosen.tolist()[:8]}.")
        return map_state(lambda t: t.index_select(0, chosen.to(t.device)), self)

    def save(self, path: str | Path) -> None:
        """Write it to one safetensors file; its folder is made."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        kept: dict[str, Tensor] = {}
        tree = _pack(self.blocks, kept, {})
        about = {"format": FORMAT, "tokens": self.tokens, "config": asdict(self.config), "tree": tree}
        with written_whole(path) as part:  # the state that is there stays whole until then
            save_file(kept, part, metadata={"titans_state": json.dumps(about)})

    @classmethod
    def load(cls, path: str | Path) -> "LMState":
        """Read what :meth:`save` wrote.

        Raises:
            FileNotFoundError: no such file.
            ValueError: no state of this library, or a damaged one.
        """
        if not Path(path).is_file():
            raise FileNotFoundError(f"there is no file {path}: give the one that save() wrote.")
        try:
            with safe_open(path, "pt") as file:
                about = json.loads((file.metadata() or {}).get("titans_state", "null"))
                # copies: the file may be written anew while this state is used
                kept = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, json.JSONDecodeError) as error:
            raise ValueError(f"{path} cannot be read as a saved state: {error}") from error
        if about is None or about.get("format") != FORMAT:
            raise ValueError(f"{path} is not a state that this version saved (format {FORMAT}); read the text again.")
        try:
            return cls(TitansConfig.saved(about["config"]), _unpack(about["tree"], kept), about["tokens"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged, or of another version: {error!r}. Read the text again.") from error


def tensors(state: Any) -> Iterator[Tensor]:
    """All tensors of a state."""
    found: list[Tensor] = []
    map_state(lambda t: found.append(t) or t, state)  # type: ignore[func-returns-value]
    return iter(found)


def _pack(x: Any, kept: dict[str, Tensor], names: dict[int, str]) -> Any:
    """A state as JSON, its tensors by number in ``kept``; ``names`` has the numbers of those that are there by id."""
    if isinstance(x, Tensor):
        if id(x) not in names:
            names[id(x)] = str(len(kept))
            kept[names[id(x)]] = x.detach().cpu().contiguous().clone()
        return {"tensor": names[id(x)]}
    if isinstance(x, tuple):
        return [_pack(y, kept, names) for y in x]
    if dataclasses.is_dataclass(x):
        parts = {f.name: _pack(getattr(x, f.name), kept, names) for f in dataclasses.fields(x)}
        return {"kind": type(x).__name__, "parts": parts}
    return x


def _unpack(x: Any, kept: dict[str, Tensor]) -> Any:
    if isinstance(x, list):
        return tuple(_unpack(y, kept) for y in x)
    if isinstance(x, dict) and "tensor" in x:
        return kept[x["tensor"]]
    if isinstance(x, dict):
        return _KINDS[x["kind"]](**{name: _unpack(y, kept) for name, y in x["parts"].items()})
    return x
