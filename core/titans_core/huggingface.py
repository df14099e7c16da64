"""Titans language models for Hugging Face ``transformers``: ``AutoModelForCausalLM``, ``generate``.

Importing this module registers the classes. They wrap a :class:`~titans_core.TitansLM` without copying it::

    TitansForCausalLM.from_titans(model, eos_token_id=2).save_pretrained("folder")
    AutoModelForCausalLM.from_pretrained("folder").generate(ids, max_new_tokens=100, num_beams=3)
"""

import copy
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from titans_core.huggingface_tokenizer import hf_tokenizer
from titans_core.models import LMState, TitansConfig, TitansLM
from titans_core.warn import warn_caller

try:
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationMixin
    from transformers.cache_utils import Cache
    from transformers.configuration_utils import PreTrainedConfig
    from transformers.modeling_outputs import CausalLMOutputWithPast
    from transformers.modeling_utils import PreTrainedModel
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
except ImportError as error:
    raise ImportError(
        f"titans_core.huggingface needs transformers 5: pip install 'titans-suite[hf]' ({error})"
    ) from error

__all__ = ["TitansCache", "TitansForCausalLM", "TitansHFConfig", "hf_tokenizer"]


class TitansHFConfig(PreTrainedConfig):
    """The settings of :class:`~titans_core.TitansConfig`, under the same names, and those of ``transformers``.

    Args:
        bos_token_id: token that begins a text. None: no such token.
        eos_token_id: token that ends a text; ``generate`` stops there.
        pad_token_id: padding token.
        use_cache: default of ``forward``'s ``use_cache``: whether a forward pass in evaluation mode and without labels
            returns a :class:`TitansCache`.
        options: settings of ``TitansConfig``, and any other settings of a ``transformers`` configuration.

    Raises:
        ValueError, TypeError: as for ``TitansConfig``.
    """

    model_type = "titans"
    attribute_map = {  # noqa: RUF012
        "hidden_size": "dim",
        "intermediate_size": "hidden",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "tie_word_embeddings": "tie_embeddings",
    }

    def __init__(
        self,
        *,
        bos_token_id: int | None = None,
        eos_token_id: int | list[int] | None = None,
        pad_token_id: int | None = None,
        use_cache: bool = True,
        **options: Any,
    ) -> None:
        for theirs, ours in self.attribute_map.items():
            if theirs in options:
                options[ours] = options.pop(theirs)
        settings = TitansConfig(**{f.name: options.pop(f.name) for f in fields(TitansConfig) if f.name in options})
        for name, value in asdict(settings).items():
            setattr(self, name, value)
        self.bos_token_id = bos_token_id
        self.eos_token_id = eos_token_id
        self.pad_token_id = pad_token_id
        self.use_cache = use_cache
        super().__init__(**options)

    def titans(self) -> TitansConfig:
        """Return the network's settings as a ``TitansConfig``."""
        return TitansConfig(**{f.name: getattr(self, f.name) for f in fields(TitansConfig)})


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


class TitansForCausalLM(PreTrainedModel, GenerationMixin):
    """A :class:`~titans_core.TitansLM` with the interface of a ``transformers`` causal language model.

    Padding, wherever ``attention_mask`` is 0, is not read at all, so it does not change the results.

    Args:
        config: model configuration.
        model: an existing network to wrap; see :meth:`from_titans`.
    """

    config_class = TitansHFConfig
    base_model_prefix = "model"
    accepts_loss_kwargs = True
    supports_gradient_checkpointing = True
    _is_stateful = True
    _no_split_modules = ["Block"]  # noqa: RUF012
    _tied_weights_keys = {"model.head.weight": "model.embedding.weight"}  # noqa: RUF012

    def __init__(self, config: TitansHFConfig, model: TitansLM | None = None) -> None:
        super().__init__(config)
        self.model = TitansLM(config.titans()) if model is None else model
        for parameter in self.model.parameters():
            # the network initialises itself; on the meta device it has no values yet
            parameter._is_hf_initialized = not parameter.is_meta
        self.post_init()

    @classmethod
    def from_titans(cls, model: TitansLM, **options: Any) -> "TitansForCausalLM":
        """Wrap a network without copying it; its training mode is kept.

        ``options`` are passed to :class:`TitansHFConfig`, for example ``eos_token_id=2``.
        """
        config = TitansHFConfig(**asdict(model.true_config), dtype=model.embedding.weight.dtype, **options)
        return cls(config, model).train(model.training)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **options: Any) -> Any:
        """As in ``transformers``, from a folder written by ``save_pretrained``.

        Raises:
            ValueError: for a folder written by ``TitansLM.save``; the message says how to convert it.
        """
        if pretrained_model_name_or_path is not None:
            refuse_saved(Path(pretrained_model_name_or_path))
        return super().from_pretrained(pretrained_model_name_or_path, *args, **options)

    @torch.no_grad()
    def initialize_weights(self) -> None:
        """Initialise weights that are missing in a checkpoint as in a new network."""
        lacking = {
            name: parameter
            for name, parameter in self.model.named_parameters()
            if not getattr(parameter, "_is_hf_initialized", False)
        }
        if lacking:
            new = dict(TitansLM(self.config.titans()).named_parameters())
            for name, parameter in lacking.items():
                parameter.copy_(new[name])

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.model.embedding = value

    def get_output_embeddings(self) -> nn.Module:
        return self.model.head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.model.head = new_embeddings

    def resize_token_embeddings(self, *args: Any, **options: Any) -> nn.Embedding:
        """As in ``transformers``. Earlier caches belong to another model afterwards and cannot be continued."""
        embedding = super().resize_token_embeddings(*args, **options)
        self.model.config = self.config.titans()
        return embedding

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        cache: TitansCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        position_ids: Tensor | None = None,
        past_key_values: TitansCache | None = None,
        **options: Any,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Compute next-token logits, and with ``labels`` the loss.

        Args:
            input_ids: ``[B, T]``. Pass either this or ``inputs_embeds``, ``[B, T, dim]``.
            attention_mask: 1 for tokens, 0 for padding. Its last T columns belong to ``input_ids``.
            cache: cache to continue from; updated in place.
            labels: ``[B, T]``, ``input_ids`` with -100 where no loss is wanted. They are shifted internally. A token
                right after padding counts as the first of a text, and its label is ignored. A ``Trainer`` still counts
                such labels, so pad on the right in training.
            use_cache: whether to return the cache, which is needed to continue. None: as set in the configuration, in
                evaluation mode and without labels. Without a cache, a padded batch is read at once; with a cache, texts
                of each length are read separately.
            logits_to_keep: number of last columns, or indices of columns, to compute logits for. 0: all.
            num_items_in_batch: divisor of the summed loss. None: the number of labels that count.
            position_ids: not used, because tokens are read in order; only checked for packed texts.
            past_key_values: the name of ``cache`` before transformers 5.24.
            options: other arguments that ``generate`` and tokenizers pass to every model, such as ``token_type_ids``;
                ignored.

        Raises:
            ValueError, TypeError: if the input or cache has the wrong type, the cache belongs to another batch or
                model, several texts are packed into a row, or labels are combined with ``logits_to_keep``.
        """
        if output_attentions or output_hidden_states:
            raise ValueError(
                "Titans models do not return attentions or hidden states: remove output_attentions and "
                "output_hidden_states. For the input of the output layer, use model.model.hidden(input_ids)[0]."
            )
        if labels is not None and not (isinstance(logits_to_keep, int) and logits_to_keep == 0):
            raise ValueError("labels need the logits of all columns: do not pass logits_to_keep.")
        x = _input(input_ids, inputs_embeds)
        _tensors(labels=labels)
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training and labels is None
        if cache is not None and past_key_values is not None:
            raise ValueError("cache and past_key_values are two names of the same argument: pass one of them.")
        cache = past_key_values if cache is None else cache
        if cache is None and use_cache:
            cache = TitansCache()
        mask = _mask(attention_mask, x)
        _refuse_packed(position_ids, mask, options.get("seq_idx"), options.get("cu_seq_lens_q"))
        if mask is not None:
            x = x.masked_fill(~mask if x.ndim == 2 else ~mask[..., None], 0)  # padding ids may be out of range
            if labels is not None:
                labels = _predicted(labels, mask, counted=num_items_in_batch is not None)
        hidden = self._read(x, mask, cache)
        if mask is not None and labels is None:  # generate reads the last column: repeat each text's last output there
            last = mask.shape[1] - 1 - _after_last(mask).sum(1)
            columns = torch.arange(mask.shape[1], device=mask.device).minimum(last.clamp(min=0)[:, None])
            hidden = _columns(hidden, columns)
        logits = self.model.head(
            hidden[:, slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep]
        )
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits=logits,
                labels=labels.long(),  # int32 is allowed for ids too
                vocab_size=self.config.vocab_size,
                num_items_in_batch=num_items_in_batch,
            )
        kept: dict[str, Any] = {CACHE: cache if use_cache else None}
        output = CausalLMOutputWithPast(loss=loss, logits=logits, **kept)
        return output if (self.config.return_dict if return_dict is None else return_dict) else output.to_tuple()

    def _read(self, x: Tensor, tokens: Tensor | None, cache: TitansCache | None) -> Tensor:
        """Read ids ``[B, T]`` or embeddings ``[B, T, dim]`` where ``tokens`` is True -> ``[B, T, dim]``."""
        if cache is not None and not isinstance(cache, TitansCache):
            raise TypeError(
                f"the cache must be a TitansCache, got {type(cache).__name__}: Titans models cannot use "
                "key-value caches."
            )
        if cache is None:
            return self._hidden(x, None)[0] if tokens is None else self._read_together(x, tokens)
        parts: Parts = cache.parts or [(torch.arange(len(x), device=x.device), None)]
        if cache.batch_size not in (-1, len(x)):
            raise ValueError(
                f"the cache holds {cache.batch_size} texts, but the batch has {len(x)}: continue with the same "
                "batch. For beam search or several answers from one cache, call its batch_repeat_interleave(n) first."
            )
        if tokens is None and len(parts) == 1:
            rows, state = parts[0]
            hidden, state = self._hidden(x, state)
            parts = [(rows, state)]
        else:
            tokens = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if tokens is None else tokens
            hidden, parts = self._read_by_length(x, tokens, parts)
        cache.parts, cache.length = parts, cache.length + x.shape[1]
        return hidden

    def _read_together(self, x: Tensor, tokens: Tensor) -> Tensor:
        """As :meth:`_read`, without a cache: padding is moved after the texts, and its output is 0."""
        order = (~tokens).byte().argsort(dim=1, stable=True)
        hidden, _ = self._hidden(_columns(x, order), None)
        return _columns(hidden, order.argsort(dim=1)).masked_fill(~tokens[..., None], 0)

    def _read_by_length(self, x: Tensor, tokens: Tensor, parts: Parts) -> tuple[Tensor, Parts]:
        """As :meth:`_read`, one text length after another. The output of padding is 0."""
        hidden = self.model.norm.weight.new_zeros(*x.shape[:2], self.config.dim)
        after: Parts = []
        for rows, state in parts:
            lengths = tokens[rows].sum(1)
            for length in lengths.unique().tolist():
                chosen = (lengths == length).nonzero().squeeze(1)
                own = state if state is None or len(chosen) == len(rows) else state.select(chosen)
                if length:
                    here = torch.zeros_like(tokens)
                    here[rows[chosen]] = tokens[rows[chosen]]
                    y, own = self._hidden(x[here].unflatten(0, (len(chosen), length)), own)
                    hidden[here] = y.flatten(0, 1).to(hidden.dtype)
                after.append((rows[chosen], own))
        return hidden, after

    def _hidden(self, x: Tensor, state: LMState | None) -> tuple[Tensor, LMState]:
        return self.model.hidden(x, state) if x.ndim == 2 else self.model.hidden_of(x, state)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    def _prepare_cache_for_generation(self, generation_config: Any, model_kwargs: dict[str, Any], *rest: Any) -> Any:
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *rest)  # type: ignore[misc]
        cache, mask = model_kwargs.get(CACHE), model_kwargs.get("attention_mask")
        if mask is not None and bool((mask == 0).all(dim=1).any()):
            raise ValueError(
                "a prompt of the batch has no token (its attention_mask is 0 everywhere): start it with a token, such "
                "as the end-of-text token, and set attention_mask to 1 there."
            )
        columns = model_kwargs.get("position_ids") if mask is None else mask  # without padding there is no mask
        if cache is None and generation_config.use_cache is not False:
            model_kwargs[CACHE] = TitansCache()
        elif isinstance(cache, TitansCache) and columns is not None:
            _check_continued(cache, columns.shape[1], mask, model_kwargs.get("inputs_embeds"))


def refuse_saved(folder: Path) -> None:
    """Raise a ValueError for a folder written by ``TitansLM.save``, where ``transformers`` would assume defaults."""
    if (folder / "model.json").is_file() and not (folder / "config.json").is_file():
        raise ValueError(
            f"{folder} holds a model in the format of TitansLM.save, not in that of transformers. Convert it with "
            "TitansForCausalLM.from_titans(TitansLM.load(folder)).save_pretrained(other), and save its tokenizer there "
            'too: hf_tokenizer("bytes").save_pretrained(other).'
        )


def _input(input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("pass either input_ids [B, T] or inputs_embeds [B, T, dim], not both or neither.")
    _tensors(input_ids=input_ids, inputs_embeds=inputs_embeds)
    if input_ids is not None and input_ids.ndim != 2:
        raise ValueError(f"input_ids must be [B, T], got shape {tuple(input_ids.shape)}. Try input_ids[None].")
    return input_ids if input_ids is not None else inputs_embeds  # type: ignore[return-value]


def _tensors(**given: Tensor | None) -> None:
    for name, x in given.items():
        if x is not None and not isinstance(x, Tensor):
            raise TypeError(
                f"{name} must be a tensor, got {type(x).__name__}: make a batch with "
                'batch = tokenizer.pad(texts, return_tensors="pt"), and call the model with **batch.'
            )


def _mask(mask: Tensor | None, x: Tensor) -> Tensor | None:
    """Which columns are tokens, ``[B, T]``; None: all."""
    if mask is None:
        return None
    _tensors(attention_mask=mask)
    # the additive form has 0 for tokens
    other = mask.is_floating_point() and not bool(((mask == 0) | (mask == 1)).all())
    if mask.ndim != 2 or len(mask) != len(x) or mask.shape[1] < x.shape[1] or other:
        raise ValueError(
            f"attention_mask must be [B, T] with values 0 and 1, and cover the input of shape {tuple(x.shape[:2])}, "
            f"got shape {tuple(mask.shape)}{' with other values' if other else ''}."
        )
    tokens = mask[:, mask.shape[1] - x.shape[1] :].to(x.device).bool()
    return None if bool(tokens.all()) else tokens


def _check_continued(cache: TitansCache, columns: int, mask: Tensor | None, embeddings: Tensor | None) -> None:
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
                f"{int(real.min())} there: generate writes padding behind a text that ends before others, and the "
                "cache has read it. A memory cannot unlearn it: pass the whole texts without this cache."
            )


def _columns(x: Tensor, places: Tensor) -> Tensor:
    """Reorder ``[B, T]`` or ``[B, T, .]`` by column indices ``places [B, T]``."""
    return x.gather(1, places if x.ndim == 2 else places[..., None].expand(-1, -1, x.shape[2]))


def _after_last(tokens: Tensor) -> Tensor:
    """Columns after the last token of each row, ``[B, T]``."""
    return tokens.flip(1).cumsum(1).flip(1) == 0


def _predicted(labels: Tensor, mask: Tensor, counted: bool) -> Tensor:
    """Set labels right after padding to -100. ``counted``: whether the caller has already counted the labels."""
    unpredicted = torch.zeros_like(mask)
    unpredicted[:, 1:] = ~mask[:, :-1]
    if counted and bool((unpredicted & (labels != -100)).any()):
        warn_caller(
            "num_items_in_batch counts labels of padding or of the first token of a text, which are not predicted, so "
            "the loss is too small. In training, pad on the right (tokenizer.padding_side = 'right') and set labels to "
            "-100 at padding."
        )
    return labels.masked_fill(unpredicted, -100)


def _refuse_packed(
    position_ids: Tensor | None, mask: Tensor | None, text_of: Tensor | None, starts: Tensor | None
) -> None:
    """Refuse rows of several texts, in each form in which ``DataCollatorWithFlattening`` marks them."""
    packed = starts is not None and len(starts) > 2  # the start of each text, and the end
    if text_of is not None:
        packed |= bool((text_of != text_of[:, :1]).any())
    if position_ids is not None and position_ids.ndim == 2:
        restarts = position_ids.diff(dim=1) <= 0
        if mask is not None:
            restarts = restarts & mask[:, 1:] & mask[:, :-1]
        packed |= bool(restarts.any())
    if packed:
        raise ValueError(
            "texts packed into one row (position_ids restart, or seq_idx or cu_seq_lens_q name several) would be read "
            "as a single text. Put each text in its own row."
        )


AutoConfig.register(TitansHFConfig.model_type, TitansHFConfig, exist_ok=True)
AutoModelForCausalLM.register(TitansHFConfig, TitansForCausalLM, exist_ok=True)
# with label smoothing, Trainer shifts the labels of the models listed here; registered ones are not
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[TitansHFConfig.model_type] = TitansForCausalLM.__name__
