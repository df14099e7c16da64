"""Any stretch of a FASTA file, and windows over all of it."""

import gzip
import os
import pickle
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from titans_dna import Genome, Interval, decode, encode, reverse_complement


@pytest.fixture
def open_genome(tmp_path):
    return lambda path: Genome(path, cache_dir=tmp_path / "cache")


def bgzip(path, text):
    bgzf = pytest.importorskip("Bio.bgzf")
    with bgzf.BgzfWriter(str(path)) as sink:
        sink.write(text)
    return path


# ---- fetch


def test_lengths_and_names_are_those_of_the_file(genome, records):
    assert genome.lengths == {name: len(bases) for name, bases in records.items()}
    assert "3 sequences (chrI, chrII, chrIII), 1,543 bases" in repr(genome)


def test_every_stretch_is_the_slice_of_the_chromosome(genome, records):
    for chrom, bases in records.items():
        for start in (0, 1, 59, 60, 61, 119):
            for end in (start + 1, 120, len(bases)):
                if start < end:
                    assert genome.fetch(Interval(chrom, start, end)) == bases[start:end]


def test_minus_is_the_reverse_complement_of_plus(genome):
    for start, end in [(0, 10), (55, 130), (290, 410), (0, 1000)]:
        plus = genome.fetch(Interval("chrI", start, end, "+"))
        assert genome.fetch(Interval("chrI", start, end, "-")) == reverse_complement(plus)
        assert genome.fetch(Interval("chrI", start, end)) == plus


@pytest.mark.parametrize("strand", ["+", "-"])
def test_a_letter_that_is_no_base_is_named_with_its_place_in_the_file(tmp_path, open_genome, strand):
    (tmp_path / "x.fa").write_text(">one\n" + "ACGT" * 20 + "\n>two\n" + "A" * 50 + "X" + "A" * 9 + "\n")
    genome = open_genome(tmp_path / "x.fa")
    with pytest.raises(ValueError, match=r"two of x\.fa has 'X' at position 50 "):
        genome.ids(Interval("two", 45, 55, strand))
    ids = genome.ids(Interval("one", 1, 8, strand))
    assert decode(ids) == genome.fetch(Interval("one", 1, 8, strand))


def test_an_end_beyond_the_chromosome_is_refused_with_its_length(genome):
    assert genome.fetch(Interval("chrIII", 119, 120))
    with pytest.raises(ValueError, match=r"chrIII:119-121\(\.\) ends beyond chrIII, which has 120 bases"):
        genome.fetch(Interval("chrIII", 119, 121))


def test_an_unknown_chromosome_is_answered_with_near_names(genome):
    with pytest.raises(ValueError, match=r"no chromosome 'II'\. Did you mean 'chrII'\? It has chrI, chrII, chrIII"):
        genome.fetch(Interval("II", 0, 1))
    with pytest.raises(ValueError, match=r"no chromosome 'chr_I'\. Did you mean"):
        genome.fetch(Interval("chr_I", 0, 1))
    with pytest.raises(ValueError, match=r"no chromosome 'zzz'\. It has"):
        genome.fetch(Interval("zzz", 0, 1))


# ---- files


def test_plain_gzip_and_bgzip_hold_the_same_genome(write_fasta, records, open_genome, tmp_path):
    plain = open_genome(write_fasta(records))
    with pytest.warns(UserWarning, match="is unpacked once"):
        packed = open_genome(write_fasta(records, "packed.fa.gz"))
    blocks = open_genome(bgzip(tmp_path / "blocks.fa.gz", write_fasta(records, "again.fa").read_text()))
    for genome in (packed, blocks):
        assert genome.lengths == plain.lengths
        for place in (Interval("chrI", 0, 1000), Interval("chrII", 190, 310, "-"), Interval("chrIII", 119, 120)):
            assert genome.fetch(place) == plain.fetch(place)


def test_bgzip_of_many_blocks_is_read_in_place(open_genome, tmp_path):
    bases = "ACGTTGCA" * 40_000
    text = ">one\n" + "\n".join(bases[i : i + 70] for i in range(0, len(bases), 70)) + "\n"
    genome = open_genome(bgzip(tmp_path / "blocks.fa.gz", text))
    for start in (0, 65_270, 65_279, 65_280, 65_281, 200_000, len(bases) - 5):
        assert genome.fetch(Interval("one", start, start + 5)) == bases[start : start + 5]
    assert genome.fetch(Interval("one", 0, len(bases))) == bases
    assert not (tmp_path / "cache").exists()


def test_a_gzip_is_unpacked_once_and_anew_when_it_changes(write_fasta, records, open_genome, tmp_path):
    path = write_fasta(records, "packed.fa.gz")
    with pytest.warns(UserWarning, match="is unpacked once"):
        open_genome(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_genome(path)
    write_fasta({"other": "ACGT" * 100}, "packed.fa.gz")
    with pytest.warns(UserWarning, match="is unpacked once"):
        assert list(open_genome(path).lengths) == ["other"]
    assert len(list((tmp_path / "cache").glob("*.fa"))) == 1
    assert not list((tmp_path / "cache").glob("*.part"))


def test_an_index_older_than_its_fasta_is_rebuilt_with_a_warning(write_fasta, records, open_genome):
    path = write_fasta(records)
    open_genome(path)
    index = path.with_name("genome.fa.fai")
    assert index.exists()
    write_fasta({"chrI": "ACGT" * 50})
    os.utime(index, (1, 1))
    with pytest.warns(UserWarning, match=r"genome\.fa\.fai is older than .*: it is rebuilt"):
        genome = open_genome(path)
    assert genome.lengths == {"chrI": 200}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_genome(path).fetch(Interval("chrI", 198, 200)) == "GT"


@pytest.mark.parametrize(
    "other",
    [
        {"M": "G" * 10, "I": "A" * 10, "II": "C" * 10},  # one more before
        {"I": "A" * 10, "II": "C" * 10, "III": "G" * 10},  # one more behind
        {"I": "A" * 10, "II": "C" * 12},  # longer
        {"I": "A" * 10, "X": "C" * 10},  # named otherwise
    ],
)
def test_an_index_of_another_file_is_rebuilt_though_it_is_newer(write_fasta, open_genome, other):
    path = write_fasta({"I": "A" * 10, "II": "C" * 10})
    open_genome(path)
    write_fasta(other)
    os.utime(path, (1, 1))  # as mv, cp -p and tar leave it
    with pytest.warns(UserWarning, match="or of another: it is rebuilt"):
        genome = open_genome(path)
    assert genome.lengths == {name: len(bases) for name, bases in other.items()}
    assert genome.fetch(Interval("I", 0, 10)) == "A" * 10


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
@pytest.mark.parametrize("length", [7, 60, 120, 121])
def test_an_index_that_fits_is_kept(tmp_path, open_genome, length, end):
    path = tmp_path / "genome.fa"
    lines = ["".join("ACGT"[i % 4] for i in range(length))[at : at + 60] for at in range(0, length, 60)]
    path.write_text(">one of two\nACGT\n>two\n" + "\n".join(lines) + end)
    open_genome(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_genome(path).lengths == {"one": 4, "two": length}


def test_the_index_lies_in_the_cache_where_the_folder_is_read_only(
    write_fasta, records, open_genome, tmp_path, monkeypatch
):
    path = write_fasta(records)
    monkeypatch.setattr(os, "access", lambda folder, mode: folder != path.parent)
    assert open_genome(path).fetch(Interval("chrIII", 0, 3)) == records["chrIII"][:3]
    assert not path.with_name("genome.fa.fai").exists()
    assert list((tmp_path / "cache").glob("genome-*.fai"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"genome\.fa is empty"),
        ("\n\n", r"genome\.fa is empty"),
        (">one\n>two\n", "has no bases"),
        ("ACGT\n", r"is no FASTA: its first line is b'ACGT"),
        (">one\nACGT\n>one\nACGT\n", "two sequences named 'one'"),
        (">one\nACGT\nACGTACGT\nAC\nACGT\n", "same length"),
    ],
)
@pytest.mark.filterwarnings("ignore:the index")
def test_a_bad_fasta_says_what_is_wrong_and_leaves_nothing_half_made(tmp_path, open_genome, text, message):
    path = tmp_path / "genome.fa"
    for _ in range(2):  # the second time as the first
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            open_genome(path)
    assert not list(tmp_path.glob("*.part"))


def test_damaged_or_misnamed_files_are_told_apart(tmp_path, open_genome):
    with pytest.raises(FileNotFoundError, match=r"no FASTA file .*absent\.fa"):
        open_genome(tmp_path / "absent.fa")
    (tmp_path / "plain.fa.gz").write_text(">one\nACGT\n")
    with pytest.raises(ValueError, match="named as gzip but is not"):
        open_genome(tmp_path / "plain.fa.gz")
    (tmp_path / "cut.fa.gz").write_bytes(gzip.compress(os.urandom(10_000).hex().join([">one\n", "\n"]).encode())[:-100])
    with pytest.warns(UserWarning, match="unpacked"), pytest.raises(ValueError, match="cut short or damaged"):
        open_genome(tmp_path / "cut.fa.gz")
    (tmp_path / "broken.fa.gz").write_bytes(gzip.compress(b">one\nACGT\n")[:11] + b"broken")
    with pytest.raises(ValueError, match="cut short or damaged"):
        open_genome(tmp_path / "broken.fa.gz")
    assert not list(tmp_path.rglob("*.part"))


# ---- windows


@pytest.mark.parametrize("length", [1, 7, 60, 119, 120, 5000])
def test_windows_tile_every_chromosome(genome, records, length):
    joined = dict.fromkeys(records, "")
    for window in genome.windows(length):
        place = window.interval
        assert place.start == len(joined[place.chrom])
        assert window.sequence == genome.fetch(place)
        joined[place.chrom] += window.sequence
    assert joined == records


@pytest.mark.parametrize(("length", "stride"), [(100, 30), (100, 99), (50, 70), (2000, 10)])
def test_windows_begin_a_stride_apart_and_the_last_reaches_the_end(genome, length, stride):
    places = [w.interval for w in genome.windows(length, stride, chroms=["chrI"])]
    assert [p.start for p in places] == list(range(0, len(places) * stride, stride))
    assert all(len(p) == length for p in places[:-1])
    assert all(p.end < 1000 for p in places[:-1])
    assert places[-1].end == 1000 or places[-1].start + stride >= 1000


def test_windows_that_were_cut_off_can_be_left_out(genome):
    whole = list(genome.windows(70, drop_last=True))
    assert {len(w.sequence) for w in whole} == {70}
    assert [w for w in genome.windows(70) if len(w.sequence) == 70] == whole


def test_held_out_chromosomes_are_not_walked(genome):
    assert {w.interval.chrom for w in genome.windows(50, holdout=["chrII"])} == {"chrI", "chrIII"}
    assert {w.interval.chrom for w in genome.windows(50, chroms=["chrI", "chrII"], holdout=["chrI"])} == {"chrII"}
    with pytest.raises(ValueError, match=r"no chromosome 'IV'"):
        genome.windows(50, holdout=["IV"])
    with pytest.raises(ValueError, match="leaves nothing"):
        genome.windows(50, chroms=["chrI"], holdout=["chrI"])
    with pytest.raises(ValueError, match=r"give a list of names: \['chrI'\]"):
        genome.windows(50, holdout="chrI")


def test_windows_with_too_many_n_are_left_out(genome, records):
    kept = list(genome.windows(50, max_n_fraction=0.5))
    dropped = {w.interval for w in genome.windows(50)} - {w.interval for w in kept}
    assert dropped == {Interval("chrII", start, start + 50, "+") for start in (200, 250)}
    assert all((encode(w.sequence) < 4).mean() >= 0.5 for w in kept)
    assert not any("N" in w.sequence for w in genome.windows(50, max_n_fraction=0))


@pytest.mark.parametrize("strand", ["+", "-", "."])
def test_windows_of_a_region_join_to_its_sequence(genome, strand):
    region = Interval("chrI", 250, 473, strand, "gene")
    windows = list(genome.windows(50, regions=[region]))
    assert "".join(w.sequence for w in windows) == genome.fetch(region)
    assert {w.interval.name for w in windows} == {"gene"}
    assert not any(
        w.interval.chrom == "chrI"
        for w in genome.windows(50, regions=[region, Interval("chrII", 0, 9)], holdout=["chrI"])
    )
    with pytest.raises(ValueError, match="ends beyond chrI"):
        genome.windows(50, regions=[Interval("chrI", 990, 1001)])


@pytest.mark.parametrize("of", [1, 2, 3, 50])
def test_shards_hold_every_window_once(genome, of):
    whole = [w.interval for w in genome.windows(40, 25, max_n_fraction=0.2)]
    shards = [w.interval for i in range(of) for w in genome.windows(40, 25, max_n_fraction=0.2, shard=(i, of))]
    assert sorted(map(str, shards)) == sorted(map(str, whole))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 0}, "1 or more"),
        ({"length": 5, "stride": 0}, "1 or more"),
        ({"length": 5, "max_n_fraction": 2}, "from 0 to 1"),
        ({"length": 5, "shard": (2, 2)}, "0 <= i < n"),
    ],
)
def test_numbers_out_of_range_are_refused_at_once(genome, arguments, message):
    with pytest.raises(ValueError, match=message):
        genome.windows(**arguments)


def test_memory_does_not_grow_with_the_genome(tmp_path):
    """A genome of 60 MB is walked with less than 20 MB beyond what importing took."""
    path = tmp_path / "long.fa"
    with path.open("w") as sink:
        sink.write(">one\n")
        for _ in range(60):
            sink.write(("ACGTACGTTG" * 10 + "\n") * 10_000)
    code = (
        "import sys, resource\n"
        "from titans_dna import Genome\n"
        "genome = Genome(sys.argv[1])\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        "n = sum(len(w.sequence) for w in genome.windows(10_000, max_n_fraction=0.5))\n"
        "print(n, peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    n, grown_kb = map(int, done.stdout.split())
    assert n == 60_000_000
    assert grown_kb < 20_000


# ---- workers


class Windows(torch.utils.data.IterableDataset):
    def __init__(self, genome):
        self.genome = genome

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        for window in self.genome.windows(37, shard=(info.id, info.num_workers)):
            yield str(window.interval), window.sequence


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_loader_workers_read_what_one_process_reads(genome, method):
    genome.fetch(Interval("chrI", 500, 510))  # the parent's file is open, somewhere in its middle
    expected = {str(w.interval): w.sequence for w in genome.windows(37)}
    loader = torch.utils.data.DataLoader(
        Windows(genome), batch_size=None, num_workers=2, multiprocessing_context=method
    )
    for _ in range(2 if method == "fork" else 1):
        found = []
        for item in loader:
            found.append(item)
            genome.fetch(Interval("chrI", 0, 100))  # the parent reads on meanwhile
        assert len(found) == len(expected)
        assert dict(found) == expected


def test_threads_read_what_one_thread_reads(genome):
    places = [Interval("chrI", i, i + 20) for i in range(0, 980, 3)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(genome.fetch, places)) == [genome.fetch(p) for p in places]


def test_a_pickled_genome_reads_on(genome):
    genome.fetch(Interval("chrI", 0, 10))
    again = pickle.loads(pickle.dumps(genome))
    assert again.lengths == genome.lengths
    assert again.fetch(Interval("chrI", 3, 9)) == genome.fetch(Interval("chrI", 3, 9))


def test_a_closed_genome_opens_again_when_needed(genome):
    with genome as inside:
        first = inside.fetch(Interval("chrI", 0, 10))
    assert genome.fetch(Interval("chrI", 0, 10)) == first


# ---- what need not be installed


def test_without_biopython_a_bgzip_is_unpacked_as_a_gzip(write_fasta, records, open_genome, tmp_path, monkeypatch):
    path = bgzip(tmp_path / "blocks.fa.gz", write_fasta(records).read_text())
    monkeypatch.setattr("titans_dna.fasta.find_spec", lambda name: None if name == "Bio" else name)
    with pytest.warns(UserWarning, match="is unpacked once"):
        assert open_genome(path).fetch(Interval("chrI", 10, 20)) == records["chrI"][10:20]


def test_without_pyfaidx_the_error_says_how_to_install_it(write_fasta, records, open_genome, monkeypatch):
    path = write_fasta(records)
    monkeypatch.setattr("titans_dna.fasta.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'titans-suite\[dna\]'"):
        open_genome(path)
