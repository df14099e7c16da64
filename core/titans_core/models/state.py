"""State of a language model in a text: to continue from, to branch, and to save to disk."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from titans_core.files import written_whole
from titans_core.models.config import TitansConfig
from titans_core.models.mac import ContextState
from titans_core.models.mag import GatedState
from titans_core.models.mal import LayeredState
from titans_core.nn import NeuralMemoryState
from titans_core.nn.attention import AttentionState, SegmentState
from titans_core.ops.memory import MemoryState
from titans_core.ops.memory.state import Movable, map_state

FORMAT = 2
_KINDS = {
    kind.__name__: kind
    for kind in (ContextState, GatedState, LayeredState, NeuralMemoryState, MemoryState, AttentionState, SegmentState)
}


@dataclass(frozen=True)
class LMState(Movable):
    """State that a :class:`~titans_core.TitansLM` carries from one call to the next.

    It is immutable, so generation can continue from the same state many times ("read a book once, ask many times").

    Attributes:
        config: configuration of the model that returned it.
        blocks: the state of each block.
        tokens: number of tokens read per sequence.
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
        """Size of the state in bytes; shared tensors count once."""
        return sum({(t.data_ptr(), t.shape): t.numel() * t.element_size() for t in tensors(self.blocks)}.values())

    def select(self, rows: Tensor | Sequence[int]) -> "LMState":
        """Select sequences by index ``[N]``, in this order. An index may be repeated or left out.

        Raises:
            ValueError: if ``rows`` are not valid indices of sequences.
        """
        chosen = torch.as_tensor(rows)
        if chosen.ndim != 1 or chosen.is_floating_point() or chosen.dtype == torch.bool or not len(chosen):
            raise ValueError(f"rows must be integer indices of sequences, such as [0, 2], got {rows!r}.")
        chosen = chosen.long()  # index_select takes no other small integers
        on_cpu = chosen.device.type == "cpu"  # on a GPU the check would synchronise
        if on_cpu and (chosen.min() < 0 or chosen.max() >= self.batch_size):
            raise ValueError(f"rows must be from 0 to {self.batch_size - 1}, got {chosen.tolist()[:8]}.")
        return map_state(lambda t: t.index_select(0, chosen.to(t.device)), self)

    def save(self, path: str | Path) -> None:
        """Write the state to one safetensors file. The parent folder is created if needed."""
        path = Path(path).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        kept: dict[str, Tensor] = {}
        tree = _pack(self.blocks, kept, {})
        about = {"format": FORMAT, "tokens": self.tokens, "config": asdict(self.config), "tree": tree}
        about["sha256"] = _digest(kept)
        with written_whole(path) as part:  # an existing file stays intact until the new one is complete
            # not by save_file, whose files only their owner may read
            part.write_bytes(save(kept, metadata={"titans_state": json.dumps(about)}))

    @classmethod
    def load(cls, path: str | Path) -> "LMState":
        """Load a state written by :meth:`save`.

        Raises:
            FileNotFoundError: if the file does not exist.
            ValueError: if the file is not a saved state, is damaged, or has another format.
        """
        path = Path(path).expanduser()
        if not path.is_file():
            raise FileNotFoundError(f"no such file: {path}. Pass the path given to LMState.save().")
        try:
            with safe_open(path, "pt") as file:
                about = json.loads((file.metadata() or {}).get("titans_state", "null"))
                # clone: the file may be overwritten while this state is in use
                kept = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, json.JSONDecodeError) as error:
            raise ValueError(f"{path} cannot be read as a saved state: {error}") from error
        again = "compute the state again from the text"
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise ValueError(f"{path} is not a saved state of format {FORMAT}: {again}.")
        if about.get("sha256") != _digest(kept):
            raise ValueError(f"{path} is damaged: its tensors do not match their checksum. Copy it again, or {again}.")
        try:
            return cls(TitansConfig.saved(about["config"]), _unpack(about["tree"], kept), about["tokens"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged or from another version ({error!r}): {again}.") from error


def tensors(state: Any) -> Iterator[Tensor]:
    """Iterate over all tensors of a state."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from tensors(part)
    elif dataclasses.is_dataclass(state):
        yield from tensors(tuple(getattr(state, f.name) for f in dataclasses.fields(state)))


torch.serialization.add_safe_globals([LMState, TitansConfig, *_KINDS.values()])


def _pack(x: Any, kept: dict[str, Tensor], names: dict[int, str]) -> Any:
    """Convert a state to JSON. Tensors go to ``kept`` by number; ``names`` maps tensor ids to those numbers."""
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


def _digest(kept: dict[str, Tensor]) -> str:
    """Digest of the tensors' bytes, in order of their numbers."""
    found = hashlib.sha256()
    for name in sorted(kept, key=int):
        found.update(kept[name].reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _unpack(x: Any, kept: dict[str, Tensor]) -> Any:
    if isinstance(x, list):
        return tuple(_unpack(y, kept) for y in x)
    if isinstance(x, dict) and "tensor" in x:
        return kept[x["tensor"]]
    if isinstance(x, dict):
        return _KINDS[x["kind"]](**{name: _unpack(y, kept) for name, y in x["parts"].items()})
    return x
