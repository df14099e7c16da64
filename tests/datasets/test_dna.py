"""DNA sets by name: local files, downloads from a local server, and GB sets cut from a genome."""

import gzip
import hashlib
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from titans_datasets import ChecksumError, OfflineError, cache
from titans_datasets.audit import Spans, best_overlap
from titans_datasets.dna import list_dna_datasets, list_genomes, load_dna, load_genome
from titans_datasets.dna.benchmarks import official_intervals
from titans_datasets.sources import dna_files
from titans_datasets.sources.dna import GB as GB_ENTRIES

GUE = ["tf_0", "tf_1", "tf_2", "tf_3", "mouse_0", "mouse_2"]
GUE += ["prom_core_all", "prom_core_notata", "prom_core_tata", "prom_300_tata"]
GB = [
    "human_nontata_promoters",
    "human_enhancers_cohn",
    "human_enhancers_ensembl",
    "human_ocr_ensembl",
    "human_ensembl_regulatory",
    "demo_coding_vs_intergenomic_seqs",
    "demo_human_or_worm",
    "drosophila_enhancers_stark",
    "dummy_mouse_enhancers_ensembl",
]
PARTS = ("train", "dev", "test")
OTHER_STRAND = str.maketrans("ACGTacgt", "TGCAtgca")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "data"


@pytest.fixture
def put(home):
    def write(relative, text):
        path = home / "dna" / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
        return path

    return write


@pytest.fixture
def unchecked(monkeypatch):
    """Files under the names of published ones may hold anything."""
    monkeypatch.setattr(dna_files, "checksums", dict)


def bases(n, seed=0):
    return "".join(np.random.default_rng(seed).choice(list("ACGT"), n))


def write_genome(path, chromosomes, width=70):
    lines = []
    for name, sequence in chromosomes.items():
        lines += [f">{name} dna", *(sequence[i : i + width] for i in range(0, len(sequence), width))]
    text = "\n".join([*lines, ""]).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def made_intervals(home, name, sizes, classes, n=60, length=50, seed=0):
    """A GB set of the right form with coordinates on a small genome."""
    rng = np.random.default_rng(seed)
    region = rng.choice(list(sizes), n)
    start = np.array([rng.integers(0, sizes[r] - length) for r in region])
    frame = pd.DataFrame(
        {
            "id": [f"s{i}" for i in range(n)],
            "region": region,
            "start": start,
            "end": start + length,
            "strand": rng.choice(["+", "-"], n),
            "split": rng.choice(["train", "test"], n),
            "class": rng.choice(classes, n),
        }
    )
    (home / "dna" / "gb_intervals").mkdir(parents=True, exist_ok=True)
    frame.to_parquet(home / "dna" / "gb_intervals" / f"{name}.parquet")
    return frame


def cut(chromosomes, row):
    piece = chromosomes[row.region][row.start : row.end].upper()
    return piece.translate(OTHER_STRAND)[::-1] if row.strand == "-" else piece


# ---- names


def test_every_set_of_gue_gb_and_cnnprom_has_a_name():
    assert list_dna_datasets() == [*GUE, *GB, "ecoli_sigma70", "arabidopsis_tata", "arabidopsis_nontata"]


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


# ---- sequences in files


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
    assert data.audit(k=4).kmers.shared_with_train == 0
    with pytest.raises(ValueError, match=r"no part 'valid' here, only train, dev, test\."):
        data.part("valid")


@pytest.mark.usefixtures("unchecked")
def test_a_missing_part_is_named_with_its_place(home, put):
    put("gue/tf_0/train.csv", "sequence,label\nACGT,1\n")
    with pytest.raises(FileNotFoundError, match=r"tf_0 lacks dev, test in .*gue/tf_0\. Put them there as <part>\.csv"):
        load_dna("tf_0", data_home=home, download=False)
    with pytest.raises(FileNotFoundError, match="ecoli_sigma70 lacks all"):
        load_dna("ecoli_sigma70", data_home=home)
    with pytest.raises(ValueError, match="genome= serves the sets"):
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


def test_the_folders_that_genomic_benchmarks_writes_are_read(home, put):
    for part in ("train", "test"):
        for label, piece in (("negative", "ACGT"), ("positive", "GGGG")):
            put(f"gb/human_enhancers_cohn/{part}/{label}/0.txt", piece)
    with pytest.warns(UserWarning, match=r"20841 of 20843 train sequences, 6946 of 6948 test sequences are not here"):
        data = load_dna("human_enhancers_cohn", data_home=home, download=False)
    assert data.classes == ("negative", "positive")
    assert data.part("test")[0] == ["ACGT", "GGGG"]
    assert data.part("test")[1].tolist() == [0, 1]


def test_numbers_of_regulatory_tables_are_not_in_the_order_of_names(home, put):
    put("gb/human_ensembl_regulatory/test.csv", "seq,label\nAA,0\nCC,1\nGG,2\n")
    with pytest.warns(UserWarning, match="are not here"):
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


# ---- sequences from a genome

SIZES = {"chr1": 900, "chr2": 700, "chrX": 400, "chrM": 200}


@pytest.fixture
def chromosomes():
    pieces = {name: bases(size, i) for i, (name, size) in enumerate(SIZES.items())}
    return pieces | {"chr2": pieces["chr2"].lower()}


@pytest.mark.filterwarnings("ignore:.*From another assembly")
@pytest.mark.parametrize("suffix", [".fa", ".fa.gz"])
@pytest.mark.parametrize(
    "naming",
    [
        {},
        {"chr1": "1", "chr2": "2", "chrX": "X", "chrM": "MT"},
    ],
    ids=["UCSC", "Ensembl"],
)
def test_a_set_is_cut_from_a_genome_at_its_coordinates(home, tmp_path, chromosomes, naming, suffix):
    frame = made_intervals(home, "human_enhancers_cohn", SIZES, ["negative", "positive"])
    named = {naming.get(name, name): sequence for name, sequence in chromosomes.items()} | {"scaffold": bases(99, 9)}
    path = write_genome(tmp_path / f"genome{suffix}", named)
    data = load_dna("human_enhancers_cohn", genome=path, data_home=home)
    frame = pd.concat([frame[frame["split"] == part] for part in ("train", "test")])
    assert data.sequences == [cut(chromosomes, row) for row in frame.itertuples()]
    assert [data.classes[i] for i in data.labels] == frame["class"].tolist()
    assert data.split.tolist() == frame["split"].tolist()
    assert not data.missing
    pd.testing.assert_series_equal(
        data.intervals["start"], frame["start"], check_index=False, obj="rows of intervals and sequences agree"
    )


@pytest.mark.filterwarnings("ignore:.*From another assembly")
def test_on_a_random_genome_sequences_share_a_40mer_where_intervals_share_40_bases(home, tmp_path, chromosomes):
    made_intervals(home, "human_enhancers_cohn", SIZES, ["negative", "positive"])
    data = load_dna("human_enhancers_cohn", genome=write_genome(tmp_path / "g.fa", chromosomes), data_home=home)
    train, test = (data.intervals[data.split == part] for part in ("train", "test"))
    shared = best_overlap(
        Spans(train["region"], train["start"], train["end"]), Spans(test["region"], test["start"], test["end"])
    )[1]
    report = data.audit()
    np.testing.assert_array_equal(~report.kmers.clean[data.split == "test"], shared >= 40)
    assert 0 < report.kmers.shared_with_train < report.intervals.touching


@pytest.mark.filterwarnings("ignore:.*From another assembly")
def test_without_a_strand_the_forward_one_is_read(home, tmp_path, chromosomes):
    frame = made_intervals(home, "human_ensembl_regulatory", SIZES, ["enhancer", "ocr", "promoter"])
    frame.assign(strand=np.nan).to_parquet(home / "dna" / "gb_intervals" / "human_ensembl_regulatory.parquet")
    genome = write_genome(tmp_path / "g.fa", chromosomes)
    data = load_dna("human_ensembl_regulatory", genome=genome, data_home=home)
    rows = pd.concat([frame[frame["split"] == part] for part in ("train", "test")]).assign(strand="+")
    assert data.sequences == [cut(chromosomes, row) for row in rows.itertuples()]
    assert set(data.classes) == {"enhancer", "ocr", "promoter"}


def test_a_set_of_two_references_takes_a_genome_for_each(home, tmp_path, chromosomes):
    transcripts = {"ENST00000371014": bases(300, 20), "ENST00000372073": bases(250, 21)}
    coding = made_intervals(home, "x", {k: len(v) for k, v in transcripts.items()}, ["coding_seqs"], n=20)
    intergenic = made_intervals(home, "x", {"chr2": 700}, ["intergenomic_seqs"], n=20, seed=1)
    frame = pd.concat([coding, intergenic], ignore_index=True)
    name = "demo_coding_vs_intergenomic_seqs"
    frame.to_parquet(home / "dna" / "gb_intervals" / f"{name}.parquet")
    genome = write_genome(tmp_path / "genome.fa", chromosomes)
    cdna = write_genome(tmp_path / "cdna.fa", {f"{name}.7": piece for name, piece in transcripts.items()})
    data = load_dna(name, genome={"coding_seqs": cdna, "intergenomic_seqs": genome}, data_home=home)
    rows = pd.concat([frame[frame["split"] == part] for part in ("train", "test")])
    assert data.sequences == [cut(chromosomes | transcripts, row) for row in rows.itertuples()]
    with pytest.raises(ValueError, match=r"two references; give genome= as a dict .*'coding_seqs': GRCh38 transcripts"):
        load_dna(name, genome=genome, data_home=home)
    with pytest.raises(ValueError, match=r"genome= has the classes \['coding'\]; .* needs \['coding_seqs', 'inter"):
        load_dna(name, genome={"coding": cdna}, data_home=home)


def test_a_genome_that_does_not_fit_is_refused(home, tmp_path, chromosomes):
    made_intervals(home, "human_enhancers_cohn", SIZES, ["negative", "positive"])

    def load(changed, name="g.fa"):
        return load_dna("human_enhancers_cohn", genome=write_genome(tmp_path / name, changed), data_home=home)

    with pytest.warns(UserWarning, match="chr1 has 900 bases, in GRCh38 it has 248956422"):
        load(chromosomes)
    with (
        pytest.warns(UserWarning, match="another assembly"),
        pytest.raises(ValueError, match=r"lacks 1 of 4 regions, first: 'chrX'\. It has chr1, chr2, chrY, chrM; near"),
    ):
        load({"chrY" if name == "chrX" else name: piece for name, piece in chromosomes.items()})
    with (
        pytest.warns(UserWarning, match="another assembly"),
        pytest.raises(ValueError, match=r"chr2:\d+-\d+ ends beyond that chromosome of .*, which has 100 bases"),
    ):
        load(chromosomes | {"chr2": chromosomes["chr2"][:100]})
    (tmp_path / "text.fa").write_text("no FASTA\n")
    with pytest.raises(ValueError, match="is no FASTA: it begins with b'no FASTA"):
        load_dna("human_enhancers_cohn", genome=tmp_path / "text.fa", data_home=home)
    with pytest.raises(FileNotFoundError, match="no genome FASTA"):
        load_dna("human_enhancers_cohn", genome=tmp_path / "absent.fa", data_home=home)


# ---- downloads


@pytest.fixture
def server(server, monkeypatch):
    """Published files come from here, by their place below ``dna/``."""
    monkeypatch.setattr(dna_files, "url", lambda relative: f"{server.url}/{relative}")
    sums = {}
    monkeypatch.setattr(dna_files, "checksums", lambda: sums)

    def publish(relative, content):
        server.files[f"/{relative}"] = content
        sums[relative] = hashlib.sha256(content).hexdigest()

    server.publish = publish
    return server


def test_gue_is_fetched_once_and_kept(home, server):
    for part in ("train", "dev", "test"):
        server.publish(f"gue/tf_1/{part}.csv", b"sequence,label\nACGT,1\nAAAA,0\n")
    assert len(load_dna("tf_1", data_home=home)) == 6
    server.files.clear()
    assert len(load_dna("tf_1", data_home=home, download=False)) == 6


def test_coordinates_are_fetched_where_a_genome_is_given(home, server, tmp_path):
    chromosome = bases(200, 1)
    for part in ("train", "test"):
        for label, start in (("negative", 10), ("positive", 90)):
            text = f"id,region,start,end,strand\nx,chr5,{start},{start + 40},-\n"
            server.publish(
                f"gb_intervals/dummy_mouse_enhancers_ensembl/{part}/{label}.csv.gz", gzip.compress(text.encode())
            )
    genome = write_genome(tmp_path / "mouse.fa", {"5": chromosome})
    data = load_dna("dummy_mouse_enhancers_ensembl", genome=genome, data_home=home)
    negative, positive = (chromosome[i : i + 40].translate(OTHER_STRAND)[::-1] for i in (10, 90))
    assert data.part("train")[0] == data.part("test")[0] == [negative, positive]
    assert data.part("test")[1].tolist() == [0, 1]
    assert data.audit(verbose=0).leaks


def test_coordinates_are_fetched_where_sequences_are_missing(home, server):
    for part in ("train", "test"):
        for label in ("negative", "positive"):
            text = f"id,region,start,end,strand\nx,chr5,{10 + 5 * (part == 'test')},60,+\n"
            server.publish(
                f"gb_intervals/dummy_mouse_enhancers_ensembl/{part}/{label}.csv.gz", gzip.compress(text.encode())
            )
    server.publish("gb/dummy_mouse_enhancers_ensembl/test.csv", b"seq,label\nACGT,negative\nAAAA,positive\n")
    with pytest.warns(UserWarning, match="train sequences.* are not here"):
        data = load_dna("dummy_mouse_enhancers_ensembl", data_home=home)
    assert len(data.intervals) == 4
    server.files = {path: content for path, content in server.files.items() if "gb_intervals" not in path}
    for path in (home / "dna" / "gb_intervals").rglob("*.gz"):
        path.unlink()
    with pytest.warns(UserWarning, match="train sequences.* are not here"):  # offline they are done without
        assert load_dna("dummy_mouse_enhancers_ensembl", data_home=home).intervals is None


@pytest.mark.parametrize("folder", ["gue/tf/1", "gue/tf_1"])
def test_files_that_lie_as_in_the_archive_are_checked_and_completed(home, server, put, folder):
    content = {part: f"sequence,label\nACG{base},1\n".encode() for part, base in zip(PARTS, "ACG", strict=True)}
    for part in PARTS:
        server.publish(f"gue/tf_1/{part}.csv", content[part])
    put(f"{folder}/train.csv", "sequence,label\nTTTT,1\n")
    with pytest.raises(ChecksumError, match="wrong checksum"):
        load_dna("tf_1", data_home=home)
    put(f"{folder}/train.csv", content["train"].decode())
    assert len(load_dna("tf_1", data_home=home)) == 3


def test_a_packed_file_is_checked_by_what_it_holds(home, server, put):
    server.publish("genomes/drosophila_1pct.fa", b">2L\nACGT\n")
    put("genomes/drosophila_1pct.fa.gz", ">2L\nACGT\n")
    assert load_genome("drosophila_1pct", data_home=home).fasta.suffix == ".gz"
    put("genomes/drosophila_1pct.fa.gz", ">2L\nACG\n")
    with pytest.raises(ChecksumError, match="unpacked bytes have the wrong checksum"):
        load_genome("drosophila_1pct", data_home=home)


def test_a_folder_that_cannot_be_written_to_is_said(home, server, monkeypatch):
    server.publish("genomes/drosophila_1pct.fa", b">2L\nACGT\n")
    (home / "dna" / "genomes").mkdir(parents=True)
    monkeypatch.setattr(cache, "writable", lambda folder: home not in folder.parents)
    with pytest.warns(UserWarning, match="cannot be written to; .* is downloaded to"):
        assert cache.user_cache() in load_genome("drosophila_1pct", data_home=home).fasta.parents
    (cache.user_cache() / "dna" / "genomes" / "drosophila_1pct.fa").unlink()
    monkeypatch.setattr(cache, "writable", lambda folder: False)
    with pytest.raises(PermissionError, match="nowhere to put it"):
        load_genome("drosophila_1pct", data_home=home)


def test_without_pyarrow_the_command_to_install_it_is_named(home, unchecked, monkeypatch):
    for part in PARTS:
        path = home / "dna" / "gue" / "tf_1" / f"{part}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame({"sequence": ["ACGT"], "label": [1]}).to_parquet(path)
    for name in ("pyarrow", "fastparquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"titans-suite\[dna\]"):
        load_dna("tf_1", data_home=home)


def test_what_cannot_be_fetched_says_where_to_put_it(home, server):
    server.publish("gue/tf_1/train.csv", b"sequence,label\nACGT,1\n")
    server.files.clear()
    with pytest.raises(OfflineError, match="answered 404") as caught:
        load_dna("tf_1", data_home=home)
    assert str(home / "dna" / "gue" / "tf_1" / "train.csv") in str(caught.value)
    assert "a folder that holds dna/gue/tf_1/train.csv" in str(caught.value)


def test_another_file_than_the_published_one_is_refused(home, server):
    server.publish("gue/tf_1/train.csv", b"sequence,label\nACGT,1\n")
    server.files["/gue/tf_1/train.csv"] = b"sequence,label\nACGT,0\n"
    with pytest.raises(ChecksumError, match="wrong checksum") as caught:
        load_dna("tf_1", data_home=home)
    assert "a folder that holds dna/gue/tf_1/train.csv" in str(caught.value)
    assert not list(home.rglob("*.csv*"))


def test_every_published_file_has_an_address_pinned_to_a_commit_and_a_checksum():
    sums = dna_files.checksums()
    assert len(sums) == 30 + 38 + 3 + 9
    assert all(len(s) == 64 and int(s, 16) for s in sums.values())
    for relative in sums:
        assert dna_files.url(relative).startswith("https://raw.githubusercontent.com/")
        assert any(len(piece) == 40 for piece in dna_files.url(relative).split("/"))
    assert {f"gue/{task}/{part}.csv" for task in GUE for part in ("train", "dev", "test")} <= sums.keys()
    for name, entry in GB_ENTRIES.items():
        for part in ("train", "test"):
            assert {f"gb_intervals/{name}/{part}/{label}.csv.gz" for label in entry.counts} <= sums.keys()


# ---- the published sets


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
    with pytest.warns(UserWarning, match="27097 of 27097 train sequences are not here"):
        data = load_dna("Human_Nontata_Promoters", data_home=real_data, download=False)
    assert len(data) == 9034
    assert "27097 of train are not here" in repr(data)
    report = str(data.audit())
    assert "the split LEAKS" in report
    assert "lookup accuracy 99.6%" in report
    assert "negative 94.7%" in report
    with pytest.raises(ValueError, match=r"no part 'train' here, only test\. All are rebuilt with genome=<path>"):
        data.part("train")


@pytest.mark.real_data
def test_a_quarter_of_the_mouse_2_test_part_is_known_from_train(real_data):
    report = load_dna("mouse_2", data_home=real_data, download=False).audit()
    assert round(100 * report.kmers.shared_with_train, 1) == 23.8
    assert round(100 * report.kmers.lookup_accuracy, 1) == 72.3
    assert report.leaks


@pytest.mark.real_data
@pytest.mark.parametrize("name", GB)
def test_official_coordinates_have_the_registered_counts(real_data, name):
    frame = official_intervals(GB_ENTRIES[name], real_data, download=False)
    counts = frame.groupby(["class", "split"]).size()
    assert {c: (counts[c, "train"], counts[c, "test"]) for c in frame["class"].unique()} == GB_ENTRIES[name].counts
    assert set(frame["strand"]) <= {"+", "-"}


@pytest.mark.real_data
def test_pieces_of_worm_and_human_are_cut_as_they_stand_in_their_fasta(real_data, home):
    """Official coordinates that fall into the pieces at hand (the human one of another assembly: only for the test)."""
    files = {"worm": load_genome("celegans_1pct", data_home=real_data, download=False).fasta}
    files["human"] = load_genome("human_hg19_chr1_3mb", data_home=real_data, download=False).fasta
    chromosomes = {}
    for path in files.values():
        for record in gzip.decompress(path.read_bytes()).decode().split(">")[1:]:
            header, _, body = record.partition("\n")
            chromosomes[header.split()[0]] = body.replace("\n", "")
    frame = pd.read_parquet(real_data / "dna" / "gb_intervals" / "demo_human_or_worm.parquet")
    sizes = frame["region"].astype(str).map({name: len(piece) for name, piece in chromosomes.items()}).fillna(0)
    frame = frame[frame["end"] <= sizes].reset_index(drop=True)
    assert frame["class"].value_counts().min() > 20
    (home / "dna" / "gb_intervals").mkdir(parents=True)
    frame.to_parquet(home / "dna" / "gb_intervals" / "demo_human_or_worm.parquet")
    with pytest.warns(UserWarning, match="another assembly"):
        data = load_dna("demo_human_or_worm", genome=files, data_home=home)
    rows = pd.concat([frame[frame["split"] == part] for part in ("train", "test")])
    assert data.sequences == [cut(chromosomes, row) for row in rows.itertuples()]


@pytest.mark.real_data
def test_drosophila_is_cut_at_all_official_coordinates_from_a_generated_genome_of_its_size(real_data, tmp_path):
    """6914 intervals on 137 million random bases: the whole way, but for the real FASTA."""
    frame = pd.read_parquet(real_data / "dna" / "gb_intervals" / "drosophila_enhancers_stark.parquet")
    rng = np.random.default_rng(0)
    chromosomes = {}
    with (tmp_path / "dm.fa").open("wb") as sink:
        for region, end in frame.groupby("region", observed=True)["end"].max().items():
            rows = np.full((end // 100 + 1, 101), ord("\n"), dtype=np.uint8)
            rows[:, :100] = np.frombuffer(b"ACGT", dtype=np.uint8)[rng.integers(0, 4, (len(rows), 100), dtype=np.uint8)]
            sink.write(f">{region.removeprefix('chr')}\n".encode() + rows.tobytes())
            chromosomes[region] = rows[:, :100].tobytes()
    with pytest.warns(UserWarning, match="another assembly"):
        data = load_dna("drosophila_enhancers_stark", genome=tmp_path / "dm.fa", data_home=real_data)
    assert {part: len(data.part(part)[0]) for part in ("train", "test")} == {"train": 5184, "test": 1730}
    ends = data.intervals[["region", "start", "end"]].itertuples(index=False)
    assert data.sequences == [chromosomes[region][start:end].decode() for region, start, end in ends]
    # sequences that overlap share their bases, and on random bases no others do
    report = data.audit()
    assert abs(report.kmers.shared_with_train - report.intervals.touching) < 0.02


@pytest.mark.real_data
@pytest.mark.parametrize("name", list_genomes())
def test_genomes_are_here(real_data, name):
    files = load_genome(name.upper(), data_home=real_data, download=False)
    assert files.fasta.is_file()
    assert (files.annotation is not None) == (name in ("yeast", "ecoli"))
    assert (files.variants is not None) == (name == "celegans_1pct")
