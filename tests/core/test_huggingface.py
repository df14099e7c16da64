"""Titans models in transformers: the same numbers, whatever is cached, padded, saved or loaded."""

import copy
import subprocess
import sys
from dataclasses import asdict, fields

import pytest
import torch

pytest.importorskip("transformers")

import transformers

from titans_core import TitansConfig, TitansLM
from titans_core.huggingface import TitansCache, TitansForCausalLM, TitansHFConfig, hf_tokenizer

ARCHITECTURES = ("lmm", "mac", "mag", "mal", "transformer")
SMALL = dict(
    vocab_size=29, dim=16, num_layers=2, num_heads=2, hidden=24, window=5, segment=6, num_persistent=3, chunk_size=4
)
IDS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)


def titans(architecture="mac", dtype=torch.float64, **changes):
    torch.manual_seed(0)
    model = TitansLM(TitansConfig(architecture=architecture, **{**SMALL, **changes})).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():  # logits far enough apart that no rounding decides
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def wrapped(*args, **options):
    return TitansForCausalLM.from_titans(titans(*args, **options), **IDS).eval()


def random_ids(B, T, seed=1):
    return torch.randint(3, 29, (B, T), generator=torch.Generator().manual_seed(seed))


def padded(texts, side="left"):
    """Texts of unequal lengths as one batch, and its mask."""
    width = max(len(text) for text in texts)
    rows, mask = torch.zeros(len(texts), width, dtype=torch.int64), torch.zeros(len(texts), width, dtype=torch.int64)
    for row, real, text in zip(rows, mask, texts, strict=True):
        here = slice(width - len(text), None) if side == "left" else slice(len(text))
        row[here], real[here] = text, 1
    return rows, mask


@pytest.fixture(params=ARCHITECTURES)
def architecture(request):
    return request.param


# -- the model ---------------------------------------------------------------------------------------------------------


def test_the_network_is_held_and_not_copied(architecture):
    model = titans(architecture)
    hf = TitansForCausalLM.from_titans(model)
    assert [TitansForCausalLM.from_titans(model.train(mode)).training for mode in (True, False)] == [True, False]
    assert hf.model is model
    assert hf.num_parameters() == model.num_parameters()
    ids = random_ids(2, 13)
    assert torch.equal(hf(ids).logits, model(ids)[0])


def test_loss_is_that_of_the_language_model(architecture):
    hf, ids = wrapped(architecture), random_ids(2, 13)
    torch.testing.assert_close(hf(ids, labels=ids).loss.double(), hf.model.loss(ids).double(), rtol=1e-6, atol=1e-6)


def test_labels_of_minus_100_do_not_count():
    hf, ids = wrapped(), random_ids(1, 13)
    labels = ids.clone()
    labels[:, :8] = -100
    expected = torch.nn.functional.cross_entropy(hf(ids).logits[0, 7:-1], ids[0, 8:])
    torch.testing.assert_close(hf(ids, labels=labels).loss.double(), expected, rtol=1e-6, atol=1e-6)
    parts = hf(ids, labels=labels, num_items_in_batch=10).loss.double()
    torch.testing.assert_close(parts, expected * 5 / 10, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_adds_nothing_to_the_loss(side):
    hf, texts = wrapped(), [random_ids(1, 9)[0], random_ids(1, 5)[0]]
    alone = [torch.nn.functional.cross_entropy(hf(t[None]).logits[0, :-1], t[1:], reduction="sum") for t in texts]
    ids, mask = padded(texts, side)
    found = hf(ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
    torch.testing.assert_close(found.double(), sum(alone) / (8 + 4), rtol=1e-6, atol=1e-6)


def test_what_stands_for_padding_may_be_no_token():
    hf, ids = wrapped(), random_ids(1, 6)
    mask = torch.ones_like(ids)
    mask[:, 4:] = 0
    for use_cache in (True, False):
        logits = hf(ids.masked_fill(mask == 0, 500), attention_mask=mask, use_cache=use_cache).logits
        torch.testing.assert_close(logits[:, :4], hf(ids[:, :4]).logits)


def test_what_every_model_is_handed_is_taken_and_packed_texts_are_refused():
    hf, ids = wrapped(), random_ids(2, 6)
    positions = torch.arange(6)[None]
    handed = dict(position_ids=positions, token_type_ids=torch.zeros_like(ids), cache_position=positions[0])
    assert torch.equal(hf(ids, **handed).logits, hf(ids).logits)
    with pytest.raises(ValueError, match="packed into one row"):
        hf(ids, position_ids=torch.tensor([[0, 1, 2, 0, 1, 2]]))
    ids, mask = padded([ids[0], ids[1, :3]])
    hf(ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).masked_fill(mask == 0, 1))


def test_text_stops_at_a_string():
    hf = TitansForCausalLM.from_titans(titans(vocab_size=258), eos_token_id=257, pad_token_id=257)
    tokenizer = hf_tokenizer("bytes")
    ids = torch.tensor([[72, 105]])
    written = hf.generate(ids, max_new_tokens=8, do_sample=False)[0].tolist()
    last = next(i for i, byte in enumerate(written[2:], 2) if byte < 128)
    options = dict(max_new_tokens=8, do_sample=False, stop_strings=[chr(written[last])], tokenizer=tokenizer)
    assert hf.generate(ids, **options)[0].tolist() == written[: last + 1]


def test_embeddings_stand_for_their_ids(architecture):
    hf, ids = wrapped(architecture), random_ids(2, 9)
    assert torch.equal(hf(inputs_embeds=hf.get_input_embeddings()(ids)).logits, hf(ids).logits)
    new = dict(max_new_tokens=5, do_sample=False)
    written = hf.generate(inputs_embeds=hf.get_input_embeddings()(ids), **new)
    assert torch.equal(written, hf.generate(ids, **new)[:, 9:])


def test_only_the_logits_asked_for_are_made():
    hf, ids = wrapped(), random_ids(2, 9)
    whole = hf(ids).logits
    torch.testing.assert_close(hf(ids, logits_to_keep=2).logits, whole[:, -2:])
    torch.testing.assert_close(hf(ids, logits_to_keep=torch.tensor([0, 5])).logits, whole[:, [0, 5]])


def test_a_tuple_holds_what_the_output_names():
    hf, ids = wrapped(), random_ids(1, 5)
    loss, logits, cache = hf(ids, labels=ids, return_dict=False)
    output = hf(ids, labels=ids)
    assert torch.equal(loss, output.loss)
    assert torch.equal(logits, output.logits)
    assert cache.get_seq_length() == output.past_key_values.get_seq_length() == 5


def test_training_returns_no_cache_and_reaches_every_weight(architecture):
    hf, ids = wrapped(architecture).train(), random_ids(2, 13)
    output = hf(ids, labels=ids)
    assert output.past_key_values is None
    output.loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in hf.parameters())


def test_blocks_that_run_again_have_the_same_gradients_and_are_not_kept(architecture):
    hf, ids = wrapped(architecture).train(), random_ids(2, 40)

    def held():
        total = 0

        def keep(x):
            nonlocal total
            total += x.nbytes
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            hf(ids, labels=ids).loss.backward()
        found = [p.grad.clone() for p in hf.parameters()]
        hf.zero_grad()
        return total, found

    plain, expected = held()
    hf.gradient_checkpointing_enable()
    again, found = held()
    assert again < 0.5 * plain
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_new_model_starts_as_the_language_model_does(architecture):
    config = TitansHFConfig(architecture=architecture, **SMALL)
    torch.manual_seed(3)
    expected = TitansLM(config.titans()).state_dict()
    torch.manual_seed(3)
    found = transformers.AutoModelForCausalLM.from_config(config).model.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("tied", [True, False])
def test_a_larger_vocabulary_leaves_the_old_logits(tied):
    hf, ids = wrapped(tie_embeddings=tied), random_ids(2, 9)
    before = hf(ids).logits
    hf.resize_token_embeddings(37)
    assert hf.config.vocab_size == hf.model.config.vocab_size == 37
    assert (hf.model.head.weight is hf.model.embedding.weight) is tied
    torch.testing.assert_close(hf(ids).logits[..., :29], before)
    assert hf(torch.full((1, 2), 36)).logits.shape == (1, 2, 37)


# -- cache -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 6, 12])
def test_a_cached_text_goes_on_as_if_never_cut(architecture, cut):
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
def test_generation_with_and_without_cache_is_the_same_text(architecture, options):
    hf, ids = wrapped(architecture), random_ids(2, 9)
    texts = []
    for use_cache in (True, False):
        torch.manual_seed(5)
        texts.append(hf.generate(ids, max_new_tokens=12, use_cache=use_cache, **options))
    assert torch.equal(*texts)
    assert texts[0].shape[1] > 9


def test_greedy_generation_is_that_of_the_language_model(architecture):
    hf, ids = wrapped(architecture), random_ids(2, 9)
    found = hf.generate(ids, max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0)
    assert torch.equal(found, hf.model.generate(ids, max_new_tokens=12))


def test_several_answers_of_one_prompt_are_its_beams():
    hf, ids = wrapped(), random_ids(2, 9)
    options = dict(max_new_tokens=8, num_beams=4, num_return_sequences=3, do_sample=False)
    found = hf.generate(ids, **options)
    assert torch.equal(found, hf.generate(ids, use_cache=False, **options))
    assert len(found) == 6


def test_a_long_prompt_can_be_read_in_pieces(architecture):
    hf, (ids, mask) = wrapped(architecture), padded([random_ids(1, T)[0] for T in (17, 5)])
    options = dict(attention_mask=mask, max_new_tokens=6, do_sample=False)
    assert torch.equal(hf.generate(ids, prefill_chunk_size=4, **options), hf.generate(ids, **options))


def test_a_book_is_read_once_and_asked_many_times():
    hf, book = wrapped(), random_ids(1, 30)
    cache = hf(book, use_cache=True).past_key_values
    for question in (random_ids(1, 4, seed=2), random_ids(1, 3, seed=3)):
        text = torch.cat((book, question), 1)
        found = hf.generate(text, past_key_values=copy.deepcopy(cache), max_new_tokens=6, do_sample=False)
        assert torch.equal(found, hf.generate(text, max_new_tokens=6, do_sample=False))
    cache.batch_repeat_interleave(3)
    found = hf.generate(text, past_key_values=cache, max_new_tokens=6, do_sample=False, num_beams=3)
    assert torch.equal(found, hf.generate(text, max_new_tokens=6, do_sample=False, num_beams=3))


def test_a_cache_that_was_returned_goes_on():
    hf, ids = wrapped(), random_ids(1, 9)
    first = hf.generate(ids, max_new_tokens=5, do_sample=False, eos_token_id=None, return_dict_in_generate=True)
    text = torch.cat((first.sequences, random_ids(1, 4, seed=2)), 1)
    found = hf.generate(text, past_key_values=first.past_key_values, max_new_tokens=5, do_sample=False)
    assert torch.equal(found, hf.generate(text, max_new_tokens=5, do_sample=False))


def test_a_prompt_that_a_cache_has_read_already_is_refused_and_what_follows_is_taken_with_a_mask_of_both():
    hf, ids = wrapped(), random_ids(1, 9)
    options = dict(max_new_tokens=4, do_sample=False, eos_token_id=None)
    for read, given in ((9, ids), (9, ids[:, :5]), (5, ids[:, 5:])):
        cache = hf(ids[:, :read], use_cache=True).past_key_values
        with pytest.raises(ValueError, match=rf"has read {read} tokens and the prompt has {given.shape[1]}: give"):
            hf.generate(given, past_key_values=cache, **options)
        assert cache.length == read
    found = hf.generate(ids[:, 5:], attention_mask=torch.ones_like(ids), past_key_values=cache, **options)
    assert torch.equal(found[:, 4:], hf.generate(ids, **options)[:, 9:])


def test_a_cache_of_another_batch_is_refused():
    hf = wrapped()
    cache = hf(random_ids(2, 5), use_cache=True).past_key_values
    with pytest.raises(ValueError, match=r"holds 2 texts, the batch has 1.*batch_repeat_interleave"):
        hf(random_ids(1, 5), past_key_values=cache)


def test_what_a_memory_cannot_undo_is_refused():
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


# -- padding -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_padding_changes_nothing(architecture, side, use_cache):
    hf = wrapped(architecture)
    texts = [random_ids(1, T, seed=T)[0] for T in (11, 4, 7, 4)]
    ids, mask = padded(texts, side)
    logits = hf(ids, attention_mask=mask, use_cache=use_cache).logits
    for row, real, text in zip(logits, mask.bool(), texts, strict=True):
        torch.testing.assert_close(row[real], hf(text[None]).logits[0], rtol=1e-9, atol=1e-9)


def test_ids_at_padding_are_never_read():
    hf, (ids, mask) = wrapped(), padded([random_ids(1, T)[0] for T in (9, 4)])
    other = ids.masked_fill(mask == 0, 10**6)
    assert torch.equal(hf(other, attention_mask=mask).logits, hf(ids, attention_mask=mask).logits)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_batch_goes_on_as_its_texts_alone(architecture, side):
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
def test_texts_of_equal_length_can_go_on_by_unequal_lengths(architecture, side):
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


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("options", [{}, dict(num_beams=3), dict(use_cache=False)], ids=["greedy", "beams", "no cache"])
def test_a_padded_batch_is_written_on_as_its_texts_alone(architecture, options, side):
    hf = wrapped(architecture)
    texts = [random_ids(1, T, seed=T)[0] for T in (11, 4, 7)]
    ids, mask = padded(texts, side)
    options = dict(max_new_tokens=8, do_sample=False, eos_token_id=None, **options)
    found = hf.generate(ids, attention_mask=mask, **options)[:, 11:]
    for row, text in zip(found, texts, strict=True):
        assert torch.equal(row, hf.generate(text[None], **options)[0, len(text) :])


def test_a_mask_of_another_shape_is_refused():
    hf, ids = wrapped(), random_ids(2, 5)
    for shape in [(2, 4), (1, 5), (2, 1, 5, 5)]:
        with pytest.raises(ValueError, match=r"attention_mask must be \[B, T\].*\(2, 5\), got shape"):
            hf(ids, attention_mask=torch.ones(shape))


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_wrong_input_is_refused():
    hf, ids = wrapped(), random_ids(1, 5)
    with pytest.raises(ValueError, match=r"in 0\.\.28.*got 29.*tokenizer"):
        hf(torch.tensor([[1, 29]]))
    for inputs in ({}, dict(input_ids=ids, inputs_embeds=hf.get_input_embeddings()(ids))):
        with pytest.raises(ValueError, match="either input_ids"):
            hf(**inputs)
    with pytest.raises(ValueError, match=r"input_ids must be \[B, T\], got shape \(5,\)"):
        hf(ids[0])
    with pytest.raises(ValueError, match="neither attentions nor hidden states"):
        hf(ids, output_attentions=True)


def test_a_cache_of_another_model_is_refused():
    cache = wrapped("lmm")(random_ids(1, 5), use_cache=True).past_key_values
    with pytest.raises(ValueError, match="state is that of another model"):
        wrapped("mac")(random_ids(1, 5), past_key_values=cache)
    other, embedded = wrapped("lmm", num_layers=1), wrapped("lmm").get_input_embeddings()(random_ids(1, 5))
    with pytest.raises(ValueError, match="num_layers 2 there and 1 here"):  # which could read it, and would be wrong
        other(inputs_embeds=embedded, past_key_values=cache)
    with pytest.raises(TypeError, match="must be a TitansCache, got DynamicCache"):
        wrapped("mac")(random_ids(1, 5), past_key_values=transformers.DynamicCache())


# -- files -------------------------------------------------------------------------------------------------------------


def test_every_setting_of_the_network_is_one_of_the_configuration():
    for field in fields(TitansConfig):
        assert getattr(TitansHFConfig(), field.name) == field.default
    config = TitansHFConfig(architecture="mal", **SMALL, **IDS)
    assert TitansHFConfig.from_dict(config.to_dict()).titans() == config.titans()
    assert config.hidden_size == 16
    with pytest.raises(ValueError, match="architecture must be one of"):
        TitansHFConfig(architecture="rnn")


def test_saved_models_give_the_same_logits_in_a_fresh_process(tmp_path):
    ids, expected = random_ids(2, 13), {}
    for name in ARCHITECTURES:
        for tied in (True, False):
            hf = wrapped(name, dtype=torch.float32, tie_embeddings=tied)
            hf.save_pretrained(tmp_path / f"{name}-{tied}")
            expected[f"{name}-{tied}"] = (tied, hf.state_dict(), hf(ids).logits.detach())
    torch.save((ids, expected), tmp_path / "expected.pt")
    code = f"""if True:
        import pathlib, torch, titans_core.huggingface
        from transformers import AutoModelForCausalLM
        torch.set_num_threads(1)
        folder = pathlib.Path({str(tmp_path)!r})
        ids, expected = torch.load(folder / "expected.pt")
        for name, (tied, weights, logits) in expected.items():
            hf, info = AutoModelForCausalLM.from_pretrained(folder / name, output_loading_info=True)
            assert not any(info.values()), (name, info)
            assert not hf.training and hf.config.eos_token_id == hf.generation_config.eos_token_id == 2, name
            assert (hf.model.head.weight is hf.model.embedding.weight) is tied, name
            assert all(torch.equal(value, weights[key]) for key, value in hf.state_dict().items()), name
            # where a weight lies in memory may decide the last bit
            torch.testing.assert_close(hf(ids).logits, logits, rtol=1e-5, atol=1e-5, msg=name)
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_head_of_its_own_is_saved_whatever_the_configuration_said(tmp_path):
    model, ids = titans(tie_embeddings=True), random_ids(1, 7)
    model.head.weight = torch.nn.Parameter(model.head.weight + 1)
    model.save(tmp_path / "model")
    loaded = TitansLM.load(tmp_path / "model")
    assert torch.equal(loaded(ids)[0], model(ids)[0])
    assert not loaded.config.tie_embeddings


def test_weights_that_a_checkpoint_lacks_start_as_new(tmp_path):
    hf = wrapped("mac", dtype=torch.float32)
    state = {name: value for name, value in hf.state_dict().items() if "to_gates" not in name}
    hf.save_pretrained(tmp_path, state_dict=state)
    found, new = TitansForCausalLM.from_pretrained(tmp_path).state_dict(), TitansLM(hf.config.titans()).state_dict()
    gates = [name for name in found if "to_gates.bias" in name]
    assert gates
    for name in gates:
        assert torch.equal(found[name], new[name.removeprefix("model.")])
    assert all(torch.equal(found[name], value) for name, value in state.items())


@pytest.mark.parametrize("architecture", [*(a for a in ARCHITECTURES if a != "mac"), "mac"])
def test_bfloat16_is_near_float32_and_keeps_the_memory_in_float32(architecture, tmp_path):
    hf, ids = wrapped(architecture, dtype=torch.float32), random_ids(2, 13)
    hf.save_pretrained(tmp_path)
    half = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16
    output = half(ids, use_cache=True)
    # mac rounds in one layer more: it asks its memory, attends, writes, and asks again
    bound = 0.08 if architecture == "mac" else 0.05
    assert (output.logits.float() - hf(ids).logits).std() < bound * hf(ids).logits.std()
    if architecture != "transformer":
        block = output.past_key_values.parts[0][1].blocks[0]
        memory = getattr(block, "memory", block)
        memory = getattr(memory, "memory", memory)
        assert memory.weights[0].dtype == torch.float32
    found = half.generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=None)
    assert found.shape == (2, 19)
    half.save_pretrained(tmp_path / "half")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "half")
    assert again.dtype == torch.bfloat16
    assert torch.equal(again(ids).logits, output.logits)


def test_without_transformers_the_error_names_the_command():
    code = """if True:
        import sys
        sys.modules["transformers"] = None
        try:
            import titans_core.huggingface
        except ImportError as error:
            assert "pip install 'titans-suite[hf]'" in str(error), error
        else:
            raise AssertionError
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_saved_folder_writes_text_by_itself(tmp_path):
    hf = TitansForCausalLM.from_titans(titans(vocab_size=258, dtype=torch.float32), eos_token_id=257)
    hf.save_pretrained(tmp_path)
    hf_tokenizer("bytes").save_pretrained(tmp_path)
    write = transformers.pipeline("text-generation", str(tmp_path), device="cpu", batch_size=2)
    options = dict(max_new_tokens=5, do_sample=False, eos_token_id=None)
    together = write(["A longer prompt", "short"], **options)
    alone = [write(prompt, **options) for prompt in ("A longer prompt", "short")]
    assert [answer[0]["generated_text"] for answer in together] == [answer[0]["generated_text"] for answer in alone]


def test_public_names():
    import titans_core.huggingface as module

    assert module.__all__ == ["TitansCache", "TitansForCausalLM", "TitansHFConfig", "hf_tokenizer"]
    assert isinstance(TitansCache(), transformers.Cache)
    assert asdict(TitansHFConfig(**SMALL).titans()) == asdict(TitansConfig(**SMALL))
