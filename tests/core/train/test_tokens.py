"""Windows tile the tokens; a file that does not match its description is refused."""

import json
import pickle

import numpy as np
import pytest
import torch

from titans_core.tokenizers import ByteTokenizer
from titans_core.train.tokens import PackedTokens


@pytest.fixture
def copy(prepared, tmp_path):
    """Packed tokens that a test may damage."""
    for path in prepared.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def edit(folder, **changes):
    path = folder / "tokens.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("length", [1, 7, 16, 500])
@pytest.mark.parametrize("part", ["train", "val"])
def test_inputs_and_targets_tile_the_tokens(prepared, corpus, part, length):
    tokens = PackedTokens(prepared, part, length if part == "train" else min(length, 100))
    every = torch.stack(list(map(tokens.__getitem__, range(len(tokens)))))
    assert every.dtype == torch.int64
    expected = np.fromfile(tokens.file, "<u2").astype(np.int64)
    end = len(tokens) * tokens.length
    assert (every[:, :-1].flatten().numpy() == expected[:end]).all()
    assert (every[:, 1:].flatten().numpy() == expected[1 : end + 1]).all()
    assert 0 <= len(expected) - 1 - end < tokens.length
    if length == 1:
        assert corpus.startswith(ByteTokenizer().decode(every[:, 0])) == (part == "train")
        assert ByteTokenizer().decode(every[:, 0]) in corpus


def test_a_window_beyond_the_last_is_an_error(windows):
    for index in (len(windows), -1):
        with pytest.raises(IndexError, match="has windows 0 to"):
            windows[index]


def test_a_pickled_data_set_takes_no_tokens_with_it(windows):
    first = windows[0]
    pickled = pickle.dumps(windows)
    assert len(pickled) < windows.file.stat().st_size
    assert torch.equal(pickle.loads(pickled)[0], first)


def test_a_folder_without_tokens_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no packed tokens.*Run prepare"):
        PackedTokens(tmp_path, length=4)


def test_a_part_that_is_not_there_is_an_error(prepared):
    with pytest.raises(ValueError, match=r"no part 'test', only \['train', 'val'\]"):
        PackedTokens(prepared, "test", 4)


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_a_truncated_file_is_refused(copy, keep):
    data = (copy / "train.bin").read_bytes()
    (copy / "train.bin").write_bytes(data[:keep])
    with pytest.raises(ValueError, match=rf"train\.bin must have {len(data)} bytes.*prepare the text again"):
        PackedTokens(copy, length=4)
    (copy / "train.bin").unlink()
    with pytest.raises(ValueError, match=r"train\.bin is missing"):
        PackedTokens(copy, length=4)
    PackedTokens(copy, "val", 4)


def test_a_changed_byte_is_found_by_verification(copy):
    PackedTokens(copy, length=4, verify=True)
    data = bytearray((copy / "train.bin").read_bytes())
    data[50] ^= 1
    (copy / "train.bin").write_bytes(data)
    PackedTokens(copy, length=4)
    with pytest.raises(ValueError, match=r"must have sha256:.*, but has sha256:.*modified"):
        PackedTokens(copy, length=4, verify=True)


def test_an_id_outside_the_vocabulary_is_found_when_it_is_read(copy):
    found = np.fromfile(copy / "train.bin", "<u2")
    found[20] = 258  # the last target of window 1, the first input of window 2
    found.tofile(copy / "train.bin")
    tokens = PackedTokens(copy, length=10)
    assert tokens[0].max() < 258
    for window in (1, 2):
        with pytest.raises(ValueError, match="token 20 is 258, but ids must be below vocab_size=258"):
            tokens[window]


def test_tokens_of_another_tokenizer_are_refused(prepared):
    PackedTokens(prepared, length=4, tokenizer=ByteTokenizer())
    other = ByteTokenizer()
    other.fingerprint = "sha256:other"
    with pytest.raises(ValueError, match=r"made with another tokenizer: bytes \(vocab_size=258.*sha256:other"):
        PackedTokens(prepared, length=4, tokenizer=other)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, r"version 2, but this library reads version 1\. Update"),
        ({"version": None}, "version None"),
        ({"format": "pictures"}, "does not describe packed tokens"),
        ({"dtype": "float32"}, "dtype of"),
        ({"parts": {"train": {"file": "train.bin"}}}, "is damaged"),
        ({"parts": None}, "is damaged"),
        ({"vocab_size": "many"}, "is damaged"),
        ({"tokenizer": "bytes"}, "is damaged"),
    ],
)
def test_a_description_that_cannot_be_trusted_is_refused(copy, changes, message):
    edit(copy, **changes)
    with pytest.raises(ValueError, match=message):
        PackedTokens(copy, length=4)


@pytest.mark.parametrize("text", ["{", "[]", ""])
def test_a_damaged_description_is_refused(copy, text):
    (copy / "tokens.json").write_text(text)
    with pytest.raises(ValueError, match=r"tokens\.json (is damaged|does not describe)"):
        PackedTokens(copy, length=4)


def test_windows_must_fit(prepared):
    tokens = PackedTokens(prepared, length=1).tokens
    assert len(PackedTokens(prepared, length=tokens - 1)) == 1
    with pytest.raises(ValueError, match=f"has {tokens} tokens, but one window of length={tokens} needs {tokens + 1}"):
        PackedTokens(prepared, length=tokens)
    for length in (0, 1.5):
        with pytest.raises(ValueError, match=f"length must be an integer >= 1, got {length}"):
            PackedTokens(prepared, length=length)
