"""The language model: embedding, blocks of one architecture, output layer."""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from typing_extensions import Self

from titans_core.archive import ArchiveError, load_archive, save_archive
from titans_core.checks import at_least
from titans_core.models.blocks import Block
from titans_core.models.config import TitansConfig
from titans_core.models.generate import Generation
from titans_core.models.lmm import MemoryAlone
from titans_core.models.mac import MemoryAsContext
from titans_core.models.mag import MemoryAsGate
from titans_core.models.mal import MemoryAsLayer
from titans_core.models.state import LMState, tensors
from titans_core.models.transformer import full_attention
from titans_core.nn import NeuralMemory
from titans_core.nn.norms import RMSNorm

MIXERS: dict[str, Any] = {
    "lmm": MemoryAlone,
    "mac": MemoryAsContext,
    "mag": MemoryAsGate,
    "mal": MemoryAsLayer,
    "transformer": full_attention,
}


class TitansLM(Generation, nn.Module):
    """A Titans language model (section 4), or a baseline built from the same blocks.

    A text can be split anywhere and continued with the state: the logits equal those of a single call. Except for
    "transformer", neither the state nor the time per step grows with the text read.

    Attributes:
        gradient_checkpointing: whether training recomputes each block in the backward pass instead of keeping its
            activations: several times less memory for about a third more time.

    Example:
        >>> model = TitansLM(TitansConfig.preset("mac-170m"))
        >>> logits, state = model(ids)
        >>> model.generate(ids, max_new_tokens=100, temperature=0.8, top_p=0.95)
    """

    gradient_checkpointing = False
    # attribute names that transformers sets
    _gradient_checkpointing_func = staticmethod(partial(checkpoint, use_reentrant=False))

    def __init__(self, config: TitansConfig) -> None:
        super().__init__()
        if not isinstance(config, TitansConfig):
            raise TypeError(
                f"config must be a TitansConfig, got {type(config).__name__}: use TitansConfig(...) or a preset, "
                "TitansConfig.preset('mac-170m')."
            )
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.blocks = nn.ModuleList(
            Block(config, MIXERS[config.architecture](config)) for _ in range(config.num_layers)
        )
        self.norm = RMSNorm(config.dim)
        self.head = nn.Linear(config.dim, config.vocab_size, bias=False)
        self._start()
        if config.tie_embeddings:
            self.head.weight = self.embedding.weight

    @torch.no_grad()
    def _start(self) -> None:
        """Initialise all weights in one place, except the memory's gates.

        Matrices preserve the scale of their input. Those that write to the residual stream are smaller, because each
        block has two. Embeddings give logits of about 0.5. A memory initially contributes little.
        """
        deep = (2 * self.config.num_layers) ** -0.5
        for name, parameter in self.named_parameters():
            if parameter.ndim != 2 or name.endswith(("persistent", "conv.weight", "to_gates.weight")):
                continue
            factor = 0.5 if name == "embedding.weight" else deep if name.endswith(".out.weight") else 1.0
            nn.init.normal_(parameter, std=factor * parameter.shape[1] ** -0.5)
        for module in self.modules():
            if isinstance(module, NeuralMemory):
                module.weights[-1].mul_(0.1)

    def forward(self, ids: Tensor, state: LMState | None = None) -> tuple[Tensor, LMState]:
        """Compute next-token logits.

        Args:
            ids: token ids ``[B, T]``.
            state: state returned by an earlier call, to continue from.

        Returns:
            Logits ``[B, T, vocab_size]`` for the token after each position, and the new state.

        Raises:
            ValueError: if ids are not ``[B, T]``, are empty or out of range, or the state belongs to another model or
                batch size.
            TypeError: if ids are not integers.
        """
        hidden, state = self.hidden(ids, state)
        return self.head(hidden), state

    def hidden(self, ids: Tensor, state: LMState | None = None) -> tuple[Tensor, LMState]:
        """Input of the output layer ``[B, T, dim]`` for token ids ``[B, T]``, and the state after them."""
        self._check(ids)
        return self.hidden_of(self.embedding(ids), state)

    def hidden_of(self, x: Tensor, state: LMState | None = None) -> tuple[Tensor, LMState]:
        """Same as :meth:`hidden`, but from embeddings ``[B, T, dim]``."""
        self._check_state(x, state)
        states = []
        again = self.gradient_checkpointing and self.training and torch.is_grad_enabled()
        for i, block in enumerate(self.blocks):
            before = None if state is None else state.blocks[i]
            x, after = self._gradient_checkpointing_func(block, x, before) if again else block(x, before)
            states.append(after)
        tokens = x.shape[1] + (0 if state is None else state.tokens)
        return self.norm(x), LMState(self.config, tuple(states), tokens)

    def loss(
        self,
        ids: Tensor,
        targets: Tensor | None = None,
        state: LMState | None = None,
        ignore_index: int = -100,
        chunk: int = 4096,
    ) -> Tensor:
        """Mean cross-entropy in nats, without holding the logits of all tokens at once.

        Args:
            ids: token ids ``[B, T]``.
            targets: target token ids ``[B, T]``. None: each token's target is the next token of ``ids``.
            state: state to continue from.
            ignore_index: target value to ignore. If all targets are ignored, the loss is NaN.
            chunk: number of tokens whose logits are computed at a time, and recomputed in the backward pass.

        Raises:
            ValueError, TypeError: as for :meth:`forward`, or if targets have another shape or dtype or are out of
                range.
        """
        at_least("chunk", chunk, 1)
        self._check(ids)
        if targets is None:
            if ids.shape[1] < 2:
                raise ValueError("without targets, ids must have at least two tokens: each one's target is the next.")
            ids, targets = ids[:, :-1], ids[:, 1:]
        elif not isinstance(targets, Tensor):
            raise TypeError(f"targets must be a tensor of token ids, got {type(targets).__name__}.")
        elif targets.shape != ids.shape:
            raise ValueError(f"targets must have the shape of ids, {tuple(ids.shape)}, got {tuple(targets.shape)}.")
        if targets.is_floating_point() or targets.dtype == torch.bool:
            raise TypeError(f"targets must be integer token ids, got {targets.dtype}.")
        targets = targets.flatten().long()
        if not torch.compiler.is_compiling():
            wrong = (targets != ignore_index) & ((targets < 0) | (targets >= self.config.vocab_size))
            if wrong.any():
                raise ValueError(
                    f"targets must be in 0..{self.config.vocab_size - 1} (below vocab_size) or equal ignore_index="
                    f"{ignore_index}, got {int(targets[wrong][0])}."
                )
        hidden = self.hidden_of(self.embedding(ids), state)[0].flatten(0, 1)
        total = hidden.new_zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32))
        chunk = int(chunk)  # torch takes no number of NumPy
        for h, t in zip(hidden.split(chunk), targets.split(chunk), strict=True):
            total = total + checkpoint(self._sum_of_losses, h, t, ignore_index, use_reentrant=False)
        return total / (targets != ignore_index).sum()

    def _sum_of_losses(self, hidden: Tensor, targets: Tensor, ignore_index: int) -> Tensor:
        logits = self.head(hidden)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return F.cross_entropy(logits, targets, ignore_index=ignore_index, reduction="sum")

    def save(self, path: str | Path) -> None:
        """Write the model to the folder ``path`` (JSON and safetensors).

        Raises:
            ValueError: if the model no longer matches its ``config``, so that it could not be loaded.
            ArchiveError: if ``path`` is a file, or holds a model of another kind.
        """
        tensors = {name: t for name, t in self.state_dict().items() if name != "head.weight" or not self._tied}
        config = self.true_config
        with torch.device("meta"):
            expected = type(self)(config).state_dict()
        if self._tied:
            del expected["head.weight"]
        names = sorted({*tensors, *expected})
        changed = [n for n in names if n not in tensors or n not in expected or tensors[n].shape != expected[n].shape]
        if changed:
            raise ValueError(
                f"the model no longer matches its config and could not be loaded again: {changed[:4]} changed. Update "
                "model.config (dataclasses.replace(model.config, vocab_size=...)), merge added modules into the "
                "weights, or save model.state_dict() instead."
            )
        save_archive(path, type(self).__name__, {"config": asdict(config)}, tensors)

    @classmethod
    def load(cls, path: str | Path, config: TitansConfig | None = None) -> Self:
        """Load a model from a folder written by :meth:`save`, on the CPU and in the saved dtype. Nothing is unpickled.

        Args:
            path: the folder.
            config: expected configuration. None accepts any.

        Raises:
            FileNotFoundError: if there is no saved model.
            ArchiveError: if a file is truncated or modified, or holds another kind of model.
            ValueError: if the saved configuration differs from ``config``; the message lists the differences.
        """
        folder = Path(path).expanduser()
        if (folder / "config.json").is_file() and not (folder / "model.json").is_file():
            raise FileNotFoundError(
                f"{path} holds a model in the format of transformers: titans_core.huggingface loads it, and "
                "TitansForCausalLM.from_pretrained(path).model is the TitansLM."
            )
        content, tensors = load_archive(path, cls.__name__)
        try:
            found = TitansConfig.saved(content["config"])
        except ValueError as error:
            raise ArchiveError(f"{path}: {error}") from error
        if config is not None and config != found:
            raise ValueError(f"{path} holds a model with another configuration: {found.differences(config)}.")
        with torch.device("meta"):
            model = cls(found)
        missing = sorted({*model.state_dict()} - {*tensors} - ({"head.weight"} if found.tie_embeddings else set()))
        surplus = sorted({*tensors} - {*model.state_dict()})
        if missing or surplus:
            raise ArchiveError(
                f"{path} does not match its configuration: missing tensors {missing}, unexpected tensors {surplus}."
            )
        model.load_state_dict(tensors, strict=False, assign=True)  # strict=False: a tied head.weight is not saved
        if found.tie_embeddings:
            model.head.weight = model.embedding.weight
        return model.eval()

    @property
    def true_config(self) -> TitansConfig:
        """``config`` with the present tying, which may have changed since construction."""
        return replace(self.config, tie_embeddings=self._tied)

    @property
    def _tied(self) -> bool:
        return self.head.weight is self.embedding.weight

    def num_parameters(self, embeddings: bool = True) -> int:
        """Number of parameters, tied embeddings counted once; optionally without embedding and output layer."""
        count = sum(p.numel() for p in self.parameters())
        if embeddings:
            return count
        return count - sum({id(p): p.numel() for p in (self.embedding.weight, self.head.weight)}.values())

    def _check(self, ids: Tensor) -> None:
        if not isinstance(ids, Tensor) or ids.dtype not in (torch.int64, torch.int32):
            kind = ids.dtype if isinstance(ids, Tensor) else type(ids).__name__
            raise TypeError(f"ids must be a tensor of int64 or int32 token ids, got {kind}.")
        if ids.ndim != 2:
            raise ValueError(f"ids must be [B, T], got shape {tuple(ids.shape)}.")
        if ids.numel() == 0:
            raise ValueError(f"ids must contain at least one token, got shape {tuple(ids.shape)}.")
        if not torch.compiler.is_compiling() and not ids.is_meta:
            low, high = (int(x) for x in ids.aminmax())
            if low < 0 or high >= self.config.vocab_size:
                wrong = low if low < 0 else high
                raise ValueError(
                    f"ids must be in 0..{self.config.vocab_size - 1} (below vocab_size), got {wrong}: use the "
                    "tokenizer that the model was trained with."
                )

    def _check_state(self, x: Tensor, state: LMState | None) -> None:
        if state is None:
            return
        if not isinstance(state, LMState):
            raise TypeError(f"state must be an LMState returned by an earlier call, got {type(state).__name__}.")
        if replace(state.config, tie_embeddings=self.config.tie_embeddings) != self.config:
            raise ValueError(f"state comes from a model with another config: {state.config.differences(self.config)}.")
        if torch.compiler.is_compiling():
            return
        if state.batch_size != len(x):
            raise ValueError(
                f"state holds {state.batch_size} sequences, but ids has {len(x)}: continue with the same batch, or "
                "choose rows with state.select(rows)."
            )
        at = next(tensors(state.blocks)).device  # loaded states are on the CPU
        if at != x.device:
            raise ValueError(f"state is on {at}, but the model is on {x.device}: use state.to({str(x.device)!r}).")
