"""Titans models in transformers: the same network, not a copy, with the same outputs."""

import pytest
import torch

pytest.importorskip("transformers")

import transformers

from titans_core import TitansLM
from titans_core.huggingface import TitansForCausalLM, TitansHFConfig, hf_tokenizer


def test_the_network_is_held_and_not_copied(make_model, random_ids, architecture):
    model = make_model(architecture)
    hf = TitansForCausalLM.from_titans(model)
    assert [TitansForCausalLM.from_titans(model.train(mode)).training for mode in (True, False)] == [True, False]
    assert hf.model is model
    assert hf.num_parameters() == model.num_parameters()
    ids = random_ids(2, 13)
    assert torch.equal(hf(ids).logits, model(ids)[0])


def test_loss_is_that_of_the_language_model(wrapped, random_ids, architecture):
    hf, ids = wrapped(architecture), random_ids(2, 13)
    torch.testing.assert_close(hf(ids, labels=ids).loss.double(), hf.model.loss(ids).double(), rtol=1e-6, atol=1e-6)


def test_labels_of_minus_100_do_not_count(wrapped, random_ids):
    hf, ids = wrapped(), random_ids(1, 13)
    labels = ids.clone()
    labels[:, :8] = -100
    expected = torch.nn.functional.cross_entropy(hf(ids).logits[0, 7:-1], ids[0, 8:])
    torch.testing.assert_close(hf(ids, labels=labels).loss.double(), expected, rtol=1e-6, atol=1e-6)
    parts = hf(ids, labels=labels, num_items_in_batch=10).loss.double()
    torch.testing.assert_close(parts, expected * 5 / 10, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_adds_nothing_to_the_loss(wrapped, random_ids, padded, side):
    hf, texts = wrapped(), [random_ids(1, 9)[0], random_ids(1, 5)[0]]
    alone = [torch.nn.functional.cross_entropy(hf(t[None]).logits[0, :-1], t[1:], reduction="sum") for t in texts]
    ids, mask = padded(texts, side)
    found = hf(ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
    torch.testing.assert_close(found.double(), sum(alone) / (8 + 4), rtol=1e-6, atol=1e-6)


def test_labels_that_were_counted_and_that_nothing_predicts_are_warned_of(wrapped, random_ids, padded, recwarn):
    hf, texts = wrapped(), [random_ids(1, 9)[0], random_ids(1, 5)[0]]
    for side in ("right", "left"):
        ids, mask = padded(texts, side)
        labels = ids.masked_fill(mask == 0, -100)
        items = (labels[:, 1:] != -100).sum()  # as a Trainer counts
        options = dict(attention_mask=mask, labels=labels)
        if side == "right":
            torch.testing.assert_close(hf(ids, num_items_in_batch=items, **options).loss, hf(ids, **options).loss)
        else:
            hf(ids, **options)
            assert not recwarn
            with pytest.warns(UserWarning, match="pad on the right") as warned:
                hf(ids, num_items_in_batch=items, **options)
            assert warned[0].filename == __file__


def test_a_trainer_that_smooths_labels_asks_for_the_next_token(wrapped, random_ids, tmp_path):
    hf, ids = wrapped(), random_ids(2, 9)
    options = dict(output_dir=str(tmp_path), use_cpu=True, report_to="none")
    losses = []
    for factor in (0.0, 1e-6):
        trainer = transformers.Trainer(hf, transformers.TrainingArguments(**options, label_smoothing_factor=factor))
        losses.append(trainer.compute_loss(hf, {"input_ids": ids, "labels": ids.clone()}).detach())
    torch.testing.assert_close(losses[1].float(), losses[0], rtol=1e-4, atol=0)


@pytest.mark.parametrize("hidden", [float("-inf"), 2.0])
def test_a_mask_with_other_values_than_0_and_1_is_refused(wrapped, random_ids, hidden):
    hf, ids = wrapped(), random_ids(1, 6)
    mask = torch.tensor([[1.0, 1, 1, 1, 1, 0]])
    assert torch.equal(hf(ids, attention_mask=mask).logits, hf(ids, attention_mask=mask.long()).logits)
    mask[0, 0] = hidden
    with pytest.raises(ValueError, match=r"with values 0 and 1, and .* with other values"):
        hf(ids, attention_mask=mask)


def test_the_padding_id_may_be_outside_the_vocabulary(wrapped, random_ids):
    hf, ids = wrapped(), random_ids(1, 6)
    mask = torch.ones_like(ids)
    mask[:, 4:] = 0
    for use_cache in (True, False):
        logits = hf(ids.masked_fill(mask == 0, 500), attention_mask=mask, use_cache=use_cache).logits
        torch.testing.assert_close(logits[:, :4], hf(ids[:, :4]).logits)


def test_common_arguments_are_accepted_and_packed_texts_are_refused(wrapped, random_ids, padded):
    hf, ids = wrapped(), random_ids(2, 6)
    positions = torch.arange(6)[None]
    handed = dict(position_ids=positions, token_type_ids=torch.zeros_like(ids), cache_position=positions[0])
    assert torch.equal(hf(ids, **handed).logits, hf(ids).logits)
    with pytest.raises(ValueError, match="packed into one row"):
        hf(ids, position_ids=torch.tensor([[0, 1, 2, 0, 1, 2]]))
    collate, texts = transformers.DataCollatorWithFlattening, [{"input_ids": [3, 4, 5]}, {"input_ids": [6, 7]}]
    for how in (dict(), dict(return_seq_idx=True), dict(return_flash_attn_kwargs=True)):
        options = dict(return_position_ids=not how, return_tensors="pt", **how)
        hf(**collate(**options)(texts[:1]))
        with pytest.raises(ValueError, match="packed into one row"):
            hf(**collate(**options)(texts))
    ids, mask = padded([ids[0], ids[1, :3]])
    hf(ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).masked_fill(mask == 0, 1))


def test_text_stops_at_a_string(make_model):
    hf = TitansForCausalLM.from_titans(make_model("mac", vocab_size=258), eos_token_id=257, pad_token_id=257)
    tokenizer = hf_tokenizer("bytes")
    ids = torch.tensor([[72, 105]])
    written = hf.generate(ids, max_new_tokens=8, do_sample=False)[0].tolist()
    last = next(i for i, byte in enumerate(written[2:], 2) if byte < 128)
    options = dict(max_new_tokens=8, do_sample=False, stop_strings=[chr(written[last])], tokenizer=tokenizer)
    assert hf.generate(ids, **options)[0].tolist() == written[: last + 1]


def test_input_embeddings_may_replace_ids(wrapped, random_ids, architecture):
    hf, ids = wrapped(architecture), random_ids(2, 9)
    assert torch.equal(hf(inputs_embeds=hf.get_input_embeddings()(ids)).logits, hf(ids).logits)
    new = dict(max_new_tokens=5, do_sample=False)
    written = hf.generate(inputs_embeds=hf.get_input_embeddings()(ids), **new)
    assert torch.equal(written, hf.generate(ids, **new)[:, 9:])


def test_only_the_requested_logits_are_computed(wrapped, random_ids):
    hf, ids = wrapped(), random_ids(2, 9)
    whole = hf(ids).logits
    torch.testing.assert_close(hf(ids, logits_to_keep=2).logits, whole[:, -2:])
    torch.testing.assert_close(hf(ids, logits_to_keep=torch.tensor([0, 5])).logits, whole[:, [0, 5]])


def test_a_tuple_has_the_values_of_the_named_output(wrapped, random_ids):
    hf, ids = wrapped(), random_ids(1, 5)
    loss, logits, cache = hf(ids, labels=ids, use_cache=True, return_dict=False)
    output = hf(ids, labels=ids, use_cache=True)
    assert torch.equal(loss, output.loss)
    assert torch.equal(logits, output.logits)
    assert cache.get_seq_length() == output.past_key_values.get_seq_length() == 5
    assert torch.equal(hf(ids.int(), labels=ids.int()).loss, loss)


def test_training_returns_no_cache_and_reaches_every_weight(wrapped, random_ids, architecture):
    hf, ids = wrapped(architecture), random_ids(2, 13)
    assert hf(ids).past_key_values is not None
    assert hf(ids, labels=ids).past_key_values is None
    output = hf.train()(ids, labels=ids)
    assert output.past_key_values is hf(ids).past_key_values is None
    output.loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in hf.parameters())


def test_blocks_that_run_again_have_the_same_gradients_and_are_not_kept(wrapped, random_ids, architecture):
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


def test_a_new_model_starts_as_the_language_model_does(small, architecture):
    config = TitansHFConfig(architecture=architecture, **small)
    torch.manual_seed(3)
    expected = TitansLM(config.titans()).state_dict()
    torch.manual_seed(3)
    found = transformers.AutoModelForCausalLM.from_config(config).model.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_stays_if_tying_was_changed(make_model, random_ids, tied, tmp_path):
    model, ids = make_model("mag", torch.float32, tie_embeddings=not tied), random_ids(2, 9)
    model.head.weight = model.embedding.weight if tied else torch.nn.Parameter(model.head.weight.detach() + 1)
    expected = model(ids)[0]
    hf = TitansForCausalLM.from_titans(model)
    assert torch.equal(hf(ids).logits, expected)
    assert torch.equal(model(ids)[0], expected)
    hf.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    torch.testing.assert_close(loaded(ids).logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tied", [True, False])
def test_a_larger_vocabulary_leaves_the_old_logits(wrapped, random_ids, tied):
    hf, ids = wrapped(tie_embeddings=tied), random_ids(2, 9)
    before = hf(ids).logits
    hf.resize_token_embeddings(37)
    assert hf.config.vocab_size == hf.model.config.vocab_size == 37
    assert (hf.model.head.weight is hf.model.embedding.weight) is tied
    torch.testing.assert_close(hf(ids).logits[..., :29], before)
    assert hf(torch.full((1, 2), 36)).logits.shape == (1, 2, 37)
