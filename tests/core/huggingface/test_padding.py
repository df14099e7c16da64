"""Texts of unequal lengths in one batch: padding changes nothing."""

import pytest
import torch

pytest.importorskip("transformers")


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_padding_changes_nothing(wrapped, random_ids, padded, architecture, side, use_cache):
    hf = wrapped(architecture)
    texts = [random_ids(1, T, seed=T)[0] for T in (11, 4, 7, 4)]
    ids, mask = padded(texts, side)
    logits = hf(ids, attention_mask=mask, use_cache=use_cache).logits
    for row, real, text in zip(logits, mask.bool(), texts, strict=True):
        torch.testing.assert_close(row[real], hf(text[None]).logits[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_batch_that_goes_nowhere_is_read_at_once(wrapped, random_ids, padded, architecture, side, monkeypatch):
    hf, texts = wrapped(architecture), [random_ids(1, T, seed=T)[0] for T in (11, 4, 7)]
    weights = list(hf.parameters())
    loss = sum(hf(text[None], labels=text[None]).loss * (len(text) - 1) for text in texts) / (10 + 3 + 6)
    expected = torch.autograd.grad(loss, weights)
    ids, mask = padded(texts, side)
    x = hf.get_input_embeddings()(ids).masked_fill(mask[..., None] == 0, float("nan"))  # that nothing may see
    calls, read = [], hf.model.hidden_of
    monkeypatch.setattr(hf.model, "hidden_of", lambda *args: calls.append(1) or read(*args))
    for inputs in (dict(input_ids=ids), dict(inputs_embeds=x)):
        found = hf(**inputs, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
        torch.testing.assert_close(found.double(), loss.double(), rtol=1e-6, atol=1e-6)
        for one, other in zip(torch.autograd.grad(found, weights), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-8)
    assert len(calls) == 2


def test_ids_at_padding_are_never_read(wrapped, random_ids, padded):
    hf, (ids, mask) = wrapped(), padded([random_ids(1, T)[0] for T in (9, 4)])
    other = ids.masked_fill(mask == 0, 10**6)
    assert torch.equal(hf(other, attention_mask=mask).logits, hf(ids, attention_mask=mask).logits)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_batch_continues_as_its_texts_alone(wrapped, random_ids, padded, architecture, side):
    hf = wrapped(architecture)
    texts = [random_ids(1, T, seed=T)[0] for T in (11, 4, 7)]
    ids, mask = padded(texts, side)
    cache = hf(ids, attention_mask=mask, use_cache=True).past_key_values
    more = random_ids(3, 5, seed=8)
    found = hf(more, attention_mask=torch.cat((mask, torch.ones_like(more)), 1), past_key_values=cache).logits
    for row, text, new in zip(found, texts, more, strict=True):
        expected = hf(torch.cat((text, new))[None]).logits[0, len(text) :]
        torch.testing.assert_close(row, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("side", ["left", "right"])
def test_texts_of_equal_length_can_be_continued_by_unequal_lengths(wrapped, random_ids, padded, architecture, side):
    hf, ids = wrapped(architecture), random_ids(3, 7)
    cache = hf(ids, use_cache=True).past_key_values
    (more, mask), last = padded([random_ids(1, T, seed=T)[0] for T in (2, 5, 3)], side), random_ids(3, 4, seed=9)
    masks = [torch.ones_like(ids), mask, torch.ones_like(last)]
    hf(more, attention_mask=torch.cat(masks[:2], 1), past_key_values=cache)
    found = hf(last, attention_mask=torch.cat(masks, 1), past_key_values=cache).logits
    for row, *parts in zip(found, ids, more, mask.bool(), last, strict=True):
        first, second, real, third = parts
        expected = hf(torch.cat((first, second[real], third))[None]).logits[0, -4:]
        torch.testing.assert_close(row, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("options", [{}, dict(num_beams=3), dict(use_cache=False)], ids=["greedy", "beams", "no cache"])
def test_a_padded_batch_is_written_on_as_its_texts_alone(wrapped, random_ids, padded, architecture, options, side):
    hf = wrapped(architecture)
    texts = [random_ids(1, T, seed=T)[0] for T in (11, 4, 7)]
    ids, mask = padded(texts, side)
    options = dict(max_new_tokens=5, do_sample=False, eos_token_id=None, **options)
    found = hf.generate(ids, attention_mask=mask, **options)[:, 11:]
    for row, text in zip(found, texts, strict=True):
        assert torch.equal(row, hf.generate(text[None], **options)[0, len(text) :])


def test_a_mask_of_another_shape_is_refused(wrapped, random_ids):
    hf, ids = wrapped(), random_ids(2, 5)
    for shape in [(2, 4), (1, 5), (2, 1, 5, 5)]:
        with pytest.raises(ValueError, match=r"attention_mask must be \[B, T\].*\(2, 5\), got shape"):
            hf(ids, attention_mask=torch.ones(shape))
