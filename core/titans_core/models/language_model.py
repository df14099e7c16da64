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
from titans_core.models.blocks import Block, norm
from titans_core.models.config import TitansConfig
from titans_core.models.generate import Generation
from titans_core.models.lmm import MemoryAlone
from titans_core.models.mac import MemoryAsContext
from titans_core.models.mag import MemoryAsGate
from titans_core.models.mal import MemoryAsLayer
from titans_core.models.state import LMState, tensors
from titans_core.models.transformer import full_attention
from titans_core.nn import NeuralMemory

MIXERS: dict[str, Any] = {
    "lmm": MemoryAlone,
    "mac": MemoryAsContext,
    "mag": MemoryAsGate,
    "mal": MemoryAsLayer,
    "transformer": full_attention,
}


class TitansLM(Generation, nn.Module):
    """A Titans language model (section 4), or a baseline from the same blocks.

    Cut a text anywhere and go on with the state: logits are those of one call. Except for "transformer", neither the
    state nor the time of a step grows with what was read.

    Attributes:
        gradient_checkpointing: whether training runs each block again in the backward pass, rather than keep what it
            made: several times less memory, for about a third more time.

    Example:
        >>> model = TitansLM(TitansConfig.preset("mac-170m"))
        >>> logits, state = model(ids)
        >>> model.generate(ids, max_new_tokens=100, temperature=0.8, top_p=0.95)
    """

    gradient_checkpointing = False
    # by the names that transformers sets
    _gradient_checkpointing_func = staticmethod(partial(checkpoint, use_reentrant=False))

    def __init__(self, config: TitansConfig) -> None:
        super().__init__()
        if not isinstance(config, TitansConfig):
            raise TypeError(
                f"config must be a TitansConfig, got {type(config).__name__}: TitansConfig(...), or by the name of a "
                "preset TitansConfig.preset('mac-170m')."
            )
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.blocks = nn.ModuleList(
            Block(config, MIXERS[config.architecture](config)) for _ in range(config.num_layers)
        )
        self.norm = norm(config)
        self.head = nn.Linear(config.dim, config.vocab_size, bias=False)
        self._start()
        if config.tie_embeddings:
            self.head.weight = self.embedding.weight

    @torch.no_grad()
    def _start(self) -> None:
        """Where training starts: all of it in one place, but for the memory's gates.

        Matrices keep the scale of what they read; those that write to the residual stream are smaller, as there are two
        in each block; embeddings give logits of about 0.5. A memory starts with little to say of its own.
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
        """Token ids ``[B, T]`` -> logits ``[B, T, vocab_size]`` of the token that follows each, and the state.

        Raises:
            ValueError: ids that are not ``[B, T]``, empty, out of range, or a state of another model or batch size.
            TypeError: ids that are no integers.
        """
        hidden, state = self.hidden(ids, state)
        return self.head(hidden), state

    def hidden(self, ids: Tensor, state: LMState | None = None) -> tuple[Tensor, LMState]:
        """Token ids ``[B, T]`` -> what the output layer reads ``[B, T, dim]``, and the state after them."""
        self._check(ids)
        return self.hidden_of(self.embedding(ids), state)

    def hidden_of(self, x: Tensor, state: LMState | None = None) -> tuple[Tensor, LMState]:
        """As :meth:`hidden`, from embeddings ``[B, T, dim]``."""
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
        """Mean cross-entropy in nats. The logits of all tokens are never held at once.

        Args:
            ids: ``[B, T]``.
            targets: ``[B, T]``, the token that should follow each; None: the next of ``ids``.
            state: to go on from.
            ignore_index: a target that does not count; where none counts, the loss is NaN.
            chunk: tokens whose logits are made at a time, and again in the backward pass.

        Raises:
            ValueError, TypeError: as :meth:`forward`, or targets of another shape, kind or vocabulary.
        """
        at_least("chunk", chunk, 1)
        self._check(ids)
        if targets is None:
            if ids.shape[1] < 2:
                raise ValueError("without targets, ids must hold at least two tokens: each is the target of the last.")
            ids, targets = ids[:, :-1], ids[:, 1:]
        elif not isinstance(targets, Tensor):
            raise TypeError(f"targets must be a tensor of token ids, got {type(targets).__name__}.")
        elif targets.shape != ids.shape:
            raise ValueError(f"targets must have the shape of ids, {tuple(ids.shape)}, got {tuple(targets.shape)}.")
        if targets.is_floating_point() or targets.dtype == torch.bool:
            raise TypeError(f"targets must be token ids, integers, got {targets.dtype}.")
        targets = targets.flatten().long()
        if not torch.compiler.is_compiling():
            wrong = (targets != ignore_index) & ((targets < 0) | (targets >= self.config.vocab_size))
            if wrong.any():
                raise ValueError(
                    f"targets must be in 0..{self.config.vocab_size - 1}, below the vocab_size, or ignore_index, which "
                    f"is {ignore_index}; got {int(targets[wrong][0])}."
                )
        hidden = self.hidden_of(self.embedding(ids), state)[0].flatten(0, 1)
        total = hidden.new_zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32))
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
            ValueError: a model that is no longer what its ``config`` says, as nothing could load it.
            ArchiveError: a file of this name, or a model of another kind.
        """
        tensors = {name: t for name, t in self.state_dict().items() if name != "head.weight" or not self._tied}
        config = replace(self.config, tie_embeddings=self._tied)  # which may have been changed since
        with torch.device("meta"):
            expected = type(self)(config).state_dict()
        if self._tied:
            del expected["head.weight"]
        names = sorted({*tensors, *expected})
        changed = [n for n in names if n not in tensors or n not in expected or tensors[n].shape != expected[n].shape]
        if changed:
            raise ValueError(
                f"the model is no longer what its config says, so what is saved could not be loaded: {changed[:4]} "
                "changed. Set model.config to what it is (dataclasses.replace(model.config, vocab_size=...)), merge "
                "what was added into the weights, or save its state_dict()."
            )
        save_archive(path, type(self).__name__, {"config": asdict(config)}, tensors)

    @classmethod
    def load(cls, path: str | Path, config: TitansConfig | None = None) -> Self:
        """A model from the folder that :meth:`save` wrote, on the CPU and of the same dtype. Nothing is unpickled.

        Args:
            path: the folder.
            config: what the model should be; None takes what is there.

        Raises:
            FileNotFoundError: no saved model there.
            ArchiveError: a truncated or changed file, or another kind of model.
            ValueError: a model of another configuration than ``config``; the message says what differs.
        """
        content, tensors = load_archive(path, cls.__name__)
        try:
            found = TitansConfig.saved(content["config"])
        except ValueError as error:
            raise ArchiveError(f"{path}: {error}") from error
        if config is not None and config != found:
            raise ValueError(f"{path} holds another model: {found.differences(config)}.")
        with torch.device("meta"):
            model = cls(found)
        missing = sorted({*model.state_dict()} - {*tensors} - ({"head.weight"} if found.tie_embeddings else set()))
        surplus = sorted({*tensors} - {*model.state_dict()})
        if missing or surplus:
            raise ArchiveError(
                f"{path} does not hold the tensors of its configuration: {missing} are missing, {surplus} too many."
            )
        model.load_state_dict(tensors, strict=False, assign=True)  # of the names, a tied head.weight may be missing
        if found.tie_embeddings:
            model.head.weight = model.embedding.weight
        return model.eval()

    @property
    def _tied(self) -> bool:
        return self.head.weight is self.embedding.weight

    def num_parameters(self, embeddings: bool = True) -> int:
        """Numbers that are trained: all, tied embeddings counted once; or without embedding and output layer."""
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
            raise ValueError(f"ids must hold at least one token, got shape {tuple(ids.shape)}.")
        if not torch.compiler.is_compiling():
            low, high = (int(x) for x in ids.aminmax())
            if low < 0 or high >= self.config.vocab_size:
                wrong = low if low < 0 else high
                raise ValueError(
                    f"ids must be in 0..{self.config.vocab_size - 1}, below the vocab_size, got {wrong}: is this "
                    "the tokenizer that the model was trained with?"
                )

    def _check_state(self, x: Tensor, state: LMState | None) -> None:
        if state is None:
            return
        if not isinstance(state, LMState):
            raise TypeError(f"state must be an LMState, as an earlier call returned it, got {type(state).__name__}.")
        if state.config != self.config:
            raise ValueError(f"state is that of another model: {state.config.differences(self.config)}.")
        if torch.compiler.is_compiling():
            return
        if state.batch_size != len(x):
            raise ValueError(
                f"state is that of {state.batch_size} sequences, ids has {len(x)}: go on with the same batch, or "
                "take the rows that you want with state.select(rows)."
            )
        at = next(tensors(state.blocks)).device  # a state that was loaded is on the CPU
        if at != x.device:
            raise ValueError(f"state is on {at}, the model on {x.device}: use state.to({str(x.device)!r}).")
