"""Loading data sets of any kind by name."""

import inspect

import pytest

import titans_datasets
from titans_datasets import load
from titans_datasets.dna import DNADataset, GenomeFiles


@pytest.fixture
def sigma(home):
    folder = home / "dna" / "cnnprom" / "ecoli_sigma70"
    folder.mkdir(parents=True)
    (folder / "all.csv").write_text("seq,label\nACGTA,1\nTACGT,0\nGGGGG,1\n")
    return home


def test_load_is_few_arguments():
    assert list(inspect.signature(load).parameters) == ["name", "genome", "data_home", "download"]


def test_load_opens_a_dna_set(sigma):
    data = load("ECOLI_sigma70", data_home=sigma)
    assert isinstance(data, DNADataset)
    assert data.sequences == ["ACGTA", "TACGT", "GGGGG"]
    assert data.labels.tolist() == [1, 0, 1]
    assert data.split.tolist() == ["all"] * 3


def test_the_audit_is_printed_and_returned(sigma, capsys):
    report = load("ecoli_sigma70", data_home=sigma).audit(k=5)
    assert capsys.readouterr().out == f"{report}\n"
    assert "2 groups, the largest with 2 sequences" in str(report)
    assert repr(report) == "SplitAudit('ecoli_sigma70': leaks None, gain unknown)"
    load("ecoli_sigma70", data_home=sigma).audit(k=5, verbose=0)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["ETTh1", "yeast", "gutenberg", "tf_0"])
def test_a_genome_is_for_sets_that_are_cut_from_one(home, name):
    with pytest.raises(ValueError, match="genome= is only for the sets"):
        load(name, genome="genome.fa", data_home=home)


def test_an_unknown_name_is_answered_with_names_of_all_kinds():
    with pytest.raises(ValueError, match="Unknown data set 'moon'") as caught:
        load("moon")
    assert all(name in str(caught.value) for name in titans_datasets.list_datasets())


def test_warnings_point_at_the_caller_through_either_door(home):
    folder = home / "dna" / "gb" / "human_enhancers_cohn"
    folder.mkdir(parents=True)
    (folder / "test.csv").write_text("seq,label\nACGT,0\n")
    for loader in (load, titans_datasets.dna.load_dna):
        with pytest.warns(UserWarning, match="are not available") as warned:
            loader("human_enhancers_cohn", data_home=home, download=False)
        assert warned[0].filename == __file__


@pytest.mark.real_data
def test_every_kind_loads_from_the_data_home(real_data):
    with pytest.warns(UserWarning, match="train sequences are not available"):
        data = load("human_nontata_promoters", data_home=real_data, download=False)
    assert "the split LEAKS" in str(data.audit(verbose=0))
    assert len(load("Core_TATA", data_home=real_data, download=False)) > 5000
    files = load("Yeast", data_home=real_data, download=False)
    assert isinstance(files, GenomeFiles)
    assert files.fasta.is_file()
    assert load("etth1", data_home=real_data, download=False).shape == (17420, 7)
