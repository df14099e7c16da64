"""A Titans language model as a model of ``transformers``."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import PreTrainedModel

from titans_core.archive import FOREIGN, check_kind
from titans_core.huggingface.cache import CACHE, Parts, TitansCache, check_continued
from titans_core.huggingface.config import TitansHFConfig
from titans_core.huggingface.inputs import (
    after_last,
    check_tensors,
    input_of,
    predicted,
    refuse_packed,
    reordered,
    tokens_of,
)
from titans_core.models import LMState, TitansLM


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

    def save_pretrained(self, save_directory: Any, *args: Any, **options: Any) -> None:
        """As in ``transformers``.

        Raises:
            ArchiveError: for a folder with a model written by another ``save`` of this library, whose tensors, in a
                file of the same name, would be lost.
        """
        check_kind(save_directory, FOREIGN)
        super().save_pretrained(save_directory, *args, **options)

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
        x = input_of(input_ids, inputs_embeds)
        check_tensors(labels=labels)
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training and labels is None
        if cache is not None and past_key_values is not None:
            raise ValueError("cache and past_key_values are two names of the same argument: pass one of them.")
        cache = past_key_values if cache is None else cache
        if cache is None and use_cache:
            cache = TitansCache()
        mask = tokens_of(attention_mask, x)
        refuse_packed(position_ids, mask, options.get("seq_idx"), options.get("cu_seq_lens_q"))
        if mask is not None:
            x = x.masked_fill(~mask if x.ndim == 2 else ~mask[..., None], 0)  # padding ids may be out of range
            if labels is not None:
                labels = predicted(labels, mask, counted=num_items_in_batch is not None)
        hidden = self._read(x, mask, cache)
        if mask is not None and labels is None:  # generate reads the last column: repeat each text's last output there
            last = mask.shape[1] - 1 - after_last(mask).sum(1)
            columns = torch.arange(mask.shape[1], device=mask.device).minimum(last.clamp(min=0)[:, None])
            hidden = reordered(hidden, columns)
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
        hidden, _ = self._hidden(reordered(x, order), None)
        return reordered(hidden, order.argsort(dim=1)).masked_fill(~tokens[..., None], 0)

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
            check_continued(cache, columns.shape[1], mask, model_kwargs.get("inputs_embeds"))


def refuse_saved(folder: Path) -> None:
    """Raise a ValueError for a folder written by ``TitansLM.save``, where ``transformers`` would assume defaults."""
    if (folder / "model.json").is_file() and not (folder / "config.json").is_file():
        raise ValueError(
            f"{folder} holds a model in the format of TitansLM.save, not in that of transformers. Convert it with "
            "TitansForCausalLM.from_titans(TitansLM.load(folder)).save_pretrained(other), and save its tokenizer there "
            'too: hf_tokenizer("bytes").save_pretrained(other).'
        )
