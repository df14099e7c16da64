"""Caches: a text continues as if never cut, and operations that a memory cannot undo are refused."""

import copy

import pytest
import torch

pytest.importorskip("transformers")


@pytest.mark.parametrize("cut", [1, 6, 12])
def test_a_cached_text_continues_as_if_never_cut(wrapped, random_ids, architecture, cut):
    hf, ids = wrapped(architecture), random_ids(2, 13)
    first = hf(ids[:, :cut], use_cache=True)
    second = hf(ids[:, cut:], past_key_values=first.past_key_values, use_cache=True)
    torch.testing.assert_close(torch.cat((first.logits, second.logits), 1), hf(ids).logits, rtol=1e-9, atol=1e-9)
    assert second.past_key_values is first.past_key_values
    assert second.past_key_values.get_seq_length() == 13


@pytest.mark.parametrize(
    "options",
    [dict(do_sample=False), dict(num_beams=3, do_sample=False), dict(do_sample=True, temperature=1.5, top_k=20)],
    ids=["greedy", "beams", "sampling"],
)
def test_generation_with_and_without_cache_is_the_same_text(wrapped, random_ids, architecture, options):
    hf, ids = wrapped(architecture), random_ids(2, 9)
    texts = []
    for use_cache in (True, False):
        torch.manual_seed(5)
        texts.append(hf.generate(ids, max_new_tokens=12, use_cache=use_cache, **options))
    assert torch.equal(*texts)
    assert texts[0].shape[1] > 9


def test_greedy_generation_is_that_of_the_language_model(wrapped, random_ids, architecture):
    hf, ids = wrapped(architecture), random_ids(2, 9)
    found = hf.generate(ids, max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0)
    assert torch.equal(found, hf.model.generate(ids, max_new_tokens=12))


def test_several_answers_of_one_prompt_are_its_beams(wrapped, random_ids):
    hf, ids = wrapped(), random_ids(2, 9)
    options = dict(max_new_tokens=8, num_beams=4, num_return_sequences=3, do_sample=False)
    found = hf.generate(ids, **options)
    assert torch.equal(found, hf.generate(ids, use_cache=False, **options))
    assert len(found) == 6


def test_a_long_prompt_can_be_read_in_pieces(wrapped, random_ids, padded, architecture):
    hf, (ids, mask) = wrapped(architecture), padded([random_ids(1, T)[0] for T in (17, 5)])
    options = dict(attention_mask=mask, max_new_tokens=6, do_sample=False)
    assert torch.equal(hf.generate(ids, prefill_chunk_size=4, **options), hf.generate(ids, **options))


def test_a_book_is_read_once_for_many_questions(wrapped, random_ids):
    hf, book = wrapped(), random_ids(1, 30)
    cache = hf(book, use_cache=True).past_key_values
    for question in (random_ids(1, 4, seed=2), random_ids(1, 3, seed=3)):
        text = torch.cat((book, question), 1)
        found = hf.generate(text, past_key_values=copy.deepcopy(cache), max_new_tokens=6, do_sample=False)
        assert torch.equal(found, hf.generate(text, max_new_tokens=6, do_sample=False))
    cache.batch_repeat_interleave(3)
    found = hf.generate(text, past_key_values=cache, max_new_tokens=6, do_sample=False, num_beams=3)
    assert torch.equal(found, hf.generate(text, max_new_tokens=6, do_sample=False, num_beams=3))


def test_the_cache_has_two_names(wrapped, random_ids):
    """``transformers`` calls ``cache`` since 5.24 what was ``past_key_values``."""
    from titans_core.huggingface.cache import CACHE

    hf, ids = wrapped(), random_ids(1, 9)
    logits = []
    for name in ("cache", "past_key_values"):
        kept = hf(ids[:, :5], use_cache=True)[CACHE]
        logits.append(hf(ids[:, 5:], **{name: kept}).logits)
    assert torch.equal(*logits)
    with pytest.raises(ValueError, match="cache and past_key_values are two names of the same argument"):
        hf(ids[:, 5:], cache=kept, past_key_values=kept)


def test_a_cache_that_was_returned_goes_on(wrapped, random_ids):
    hf, ids = wrapped(), random_ids(1, 9)
    first = hf.generate(ids, max_new_tokens=5, do_sample=False, eos_token_id=None, return_dict_in_generate=True)
    text = torch.cat((first.sequences, random_ids(1, 4, seed=2)), 1)
    found = hf.generate(text, past_key_values=first.past_key_values, max_new_tokens=5, do_sample=False)
    assert torch.equal(found, hf.generate(text, max_new_tokens=5, do_sample=False))


def test_a_cache_that_has_read_the_padding_of_an_ended_text_is_refused(wrapped, random_ids):
    hf, ids = wrapped("lmm"), random_ids(2, 9)
    options = dict(max_new_tokens=5, do_sample=False)
    free = hf.generate(ids, eos_token_id=None, **options)[:, 9:]
    assert free[1, 0] not in free[0]
    first = hf.generate(ids, eos_token_id=int(free[1, 0]), return_dict_in_generate=True, **options)
    text = torch.cat((first.sequences, random_ids(2, 3, seed=2)), 1)
    with pytest.raises(ValueError, match="has read 13 tokens of text 1, but attention_mask has only 10 there"):
        hf.generate(text, attention_mask=(text != 0).long(), past_key_values=first.past_key_values, **options)


def test_a_padding_token_in_a_text_that_a_cache_has_read_is_a_token_if_the_mask_says_so(wrapped, random_ids):
    hf, ids = wrapped("lmm"), random_ids(1, 9)
    ids[0, 3] = hf.config.pad_token_id
    cache, mask = hf(ids[:, :6], use_cache=True).past_key_values, torch.ones_like(ids)
    options = dict(max_new_tokens=4, do_sample=False, eos_token_id=None)
    with pytest.raises(ValueError, match=r"read 6 tokens of text 0, .* only 5 there. If none was given, .*: give one"):
        hf.generate(ids, past_key_values=cache, **options)
    found = hf.generate(ids, attention_mask=mask, past_key_values=cache, **options)
    assert torch.equal(found, hf.generate(ids, attention_mask=mask, **options))


def test_a_prompt_that_a_cache_has_read_is_refused_and_what_follows_is_taken_with_a_mask_of_both(wrapped, random_ids):
    hf, ids = wrapped(), random_ids(1, 9)
    options = dict(max_new_tokens=4, do_sample=False, eos_token_id=None)
    for read, given in ((9, ids), (9, ids[:, :5]), (5, ids[:, 5:])):
        cache = hf(ids[:, :read], use_cache=True).past_key_values
        with pytest.raises(ValueError, match=rf"has read {read} tokens, but the prompt has only {given.shape[1]}"):
            hf.generate(given, past_key_values=cache, **options)
        assert cache.length == read
    found = hf.generate(ids[:, 5:], attention_mask=torch.ones_like(ids), past_key_values=cache, **options)
    expected = hf.generate(ids, **options)[:, 9:]
    assert torch.equal(found[:, 4:], expected)

    x, cache = hf.get_input_embeddings()(ids), hf(ids[:, :5], use_cache=True).past_key_values
    with pytest.raises(ValueError, match=r"read 5 of 9 columns, but inputs_embeds has 4.*pass .* the whole text"):
        hf.generate(inputs_embeds=x[:, 5:], attention_mask=torch.ones_like(ids), past_key_values=cache, **options)
    assert torch.equal(hf.generate(inputs_embeds=x, past_key_values=cache, **options), expected)


def test_a_cache_of_another_batch_is_refused(wrapped, random_ids):
    hf = wrapped()
    cache = hf(random_ids(2, 5), use_cache=True).past_key_values
    with pytest.raises(ValueError, match=r"holds 2 texts, but the batch has 1.*batch_repeat_interleave"):
        hf(random_ids(1, 5), past_key_values=cache)


def test_cache_operations_that_a_memory_cannot_undo_are_refused(wrapped, random_ids):
    hf, ids = wrapped(), random_ids(1, 9)
    cache = hf(ids, use_cache=True).past_key_values
    assert not cache.is_croppable
    with pytest.raises(NotImplementedError, match="cannot unlearn"):
        cache.crop(1)
    with pytest.raises(ValueError, match="assisted generation is not supported with stateful models"):
        hf.generate(ids, prompt_lookup_num_tokens=3, max_new_tokens=4)
    cache.reset()
    assert torch.equal(hf(ids, past_key_values=cache).logits, hf(ids).logits)
    cache.reset()
    options = dict(max_new_tokens=4, do_sample=False)
    assert torch.equal(hf.generate(ids, past_key_values=cache, **options), hf.generate(ids, **options))
