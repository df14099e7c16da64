"""Checks of what a model is given, and the order of columns of a padded batch."""

import torch
from torch import Tensor

from titans_core.warn import warn_caller


def input_of(input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
    """The one that was given, ids ``[B, T]`` or embeddings ``[B, T, dim]``."""
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("pass either input_ids [B, T] or inputs_embeds [B, T, dim], not both or neither.")
    check_tensors(input_ids=input_ids, inputs_embeds=inputs_embeds)
    if input_ids is not None and input_ids.ndim != 2:
        raise ValueError(f"input_ids must be [B, T], got shape {tuple(input_ids.shape)}. Try input_ids[None].")
    return input_ids if input_ids is not None else inputs_embeds  # type: ignore[return-value]


def check_tensors(**given: Tensor | None) -> None:
    """Raise a TypeError for a list, as tokenizers return without ``return_tensors``."""
    for name, x in given.items():
        if x is not None and not isinstance(x, Tensor):
            raise TypeError(
                f"{name} must be a tensor, got {type(x).__name__}: make a batch with "
                'batch = tokenizer.pad(texts, return_tensors="pt"), and call the model with **batch.'
            )


def tokens_of(mask: Tensor | None, x: Tensor) -> Tensor | None:
    """Which columns are tokens, ``[B, T]``; None: all."""
    if mask is None:
        return None
    check_tensors(attention_mask=mask)
    # the additive form has 0 for tokens
    other = mask.is_floating_point() and not bool(((mask == 0) | (mask == 1)).all())
    if mask.ndim != 2 or len(mask) != len(x) or mask.shape[1] < x.shape[1] or other:
        raise ValueError(
            f"attention_mask must be [B, T] with values 0 and 1, and cover the input of shape {tuple(x.shape[:2])}, "
            f"got shape {tuple(mask.shape)}{' with other values' if other else ''}."
        )
    tokens = mask[:, mask.shape[1] - x.shape[1] :].to(x.device).bool()
    return None if bool(tokens.all()) else tokens


def reordered(x: Tensor, places: Tensor) -> Tensor:
    """Reorder ``[B, T]`` or ``[B, T, .]`` by column indices ``places [B, T]``."""
    return x.gather(1, places if x.ndim == 2 else places[..., None].expand(-1, -1, x.shape[2]))


def after_last(tokens: Tensor) -> Tensor:
    """Columns after the last token of each row, ``[B, T]``."""
    return tokens.flip(1).cumsum(1).flip(1) == 0


def predicted(labels: Tensor, mask: Tensor, counted: bool) -> Tensor:
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


def refuse_packed(
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
