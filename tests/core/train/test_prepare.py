"""Preparing text: tokens decode to the text, the held-out part is fixed, and failures leave no files."""

import errno
import gzip
import io
import json
import locale
import os
import re
import runpy
import socket
import sys
from importlib import metadata

import numpy as np
import pytest

from titans_core.tokenizers import ByteTokenizer, load_tokenizer
from titans_core.train import prepare as module
from titans_core.train.prepare import prepare
from titans_core.train.tokens import PackedTokens

TEXTS = ["one\ntwo\n", "naïve 日本 😀", "2020-01-01", "a\u2028b\x85c", "</s>", "x" * 300]
EOS = ByteTokenizer.eos_id


def jsonl(path, texts, key="text"):
    data = "".join(json.dumps({key: text}, ensure_ascii=False) + "\n" for text in texts).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def ids(out, part="train"):
    description = json.loads((out / "tokens.json").read_text())
    return np.fromfile(out / f"{part}.bin", {"uint16": "<u2", "uint32": "<u4"}[description["dtype"]])


def documents(out, part="train"):
    """The texts of a part, cut where a document ends."""
    found = ids(out, part)
    ends = np.flatnonzero(found == EOS)
    assert ends[-1] == len(found) - 1
    return [ByteTokenizer().decode(piece) for piece in np.split(found, ends + 1)[:-1]]


def quiet(sources, out, **options):
    return prepare(sources, out, verbose=0, **{"val_fraction": 0, **options})


class Counting(ByteTokenizer):
    """A tokenizer that raises KeyboardInterrupt at the given batch."""

    def __init__(self, batches):
        self.batches = batches

    def encode_batch(self, texts):
        self.batches -= 1
        if self.batches < 0:
            raise KeyboardInterrupt
        return super().encode_batch(texts)


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_file_that_is_named_twice_is_read_once_where_it_is_first_named(tmp_path, first):
    for name in "abc":
        jsonl(tmp_path / f"{name}.jsonl", [name])
    quiet([tmp_path / f"{first}.jsonl", tmp_path], tmp_path / "out")
    assert documents(tmp_path / "out") == [first, *(name for name in "abc" if name != first)]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_written_tokens_decode_to_the_documents_in_order(tmp_path, suffix):
    source = jsonl(tmp_path / f"a{suffix}", TEXTS)
    description = quiet(source, tmp_path / "out")
    assert documents(tmp_path / "out") == TEXTS
    train = description["parts"]["train"]
    assert (train["documents"], train["tokens"]) == (len(TEXTS), len(ids(tmp_path / "out")))
    assert PackedTokens(tmp_path / "out", length=4, tokenizer=ByteTokenizer(), verify=True).tokens == train["tokens"]
    assert sorted(os.listdir(tmp_path / "out")) == ["tokens.json", "train.bin"]


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz"])
def test_a_text_file_is_one_document(tmp_path, suffix):
    text = "\n\nfirst\n\nlast 日本 line\u2028"
    data = ("\ufeff" + text.replace("\n", "\r\n")).encode()
    (tmp_path / f"a{suffix}").write_bytes(gzip.compress(data, mtime=0) if suffix.endswith("gz") else data)
    quiet(tmp_path / f"a{suffix}", tmp_path / "out")
    assert documents(tmp_path / "out") == [text]


def test_a_folder_gives_its_files_in_the_order_of_their_names(tmp_path, monkeypatch):
    (tmp_path / "in" / ".deep").mkdir(parents=True)
    jsonl(tmp_path / "in" / "c [1] *.jsonl", ["third", "fourth"])  # a name that a pattern would not match
    (tmp_path / "in" / "b.txt").write_text("second")
    jsonl(tmp_path / "in" / ".deep" / "a.jsonl", ["first"])
    (tmp_path / "in" / "notes.md").write_text("not a source")
    monkeypatch.chdir(tmp_path)
    description = quiet("in", "out")
    assert documents(tmp_path / "out") == ["first", "second", "third", "fourth"]
    assert [source["file"] for source in description["sources"]] == ["in/.deep/a.jsonl", "in/b.txt", "in/c [1] *.jsonl"]


def test_paths_may_begin_with_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    jsonl(tmp_path / "a.jsonl", TEXTS)
    (tmp_path / "tokenizer").mkdir()
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "tokenizer" / "tokenizer.json"))):
        quiet("~/a.jsonl", "~/out", tokenizer="~/tokenizer")
    quiet("~/a.jsonl", "~/out")
    assert documents(tmp_path / "out") == TEXTS
    assert len(PackedTokens("~/out", length=16)) == len(PackedTokens(tmp_path / "out", length=16))


def test_documents_without_text_and_blank_lines_are_left_out(tmp_path):
    (tmp_path / "a.jsonl").write_text('\n{"text": "a"}\n{"text": ""}\n  \n{"text": "b"}')
    (tmp_path / "b.txt").write_text("")
    quiet([tmp_path / "a.jsonl", tmp_path / "b.txt"], tmp_path / "out")
    assert documents(tmp_path / "out") == ["a", "b"]


def test_other_keys_do_not_matter_even_when_they_come_late(tmp_path):
    lines = [{"body": "b", "meta": 1}, {"meta": {"a": []}, "body": "c"}, {"body": "d", "new": None}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    quiet(tmp_path / "a.jsonl", tmp_path / "out", text_key="body")
    assert documents(tmp_path / "out") == ["b", "c", "d"]


def test_a_long_document_is_the_same_in_pieces(tmp_path, monkeypatch):
    texts = ["".join(f"line {i}\n" for i in range(200)), "short", "no line end " * 50]
    source = jsonl(tmp_path / "a.jsonl", texts)
    quiet(source, tmp_path / "whole")
    monkeypatch.setattr(module, "_PIECE", 64)
    quiet(source, tmp_path / "pieces")
    assert documents(tmp_path / "pieces") == texts
    assert (ids(tmp_path / "pieces") == ids(tmp_path / "whole")).all()


def test_later_pieces_continue_a_document_without_a_new_start(tmp_path, monkeypatch):
    """Otherwise a tokenizer that adds a space before a document would add one at every cut of a long text."""

    class Marking(ByteTokenizer):
        def encode(self, text, bos=False, eos=False, *, continued=False):
            return super().encode(text if continued else f" {text}", bos, eos)

    monkeypatch.setattr(module, "_PIECE", 64)
    text = "".join(f"line {i}\n" for i in range(200))
    quiet(jsonl(tmp_path / "a.jsonl", [text]), tmp_path / "out", tokenizer=Marking())
    assert documents(tmp_path / "out") == [f" {text}"]


def held_out(folder, texts, **options):
    folder.mkdir()
    quiet(jsonl(folder / "a.jsonl", texts), folder / "out", **options)
    return documents(folder / "out", "train"), documents(folder / "out", "val")


def test_every_document_is_in_one_part_and_its_text_and_the_seed_decide_in_which(tmp_path):
    texts = [f"document {i}" for i in range(2000)]
    train, val = held_out(tmp_path / "a", texts, val_fraction=0.1)
    assert sorted(train + val) == sorted(texts)
    assert 140 < len(val) < 260  # 200, give or take more than four standard deviations
    assert [text for text in texts if text in set(train)] == train
    # neither their order, nor how often each is there, nor what else there is
    again = held_out(tmp_path / "b", [*texts[::-1], "another", *texts[:500]], val_fraction=0.1)
    assert set(again[0]) - {"another"} == set(train)
    assert set(again[1]) - {"another"} == set(val)
    assert set(held_out(tmp_path / "c", texts, val_fraction=0.1, seed=1)[1]) != set(val)
    assert set(held_out(tmp_path / "d", texts, val_fraction=0.2)[1]) > set(val)


def test_numbers_of_numpy_are_written_as_those_of_python(tmp_path):
    source = jsonl(tmp_path / "a.jsonl", [f"document {i}" for i in range(40)])
    expected = quiet(source, tmp_path / "a", val_fraction=0.25, seed=3)
    assert quiet(source, tmp_path / "b", val_fraction=np.float32(0.25), seed=np.int64(3)) == expected


def test_a_text_file_is_cut_at_a_line_end_before_the_fraction(tmp_path):
    text = "".join(f"line {i}\n" for i in range(100))
    (tmp_path / "a.txt").write_text(text)
    quiet(tmp_path / "a.txt", tmp_path / "out", val_fraction=0.25)
    (train,), (val,) = documents(tmp_path / "out"), documents(tmp_path / "out", "val")
    assert train + val == text
    assert train.endswith("\n")
    assert 0 <= len(val) - 0.25 * len(text) <= len("line 99\n")
    (tmp_path / "a.txt").write_text("x" * 100)
    quiet(tmp_path / "a.txt", tmp_path / "out", val_fraction=0.25, overwrite=True)
    assert len(documents(tmp_path / "out", "val")[0]) == 25


@pytest.mark.parametrize("body", ["some words and more " * 400, "x" * 8000])
def test_a_line_end_far_from_the_fraction_does_not_hold_out_the_rest(tmp_path, body):
    (tmp_path / "a.txt").write_text("A Title\n" + body)
    quiet(tmp_path / "a.txt", tmp_path / "out", val_fraction=0.01)
    (train,), (val,) = documents(tmp_path / "out"), documents(tmp_path / "out", "val")
    assert train + val == "A Title\n" + body
    assert 80 <= len(val) <= 2 * 81
    assert " " not in body or train.endswith(" ")


def test_hold_out_may_be_chosen(tmp_path):
    texts = ["a" * 10, "b" * 10]
    assert held_out(tmp_path / "a", texts, val_fraction=0.2, hold_out="tails") == (
        ["a" * 8, "b" * 8],
        ["a" * 2, "b" * 2],
    )
    for i in range(50):
        (tmp_path / f"{i}.txt").write_text(f"file {i}")
    quiet([tmp_path / f"{i}.txt" for i in range(50)], tmp_path / "out", val_fraction=0.5, hold_out="documents")
    both = [*documents(tmp_path / "out"), *documents(tmp_path / "out", "val")]
    assert sorted(both) == sorted(f"file {i}" for i in range(50))


@pytest.mark.parametrize(("vocab_size", "dtype"), [(1 << 16, "uint16"), ((1 << 16) + 1, "uint32")])
def test_ids_are_as_wide_as_the_vocabulary_needs(tmp_path, vocab_size, dtype):
    class Wide(ByteTokenizer):
        eos_id = vocab_size - 1

    tokenizer = Wide()
    tokenizer.vocab_size = vocab_size
    assert quiet(jsonl(tmp_path / "a.jsonl", ["ab"]), tmp_path / "out", tokenizer=tokenizer)["dtype"] == dtype
    assert ids(tmp_path / "out").tolist() == [97, 98, vocab_size - 1]


def test_a_tokenizer_that_leaves_its_vocabulary_is_caught(tmp_path):
    class Strange(ByteTokenizer):
        eos_id = 258

    with pytest.raises(ValueError, match="ids must be in"):
        quiet(jsonl(tmp_path / "a.jsonl", ["ab"]), tmp_path / "out", tokenizer=Strange())


@pytest.mark.parametrize("when", [0, 1, 2])
def test_an_interrupted_preparation_leaves_nothing(tmp_path, monkeypatch, when):
    monkeypatch.setattr(module, "_PIECE", 8)
    source = jsonl(tmp_path / "a.jsonl", ["a" * 6, "b" * 6, "c" * 6])
    with pytest.raises(KeyboardInterrupt):
        quiet(source, tmp_path / "out", tokenizer=Counting(when))
    assert os.listdir(tmp_path / "out") == []
    with pytest.raises(FileNotFoundError, match="interrupted"):
        PackedTokens(tmp_path / "out", length=2)
    quiet(source, tmp_path / "out", tokenizer=Counting(3))
    assert PackedTokens(tmp_path / "out", length=2).tokens == 21


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_preparation_killed_while_its_files_are_moved_leaves_nothing_that_loads(tmp_path, monkeypatch, moved):
    out = tmp_path / "out"
    quiet(jsonl(tmp_path / "a.jsonl", ["old"]), out)
    move, done = os.replace, []

    def killed(*names):
        if len(done) == moved:
            raise KeyboardInterrupt
        done.append(names)
        move(*names)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        quiet(jsonl(tmp_path / "b.jsonl", ["new"]), out, overwrite=True, val_fraction=0.4, hold_out="tails")
    with pytest.raises(FileNotFoundError, match=r"tokens\.json, which is written last, is missing"):
        PackedTokens(out, length=1)
    monkeypatch.undo()
    quiet(tmp_path / "b.jsonl", out)  # no overwrite needed: nothing is there
    assert documents(out) == ["new"]


def test_leftovers_of_a_killed_preparation_are_removed_by_the_next(tmp_path):
    (tmp_path / "out" / ".unfinished" / "cache").mkdir(parents=True)
    (tmp_path / "out" / ".unfinished" / "train.bin").write_bytes(b"half")
    quiet(jsonl(tmp_path / "a.jsonl", ["a"]), tmp_path / "out")
    assert sorted(os.listdir(tmp_path / "out")) == ["tokens.json", "train.bin"]


def test_two_preparations_in_one_folder_do_not_mix_their_files(tmp_path):
    """The first used to end with the tokens of the second under its own description."""
    sources = [jsonl(tmp_path / f"{name}.jsonl", [name]) for name in "ab"]

    class Meanwhile(ByteTokenizer):
        def encode_batch(self, texts):
            with pytest.raises(ValueError, match=r"another process is preparing text in .*out: wait for it, or choose"):
                quiet(sources[1], tmp_path / "out")
            return super().encode_batch(texts)

    quiet(sources[0], tmp_path / "out", tokenizer=Meanwhile())
    assert documents(tmp_path / "out") == ["a"]
    assert PackedTokens(tmp_path / "out", length=1, verify=True).tokens == 2
    quiet(sources[1], tmp_path / "out", overwrite=True)
    assert documents(tmp_path / "out") == ["b"]


def test_a_full_disk_is_not_left_full_of_unfinished_tokens(tmp_path, monkeypatch):
    """Closing the file raised the error of the full disk once more, before the files were removed."""

    class FullDisk(io.FileIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    class OnFullDisk(module._Part):
        def __init__(self, path, *about):
            super().__init__(path, *about)
            self._file.close()
            self._file = io.BufferedWriter(FullDisk(path, "wb"))

    monkeypatch.setattr(module, "_Part", OnFullDisk)
    with pytest.raises(OSError, match="No space left"):
        quiet(jsonl(tmp_path / "a.jsonl", TEXTS), tmp_path / "out")
    assert os.listdir(tmp_path / "out") == []


def test_earlier_tokens_stay_until_new_ones_are_ready(tmp_path):
    source, out = jsonl(tmp_path / "a.jsonl", ["old old old"]), tmp_path / "out"
    quiet(source, out, val_fraction=0.5, hold_out="tails")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        quiet(source, out)
    with pytest.raises(KeyboardInterrupt):
        quiet(source, out, overwrite=True, tokenizer=Counting(0))
    assert PackedTokens(out, "val", length=1, verify=True).tokens > 0
    quiet(jsonl(source, ["new"]), out, overwrite=True)
    assert documents(out) == ["new"]
    assert sorted(os.listdir(out)) == ["tokens.json", "train.bin"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.jsonl", b'{"text": "a"}\n\n{"text": "b"\n', r"a\.jsonl, line 3: not valid JSON"),
        ("a.jsonl", b'{"text": "a"}\n{"body": "b"}\n', r"line 2: no key 'text', only \['body'\].*text_key"),
        ("a.jsonl", b'{"text": "a"}\n["b"]\n', r"line 2: expected an object such as .*, got list"),
        ("a.jsonl", b'{"text": null}\n', r"line 1: 'text' must be a string, got NoneType"),
        ("a.jsonl", b'{"text": "\\ud83d"}\n', r"line 1: 'text' has an unpaired surrogate"),
        ("a.jsonl", b'{"text": ""}\n', "the sources contain no text"),
        ("a.jsonl", b"", "the sources contain no text"),
        ("a.txt", b"", "the sources contain no text"),
        ("a.txt", b"caf\xe9", r"a\.txt is not UTF-8"),
        ("a.txt.gz", b"plain", r"a\.txt\.gz cannot be decompressed"),
        (
            "a.txt.gz",
            gzip.compress(b"hello" * 1000, mtime=0)[:-12],
            r"a\.txt\.gz cannot be decompressed: it is truncated",
        ),
        ("a.csv", b"a,b", r"a\.csv must have a suffix of \.txt, \.jsonl"),
    ],
)
def test_bad_sources_are_named(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message):
        quiet(tmp_path / name, tmp_path / "out")
    assert not (tmp_path / "out").exists() or os.listdir(tmp_path / "out") == []


def test_no_sources_are_an_error(tmp_path):
    with pytest.raises(ValueError, match="sources is empty"):
        quiet([], tmp_path / "out")
    with pytest.raises(FileNotFoundError, match=r"no such file or folder: .*nothing\.txt"):
        quiet(tmp_path / "nothing.txt", tmp_path / "out")
    with pytest.raises(ValueError, match="holds no text"):
        quiet(tmp_path, tmp_path / "out")


def test_an_empty_part_is_an_error_that_says_what_to_change(tmp_path):
    source = jsonl(tmp_path / "a.jsonl", ["one", "two"])
    with pytest.raises(ValueError, match=r"part 'val' would be empty: val_fraction=0\.0001 of 2 documents"):
        quiet(source, tmp_path / "out", val_fraction=0.0001)
    with pytest.raises(ValueError, match=r"part 'train' would be empty.*hold_out='tails'"):
        quiet(source, tmp_path / "out", val_fraction=0.9999)
    (tmp_path / "b.txt").write_text("ab")
    with pytest.raises(ValueError, match=r"would be empty.*Change val_fraction \(0: no validation part\)\.$"):
        quiet(tmp_path / "b.txt", tmp_path / "out", val_fraction=0.01)


@pytest.mark.parametrize("options", [{"val_fraction": 1}, {"val_fraction": -0.1}, {"hold_out": "some"}])
def test_arguments_out_of_range_are_named(tmp_path, options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        quiet(jsonl(tmp_path / "a.jsonl", ["a"]), tmp_path / "out", **options)


def test_the_usage_is_the_command_that_was_given(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["prepare.py", "--help"])
    with pytest.raises(SystemExit):
        runpy.run_path(module.__file__, run_name="__main__")
    assert "usage: python -m titans_core.train.prepare " in capsys.readouterr().out


def test_without_datasets_the_error_names_the_command_that_installs_it(tmp_path, monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    # a folder named `datasets` in the working directory can be imported all the same
    (tmp_path / "datasets").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(ImportError, match=r"needs the package datasets: pip install 'titans-suite\[lm\]'"):
        quiet(jsonl(tmp_path / "a.jsonl", ["a"]), tmp_path / "out")


def test_compressed_text_is_refused_where_the_system_would_misread_it(tmp_path, monkeypatch):
    source = jsonl(tmp_path / "a.jsonl.gz", ["é"])
    monkeypatch.setattr(locale, "getpreferredencoding", lambda do_setlocale=True: "cp1252")
    with pytest.raises(ValueError, match="PYTHONUTF8=1"):
        quiet(source, tmp_path / "out")


def test_a_progress_bar_is_shown_unless_it_is_not_wanted(tmp_path, capfd):
    source = jsonl(tmp_path / "a.jsonl", ["a"])
    prepare(source, tmp_path / "a", val_fraction=0, verbose=0)
    assert capfd.readouterr() == ("", "")
    prepare(source, tmp_path / "b", val_fraction=0)
    assert "tokens: 2" in capfd.readouterr().err


def test_preparation_does_not_use_the_network(tmp_path, monkeypatch):
    lookups = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *address, **options: lookups.append(address) or [])
    quiet([jsonl(tmp_path / "a.jsonl", ["a"]), jsonl(tmp_path / "b.jsonl.gz", ["b"])], tmp_path / "out")
    assert lookups == []


@pytest.mark.real_data
def test_a_play_comes_back_from_llama_2_tokens(tmp_path, real_data):
    source = real_data / "lm" / "tinyshakespeare" / "input.txt"
    model = real_data / "lm" / "tokenizer" / "llama2_tokenizer.model"
    description = quiet(source, tmp_path / "out", tokenizer=model, val_fraction=0.1)
    tokenizer = load_tokenizer(model)
    text = tokenizer.decode(ids(tmp_path / "out")) + tokenizer.decode(ids(tmp_path / "out", "val"))
    assert text == source.read_text(encoding="utf-8")
    assert description["parts"]["val"]["tokens"] == pytest.approx(0.1 * (len(ids(tmp_path / "out")) / 0.9), rel=0.1)
