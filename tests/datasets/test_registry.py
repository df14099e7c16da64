"""What the package says of its sets without touching a file."""

import dataclasses
import re
import subprocess
import sys

import pytest

import titans_datasets
from titans_datasets import info, list_datasets

NAMES = ["ETTh1", "ETTh2", "ETTm1", "ETTm2", "weather", "ECL", "traffic", "AirPassengers"]


def test_the_public_names_are_few_and_pinned():
    assert titans_datasets.__all__ == [
        "ChecksumError",
        "DatasetInfo",
        "OfflineError",
        "Split",
        "data_home",
        "info",
        "list_datasets",
        "load",
        "n_windows",
        "protocol_split",
    ]
    assert all(hasattr(titans_datasets, name) for name in titans_datasets.__all__)


def test_importing_loads_no_heavy_package():
    code = (
        "import sys, titans_datasets\n"
        "titans_datasets.info('ECL'), titans_datasets.protocol_split('ECL')\n"
        "print([m for m in ('torch', 'pandas', 'numpy', 'lightning', 'sklearn', 'tqdm', 'urllib.request')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


def test_list_datasets_names_every_set():
    assert list_datasets() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_names_are_matched_without_regard_to_case(name):
    assert info(name) is info(name.lower()) is info(name.upper())
    assert info(name).name == name


def test_an_unknown_name_is_answered_with_the_known_ones_and_the_closest():
    with pytest.raises(ValueError, match="ETTh9") as caught:
        info("ETTh9")
    message = str(caught.value)
    assert all(name in message for name in NAMES)
    assert re.search(r"Did you mean 'ETTh[12]'\?", message)


def test_a_name_like_nothing_known_gets_no_guess():
    with pytest.raises(ValueError, match="Unknown data set 'zzzz'") as caught:
        info("zzzz")
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_is_complete_and_pinned(name):
    entry = info(name)
    assert re.fullmatch(r"sha256:[0-9a-f]{64}|git:[0-9a-f]{40}", entry.checksum)
    assert re.search(r"/[0-9a-f]{40}/", entry.url), "an address is pinned to a commit"
    assert entry.url.endswith((f"/{entry.file}", f"/{entry.file}.gz"))
    assert len(entry.columns) == len(set(entry.columns)) == entry.shape[1]
    assert entry.licence
    assert entry.citation
    assert entry.note


@pytest.mark.parametrize("name", [name for name in NAMES if name != "weather"])
def test_rows_start_end_and_frequency_of_a_regular_set_agree(name):
    pd = pytest.importorskip("pandas")
    entry = info(name)
    assert entry.regular
    stamps = pd.date_range(entry.start, entry.end, freq=entry.freq)
    assert len(stamps) == entry.shape[0]
    assert stamps[-1] == pd.Timestamp(entry.end)


def test_ecl_and_traffic_say_that_their_stamps_are_a_convention():
    for name in ("ECL", "traffic"):
        entry = info(name)
        assert "not the dates of measurement" in entry.note
        assert entry.start == "2016-07-01 02:00:00"
        assert entry.columns[:2] == ("0", "1")
        assert entry.columns[-2:] == (str(entry.shape[1] - 2), "OT")


def test_an_entry_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        info("ETTh1").url = "http://elsewhere"
