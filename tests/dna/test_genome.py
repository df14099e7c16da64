"""Intervals of a FASTA file, and windows over all of it."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import pyfaidx
import pytest
import torch

from titans_dna import Interval, decode, encode, fit_markov, reverse_complement
from titans_dna.genomes.sources import open_source

# ---- fetch


def test_lengths_and_names_are_those_of_the_file(genome, records):
    assert genome.lengths == {name: len(bases) for name, bases in records.items()}
    assert "3 sequences (chrI, chrII, chrIII), 1,543 bases" in repr(genome)


def test_every_interval_is_the_slice_of_its_chromosome(genome, records):
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
def test_a_letter_that_is_not_a_base_is_named_with_its_position(tmp_path, open_genome, strand):
    (tmp_path / "x.fa").write_text(">one\n" + "ACGT" * 20 + "\n>two\n" + "A" * 50 + "X" + "A" * 9 + "\n")
    genome = open_genome(tmp_path / "x.fa")
    with pytest.raises(ValueError, match=r"two of x\.fa has 'X' at position 50 "):
        genome.ids(Interval("two", 45, 55, strand))
    ids = genome.ids(Interval("one", 1, 8, strand))
    assert decode(ids) == genome.fetch(Interval("one", 1, 8, strand))


def test_a_letter_without_a_complement_is_named_with_its_position(tmp_path, open_genome):
    (tmp_path / "x.fa").write_text(">one\nACGT\n>two\n" + "A" * 50 + "X" + "A" * 9 + "\n")
    genome = open_genome(tmp_path / "x.fa")
    assert genome.fetch(Interval("two", 48, 53, "+")) == "AAXAA"
    for read in (genome.fetch, lambda region: list(genome.windows(10, regions=[region]))):
        with pytest.raises(ValueError, match=r"two of x\.fa has 'X' at position 50 "):
            read(Interval("two", 45, 58, "-"))


def test_an_end_beyond_the_chromosome_is_refused_with_its_length(genome):
    assert genome.fetch(Interval("chrIII", 119, 120))
    with pytest.raises(ValueError, match=r"chrIII:119-121\(\.\) ends beyond chrIII, which has 120 bases"):
        genome.fetch(Interval("chrIII", 119, 121))


def test_the_error_for_an_unknown_chromosome_suggests_names(genome):
    with pytest.raises(ValueError, match=r"no chromosome 'II'\. Did you mean 'chrII'\? It has chrI, chrII, chrIII"):
        genome.fetch(Interval("II", 0, 1))
    with pytest.raises(ValueError, match=r"no chromosome 'chr_I'\. Did you mean"):
        genome.fetch(Interval("chr_I", 0, 1))
    with pytest.raises(ValueError, match=r"no chromosome 'zzz'\. It has"):
        genome.fetch(Interval("zzz", 0, 1))
    with pytest.raises(ValueError, match=r"no chromosome 'CHRii'\. Did you mean 'chrII'\?"):
        genome.fetch(Interval("CHRii", 0, 1))


@pytest.mark.parametrize(("there", "given"), [("Mito", "chrM"), ("chrM", "MT"), ("MT", "chrM"), ("chrMT", "mito")])
def test_the_error_suggests_other_names_of_the_mitochondrion(tmp_path, open_genome, there, given):
    (tmp_path / "g.fa").write_text(f">I\nACGT\n>{there}\nACGT\n>M2\nACGT\n")
    with pytest.raises(ValueError, match=rf"no chromosome '{given}'\. Did you mean '{there}'\?"):
        open_genome(tmp_path / "g.fa").fetch(Interval(given, 0, 1))


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


def test_incomplete_windows_can_be_left_out(genome):
    whole = list(genome.windows(70, drop_last=True))
    assert {len(w.sequence) for w in whole} == {70}
    assert [w for w in genome.windows(70) if len(w.sequence) == 70] == whole


def test_held_out_chromosomes_have_no_windows(genome):
    assert {w.interval.chrom for w in genome.windows(50, holdout=["chrII"])} == {"chrI", "chrIII"}
    assert {w.interval.chrom for w in genome.windows(50, chroms=["chrI", "chrII"], holdout=["chrI"])} == {"chrII"}
    with pytest.raises(ValueError, match=r"no chromosome 'IV'"):
        genome.windows(50, holdout=["IV"])
    with pytest.raises(ValueError, match=r"chroms=\['chrI'\] without holdout=\['chrI'\] select no sequence"):
        genome.windows(50, chroms=["chrI"], holdout=["chrI"])
    with pytest.raises(ValueError, match=r"give a list of names: \['chrI'\]"):
        genome.windows(50, holdout="chrI")
    with pytest.raises(TypeError, match=r"holdout must be a list of chromosome names \(strings\), got the item 1"):
        genome.windows(50, holdout=[1])


def test_regions_that_leave_nothing_are_named_as_such(genome):
    one = [Interval("chrI", 0, 50)]
    for selection, message in (
        (dict(regions=[]), r"^0 regions select no sequence of genome\.fa"),
        (dict(regions=one, holdout=["chrI"]), r"^1 regions without holdout=\['chrI'\] select no sequence"),
        (dict(regions=one, chroms=["chrII"]), r"^1 regions and chroms=\['chrII'\] select no sequence"),
    ):
        with pytest.raises(ValueError, match=message):
            genome.windows(50, **selection)


def test_an_empty_list_of_chromosomes_has_its_own_error(genome):
    with pytest.raises(ValueError, match=r"chroms=\[\] select no sequence of genome\.fa"):
        fit_markov(genome, 2).bits_per_base(genome, chroms=[])


def test_names_may_be_given_by_an_iterator(genome):
    walked = genome.windows(50, holdout=(name for name in ["chrII"]))
    assert {w.interval.chrom for w in walked} == {"chrI", "chrIII"}
    assert {w.interval.chrom for w in genome.windows(50, chroms=iter(["chrII"]))} == {"chrII"}


@pytest.mark.parametrize("regions", ["peaks.bed", [("chrI", 0, 10)]])
def test_regions_must_be_intervals(genome, regions):
    with pytest.raises(TypeError, match=r"must be Interval\(chrom, start, end\).*read_bed"):
        genome.windows(50, regions=regions)


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
        ({"length": 0}, "length must be an integer >= 1, got 0"),
        ({"length": 5, "stride": 0}, "stride must be an integer >= 1, got 0"),
        ({"length": 5.0}, "length must be an integer >= 1, got 5.0"),
        ({"length": 5, "max_n_fraction": 2}, "between 0 and 1"),
        ({"length": 5, "shard": (2, 2)}, "0 <= i < n"),
    ],
)
def test_numbers_out_of_range_are_refused_at_once(genome, arguments, message):
    with pytest.raises(ValueError, match=message):
        genome.windows(**arguments)


def test_memory_does_not_grow_with_the_genome(tmp_path, measured):
    """Windows over a genome of 60 MB need less than 20 MB more than the imports."""
    path = tmp_path / "long.fa"
    with path.open("w") as sink:
        sink.write(">one\n")
        for _ in range(60):
            sink.write(("ACGTACGTTG" * 10 + "\n") * 10_000)
    code = (
        "import sys\n"
        "from titans_dna import Genome\n"
        "genome = Genome(sys.argv[1])\n"
        "before = megabytes('VmHWM')\n"
        "n = sum(len(w.sequence) for w in genome.windows(10_000, max_n_fraction=0.5))\n"
        "print(n, megabytes('VmHWM') - before)"
    )
    n, grown = measured(code, str(path))
    assert n == 60_000_000
    assert grown < 20


# ---- workers


class Windows(torch.utils.data.IterableDataset):
    def __init__(self, genome):
        self.genome = genome

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        for window in self.genome.windows(37, shard=(info.id, info.num_workers)):
            yield str(window.interval), window.sequence


@pytest.mark.slow
@pytest.mark.parametrize(("method", "workers"), [("fork", 2), ("spawn", 1)])
def test_loader_workers_read_what_one_process_reads(genome, method, workers):
    genome.fetch(Interval("chrI", 500, 510))  # the parent's file is open, somewhere in its middle
    expected = {str(w.interval): w.sequence for w in genome.windows(37)}
    loader = torch.utils.data.DataLoader(
        Windows(genome), batch_size=None, num_workers=workers, multiprocessing_context=method
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


def test_a_region_may_be_text(genome):
    assert genome.fetch("chrI:10-50") == genome.fetch(Interval("chrI", 10, 50))
    assert genome.fetch("chrI") == genome.fetch(Interval("chrI", 0, genome.lengths["chrI"]))
    for region, error, message in (
        ("chrI:a-b", ValueError, "is not valid"),
        ("chrI:0-9999999", ValueError, "ends beyond chrI"),
        ("chr1", ValueError, "no chromosome 'chr1'"),
        (("chrI", 0, 5), TypeError, "region must be an Interval or text"),
    ):
        with pytest.raises(error, match=message):
            genome.fetch(region)


def test_a_region_may_have_commas_and_its_chromosome_a_colon(write_fasta, open_genome):
    genome = open_genome(write_fasta({"HLA:01": "ACGTACGT", "x": "ACGGT" * 500, "none": ""}))
    with pytest.raises(ValueError, match=r"none of genome\.fa has no bases; leave it out"):
        genome.fetch("none")
    assert genome.fetch("x:1,001-2,003") == genome.fetch(Interval("x", 1001, 2003))
    with pytest.raises(ValueError, match=r"no chromosome 'HLA:1'\. Did you mean 'HLA:01'\?"):
        genome.fetch("HLA:1")
    assert genome.fetch("HLA:01") == "ACGTACGT"
    assert genome.fetch("HLA:01:2-5") == "GTA"


def test_a_fasta_that_pyfaidx_has_open_is_read(genome):
    with pyfaidx.Fasta(str(genome.path)) as open_there:
        assert open_source(open_there).lengths == genome.lengths
