"""Tokenizers for transformers: the ids that pretraining wrote."""

import pytest

pytest.importorskip("transformers")

import transformers

from titans_core.huggingface import hf_tokenizer
from titans_core.tokenizers import load_tokenizer

TEXTS = ["", " ", "a", " two  spaces,   three\n\n\tend ", "</s> and <s> are text", "é漢🙂 ﬁ e\u0301 \x00", "_▁ x" * 9]


def test_bytes_are_the_ids_that_pretraining_wrote(tmp_path):
    known, found = load_tokenizer("bytes"), hf_tokenizer("bytes")
    found.save_pretrained(tmp_path)
    for tokenizer in (found, transformers.AutoTokenizer.from_pretrained(tmp_path)):
        assert (tokenizer.bos_token_id, tokenizer.eos_token_id, len(tokenizer)) == (256, 257, 258)
        for text in TEXTS:
            assert tokenizer.encode(text) == known.encode(text)
            assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.real_data
def test_sentencepiece_ids_are_those_that_pretraining_wrote(real_data, tmp_path):
    pytest.importorskip("sentencepiece")
    path = real_data / "lm" / "tokenizer" / "llama2_tokenizer.model"
    known, found = load_tokenizer(path), hf_tokenizer(path)
    found.save_pretrained(tmp_path)
    texts = (real_data / "lm" / "wikitext2" / "test_raw.txt").read_text(encoding="utf-8").split("\n")[:300] + TEXTS
    for tokenizer in (found, transformers.AutoTokenizer.from_pretrained(tmp_path)):
        assert (tokenizer.bos_token_id, tokenizer.eos_token_id, len(tokenizer)) == (1, 2, 32_000)
        for text in texts:
            assert tokenizer.encode(text) == known.encode(text)
            assert tokenizer.decode(tokenizer.encode(text)) == known.decode(known.encode(text))


def test_a_sentencepiece_model_of_another_kind_is_refused(tmp_path):
    spm = pytest.importorskip("sentencepiece")
    (tmp_path / "text.txt").write_text("the cat sat on the mat\nthe dog sat on the log\n" * 50)
    spm.SentencePieceTrainer.train(
        input=str(tmp_path / "text.txt"), model_prefix=str(tmp_path / "m"), vocab_size=30, model_type="unigram",
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"not a SentencePiece model of the Llama 2 kind.*tokenizer\.json"):
        hf_tokenizer(tmp_path / "m.model")


@pytest.mark.real_data
def test_a_folder_with_a_sentencepiece_model_is_that_model(real_data, tmp_path):
    pytest.importorskip("sentencepiece")
    path = real_data / "lm" / "tokenizer" / "llama2_tokenizer.model"
    (tmp_path / "tokenizer.model").write_bytes(path.read_bytes())
    assert hf_tokenizer(tmp_path).encode("hello  world") == load_tokenizer(path).encode("hello  world")


def test_a_tokenizer_json_gives_the_ids_that_pretraining_wrote(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    model.train_from_iterator(TEXTS, trainers.BpeTrainer(special_tokens=["<s>", "</s>"], initial_alphabet=alphabet))
    model.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    model.save(str(tmp_path / "tokenizer.json"))
    for spec in (tmp_path, tmp_path / "tokenizer.json"):
        known, found = load_tokenizer(spec), hf_tokenizer(spec)
        found.save_pretrained(tmp_path / "saved")
        for tokenizer in (found, transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")):
            assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.padding_side) == (0, 1, "left")
            assert tokenizer.pad_token_id == 0
            for text in [*TEXTS, "hello</s> <s>"]:
                assert tokenizer.encode(text) == known.encode(text)


def test_the_end_of_a_text_is_learned_with_the_usual_collator():
    collate = transformers.DataCollatorForLanguageModeling(hf_tokenizer("bytes"), mlm=False)
    labels = collate([{"input_ids": [72, 105, 257]}, {"input_ids": [72, 257]}])["labels"]
    assert labels.tolist() == [[72, 105, 257], [-100, 72, 257]]
