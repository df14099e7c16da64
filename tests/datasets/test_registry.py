"""Information on the data sets, without reading files."""

import dataclasses
import re
import subprocess
import sys

import pytest

import titans_datasets
from titans_datasets import DatasetInfo, info, list_datasets, protocol_split
from titans_datasets.dna import list_dna_datasets
from titans_datasets.registry import sequence_info

SERIES = ["ETTh1", "ETTh2", "ETTm1", "ETTm2", "weather", "ECL", "traffic", "AirPassengers"]
DNA = [
    *("tf_0", "tf_1", "tf_2", "tf_3", "mouse_0", "mouse_2"),
    *("prom_core_all", "prom_core_notata", "prom_core_tata", "prom_300_tata"),
    "human_nontata_promoters",
    "human_enhancers_cohn",
    "human_enhancers_ensembl",
    "human_ocr_ensembl",
    "human_ensembl_regulatory",
    "demo_coding_vs_intergenomic_seqs",
    "demo_human_or_worm",
    "drosophila_enhancers_stark",
    "dummy_mouse_enhancers_ensembl",
    *("ecoli_sigma70", "arabidopsis_tata", "arabidopsis_nontata"),
]
GENOMES = ["yeast", "ecoli", "celegans_1pct", "arabidopsis_1pct", "drosophila_1pct", "human_hg19_chr1_3mb"]
TEXTS = [
    *("gutenberg", "tinyshakespeare", "wikitext2", "wikitext2_train", "wikitext2_raw", "babi"),
    *("lambada_openai", "piqa", "hellaswag_val_1000", "winogrande", "arc_easy", "arc_challenge", "siqa", "boolq"),
]
NAMES = [*SERIES, *DNA, *GENOMES, *TEXTS]


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


def test_every_set_of_gue_gb_and_cnnprom_has_a_name():
    assert list_dna_datasets() == DNA


def test_importing_loads_no_heavy_package():
    code = (
        "import sys, titans_datasets\n"
        "titans_datasets.info('ECL'), titans_datasets.info('tf_0'), titans_datasets.protocol_split('ECL')\n"
        "print([m for m in ('torch', 'pandas', 'numpy', 'lightning', 'sklearn', 'tqdm', 'urllib.request')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


def test_list_datasets_names_every_set():
    assert list_datasets() == NAMES
    assert len({name.lower() for name in NAMES}) == len(NAMES)


@pytest.mark.parametrize(("kind", "names"), [("ts", SERIES), ("dna", DNA), ("genome", GENOMES), ("text", TEXTS)])
def test_list_datasets_names_those_of_one_kind(kind, names):
    assert list_datasets(kind) == names
    assert {info(name).kind for name in names} == {kind}


def test_an_unknown_kind_is_answered_with_the_known_ones():
    with pytest.raises(
        ValueError, match=r"kind must be one of 'ts', 'dna', 'genome', 'text', or None for all; got 'lm'"
    ):
        list_datasets("lm")


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


def test_gue_promoters_are_known_without_their_prefix():
    assert info("Core_TATA") is info("prom_core_tata")
    with pytest.raises(ValueError, match=r"Did you mean 'core_tata'\?"):
        info("core_tat")


def test_a_set_of_another_kind_has_a_different_error_than_an_unknown_name():
    with pytest.raises(ValueError, match="'yeast' is a genome, not a time-series set; known are ETTh1"):
        protocol_split("Yeast")
    with pytest.raises(ValueError, match="'ETTh1' is a time-series set, not a DNA set; known are tf_0"):
        sequence_info("etth1")


def test_a_name_like_nothing_known_gets_no_guess():
    with pytest.raises(ValueError, match="Unknown data set 'zzzz'") as caught:
        info("zzzz")
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_has_terms_and_a_source(name):
    entry = info(name)
    assert isinstance(entry, DatasetInfo)
    assert entry.licence
    assert entry.citation


@pytest.mark.parametrize("name", SERIES)
def test_every_series_is_complete_and_pinned(name):
    entry = info(name)
    assert re.fullmatch(r"sha256:[0-9a-f]{64}|git:[0-9a-f]{40}", entry.checksum)
    assert re.search(r"/[0-9a-f]{40}/", entry.url), "an address is pinned to a commit"
    assert entry.url.endswith((f"/{entry.file}", f"/{entry.file}.gz"))
    assert len(entry.columns) == len(set(entry.columns)) == entry.shape[1]
    assert entry.note


@pytest.mark.parametrize("name", TEXTS)
def test_every_text_file_is_pinned(name):
    entry = info(name)
    for file in entry.files.values():
        assert re.fullmatch(r"sha256:[0-9a-f]{64}|git:[0-9a-f]{40}", file.checksum)
        assert file.place.startswith("lm/")
        if file.url is not None:
            assert re.search(r"/[0-9a-f]{40}/", file.url), "an address is pinned to a commit"
    assert entry.note


@pytest.mark.parametrize("name", DNA)
def test_every_dna_set_names_its_parts_and_classes(name):
    entry = info(name)
    assert entry.classes == tuple(sorted(entry.file_classes))
    assert entry.parts in [("train", "dev", "test"), ("train", "test"), ("all",)]
    if entry.collection == "GenomicBenchmarks":
        assert set(entry.counts) == set(entry.references) == set(entry.classes)


def test_sets_whose_official_split_leaks_say_so():
    leaky = [name for name in DNA if "LEAKS" in info(name).note]
    assert leaky == [
        *("tf_0", "tf_1", "tf_3", "mouse_2"),
        "human_nontata_promoters",
        "human_enhancers_ensembl",
        "demo_human_or_worm",
        "drosophila_enhancers_stark",
    ]


@pytest.mark.parametrize("name", [name for name in SERIES if name != "weather"])
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
