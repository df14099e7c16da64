"""DNA sets and genomes fetched from a local server."""

import errno
import gzip
import hashlib
import sys
from pathlib import Path

import pandas as pd
import pytest

from titans_datasets import ChecksumError, OfflineError, cache, load
from titans_datasets.dna import list_dna_datasets, load_dna, load_genome
from titans_datasets.sources import dna_files
from titans_datasets.sources.dna import GB as GB_ENTRIES

GUE = list_dna_datasets()[:10]
PARTS = ("train", "dev", "test")
OTHER_STRAND = str.maketrans("ACGT", "TGCA")


@pytest.fixture
def server(server, monkeypatch):
    """Serve published files locally, by their place below ``dna/``."""
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


def test_a_file_with_a_known_checksum_is_preferred_to_one_without(home, server):
    for part in PARTS:
        server.publish(f"gue/tf_1/{part}.csv", b"sequence,label\nACGT,1\nAAAA,0\n")
    load_dna("tf_1", data_home=home)
    (home / "dna" / "gue" / "tf_1" / "train.parquet").write_bytes(b"no table")
    assert len(load_dna("tf_1", data_home=home)) == 6


def test_coordinates_are_fetched_where_a_genome_is_given(home, server, tmp_path):
    chromosome = "ACGTTGCAAC" * 5 + "GGATTCCA" * 15
    for part in ("train", "test"):
        for label, start in (("negative", 10), ("positive", 90)):
            text = f"id,region,start,end,strand\nx,chr5,{start},{start + 40},-\n"
            server.publish(
                f"gb_intervals/dummy_mouse_enhancers_ensembl/{part}/{label}.csv.gz", gzip.compress(text.encode())
            )
    genome = tmp_path / "mouse.fa"
    genome.write_text(f">5\n{chromosome}\n")
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
    with pytest.warns(UserWarning, match="train sequences.* are not available"):
        data = load_dna("dummy_mouse_enhancers_ensembl", data_home=home)
    assert len(data.intervals) == 4
    server.files = {path: content for path, content in server.files.items() if "gb_intervals" not in path}
    for path in (home / "dna" / "gb_intervals").rglob("*.gz"):
        path.unlink()
    with pytest.warns(UserWarning, match="train sequences.* are not available"):  # offline they are done without
        assert load_dna("dummy_mouse_enhancers_ensembl", data_home=home).intervals is None


def test_coordinates_are_done_without_where_there_is_no_place_for_them(home, server, put, monkeypatch):
    server.publish("gb_intervals/dummy_mouse_enhancers_ensembl/train/negative.csv.gz", b"")
    put("gb/dummy_mouse_enhancers_ensembl/test.csv", "seq,label\nACGT,negative\nAAAA,positive\n")
    monkeypatch.setattr(cache, "writable", lambda folder: False)
    with pytest.warns(UserWarning, match="train sequences.* are not available"):
        assert load_dna("dummy_mouse_enhancers_ensembl", data_home=home).intervals is None
    with pytest.raises(PermissionError, match="missing and cannot be stored"):
        load_dna("dummy_mouse_enhancers_ensembl", genome="genome.fa", data_home=home)


@pytest.mark.parametrize("trouble", ["another file", "full disk"])
def test_sequences_that_are_here_do_not_wait_for_coordinates(home, server, put, monkeypatch, trouble):
    server.publish("gb_intervals/dummy_mouse_enhancers_ensembl/train/negative.csv.gz", b"coordinates")
    put("gb/dummy_mouse_enhancers_ensembl/test.csv", "seq,label\nACGT,negative\nAAAA,positive\n")
    if trouble == "another file":
        server.files = dict.fromkeys(server.files, b"<html>Please log in</html>")
    else:
        opened = Path.open

        def full(path, mode="r", *args, **kwargs):
            if path.suffix == ".part" and "r" not in mode:
                raise OSError(errno.ENOSPC, "No space left on device")
            return opened(path, mode, *args, **kwargs)

        monkeypatch.setattr(Path, "open", full)
    with pytest.warns(UserWarning, match="train sequences.* are not available"):
        data = load_dna("dummy_mouse_enhancers_ensembl", data_home=home)
    assert (data.sequences, data.intervals) == (["ACGT", "AAAA"], None)
    with pytest.raises((ChecksumError, OSError), match=r"negative\.csv\.gz"):  # there they are needed
        load_dna("dummy_mouse_enhancers_ensembl", genome="genome.fa", data_home=home)


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
    with pytest.raises(ChecksumError, match="decompressed bytes have the wrong checksum"):
        load_genome("drosophila_1pct", data_home=home)


def test_an_unwritable_folder_is_reported(home, server, monkeypatch):
    server.publish("genomes/drosophila_1pct.fa", b">2L\nACGT\n")
    (home / "dna" / "genomes").mkdir(parents=True)
    monkeypatch.setattr(cache, "writable", lambda folder: home not in folder.parents)
    with pytest.warns(UserWarning, match="cannot be written to; .* is downloaded to"):
        assert cache.user_cache() in load_genome("drosophila_1pct", data_home=home).fasta.parents
    monkeypatch.setattr(cache, "writable", lambda folder: True)  # as for time series, it does not borrow from the cache
    with pytest.raises(FileNotFoundError, match="is missing"):
        load_genome("drosophila_1pct", data_home=home, download=False)
    (cache.user_cache() / "dna" / "genomes" / "drosophila_1pct.fa").unlink()
    monkeypatch.setattr(cache, "writable", lambda folder: False)
    with pytest.raises(PermissionError, match="missing and cannot be stored"):
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
    (home / "dna" / "gb_intervals").mkdir()
    path.rename(home / "dna" / "gb_intervals" / "human_enhancers_cohn.parquet")
    with pytest.raises(ImportError, match=r"cohn\.parquet is a Parquet file, .*titans-suite\[dna\]"):
        load_dna("human_enhancers_cohn", data_home=home)


@pytest.mark.parametrize("folder", ["dna", "dna/genomes", "dna/gue", "dna/gue/tf_1"])
def test_a_folder_of_another_user_within_the_home_falls_back_to_the_user_cache(home, server, folder):
    server.publish("genomes/drosophila_1pct.fa", b">2L\nACGT\n")
    for part in PARTS:
        server.publish(f"gue/tf_1/{part}.csv", b"sequence,label\nACGT,1\nAAAA,0\n")
    name = "drosophila_1pct" if folder == "dna/genomes" else "tf_1"
    (home / folder).mkdir(parents=True)
    (home / folder).chmod(0o555)
    with pytest.warns(UserWarning, match=rf"{home / folder}.* cannot be written to; .* is downloaded to") as warned:
        found = load(name, data_home=home)
    assert str(cache.user_cache()) in str(warned[0].message)
    server.files.clear()
    assert repr(load(name, data_home=home)) == repr(found), "later loads find it there"


@pytest.mark.parametrize("name", ["drosophila_1pct", "tf_1", "ecoli_sigma70", "human_enhancers_ensembl"])
def test_a_file_to_be_provided_belongs_where_it_can_be_put(home, name):
    (home / "dna").mkdir(parents=True)
    (home / "dna").chmod(0o555)
    with pytest.raises(FileNotFoundError) as caught:
        load(name, data_home=home, download=False)
    here, there = (f"{place}/dna/" for place in (home, cache.user_cache()))
    assert here in str(caught.value)
    assert there in str(caught.value)
    if name == "drosophila_1pct":
        assert f"put it at\n  {there}genomes/drosophila_1pct.fa\n" in str(caught.value)


def test_a_failed_download_says_where_to_put_the_file(home, server):
    server.publish("gue/tf_1/train.csv", b"sequence,label\nACGT,1\n")
    server.files.clear()
    with pytest.raises(OfflineError, match="answered 404") as caught:
        load_dna("tf_1", data_home=home)
    assert str(home / "dna" / "gue" / "tf_1" / "train.csv") in str(caught.value)
    assert "a folder that contains dna/gue/tf_1/train.csv" in str(caught.value)


def test_another_file_than_the_published_one_is_refused(home, server):
    server.publish("gue/tf_1/train.csv", b"sequence,label\nACGT,1\n")
    server.files["/gue/tf_1/train.csv"] = b"sequence,label\nACGT,0\n"
    with pytest.raises(ChecksumError, match="wrong checksum") as caught:
        load_dna("tf_1", data_home=home)
    assert "a folder that contains dna/gue/tf_1/train.csv" in str(caught.value)
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


@pytest.mark.parametrize("suffix", [".tsv", ".parquet"])
def test_a_gue_table_in_another_format_must_have_the_published_rows(home, server, suffix):
    rows = pd.DataFrame({"seq": ["ACGT", "AAAA", "CCCC"], "label": [1, 0, 1]})
    for part in PARTS:
        server.publish(f"gue/tf_1/{part}.csv", b"sequence,label\nACGT,1\nAAAA,0\nCCCC,1\n")
    server.files.clear()

    def load_from(**tables):
        folder = home / "dna" / "gue" / "tf_1"
        folder.mkdir(parents=True, exist_ok=True)
        for part in PARTS:
            table, path = tables.get(part, rows), folder / f"{part}{suffix}"
            table.to_parquet(path) if suffix == ".parquet" else table.to_csv(path, sep="\t", index=False)
        return load_dna("tf_1", data_home=home)

    assert load_from().sequences == ["ACGT", "AAAA", "CCCC"] * 3
    for wrong in (rows[:2], rows[::-1], rows.assign(label=[1, 1, 1]), rows.assign(seq="ACGT")):
        with pytest.raises(
            ChecksumError, match=rf"dev\{suffix} does not have the rows of the published dev\.csv"
        ) as caught:
            load_from(dev=wrong)
        assert "move it away and load again with download=True" in str(caught.value)


def test_an_unpacked_copy_with_the_published_content_is_accepted(home, server, monkeypatch):
    content = {"yeast_R64-1-1.fa": b">I\nACGT\n", "yeast_R64-1-1.96.gtf": b"I\tx\n"}
    sums = {f"genomes/{file}": hashlib.sha256(text).hexdigest() for file, text in content.items()}
    monkeypatch.setattr(dna_files, "unpacked", lambda: sums)
    folder = home / "dna" / "genomes"
    folder.mkdir(parents=True)
    for file, text in content.items():
        server.publish(f"genomes/{file}.gz", gzip.compress(text))
        (folder / file).write_bytes(text)
    files = load_genome("yeast", data_home=home, download=False)
    assert (files.fasta, files.annotation) == tuple(folder / file for file in content)
    (folder / "yeast_R64-1-1.fa").write_bytes(b">I\nACGA\n")
    with pytest.raises(
        FileNotFoundError, match=r"R64-1-1\.fa is there, but it could not be verified: the file yeast.*\.gz"
    ):
        load_genome("yeast", data_home=home, download=False)
    assert load_genome("yeast", data_home=home).fasta == folder / "yeast_R64-1-1.fa.gz", "it is downloaded instead"


def test_every_file_published_as_gzip_has_a_checksum_of_its_content():
    packed = {name.removesuffix(".gz") for name in dna_files.checksums() if name.endswith(".gz")}
    assert dna_files.unpacked().keys() == packed
    assert all(len(s) == 64 and int(s, 16) for s in dna_files.unpacked().values())


@pytest.mark.real_data
def test_checksums_of_unpacked_genomes_are_those_of_the_published_files(real_data, home):
    names = [name for name in dna_files.unpacked() if name.startswith("genomes/")]
    for name in names:
        path = home / "dna" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.decompress((real_data / "dna" / f"{name}.gz").read_bytes()))
    for genome in ("yeast", "ecoli", "celegans_1pct", "human_hg19_chr1_3mb"):
        assert load_genome(genome, data_home=home, download=False).fasta.suffix != ".gz"


def test_a_folder_in_the_place_of_a_genome_is_named(home, server):
    server.publish("genomes/drosophila_1pct.fa", b">2L\nACGT\n")
    (home / "dna" / "genomes" / "drosophila_1pct.fa").mkdir(parents=True)
    with pytest.raises(IsADirectoryError, match=r"drosophila_1pct\.fa is a folder\. Move away"):
        load_genome("drosophila_1pct", data_home=home)
    with pytest.raises(FileNotFoundError, match=r"drosophila_1pct\.fa is a folder, but a file is expected there"):
        load_genome("drosophila_1pct", data_home=home, download=False)
