"""The state of a Titans model as a cache of ``transformers``."""

import copy
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache
from transformers.modeling_outputs import CausalLMOutputWithPast

from titans_core.models import LMState

# the name of the cache in calls and outputs: "cache", or "past_key_values" before transformers 5.24
CACHE = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"

Parts = list[tuple[Tensor, LMState | None]]


class TitansCache(Cache):
    """States of a batch of texts, for the argument :data:`CACHE`. It is modified in place, as ``transformers`` expects.

    A recurrent model must not read padding. So texts that have read the same number of tokens share one state, and
    there is one state per length: a padded batch continues exactly as each text would alone.

    Attributes:
        parts: list of ``(rows, state)``: ascending row indices of the batch, and their state (None before their first
            token).
        length: number of columns of the batch that were read, padding included.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.parts: Parts = []
        self.length = 0

    @property
    def batch_size(self) -> int:
        """Number of texts; -1 before anything was read."""
        return sum(len(rows) for rows, _ in self.parts) if self.parts else -1

    @property
    def is_initialized(self) -> bool:
        """Whether anything was read."""
        return bool(self.parts)

    @property
    def is_croppable(self) -> bool:
        """False: a memory cannot unlearn tokens."""
        return False

    @property
    def is_linear(self) -> list[bool]:
        """Not so: as with key-value caches, ``generate`` cuts off the part of a prompt that was read."""
        return [False]

    def __deepcopy__(self, memo: dict[int, Any]) -> "TitansCache":
        """An independent cache. It shares the states, which are immutable."""
        return copy.copy(self)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Number of columns read, the same for every layer."""
        return self.length

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """-1: there is no maximum."""
        return -1

    def reset(self) -> None:
        """Clear the cache."""
        self.parts, self.length = [], 0

    def crop(self, tokens_to_remove: int) -> None:
        """Not supported: a memory cannot unlearn tokens."""
        raise NotImplementedError(
            "a Titans memory cannot unlearn its last tokens, so a TitansCache cannot be cropped. Generate without an "
            "assistant model or prompt lookup. To try several continuations, keep a copy.deepcopy of the cache."
        )

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Replace text i by text ``beam_idx[i]``."""
        parts: Parts = []
        for rows, state in self.parts:
            new, old = (beam_idx.to(rows.device)[:, None] == rows).nonzero(as_tuple=True)
            if len(new):
                parts.append((new, None if state is None else state.select(old)))
        self.parts = parts

    def batch_select_indices(self, indices: Tensor) -> None:
        """Same as :meth:`reorder_cache`."""
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each text ``repeats`` times, as needed to start beam search from a cache."""
        self.reorder_cache(torch.arange(max(self.batch_size, 0)).repeat_interleave(repeats))


def check_continued(cache: TitansCache, columns: int, mask: Tensor | None, embeddings: Tensor | None) -> None:
    """Check the prompt of ``generate`` with a cache: a memory cannot detect that tokens were skipped or read twice."""
    read = cache.length
    if columns <= read:
        raise ValueError(
            f"the cache has read {read} tokens, but the prompt has only {columns}: pass the whole text, with at least "
            f"one new token, or only the T new tokens with an attention_mask [B, {read} + T] for both."
        )
    if read and embeddings is not None and embeddings.shape[1] != columns:
        raise ValueError(
            f"the cache has read {read} of {columns} columns, but inputs_embeds has {embeddings.shape[1]}: generate "
            f"cuts off the first {read}, so pass the embeddings of the whole text."
        )
    if mask is None or cache.batch_size not in (-1, len(mask)):  # forward refuses another batch
        return
    for rows, state in cache.parts:
        real = mask[rows.to(mask.device), :read].count_nonzero(dim=1)
        if state is not None and bool((real < state.tokens).any()):
            row = int(rows[real.argmin()])
            raise ValueError(
                f"the cache has read {state.tokens} tokens of text {row}, but attention_mask has only "
                f"{int(real.min())} there. If none was given, generate takes every padding token for padding: give "
                "one, with 1 for each token that was read. Otherwise generate wrote padding behind a text that ended "
                "before others, and the cache has read it. A memory cannot unlearn it: pass the whole texts without "
                "this cache."
            )
