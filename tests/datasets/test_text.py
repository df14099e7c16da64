"""Text sets: records as published, from local files first."""

import dataclasses
import gzip
import hashlib
import json
import subprocess
import sys

import pytest

from titans_datasets import ChecksumError, OfflineError, info, load, registry
from titans_datasets.text import load_text, text_files


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TITANS_DATA_HOME", raising=False)
    return tmp_path / "home"


@pytest.fixture
def register(monkeypatch):
    """Change a registry entry for one test: ``contents`` and ``urls`` by part."""

    def put(name, contents, urls=None):
        entry = info(name)
        files = {
            part: dataclasses.replace(
                entry.files[part], checksum=sha256(content), **({"url": urls[part]} if urls else {})
            )
            for part, content in contents.items()
        }
        monkeypatch.setitem(registry._REGISTRY, name, dataclasses.replace(entry, files=files))
        return files

    return put


def place(home, file, content):
    path = home / file.place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_plain_set_is_one_record_per_file_with_no_character_changed(home, register):
    contents = {"val": " \n = Title = \r\n é\u2028 \n".encode(), "test": b"no newline at the end"}
    for part, file in register("wikitext2", contents).items():
        place(home, file, contents[part])
    assert load("WikiText2", data_home=home, download=False) == [
        {"part": part, "text": content.decode()} for part, content in contents.items()
    ]


@pytest.mark.parametrize("end", ["\n", ""])
def test_json_lines_are_one_record_per_line(home, register, end):
    # a line separator of Unicode inside a string ends no line
    records = [{"query": "a\u2028b\x85", "choices": ["x", "y"], "gold": 1}, {"query": "c", "choices": [], "gold": 0}]
    content = ("\n".join(json.dumps(record, ensure_ascii=False) for record in records) + end).encode()
    (file,) = register("piqa", {"val": content}).values()
    place(home, file, content)
    assert load_text("piqa", data_home=home, download=False) == records


def test_a_gzip_serves_for_the_file_and_is_summed_unpacked(home, register):
    part = "en/qa1_single-supporting-fact_test"
    file = register("babi", {part: b"1 Mary moved.\n"})[part]
    packed = place(home, dataclasses.replace(file, place=file.place + ".gz"), gzip.compress(b"1 Mary moved.\n"))
    assert load_text("babi", data_home=home, download=False) == [{"part": part, "text": "1 Mary moved.\n"}]
    assert text_files("babi", data_home=home) == {part: packed}
    packed.write_bytes(gzip.compress(b"1 Mary stayed.\n"))
    with pytest.raises(ChecksumError, match="decompressed bytes have the wrong checksum"):
        load_text("babi", data_home=home)


def test_missing_files_are_downloaded_once(home, register, server):
    server.content = b"to be"
    (file,) = register("tinyshakespeare", {"train": b"to be"}, {"train": f"{server.url}/input.txt"}).values()
    for _ in range(2):
        assert load_text("tinyshakespeare", data_home=home) == [{"part": "train", "text": "to be"}]
    assert len(server.ranges) == 1
    assert (home / file.place).read_bytes() == b"to be"


def test_a_failed_download_says_where_to_put_the_file(home, register, server):
    url = f"{server.url}/input.txt"
    register("tinyshakespeare", {"train": b"to be"}, {"train": url})
    with pytest.raises(OfflineError, match="answered 404") as caught:
        load_text("tinyshakespeare", data_home=home)
    target = home / "lm" / "tinyshakespeare" / "input.txt"
    for piece in (url, str(target), "a folder that contains lm/tinyshakespeare/input.txt"):
        assert piece in str(caught.value)


@pytest.mark.parametrize("name", ["gutenberg", "siqa", "wikitext2_raw"])
def test_unpublished_files_are_not_downloaded(home, name):
    (file,) = info(name).files.values()
    with pytest.raises(FileNotFoundError, match="it is not published as a single file") as caught:
        load_text(name, data_home=home)
    for piece in (str(home / file.place), file.checksum, f"a folder that contains {file.place}"):
        assert piece in str(caught.value)
    assert f"made from {file.origin}. " in str(caught.value)
    assert "https://" in file.origin
    assert "download=True" not in str(caught.value)
    assert not home.exists()


def test_a_name_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="'ETTh1' is a time-series set, not a text set"):
        load_text("ETTh1")
    with pytest.raises(ValueError, match=r"Unknown text set 'gutenburg'.*Did you mean 'gutenberg'"):
        load_text("gutenburg")


def test_text_needs_no_numpy():
    code = "import sys, titans_datasets.text\nprint([m for m in ('numpy', 'pandas', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- the published sets

LOCAL = [
    *("gutenberg", "tinyshakespeare", "wikitext2", "wikitext2_raw", "babi", "lambada_openai", "piqa"),
    *("hellaswag_val_1000", "winogrande", "arc_easy", "arc_challenge", "siqa", "boolq"),
]


@pytest.mark.real_data
@pytest.mark.parametrize("name", LOCAL)
def test_a_set_loads_as_registered(real_data, name):
    records = load(name.upper(), data_home=real_data, download=False)
    assert len(records) == info(name).records
    assert len({frozenset(record) for record in records}) == 1, "all records have the same fields"
    if info(name).layout == "plain":
        assert [record["part"] for record in records] == list(info(name).files)


@pytest.mark.real_data
def test_the_books_have_number_title_and_text(real_data):
    books = load("gutenberg", data_home=real_data, download=False)
    assert {tuple(book) for book in books} == {("id", "title", "text")}
    assert (books[0]["id"], books[0]["title"]) == (98, "A Tale of Two Cities")
    assert sum(len(book["text"]) for book in books) == 20_184_187


@pytest.mark.real_data
def test_raw_and_plain_wikitext_differ_only_in_rare_words(real_data):
    (raw,) = load("wikitext2_raw", data_home=real_data, download=False)
    test = load("wikitext2", data_home=real_data, download=False)[1]
    pairs = list(zip(raw["text"].split(), test["text"].split(), strict=True))
    assert len(pairs) == 241_211
    assert {theirs for ours, theirs in pairs if ours != theirs} == {"<unk>"}


@pytest.mark.real_data
def test_a_babi_file_holds_a_thousand_questions(real_data):
    for record in load("babi", data_home=real_data, download=False):
        questions = sum("\t" in line for line in record["text"].split("\n"))
        assert questions == (10_000 if record["part"].startswith("en-10k/") else 1_000)


def test_a_wrong_file_that_is_not_published_is_to_be_provided_again(home, register):
    (file,) = register("wikitext2_raw", {part: b"right" for part in info("wikitext2_raw").files}).values()
    path = place(home, file, b"wrong")
    with pytest.raises(ChecksumError, match="cannot be downloaded, as it is not published as a single file") as caught:
        load_text("wikitext2_raw", data_home=home)
    assert "Delete" not in str(caught.value)
    assert f"put it at\n  {path}" in str(caught.value)
