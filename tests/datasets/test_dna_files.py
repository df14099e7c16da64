"""DNA sets by name, from local files in any of their layouts."""

import hashlib
import json
import subprocess
import sys

import pytest

from titans_datasets import ChecksumError
from titans_datasets.dna import files, load_dna, load_genome
from titans_datasets.sources import dna_files

PARTS = ("train", "dev", "test")


def test_an_unknown_name_is_answered_with_the_closest():
    with pytest.raises(ValueError, match=r"Unknown DNA set 'human_nontata'; known are tf_0, .*"):
        load_dna("human_nontata")
    with pytest.raises(ValueError, match=r"Did you mean 'human_nontata_promoters'\?"):
        load_dna("human_nontata_promoter")
    with pytest.raises(ValueError, match="Unknown genome 'moon'; known are yeast"):
        load_genome("moon")


def test_importing_needs_neither_torch_nor_pandas():
    code = (
        "import sys, titans_datasets.dna\n"
        "print([m for m in ('torch', 'pandas', 'sklearn', 'titans_dna', 'pyfaidx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("folder", ["gue/prom_core_tata", "gue/prom/prom_core_tata", "gue/prom_prom_core_tata"])
@pytest.mark.parametrize("name", ["prom_core_tata", "CORE_TATA"])
@pytest.mark.usefixtures("unchecked")
def test_gue_is_read_from_any_layout_of_its_archive(home, put, folder, name):
    for part, rows in {"train": "ACGT,1\nggaa,0\n", "dev": "ACCC,0\n", "test": "TTTT,1\n"}.items():
        put(f"{folder}/{part}.csv", f"sequence,label\n{rows}")
    data = load_dna(name, data_home=home, download=False)
    assert data.sequences == ["ACGT", "GGAA", "ACCC", "TTTT"]
    assert data.labels.tolist() == [1, 0, 0, 1]
    assert data.split.tolist() == ["train", "train", "dev", "test"]
    assert data.part("dev")[0] == ["ACCC"]
    assert repr(data) == (
        "DNADataset('prom_core_tata': 4 sequences of 4 bases; train 2 (0 1, 1 1); dev 1 (0 1, 1 0); test 1 (0 0, 1 1))"
    )
    if folder != "gue/prom_core_tata":
        put("gue/prom_core_tata/dev.csv.part", "sequ")  # as a failed download leaves it
        put("gue/prom_core_tata/train.csv", "sequence,label\nTTTT,0\n")
    assert load_dna(name, data_home=home, download=False).sequences == data.sequences
    assert data.audit(k=4).kmers.shared_with_train == 0
    with pytest.raises(ValueError, match=r"no part 'valid' available, only train, dev, test\."):
        data.part("valid")


@pytest.mark.usefixtures("unchecked")
def test_a_missing_part_is_named_with_its_place(home, put):
    put("gue/tf_0/train.csv", "sequence,label\nACGT,1\n")
    put("gue/tf_0/dev/1/0.txt", "ACGT\n")  # folders are only of genomic_benchmarks; nothing would check these
    with pytest.raises(
        FileNotFoundError, match=r"tf_0: missing parts in .*gue/tf_0: dev, test\. Store them there as <part>\.csv"
    ):
        load_dna("tf_0", data_home=home, download=False)
    with pytest.raises(FileNotFoundError, match=r"ecoli_sigma70: missing parts in .*: all"):
        load_dna("ecoli_sigma70", data_home=home)
    with pytest.raises(ValueError, match="genome= is only for the sets"):
        load_dna("tf_0", genome="x.fa", data_home=home)


def test_wrong_columns_and_labels_are_named(home, put):
    put("cnnprom/ecoli_sigma70/all.csv", "dna,y\nACGT,1\n")
    with pytest.raises(ValueError, match=r"all\.csv has the columns \['dna', 'y'\]; expected seq or sequence"):
        load_dna("ecoli_sigma70", data_home=home)
    put("cnnprom/ecoli_sigma70/all.csv", "seq,target\nACGT,2\n")
    with pytest.raises(ValueError, match=r"labels \['2'\]; expected"):
        load_dna("ecoli_sigma70", data_home=home)
    put("cnnprom/ecoli_sigma70/all.csv", "seq,label\nACGT,1\n,0\n")
    with pytest.raises(ValueError, match=r"all\.csv lacks a sequence or a label in row 1"):
        load_dna("ecoli_sigma70", data_home=home)


def test_a_file_that_is_not_the_one_in_the_manifest_is_refused(home, put):
    path = put("cnnprom/ecoli_sigma70/all.csv", "seq,label\nACGT,1\nACGA,0\n")
    entry = {"file": "cnnprom/ecoli_sigma70/all.csv", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    put("manifest.json", json.dumps([entry]))
    assert len(load_dna("ecoli_sigma70", data_home=home)) == 2
    put("cnnprom/ecoli_sigma70/all.csv", "seq,label\nACGT,0\nACGA,0\n")
    with pytest.raises(ChecksumError, match=r"all\.csv: its bytes have the wrong checksum"):
        load_dna("ecoli_sigma70", data_home=home)


@pytest.mark.parametrize("text", ["{", '{"all.csv": "0"}', '[{"file": "all.csv"}]'])
def test_a_manifest_of_another_form_is_named(home, put, text):
    put("cnnprom/ecoli_sigma70/all.csv", "seq,label\nACGT,1\n")
    put("manifest.json", text)
    with pytest.raises(ValueError, match=r'manifest\.json is not a list of \{"file": \.\.\., "sha256": \.\.\.\}'):
        load_dna("ecoli_sigma70", data_home=home)


def test_the_folders_that_genomic_benchmarks_writes_are_read(home, put):
    for part in ("train", "test"):
        for label, piece in (("negative", "ACGT"), ("positive", "GGGG")):
            put(f"gb/human_enhancers_cohn/{part}/{label}/0.txt", piece)
    with pytest.warns(
        UserWarning, match=r"20841 of 20843 train sequences, 6946 of 6948 test sequences are not available"
    ):
        data = load_dna("human_enhancers_cohn", data_home=home, download=False)
    assert data.classes == ("negative", "positive")
    assert data.part("test")[0] == ["ACGT", "GGGG"]
    assert data.part("test")[1].tolist() == [0, 1]


@pytest.mark.parametrize("sequences", [[12, 13], [b"ACGT", b"AC"], [0, 0]])
def test_sequences_that_are_not_text_are_named_with_their_file(home, sequences):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = home / "dna" / "cnnprom" / "ecoli_sigma70" / "all.parquet"
    path.parent.mkdir(parents=True)
    pd.DataFrame({"seq": sequences, "label": [0, 1]}).to_parquet(path)
    with pytest.raises(ValueError, match=rf"all\.parquet has a sequence that is not text: {sequences[0]!r}\."):
        load_dna("ecoli_sigma70", data_home=home)


@pytest.mark.filterwarnings("ignore:.*are not available")
@pytest.mark.parametrize("hidden", ["negative/._0.txt", ".ipynb_checkpoints/0-checkpoint.txt"])
def test_hidden_files_between_them_are_no_sequences(home, put, hidden):
    put("gb/human_enhancers_cohn/test/negative/0.txt", "ACGT")
    put(f"gb/human_enhancers_cohn/test/{hidden}", "TTTT")
    assert load_dna("human_enhancers_cohn", data_home=home, download=False).sequences == ["ACGT"]


def test_numbers_of_regulatory_tables_are_not_in_the_order_of_names(home, put):
    put("gb/human_ensembl_regulatory/test.csv", "seq,label\nAA,0\nCC,1\nGG,2\n")
    with pytest.warns(UserWarning, match="are not available"):
        data = load_dna("human_ensembl_regulatory", data_home=home, download=False)
    assert [data.classes[i] for i in data.labels] == ["promoter", "enhancer", "ocr"]
    assert data.classes == ("enhancer", "ocr", "promoter")


def test_without_sequences_the_error_says_how_to_get_them(home):
    with pytest.raises(FileNotFoundError) as caught:
        load_dna("demo_human_or_worm", data_home=home, download=False)
    message = str(caught.value)
    assert "genome={'human': '<path>', 'worm': '<path>'}" in message
    assert "Homo_sapiens.GRCh38.dna.toplevel.fa.gz" in message
    assert "Caenorhabditis_elegans.WBcel235" in message
    assert "zenodo.org/records/16605299/files/demo_human_or_worm_v0.zip" in message


def test_a_parquet_file_that_is_cut_off_is_named(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    folder = tmp_path / "dna" / "gue" / "tf_0"
    folder.mkdir(parents=True)
    pd.DataFrame({"sequence": ["ACGT"] * 9, "label": [0, 1, 0] * 3}).to_parquet(folder / "train.parquet")
    whole = (folder / "train.parquet").read_bytes()
    (folder / "train.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"train\.parquet is not a complete Parquet file"):
        load_dna("tf_0", data_home=tmp_path, download=False)
    folder = tmp_path / "dna" / "gb_intervals"
    folder.mkdir()
    (folder / "human_enhancers_cohn.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cohn\.parquet is not a complete Parquet file"):
        load_dna("human_enhancers_cohn", data_home=tmp_path, download=False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a complete table"),
        ("seq,label\nAC,0,1,2\nAC,0\n,,,,,,\n", "lacks a|not a complete"),
        ("seq,label\n", "no rows"),
    ],
)
def test_a_damaged_or_empty_table_is_named(home, put, text, says):
    put("gb/human_enhancers_cohn/test.csv", text)
    with pytest.raises(ValueError, match=rf"test\.csv.*({says})"):
        load_dna("human_enhancers_cohn", data_home=home, download=False)


def test_more_sequences_than_there_are_is_an_error(home, put):
    put("gb/human_enhancers_cohn/test.csv", "seq,label\n" + "AC,0\n" * 6949)
    with pytest.raises(
        ValueError, match="has 6949 test sequences of human_enhancers_cohn, but the official set has 6948"
    ):
        load_dna("human_enhancers_cohn", data_home=home, download=False)


@pytest.mark.parametrize("suffix", [".tsv", ".tsv.gz"])
def test_a_table_with_tabs_is_read_plain_or_gzip(put, home, unchecked, monkeypatch, suffix):
    path = put(f"gb/human_enhancers_cohn/test{suffix}", "sequence\tlabel\nACGT\t1\n")
    monkeypatch.setattr(files, "local", lambda relative, home, name=None: path if ".tsv" in relative else None)
    assert files.labelled("gb/human_enhancers_cohn/test", home, False).to_numpy().tolist() == [["ACGT", 1]]


def test_a_file_that_only_a_manifest_lists_is_not_to_be_deleted(home, put):
    put("cnnprom/ecoli_sigma70/all.csv", "seq,label\nACGT,1\n")
    put("manifest.json", json.dumps([{"file": "cnnprom/ecoli_sigma70/all.csv", "sha256": "0" * 64}]))
    with pytest.raises(ChecksumError, match=r"Replace it with the file that .*manifest\.json lists, or mend its entry"):
        load_dna("ecoli_sigma70", data_home=home)


def test_advice_for_a_gue_task_is_what_its_check_accepts(home):
    with pytest.raises(FileNotFoundError, match="store the published files there, byte for byte") as caught:
        load_dna("tf_0", data_home=home, download=False)
    for part in PARTS:
        assert dna_files.url(f"gue/tf_0/{part}.csv") in str(caught.value)
    assert "columns" not in str(caught.value)


def test_a_folder_in_the_place_of_a_table_is_named(home):
    (home / "dna" / "gue" / "tf_0" / "train.csv").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"train\.csv is a folder, but a file is expected there"):
        load_dna("tf_0", data_home=home, download=False)


def test_what_can_be_fetched_is_said_where_downloads_are_off(home, put):
    fetch = "Load with download=True to fetch the test sequences"
    with pytest.raises(FileNotFoundError, match=fetch):
        load_dna("human_enhancers_cohn", data_home=home, download=False)
    with pytest.raises(FileNotFoundError) as caught:
        load_dna("human_enhancers_ensembl", data_home=home, download=False)
    assert "download=True" not in str(caught.value), "none of its sequences are published as a file"
    put("gb/human_enhancers_cohn/train.csv", "seq,label\nACGT,0\n")
    with pytest.warns(UserWarning, match=fetch):
        load_dna("human_enhancers_cohn", data_home=home, download=False)
    put("gb/human_enhancers_cohn/test.csv", "seq,label\nACGT,0\n")
    with pytest.warns(UserWarning, match="test sequences are not available") as warned:
        load_dna("human_enhancers_cohn", data_home=home, download=False)
    assert "download=True" not in str(warned[0].message), "a file that is there is not downloaded again"


@pytest.mark.parametrize("sequence", [" ACGT", "ACGT ", "AC GT", "ACGT\t", " ", "AC\u00a0GT"])
def test_a_blank_around_or_in_a_sequence_is_named_with_its_row(home, put, sequence):
    put("cnnprom/ecoli_sigma70/all.csv", f'seq,label\nACGT,1\n"{sequence}",0\n')
    with pytest.raises(
        ValueError, match=r"all\.csv, row 1 \(0-based, without the header\): .* has a blank before, in or"
    ):
        load_dna("ecoli_sigma70", data_home=home)


def test_a_blank_in_a_file_of_one_sequence_is_named(home, put):
    put("gb/human_enhancers_cohn/test/negative/0.txt", "ACGT\n")
    put("gb/human_enhancers_cohn/test/positive/7.txt", "AC\nGT\n")
    with pytest.raises(ValueError, match=r"positive/7\.txt: .* has a blank before, in or after it"):
        load_dna("human_enhancers_cohn", data_home=home, download=False)
