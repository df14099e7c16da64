"""Tokenizers: text round trips, text is never encoded as special tokens, and missing tokens are named."""

import io
import json
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from titans_core.tokenizers import ByteTokenizer, HuggingFaceTokenizer, SentencePieceTokenizer, load_tokenizer

TEXT = "It was the best of times,\nit was the worst of times,\n\n  it was the age of wisdom: <s> and </s>.\n" * 3
ANY_TEXT = st.text(st.characters(codec="utf-8"), max_size=60)


def sentencepiece_model(path):
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.splitlines()),
        model_writer=model,
        vocab_size=320,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    path.write_bytes(model.getvalue())
    return path


def byte_level_model(path, special=("<|endoftext|>",), truncated=False):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    model.train_from_iterator([TEXT], trainer)
    if special:
        # what many published files ask for: a special token in front of every text
        model.post_processor = processors.TemplateProcessing(f"{special[0]} $A", special_tokens=[(special[0], 0)])
    if truncated:
        model.enable_truncation(3)
        model.enable_padding(length=50)
    model.save(str(path))
    return path


def metaspace_model(path):
    """Like Llama's: a space is put before every text."""
    from tokenizers import Tokenizer, decoders, models, normalizers, trainers

    model = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    model.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    model.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    model.train_from_iterator(TEXT.split(), trainers.BpeTrainer(special_tokens=special, show_progress=False))
    saved = json.loads(model.to_str())
    # the bytes are ordinary tokens
    saved["added_tokens"] = [token for token in saved["added_tokens"] if token["id"] < 3]
    path.write_text(json.dumps(saved), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    return {
        "bytes": ByteTokenizer(),
        "sentencepiece": SentencePieceTokenizer(sentencepiece_model(folder / "tiny.model")),
        "byte-level": HuggingFaceTokenizer(byte_level_model(folder / "byte_level.json", truncated=True)),
        "metaspace": HuggingFaceTokenizer(metaspace_model(folder / "metaspace.json")),
    }


EACH = pytest.mark.parametrize("kind", ["bytes", "sentencepiece", "byte-level", "metaspace"])


@EACH
def test_text_comes_back(made, kind):
    tokenizer = made[kind]
    for text in (TEXT, "", " ", "\n", "  two  spaces ", "naïve 日本 😀\t\r\n\x00", "a" * 500):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert all(0 <= i < tokenizer.vocab_size for i in ids)


@given(ANY_TEXT)
def test_every_text_comes_back_from_byte_level_tokens(made, text):
    assert made["byte-level"].decode(made["byte-level"].encode(text)) == text


@given(st.text(st.characters(), max_size=60))
def test_every_string_comes_back_from_bytes_even_half_a_surrogate_pair(text):
    assert ByteTokenizer().decode(ByteTokenizer().encode(text)) == text


@given(st.binary(max_size=40))
def test_invalid_utf8_decodes_with_the_replacement_character(data):
    found = ByteTokenizer().decode(data)
    if data.isascii():
        assert found == data.decode()
    assert found.isascii() == data.isascii()


def test_a_character_cut_in_two_is_replaced():
    assert ByteTokenizer().decode(ByteTokenizer().encode("aé")[:-1]) == "a\ufffd"


def test_the_numbers_of_the_byte_tokenizer_are_those_it_documents():
    tokenizer = ByteTokenizer()
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.vocab_size) == (256, 257, 258)
    assert tokenizer.encode("aé", bos=True, eos=True) == [256, 97, 0xC3, 0xA9, 257]


@EACH
def test_bos_and_eos_frame_the_text_and_are_no_text(made, kind):
    tokenizer = made[kind]
    plain, framed = tokenizer.encode(TEXT), tokenizer.encode(TEXT, bos=True, eos=True)
    assert framed == [tokenizer.bos_id, *plain, tokenizer.eos_id]
    assert tokenizer.decode(framed) == TEXT


@EACH
def test_text_like_a_special_token_is_encoded_as_text(made, kind):
    tokenizer = made[kind]
    for text in ("</s>", "a<s>b", "<|endoftext|>"):
        ids = tokenizer.encode(text)
        assert not {tokenizer.eos_id, tokenizer.bos_id} & set(ids)
        assert tokenizer.decode(ids) == text


@EACH
def test_a_batch_is_its_texts_one_by_one(made, kind):
    texts = [TEXT, "", "a", " b\n"]
    assert made[kind].encode_batch(texts) == [made[kind].encode(text) for text in texts]


@EACH
def test_inputs_other_than_text_or_a_list_of_texts_are_refused(made, kind):
    with pytest.raises(TypeError, match="text must be a string, got NoneType"):
        made[kind].encode(None)
    with pytest.raises(TypeError, match="texts is a single string: pass a list"):
        made[kind].encode_batch("abc")
    for texts in (None, {"text": "abc"}):
        with pytest.raises(TypeError, match=f"texts must be a list of texts, got {type(texts).__name__}"):
            made[kind].encode_batch(texts)
    with pytest.raises(TypeError, match="text must be a string, got dict"):
        made[kind].encode_batch([{"text": "abc"}])


@EACH
def test_inputs_other_than_a_list_of_ids_are_refused(made, kind):
    for ids in ("abc", 65, None, [1.7], [[65, 66]], torch.tensor([[65, 66]])):
        with pytest.raises(TypeError, match=r"ids must be the token ids of one text, such as \[72, 105\], got"):
            made[kind].decode(ids)
    for ids in (torch.tensor([65, 66]), np.array([65, 66])):
        assert made[kind].decode(ids) == made[kind].decode([65, 66])


@EACH
def test_pieces_cut_at_line_ends_are_the_ids_of_the_whole(made, kind):
    tokenizer = made[kind]
    ids = []
    for number, line in enumerate(TEXT.splitlines(keepends=True)):
        ids += tokenizer.encode(line, continued=number > 0)
    assert tokenizer.decode(ids) == TEXT
    if kind != "byte-level":  # which has a token for two line ends
        assert ids == tokenizer.encode(TEXT)


@EACH
def test_an_id_outside_the_vocabulary_is_refused(made, kind):
    for strange in (-1, made[kind].vocab_size):
        with pytest.raises(ValueError, match=f"got {strange}"):
            made[kind].decode([1, strange])


@pytest.mark.parametrize("kind", ["sentencepiece", "byte-level", "metaspace"])
def test_half_a_surrogate_pair_is_named(made, kind):
    with pytest.raises(ValueError, match=r"an unpaired surrogate .* at 2"):
        made[kind].encode("ab\ud800")
    with pytest.raises(ValueError, match="an unpaired surrogate"):
        made[kind].encode_batch(["a", "ab\ud800"])


@EACH
def test_a_tokenizer_is_loaded_again_by_its_spec(made, kind):
    again = load_tokenizer(made[kind].spec)
    assert again.encode(TEXT) == made[kind].encode(TEXT)
    assert again.fingerprint == made[kind].fingerprint
    assert type(again) is type(made[kind])


def test_fingerprints_tell_tokenizers_apart(made, tmp_path):
    assert len({tokenizer.fingerprint for tokenizer in made.values()}) == len(made)
    path = byte_level_model(tmp_path / "tokenizer.json", special=("<a>", "<b>"))
    found = set()
    for eos in ("<a>", "<b>"):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": eos}))
        found.add(load_tokenizer(path).fingerprint)
    assert len(found) == 2


@pytest.mark.parametrize("written", ["<b>", {"content": "<b>", "special": True}])
def test_the_configuration_beside_names_the_end_of_a_document(tmp_path, written):
    byte_level_model(tmp_path / "tokenizer.json", special=("<a>", "<b>", "</s>"))
    assert load_tokenizer(tmp_path).eos_id == 2
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": written, "bos_token": None}))
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.eos_id, tokenizer.bos_id) == (1, None)
    with pytest.raises(ValueError, match="bos=False"):
        tokenizer.encode("a", bos=True)


@pytest.mark.parametrize("config", [None, {}, {"eos_token": "<unheard of>"}])
def test_without_an_end_of_document_the_error_says_where_to_name_one(tmp_path, config):
    byte_level_model(tmp_path / "tokenizer.json", special=())
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r'Set it in tokenizer_config.json in the same folder, as \{"eos_token"'):
        load_tokenizer(tmp_path)


def test_a_folder_may_hold_a_sentencepiece_model(tmp_path):
    sentencepiece_model(tmp_path / "tokenizer.model")
    assert isinstance(load_tokenizer(tmp_path), SentencePieceTokenizer)


def test_damaged_files_are_named(tmp_path):
    for name in ("a.model", "a.json", "a.txt"):
        (tmp_path / name).write_text("nonsense")
    with pytest.raises(ValueError, match=r"a\.model is not a SentencePiece model"):
        load_tokenizer(tmp_path / "a.model")
    with pytest.raises(ValueError, match=r"a\.json is not a tokenizer\.json"):
        load_tokenizer(tmp_path / "a.json")
    with pytest.raises(ValueError, match=r"must be \"bytes\", a \.model file"):
        load_tokenizer(tmp_path / "a.txt")
    byte_level_model(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ValueError, match=r"tokenizer_config\.json is not valid JSON"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["no.model", "no.json", "folder/tokenizer.json"])
def test_a_missing_file_is_named(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=r"no such file: .* Check the path"):
        load_tokenizer(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_a_name_is_asked_of_the_hub(monkeypatch, tmp_path):
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    monkeypatch.chdir(tmp_path)
    byte_level_model(tmp_path / "tokenizer.json")
    lacking = EntryNotFoundError("none there")

    def download(name, file):
        assert name == "owner/name"
        if file != "tokenizer.json":
            raise lacking
        return str(tmp_path / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert load_tokenizer("owner/name").decode([65]) != ""
    (tmp_path / "models").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no such file: .* Check the path"):  # rather than a name
        load_tokenizer("models/mistyped")
    # the configuration may be there: going on without it would guess the end of a document
    lacking = LocalEntryNotFoundError("no network")
    with pytest.raises(FileNotFoundError, match=r"owner/name is neither a local file nor folder.*no network"):
        load_tokenizer("owner/name")


@pytest.mark.parametrize(
    ("package", "make"), [("sentencepiece", SentencePieceTokenizer), ("tokenizers", HuggingFaceTokenizer)]
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, package, make):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(ImportError, match=rf"needs the package {package}: pip install 'titans-suite\[lm\]'"):
        make("anything")


def test_importing_is_cheap():
    heavy = "{'torch', 'sentencepiece', 'tokenizers', 'transformers', 'datasets', 'numpy'}"
    code = f"import sys, titans_core.tokenizers; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.real_data
def test_llama_2_gives_a_play_back_and_the_same_ids_in_pieces(real_data):
    tokenizer = load_tokenizer(real_data / "lm" / "tokenizer" / "llama2_tokenizer.model")
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_id) == (32000, 1, 2)
    text = (real_data / "lm" / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")[:200_000]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    cut = text.index("\n", 100_000) + 1
    assert tokenizer.encode(text[:cut]) + tokenizer.encode(text[cut:], continued=True) == ids
    assert tokenizer.encode(text[:cut]) + tokenizer.encode(text[cut:]) != ids
