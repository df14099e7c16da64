"""Downloads from a local server: cache, checksums, and interruptions at any point."""

import dataclasses
import gzip
import hashlib
import io
import os
import socket
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from titans_datasets import ChecksumError, OfflineError, cache, data_home, info, load, registry
from titans_datasets import download as download_module
from titans_datasets.checksum import digest, verify

ROWS, COLUMNS = 400, 40


def git_blob(data):
    return "git:" + hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Isolate the cache and proxy settings, and shorten the waits."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TITANS_DATA_HOME", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download_module, "_PAUSE", 0.0)


@pytest.fixture
def register(monkeypatch):
    """Put changed entries into the registry for one test."""

    def put(name, **changes):
        entry = dataclasses.replace(info(name), **changes)
        monkeypatch.setitem(registry._REGISTRY, name.lower(), entry)
        return entry

    return put


@pytest.fixture
def values():
    # a tenth with three digits survives text and back
    return np.random.default_rng(0).integers(0, 10_000, size=(ROWS, COLUMNS)) / 1000


@pytest.fixture
def traffic(server, register, values):
    """The traffic entry, changed to a small file on the local server."""
    text = "\n".join(",".join(map(str, row)) for row in values) + "\n"
    server.content = gzip.compress(text.encode(), mtime=0)
    return register(
        "traffic",
        url=f"{server.url}/traffic/traffic.txt.gz",
        checksum=git_blob(server.content),
        shape=(ROWS, COLUMNS),
        columns=(*map(str, range(COLUMNS - 1)), "OT"),
    )


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.name != ".lock")


# ---- reading


def test_a_headerless_matrix_gets_the_benchmark_s_stamps_and_names(traffic, home, values):
    frame = load("Traffic", data_home=home)
    np.testing.assert_array_equal(frame.to_numpy(), values)
    assert frame.columns.tolist() == [*map(str, range(COLUMNS - 1)), "OT"]
    assert frame.index.equals(pd.date_range("2016-07-01 02:00:00", periods=ROWS, freq="h").as_unit("ns"))
    assert frame.index.name == "ds"
    assert frame.index.freqstr == "h"
    assert set(frame.dtypes) == {np.dtype("float64")}


@pytest.mark.parametrize("change", [{"shape": (ROWS + 1, COLUMNS)}, {"shape": (ROWS, 862), "columns": ("0",) * 862}])
def test_a_file_of_another_shape_is_refused_even_with_the_right_checksum(traffic, register, home, change):
    register("traffic", **change)
    with pytest.raises(ValueError, match=f"{ROWS} rows x {COLUMNS} columns"):
        load("traffic", data_home=home)


@pytest.mark.parametrize("published_packed", [True, False])
def test_a_csv_is_kept_as_published_and_summed_unpacked(server, register, home, published_packed):
    text = b"Month,#Passengers\n1949-01,112\n1949-02,118\n1949-03,132\n"
    server.content = gzip.compress(text) if published_packed else text
    register(
        "AirPassengers",
        url=f"{server.url}/AirPassengers.csv{'.gz' if published_packed else ''}",
        checksum=sha256(text),
        shape=(3, 1),
    )
    frame = load("airpassengers", data_home=home)
    assert frame["#Passengers"].tolist() == [112.0, 118.0, 132.0]
    assert frame.index[-1] == pd.Timestamp("1949-03-01")
    assert files(home) == ["AirPassengers.csv.gz" if published_packed else "AirPassengers.csv"]


# ---- the cache


def test_a_file_is_fetched_once(traffic, server, home):
    first = load("traffic", data_home=home)
    assert files(home) == ["traffic.txt.gz"]
    assert (home / "ts" / "traffic.txt.gz").read_bytes() == server.content
    pd.testing.assert_frame_equal(load("traffic", data_home=home, download=False), first)
    assert server.ranges == [None]


def test_the_data_home_is_the_argument_then_the_environment_then_the_user_cache(tmp_path, monkeypatch):
    assert data_home() == tmp_path / "cache" / "titans_datasets"
    monkeypatch.setenv("TITANS_DATA_HOME", str(tmp_path / "named"))
    assert data_home() == tmp_path / "named"
    assert data_home(tmp_path / "given") == data_home(str(tmp_path / "given")) == tmp_path / "given"
    monkeypatch.setenv("TITANS_DATA_HOME", "")
    assert data_home() == tmp_path / "cache" / "titans_datasets"
    assert list(tmp_path.iterdir()) == [], "asking creates nothing"


def test_a_cache_below_the_home_folder_is_found_from_everywhere(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "~/.cache")
    assert cache.user_cache() == tmp_path / ".cache" / "titans_datasets"


def test_without_a_home_folder_a_given_data_home_is_searched(tmp_path, monkeypatch):
    def lost(path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "expanduser", lambda path: lost(path) if str(path)[0] == "~" else path)
    assert cache.with_cache(tmp_path) == [tmp_path]
    with pytest.raises(ValueError, match="set XDG_CACHE_HOME or TITANS_DATA_HOME"):
        cache.user_cache()
    with pytest.raises(ValueError, match="give a path without ~"):
        cache.data_home("~nobody/data")


def test_without_an_xdg_cache_the_user_cache_is_below_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_home() == tmp_path / ".cache" / "titans_datasets"
    assert data_home("~/data") == tmp_path / "data"


@pytest.fixture(params=["below a file", "no permission"])
def read_only_home(request, tmp_path, monkeypatch):
    if request.param == "below a file":
        (tmp_path / "plain").write_text("not a folder")
        return tmp_path / "plain" / "home"
    home = tmp_path / "home"
    home.mkdir()
    # file modes do not bind a superuser, so the answer is given here
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: home not in [path, *path.parents] and access(path, mode))
    return home


def test_a_read_only_home_falls_back_to_the_user_cache_and_says_so(traffic, server, read_only_home, tmp_path, values):
    kept_at = tmp_path / "cache" / "titans_datasets" / "ts" / "traffic.txt.gz"
    with pytest.warns(UserWarning, match="cannot be written to") as warned:
        frame = load("traffic", data_home=read_only_home)
    assert str(read_only_home) in str(warned[0].message)
    assert str(kept_at) in str(warned[0].message)
    assert warned[0].filename == __file__, "the warning points at the caller"
    assert kept_at.exists()
    np.testing.assert_array_equal(frame.to_numpy(), values)
    load("traffic", data_home=read_only_home, download=False)  # found there, in silence
    assert len(server.ranges) == 1


def test_a_file_in_a_read_only_home_needs_no_fallback(traffic, server, home, recwarn, monkeypatch):
    (home / "ts").mkdir(parents=True)
    (home / "ts" / "traffic.txt.gz").write_bytes(server.content)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    load("traffic", data_home=home)
    assert server.ranges == []
    assert not [w for w in recwarn if issubclass(w.category, UserWarning)]


def test_a_writable_home_does_not_borrow_from_the_user_cache(traffic, server, home):
    load("traffic")
    load("traffic", data_home=home)
    assert len(server.ranges) == 2


def test_a_missing_writable_folder_is_reported(traffic, tmp_path, monkeypatch):
    (tmp_path / "plain").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "plain"))
    with pytest.raises(PermissionError, match="TITANS_DATA_HOME") as caught:
        load("traffic", data_home=tmp_path / "plain" / "home")
    assert str(tmp_path / "plain" / "home") in str(caught.value)
    assert str(tmp_path / "plain" / "titans_datasets") in str(caught.value)


def test_download_false_says_where_the_file_belongs(traffic, server, home):
    with pytest.raises(FileNotFoundError) as caught:
        load("traffic", data_home=home, download=False)
    message = str(caught.value)
    for part in (
        traffic.url,
        str(home / "ts" / "traffic.txt.gz"),
        traffic.checksum,
        "TITANS_DATA_HOME",
        "download=True",
    ):
        assert part in message
    assert server.ranges == []
    assert not home.exists()


# ---- checksums


def test_a_changed_file_is_refused_with_both_sums(traffic, server, home):
    load("traffic", data_home=home)
    load("traffic", data_home=home)  # found right once, and remembered: a change must still be noticed
    path = home / "ts" / "traffic.txt.gz"
    other = gzip.compress(b"1,2\n")
    path.write_bytes(other)
    with pytest.raises(ChecksumError) as caught:
        load("traffic", data_home=home)
    assert isinstance(caught.value, ValueError)
    for part in (str(path), traffic.checksum, git_blob(other), "move it away and load again"):
        assert part in str(caught.value)
    path.unlink()
    load("traffic", data_home=home)


def test_git_and_sha256_sums_are_those_of_the_definitions(server, traffic, register, home):
    load("traffic", data_home=home)
    register("traffic", checksum=sha256(server.content))
    load("traffic", data_home=home, download=False)
    register("traffic", checksum="git:" + "0" * 40)
    with pytest.raises(ChecksumError, match=git_blob(server.content)):
        load("traffic", data_home=home, download=False)


def test_the_empty_blob_has_the_id_that_git_gives_it(tmp_path):
    from titans_datasets.checksum import digest

    (tmp_path / "empty").touch()
    assert digest(tmp_path / "empty", "git") == "git:e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    (tmp_path / "hello.gz").write_bytes(gzip.compress(b"hello\n"))
    assert digest(tmp_path / "hello.gz", "git", unpack=True) == "git:ce013625030ba8dba906f756967f9e9ca394464a"
    with pytest.raises(ValueError, match="md5"):
        digest(tmp_path / "empty", "md5")


@pytest.mark.parametrize("damage", ["cut", "cut in the header", "flipped", "no gzip"])
def test_a_damaged_gzip_is_a_clear_error(register, home, damage):
    # random digits: a cut must fall inside the deflate stream
    digits = np.random.default_rng(1).integers(0, 10**9, size=2000)
    text = ("Month,#Passengers\n" + "\n".join(f"1949-01,{n}" for n in digits)).encode()
    entry = register("AirPassengers", checksum=sha256(text))
    packed = gzip.compress(text)
    middle = len(packed) // 2
    flipped = packed[:middle] + bytes(byte ^ 0xFF for byte in packed[middle : middle + 8]) + packed[middle + 8 :]
    path = home / "ts" / "AirPassengers.csv.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(
        {"cut": packed[:middle], "cut in the header": packed[:5], "flipped": flipped, "no gzip": text}[damage]
    )
    with pytest.raises(ChecksumError, match="truncated or damaged") as caught:
        load("AirPassengers", data_home=home)
    for part in (str(path), entry.checksum, "move it away and load again"):
        assert part in str(caught.value)


# ---- the network


@pytest.mark.parametrize("cuts", [[5], [1000, 700], [0, 1, 1]])
def test_a_transfer_cut_short_is_continued_where_it_broke(traffic, server, home, cuts):
    server.cuts = list(cuts)
    load("traffic", data_home=home)
    assert (home / "ts" / "traffic.txt.gz").read_bytes() == server.content
    assert files(home) == ["traffic.txt.gz"]
    sent = np.cumsum(cuts)
    assert server.ranges == [None, *(f"bytes={n}-" if n else None for n in sent)]


def test_a_part_left_by_an_earlier_process_is_continued(traffic, server, home):
    server.cuts = [100, 100, 100, 100]
    with pytest.raises(OfflineError, match=f"interrupted after 400 of {len(server.content)} bytes") as caught:
        load("traffic", data_home=home)
    assert "continues from there" in str(caught.value)
    assert files(home) == ["traffic.txt.gz.part"]
    server.ranges.clear()
    load("traffic", data_home=home)
    assert server.ranges == ["bytes=400-"]
    assert files(home) == ["traffic.txt.gz"]


def test_without_range_support_a_download_starts_again_from_the_first_byte(traffic, server, home):
    server.knows_range = False
    server.cuts = [1000]
    load("traffic", data_home=home)
    assert server.ranges == [None, "bytes=1000-"]
    assert (home / "ts" / "traffic.txt.gz").read_bytes() == server.content


@pytest.mark.parametrize("length", [50, 10**6])
def test_a_wrong_partial_file_is_detected_and_downloaded_again(traffic, server, home, length):
    (home / "ts").mkdir(parents=True)
    (home / "ts" / "traffic.txt.gz.part").write_bytes(b"x" * length)
    load("traffic", data_home=home)
    assert server.ranges == [f"bytes={length}-", None]
    assert files(home) == ["traffic.txt.gz"]


def test_a_part_of_the_file_that_was_not_asked_for_is_no_fault_of_the_folder(traffic, server, home):
    server.statuses = [206] * 4
    with pytest.raises(OfflineError, match="another range than requested"):
        load("traffic", data_home=home)
    assert files(home) == []


def test_a_part_that_lacks_nothing_is_the_file(traffic, server, home):
    (home / "ts").mkdir(parents=True)
    (home / "ts" / "traffic.txt.gz.part").write_bytes(server.content)
    load("traffic", data_home=home)
    assert server.ranges == [f"bytes={len(server.content)}-"]
    assert files(home) == ["traffic.txt.gz"]


def test_a_corrupted_download_leaves_no_files(traffic, server, home):
    server.content = server.content[:-1] + b"?"
    with pytest.raises(ChecksumError) as caught:
        load("traffic", data_home=home)
    for part in (traffic.checksum, git_blob(server.content), traffic.url, "is now deleted"):
        assert part in str(caught.value)
    assert files(home) == []
    assert len(server.ranges) == 1


def test_for_an_unreachable_server_the_error_says_what_to_download_and_where_to_put_it(traffic, register, home):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        entry = register("traffic", url=f"http://127.0.0.1:{taken.getsockname()[1]}/traffic.txt.gz")
        with pytest.raises(OfflineError) as caught:
            load("traffic", data_home=home)
    assert isinstance(caught.value, OSError)
    for part in (entry.url, str(home / "ts" / "traffic.txt.gz"), entry.checksum, "TITANS_DATA_HOME", "refused"):
        assert part in str(caught.value)
    assert files(home) == []


def test_an_http_error_is_reported_with_its_number_and_not_repeated(traffic, server, home):
    server.status = 404
    with pytest.raises(OfflineError, match="answered 404"):
        load("traffic", data_home=home)
    assert len(server.ranges) == 1
    assert files(home) == []


def test_a_busy_server_is_retried(traffic, server, home):
    server.cuts, server.statuses = [1000], [None, 503, 429]
    load("traffic", data_home=home)
    assert (home / "ts" / "traffic.txt.gz").read_bytes() == server.content
    assert server.ranges == [None, *["bytes=1000-"] * 3]


@pytest.mark.parametrize("address", ["http://[::1/traffic", "http://proxy..example/login"])
def test_a_redirection_to_no_address_is_reported_like_a_refusal(traffic, server, home, address):
    server.redirects_to = address
    with pytest.raises(OfflineError, match="or that of a redirection, is wrong") as caught:
        load("traffic", data_home=home)
    assert str(home / "ts" / "traffic.txt.gz") in str(caught.value)


def test_a_misspelt_proxy_is_reported_like_a_missing_connection(traffic, register, home, monkeypatch):
    monkeypatch.delenv("no_proxy")
    monkeypatch.setenv("http_proxy", "http:/proxy.example:3128")
    with pytest.raises(OfflineError, match=r"address of the proxy.* is wrong \(.*http:/proxy\.example:3128") as caught:
        load("traffic", data_home=home)
    assert traffic.url in str(caught.value)


def test_a_proxy_that_is_set_after_a_failure_is_used(traffic, server, register, home, monkeypatch):
    register("traffic", url="http://titans.invalid/traffic/traffic.txt.gz")
    with pytest.raises(OfflineError, match="no connection"):
        load("traffic", data_home=home)
    monkeypatch.delenv("no_proxy")
    monkeypatch.setenv("http_proxy", server.url)
    assert load("traffic", data_home=home).shape == (ROWS, COLUMNS)


def test_a_connection_lost_in_the_middle_is_sought_again(traffic, server, home, monkeypatch):
    server.cuts, begins, ask = [1000], [], download_module._open

    def lost_once(url, begin):
        begins.append(begin)
        if len(begins) == 2:
            raise download_module._UnreachableError("no connection (gone)")
        return ask(url, begin)

    monkeypatch.setattr(download_module, "_open", lost_once)
    load("traffic", data_home=home)
    assert begins == [0, 1000, 1000]


def test_a_home_that_is_not_mounted_falls_back_to_the_user_cache(traffic, home, tmp_path):
    home.symlink_to(tmp_path / "not mounted")
    with pytest.warns(UserWarning, match="cannot be written to"):
        load("traffic", data_home=home)
    assert (tmp_path / "cache" / "titans_datasets" / "ts" / "traffic.txt.gz").exists()


def test_a_silent_server_is_given_up(traffic, server, home, monkeypatch):
    monkeypatch.setattr(download_module, "_TIMEOUT", 0.1)
    server.pause = 60
    with pytest.raises(OfflineError, match="timed out"):
        load("traffic", data_home=home)


def test_the_advice_for_a_compressed_csv_names_the_uncompressed_size(server, register, home):
    server.status = 503
    register("weather", url=f"{server.url}/weather.csv.gz")
    with pytest.raises(OfflineError, match="of the decompressed bytes") as caught:
        load("weather", data_home=home)
    assert str(home / "ts" / "weather.csv.gz") in str(caught.value)


def test_two_that_load_at_once_fetch_once(traffic, server, home, values):
    pytest.importorskip("fcntl")
    server.pause = 0.2
    frames = []
    threads = [threading.Thread(target=lambda: frames.append(load("traffic", data_home=home))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.ranges == [None]
    for frame in frames:
        np.testing.assert_array_equal(frame.to_numpy(), values)


def test_a_shared_folder_is_locked_by_the_lock_of_another_user(traffic, home, monkeypatch):
    pytest.importorskip("fcntl")
    (home / "ts").mkdir(parents=True)
    (home / "ts" / ".lock").touch(mode=0o444)
    opened = Path.open

    # file modes do not bind a superuser, so the answer is given here
    def open_as_another(path, mode="r", *args, **kwargs):
        if path.name == ".lock" and mode != "r":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", open_as_another)
    load("traffic", data_home=home)
    assert files(home) == ["traffic.txt.gz"]


def test_nothing_is_printed_where_no_one_watches(traffic, home, capfd):
    load("traffic", data_home=home)
    assert capfd.readouterr() == ("", "")


def test_a_terminal_sees_a_progress_bar(traffic, home, capsys, monkeypatch):
    pytest.importorskip("tqdm")
    import sys

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    load("traffic", data_home=home)
    assert "traffic.txt.gz" in capsys.readouterr().err


class Log:
    """What some programs put in the place of standard error."""

    def write(self, text):
        pass


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [lambda: None, Log, closed], ids=["none", "a log", "closed"])
def test_without_a_standard_error_that_can_be_asked_there_is_no_bar(traffic, home, monkeypatch, stream):
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr", stream())
        frame = load("traffic", data_home=home)
    assert frame.shape == (ROWS, COLUMNS)


def test_a_change_that_keeps_the_size_is_noticed_too(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"right")
    checksum = digest(path, "sha256")
    verify(path, "file", checksum)
    path.write_bytes(b"wrong")
    os.utime(path, ns=(0, 1))
    with pytest.raises(ChecksumError):
        verify(path, "file", checksum)


@pytest.mark.parametrize("length", ["many", "12, 12", "-5", "1.5"])
def test_a_malformed_length_is_taken_as_unknown(traffic, server, home, values, length):
    server.length = length
    np.testing.assert_array_equal(load("traffic", data_home=home).to_numpy(), values)


# ---- advice that helps


def put(home, file, content):
    path = home / "ts" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_wrong_file_in_the_cache_is_to_be_deleted_and_one_elsewhere_to_be_moved(traffic, home):
    put(cache.user_cache(), "traffic.txt.gz", b"")
    with pytest.raises(ChecksumError, match=r"\nDelete the file and load again with download=True\.$"):
        load("traffic")
    put(home, "traffic.txt.gz", b"")
    with pytest.raises(ChecksumError, match=r"move it away and load again with download=True") as caught:
        load("traffic", data_home=home)
    assert traffic.url in str(caught.value)
    assert "Delete" not in str(caught.value)


def test_a_wrong_file_in_a_folder_that_is_not_writable_is_not_to_be_deleted(traffic, home, monkeypatch):
    put(home, "traffic.txt.gz", b"")
    monkeypatch.setattr(cache, "writable", lambda folder: False)
    with pytest.raises(
        ChecksumError, match="cannot be written to: have the file replaced there, or set TITANS"
    ) as caught:
        load("traffic", data_home=home)
    assert "Delete" not in str(caught.value)


@pytest.mark.parametrize(
    ("published", "here", "says"),
    [
        (b"a\nb\n", b"a\r\nb\r\n", "CRLF here, LF in the published file.* dos2unix"),
        (b"a\r\nb\r\n", b"a\nb\n", "LF here, CRLF in the published file.* unix2dos"),
    ],
)
@pytest.mark.parametrize("block", [1 << 20, 1, 2, 3])
@pytest.mark.parametrize("kind", [sha256, git_blob])
def test_a_file_that_differs_only_in_its_line_ends_is_recognised(
    register, home, monkeypatch, published, here, says, block, kind
):
    monkeypatch.setattr("titans_datasets.checksum._BLOCK", block)
    register("AirPassengers", checksum=kind(published))
    put(home, "AirPassengers.csv", here)
    with pytest.raises(ChecksumError, match=f"Only its line ends differ: {says}\\."):
        load("AirPassengers", data_home=home, download=False)
    put(home, "AirPassengers.csv", here + b"c")
    with pytest.raises(ChecksumError) as caught:
        load("AirPassengers", data_home=home, download=False)
    assert "line ends" not in str(caught.value)


def test_line_ends_in_a_gzip_are_looked_at_too(register, home):
    register("AirPassengers", checksum=sha256(b"a\nb\n"))
    put(home, "AirPassengers.csv.gz", gzip.compress(b"a\r\nb\r\n"))
    with pytest.raises(ChecksumError, match="convert it with dos2unix after unpacking it"):
        load("AirPassengers", data_home=home)


@pytest.mark.parametrize("name", ["traffic.txt", "traffic.csv"])
def test_an_unpacked_copy_that_cannot_be_verified_is_answered_with_the_expected_file(traffic, server, home, name):
    copy = put(home, name, b"1,2\n")
    says = f"{copy} is there, but it could not be verified: the file traffic.txt.gz itself is expected"
    with pytest.raises(FileNotFoundError) as caught:
        load("traffic", data_home=home, download=False)
    assert says in str(caught.value)
    server.status = 404
    with pytest.raises(OfflineError) as offline:
        load("traffic", data_home=home)
    assert says in str(offline.value)


# ---- something else in the place of a file


@pytest.mark.parametrize("name", ["traffic.txt.gz", ".lock", "traffic.txt.gz.part"])
def test_a_folder_in_the_place_of_a_file_is_named(traffic, home, name):
    (home / "ts" / name).mkdir(parents=True)
    with pytest.raises(IsADirectoryError, match=r"traffic cannot be stored.* Move away what is in its place") as caught:
        load("traffic", data_home=home)
    assert str(home / "ts" / name) in str(caught.value)


def test_a_broken_link_in_the_place_of_a_part_is_named(traffic, home, tmp_path):
    (home / "ts").mkdir(parents=True)
    (home / "ts" / "traffic.txt.gz.part").symlink_to(tmp_path / "not mounted" / "part")
    with pytest.raises(FileNotFoundError, match=r"cannot be stored as .*\.part'\)\. Move away"):
        load("traffic", data_home=home)


def test_without_a_download_a_folder_or_a_broken_link_is_named(traffic, home, tmp_path):
    path = home / "ts" / "traffic.txt.gz"
    path.mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"traffic\.txt\.gz is a folder, but a file is expected there"):
        load("traffic", data_home=home, download=False)
    path.rmdir()
    path.symlink_to(tmp_path / "not mounted")
    with pytest.raises(FileNotFoundError, match=r"traffic\.txt\.gz is a link to .*not mounted, which is not there"):
        load("traffic", data_home=home, download=False)


# file modes do not bind a superuser, so the answer is given here
def forbid(monkeypatch, folder):
    def guarded(method):
        def call(path, *args, **kwargs):
            if folder in [path, *path.parents]:
                raise PermissionError(13, "Permission denied", str(path))
            return method(path, *args, **kwargs)

        return call

    for name in ("is_file", "is_dir", "exists", "open", "glob"):
        monkeypatch.setattr(Path, name, guarded(getattr(Path, name)))


@pytest.mark.parametrize("name", ["traffic", "tf_0", "yeast", "tinyshakespeare", "human_enhancers_cohn"])
def test_a_home_that_cannot_be_read_is_named(home, monkeypatch, name):
    forbid(monkeypatch, home)
    with pytest.raises(PermissionError, match=rf"{home}/.* cannot be read \(Permission denied\)\. Allow .*TITANS_DATA"):
        load(name, data_home=home)


def test_a_cache_that_cannot_be_read_is_done_without(home, monkeypatch):
    (home / "dna" / "cnnprom" / "ecoli_sigma70").mkdir(parents=True)
    (home / "dna" / "cnnprom" / "ecoli_sigma70" / "all.csv").write_text("seq,label\nACGT,1\n")
    forbid(monkeypatch, cache.user_cache())
    assert load("ecoli_sigma70", data_home=home).sequences == ["ACGT"]


def test_a_file_that_cannot_be_read_is_named(traffic, home, monkeypatch):
    path = put(home, "traffic.txt.gz", b"")
    monkeypatch.setattr("titans_datasets.checksum.digest", lambda *_, **__: path.open())
    forbid(monkeypatch, path)
    monkeypatch.setattr(Path, "is_file", lambda path: True)
    with pytest.raises(PermissionError, match=rf"{path} cannot be read \(Permission denied\)"):
        load("traffic", data_home=home)
