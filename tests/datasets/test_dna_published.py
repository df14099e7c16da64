"""The real sets: their sizes, their leaks, their coordinates."""

import pytest

from titans_datasets import info
from titans_datasets.dna import list_dna_datasets, list_genomes, load_dna, load_genome
from titans_datasets.dna.benchmarks import official_intervals
from titans_datasets.sources.dna import GB as GB_ENTRIES

GUE = list_dna_datasets()[:10]


@pytest.mark.real_data
@pytest.mark.parametrize("name", GUE)
def test_gue_tasks_load_in_full(real_data, name):
    data = load_dna(name, data_home=real_data, download=False)
    for part in ("train", "dev", "test"):
        sequences, labels = data.part(part)
        assert len(sequences) == len(labels) > 300
        assert abs(labels.mean() - 0.5) < 0.06
    assert {len(s) for s in data.sequences} == {300 if "300" in name else 70 if "core" in name else 101}


@pytest.mark.real_data
def test_the_audit_of_nontata_promoters_prints_its_leak(real_data):
    with pytest.warns(UserWarning, match="27097 of 27097 train sequences are not available"):
        data = load_dna("Human_Nontata_Promoters", data_home=real_data, download=False)
    assert len(data) == 9034
    assert "27097 of train are not available" in repr(data)
    report = str(data.audit())
    assert "the split LEAKS" in report
    assert "lookup accuracy 99.6%" in report
    assert "negative 94.7%" in report
    with pytest.raises(ValueError, match=r"no part 'train' available, only test\. To rebuild all, pass genome=<path>"):
        data.part("train")


@pytest.mark.real_data
def test_a_quarter_of_the_mouse_2_test_part_is_known_from_train(real_data):
    report = load_dna("mouse_2", data_home=real_data, download=False).audit()
    assert round(100 * report.kmers.shared_with_train, 1) == 23.8
    assert round(100 * report.kmers.lookup_accuracy, 1) == 72.3
    assert report.leaks


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.parametrize("name", GUE)
def test_the_note_of_a_gue_task_says_what_its_audit_finds(real_data, name):
    report, note = load_dna(name, data_home=real_data, download=False).audit(verbose=0), info(name).note
    assert report.leaks == ("LEAKS" in note)
    if report.leaks:
        assert f"{report.kmers.shared_with_train:.1%} of test share".replace("%", " %") in note
        assert f"scores {report.kmers.lookup_accuracy:.1%};".replace("%", " %") in note


@pytest.mark.real_data
@pytest.mark.parametrize("name", GB_ENTRIES)
def test_official_coordinates_have_the_registered_counts(real_data, name):
    frame = official_intervals(GB_ENTRIES[name], real_data, download=False)
    counts = frame.groupby(["class", "split"]).size()
    assert {c: (counts[c, "train"], counts[c, "test"]) for c in frame["class"].unique()} == GB_ENTRIES[name].counts
    assert set(frame["strand"]) <= {"+", "-"}


@pytest.mark.real_data
@pytest.mark.parametrize("name", list_genomes())
def test_genomes_are_here(real_data, name):
    files = load_genome(name.upper(), data_home=real_data, download=False)
    assert files.fasta.is_file()
    assert (files.annotation is not None) == (name in ("yeast", "ecoli"))
    assert (files.variants is not None) == (name == "celegans_1pct")
