"""Atomic writing of files."""

import os
import threading

import pytest

from titans_core.files import written_whole


def broken_off(path):
    path.write_text("ne")
    path.parent.read_text()  # raises


def test_the_old_content_stays_until_the_new_is_complete(tmp_path):
    path = tmp_path / "table.csv.gz"
    path.write_text("old")
    with pytest.raises(IsADirectoryError), written_whole(path) as part:
        broken_off(part)
    assert path.read_text() == "old"
    with written_whole(path) as part:
        part.write_text("new")
        assert path.read_text() == "old"
        assert part.suffix == ".gz"  # by which libraries choose what they write
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("between", ["absent", "a_file"])
def test_a_missing_folder_is_reported_and_nothing_is_written(tmp_path, between):
    (tmp_path / "a_file").touch()
    with (
        pytest.raises(FileNotFoundError, match=rf"there is no folder .*{between}: make it first, to write table\.csv"),
        written_whole(tmp_path / between / "table.csv") as part,
    ):
        broken_off(part)


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link, target = tmp_path / "out.csv", tmp_path / "elsewhere" / "of-another-ending"
    link.symlink_to(target)
    with written_whole(link) as part:
        part.write_text("new")
        assert part.suffix == ".csv"
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_pipe_is_written_and_not_replaced(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with written_whole(pipe) as part:
        part.write_text("new")
    reader.join(timeout=10)
    assert read == ["new"]
    assert pipe.is_fifo()
