"""Invalid inputs are refused with advice."""

import pytest
import torch

pytest.importorskip("transformers")

import transformers


def test_wrong_input_is_refused(wrapped, random_ids):
    hf, ids = wrapped(), random_ids(1, 5)
    with pytest.raises(ValueError, match=r"in 0\.\.28.*got 29.*tokenizer"):
        hf(torch.tensor([[1, 29]]))
    for inputs in ({}, dict(input_ids=ids, inputs_embeds=hf.get_input_embeddings()(ids))):
        with pytest.raises(ValueError, match="either input_ids"):
            hf(**inputs)
    with pytest.raises(ValueError, match=r"input_ids must be \[B, T\], got shape \(5,\)"):
        hf(ids[0])
    row = {"input_ids": ids[0], "labels": ids[0]}
    for given, name in (
        (dict(input_ids=[row, row]), "input_ids"),
        (dict(input_ids=[[1, 2]]), "input_ids"),
        (dict(inputs_embeds=[row]), "inputs_embeds"),
        (dict(input_ids=ids, attention_mask=[[1] * 5]), "attention_mask"),
        (dict(input_ids=ids, labels=ids.tolist()), "labels"),
    ):
        with pytest.raises(TypeError, match=rf"{name} must be a tensor, got list: .*tokenizer\.pad"):
            hf(**given)
    with pytest.raises(ValueError, match="do not return attentions or hidden states"):
        hf(ids, output_attentions=True)
    with pytest.raises(ValueError, match="labels need the logits of all columns"):
        hf(ids, labels=ids, logits_to_keep=2)


def test_a_cache_of_another_model_is_refused(wrapped, random_ids):
    cache = wrapped("lmm")(random_ids(1, 5), use_cache=True).past_key_values
    with pytest.raises(ValueError, match="state comes from a model with another config"):
        wrapped("mac")(random_ids(1, 5), past_key_values=cache)
    other, embedded = wrapped("lmm", num_layers=1), wrapped("lmm").get_input_embeddings()(random_ids(1, 5))
    with pytest.raises(ValueError, match="num_layers 2 there and 1 here"):  # which could read it, and would be wrong
        other(inputs_embeds=embedded, past_key_values=cache)
    with pytest.raises(TypeError, match="must be a TitansCache, got DynamicCache"):
        wrapped("mac")(random_ids(1, 5), past_key_values=transformers.DynamicCache())


@pytest.mark.parametrize("options", [{}, dict(num_beams=2), dict(use_cache=False)], ids=["greedy", "beams", "no cache"])
def test_nothing_is_written_on_from_an_empty_prompt(wrapped, random_ids, padded, options):
    """In a batch it would be a row of padding, whose logits are all 0, so the first token would always have id 0."""
    hf, texts = wrapped(), [random_ids(1, 4)[0], random_ids(1, 0)[0]]
    ids, mask = padded(texts)
    with pytest.raises(ValueError, match=r"a prompt of the batch has no token.*start it with a token"):
        hf.generate(ids, attention_mask=mask, max_new_tokens=2, **options)
    with pytest.raises(ValueError, match="at least one token"):
        hf.generate(ids[:1, :0], max_new_tokens=2)
    assert hf.generate(ids[:1], attention_mask=mask[:1], max_new_tokens=2, **options).shape[1] == 6
