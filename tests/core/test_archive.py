"""A saved model is loaded exactly, or refused."""

import json
import os
import re
import threading
from importlib import metadata
from pathlib import Path

import pytest
import torch

from titans_core import archive
from titans_core.archive import FORMAT, ArchiveError, load_archive, save_archive

CONTENT = {"params": {"h": 4}, "names": ["a", 1]}


@pytest.fixture
def saved(tmp_path):
    tensors = {"w": torch.randn(3, 4), "n": torch.arange(5), "t": torch.randn(4, 2, dtype=torch.float64).T}
    save_archive(tmp_path / "model", "Thing", CONTENT, tensors)
    return tmp_path / "model", tensors


def cut_after(calls, function):
    """The function, which does nothing after this many calls, as if the process had been killed."""
    done = []

    def cut(*args):
        if len(done) == calls:
            raise KeyboardInterrupt
        done.append(args)
        return function(*args)

    return cut


def test_saved_content_is_loaded_unchanged(saved):
    path, tensors = saved
    content, loaded = load_archive(path, "Thing")
    assert content == CONTENT
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[k], tensors[k]) and loaded[k].dtype == tensors[k].dtype for k in tensors)
    assert sorted(f.name for f in path.iterdir()) == ["model.json", "model.safetensors"]


def test_tensors_that_share_memory_are_saved_each_by_itself(tmp_path):
    whole = torch.arange(6.0)
    given = {"whole": whole, "again": whole, "part": whole[2:], "turned": whole.view(2, 3).mT}
    save_archive(tmp_path, "thing", {}, given)
    _, tensors = load_archive(tmp_path, "thing")
    assert all(torch.equal(tensors[name], x) for name, x in given.items())


def test_a_second_save_replaces_the_first(saved):
    path, _ = saved
    save_archive(path, "Thing", {"new": True}, {"w": torch.ones(1)})
    assert load_archive(path, "Thing")[0] == {"new": True}


@pytest.mark.parametrize("replaced", [0, 1])
def test_a_save_that_is_cut_off_leaves_one_model_or_the_other(saved, monkeypatch, replaced):
    path, _ = saved
    monkeypatch.setattr(os, "replace", cut_after(replaced, os.replace))
    with pytest.raises(KeyboardInterrupt):
        save_archive(path, "Thing", {"new": True}, {"w": torch.ones(1)})
    assert load_archive(path, "Thing")[0] == ({"new": True} if replaced else CONTENT)


def test_two_saves_that_are_cut_off_leave_one_model_of_the_three(saved, monkeypatch):
    path, _ = saved
    replace, write = os.replace, Path.write_bytes
    monkeypatch.setattr(os, "replace", cut_after(1, replace))
    with pytest.raises(KeyboardInterrupt):
        save_archive(path, "Thing", {"new": 1}, {"w": torch.ones(1)})
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(Path, "write_bytes", cut_after(0, lambda file, data: write(file, data[:10])))
    with pytest.raises(KeyboardInterrupt):
        save_archive(path, "Thing", {"new": 2}, {"w": torch.zeros(1)})
    monkeypatch.setattr(Path, "write_bytes", cut_after(1, write))
    with pytest.raises(KeyboardInterrupt):
        save_archive(path, "Thing", {"new": 2}, {"w": torch.zeros(1)})
    assert load_archive(path, "Thing")[0] == {"new": 1}


def test_a_save_that_is_cut_off_before_its_tensors_are_in_place_keeps_one_cut_off_behind_them(saved, monkeypatch):
    path, _ = saved
    replace = os.replace
    monkeypatch.setattr(os, "replace", cut_after(1, replace))
    with pytest.raises(KeyboardInterrupt):
        save_archive(path, "Thing", {"new": 1}, {"w": torch.ones(1)})

    def killed_at_the_tensors(source, target):
        if target.name == "model.safetensors":
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed_at_the_tensors)
    with pytest.raises(KeyboardInterrupt):
        save_archive(path, "Thing", {"new": 2}, {"w": torch.zeros(1)})
    assert load_archive(path, "Thing")[0] == {"new": 1}


def test_processes_that_save_to_one_folder_take_turns(saved, monkeypatch):
    """As those of torchrun do at the end of their script."""
    path, replace = saved[0], os.replace
    other = threading.Thread(target=save_archive, args=(path, "Thing", {"by": "other"}, {"w": torch.ones(1)}))

    def meanwhile(*files):
        if other.ident is None:
            other.start()
            other.join(0.2)
        return replace(*files)

    monkeypatch.setattr("titans_core.archive.os.replace", meanwhile)
    save_archive(path, "Thing", {"by": "this"}, {"w": torch.zeros(1)})
    other.join()
    assert load_archive(path, "Thing")[0] == {"by": "other"}


def test_a_model_that_is_saved_again_while_it_is_read_is_read_again(saved, monkeypatch):
    """It used to be called truncated or modified: old tensors were compared with a new description."""
    path, _ = saved
    cut_off = archive._cut_off

    def meanwhile(folder, actual):  # between the tensors and their description
        monkeypatch.setattr(archive, "_cut_off", cut_off)
        save_archive(path, "Thing", {"new": True}, {"w": torch.ones(1)})
        return cut_off(folder, actual)

    monkeypatch.setattr(archive, "_cut_off", meanwhile)
    content, tensors = load_archive(path, "Thing")
    assert content == {"new": True}
    assert tensors["w"].tolist() == [1]


def test_numbers_as_keys_come_back_as_json_has_them(tmp_path):
    save_archive(tmp_path, "Thing", {"a": {2: 1, 10: 2}}, {})
    assert load_archive(tmp_path, "Thing")[0] == {"a": {"2": 1, "10": 2}}


def test_a_list_is_refused_as_a_model(saved):
    path, _ = saved
    (path / "model.json").write_text("[1, 2]")
    with pytest.raises(ArchiveError, match="truncated or damaged"):
        load_archive(path, "Thing")


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_truncated_file_is_refused(saved, name):
    path, _ = saved
    data = (path / name).read_bytes()
    (path / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(ArchiveError, match=rf"{name}.*truncated"):
        load_archive(path, "Thing")


def test_one_changed_byte_of_the_tensors_is_noticed_and_both_sums_are_named(saved):
    path, _ = saved
    data = bytearray((path / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (path / "model.safetensors").write_bytes(data)
    with pytest.raises(ArchiveError, match=r"sha256 is [0-9a-f]{64}, expected [0-9a-f]{64}"):
        load_archive(path, "Thing")


def test_a_changed_setting_is_noticed(saved):
    path, _ = saved
    head = json.loads((path / "model.json").read_text())
    head["content"]["params"]["h"] = 5
    (path / "model.json").write_text(json.dumps(head))
    with pytest.raises(ArchiveError, match="was modified after it was saved"):
        load_archive(path, "Thing")


def test_a_missing_file_another_kind_and_another_format_are_named(saved, monkeypatch):
    path, _ = saved
    with pytest.raises(ArchiveError, match="holds a Thing, not a Forecaster"):
        load_archive(path, "Forecaster")
    now = re.escape(f"titans-suite {metadata.version('titans-suite')}")
    for here, says in (
        (0, rf"a newer version \({now}, format {FORMAT}; this is {now}, which reads format 0\). Upgrade"),
        (99, rf"an older version \({now}, .*reads format 99\).*train it again"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr("titans_core.archive.FORMAT", here)
            with pytest.raises(ArchiveError, match=says):
                load_archive(path, "Thing")
    (path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors is missing"):
        load_archive(path, "Thing")
    with pytest.raises(FileNotFoundError, match="no saved model at"):
        load_archive(path.parent / "nowhere", "Thing")


def test_a_model_of_another_kind_is_not_lost(saved):
    path, _ = saved
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    with pytest.raises(ArchiveError, match="holds a Thing, which would be lost: choose another folder"):
        save_archive(path, "Forecaster", {}, {"w": torch.ones(1)})
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    with pytest.raises(FileNotFoundError, match=r"model\.json is a file: pass the folder"):
        load_archive(path / "model.json", "Thing")
    (path / "model.json").write_text("{")  # what is damaged is no loss
    save_archive(path, "Forecaster", {}, {"w": torch.ones(1)})
    assert load_archive(path, "Forecaster")[1]["w"] == 1


def test_tensors_of_another_program_are_not_lost(tmp_path, monkeypatch):
    file = tmp_path / "model.safetensors"
    file.write_text("precious")
    with pytest.raises(ArchiveError, match="a model of another program, such as transformers, which would be lost"):
        save_archive(tmp_path, "Thing", {}, {"w": torch.ones(1)})
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("model.safetensors", "precious")]
    file.unlink()
    with monkeypatch.context() as patch:  # a first save that was cut off leaves tensors too, but they are ours
        patch.setattr(os, "replace", cut_after(1, os.replace))
        with pytest.raises(KeyboardInterrupt):
            save_archive(tmp_path, "Thing", {}, {"w": torch.ones(1)})
    assert sorted(found.name for found in tmp_path.iterdir()) == ["model.json.part", "model.safetensors"]
    save_archive(tmp_path, "Thing", {}, {"w": torch.zeros(1)})
    assert load_archive(tmp_path, "Thing")[1]["w"] == 0


def test_a_model_is_not_saved_over_a_file(tmp_path):
    (tmp_path / "file").write_text("precious")
    with pytest.raises(ArchiveError, match="is a file"):
        save_archive(tmp_path / "file", "Thing", {}, {"w": torch.ones(1)})
    assert (tmp_path / "file").read_text() == "precious"
