"""Pretraining windows: none from the holdout or validation, and determined by seed and epoch."""

import numpy as np
import pandas as pd
import pytest
from torch.utils.data import DataLoader

from titans_core.train import batches as module
from titans_dna import Genome, Interval, encode, fit_markov, reverse_complement
from titans_dna.genomes.sources import InMemory, merged, open_source, read_regions
from titans_dna.pretraining.windows import IGNORE, Draws, Windows, batch_of, plan

LENGTH = 50


@pytest.fixture
def long_genome(write_fasta, tmp_path):
    rng = np.random.default_rng(0)
    text = {name: "".join(rng.choice(list("ACGT"), n)) for name, n in (("a", 4033), ("b", 2500), ("c", 30))}
    text["a"] = text["a"][:1000] + "N" * 120 + text["a"][1120:]
    return Genome(write_fasta(text), cache_dir=tmp_path / "cache")


def covered(genome, places):
    """For each chromosome, bool per base: whether some interval contains it."""
    marks = {name: np.zeros(n, dtype=bool) for name, n in genome.lengths.items()}
    for place in places:
        marks[place.chrom][place.start : place.end] = True
    return marks


def drawn_places(genome, tiles, epochs=30):
    windows, draws = Windows(genome, tiles, LENGTH), Draws(len(tiles), LENGTH, 8, 20, seed=0)
    for epoch in range(epochs):
        draws.set_epoch(epoch)
        for batch in draws:
            yield from (windows.place(drawn) for drawn in batch)


def test_training_never_draws_a_base_of_validation_or_holdout(long_genome):
    train, val = plan(long_genome, LENGTH, None, ["b"])
    kept = covered(long_genome, [Windows(long_genome, val, LENGTH).place((i, 0, False)) for i in range(len(val))])
    drawn = covered(long_genome, drawn_places(long_genome, train))
    assert not drawn["b"].any()
    assert kept["a"].sum() >= LENGTH
    assert not any((kept[name] & drawn[name]).any() for name in kept)
    # and every other base is drawn, but for tiles that are mostly N
    assert (kept["a"] | drawn["a"]).sum() >= 4033 - 2 * LENGTH
    assert drawn["c"].all()


def test_windows_have_their_length_and_stay_inside_the_regions(long_genome):
    regions = [Interval("b", 100, 700, "-"), Interval("b", 600, 900), Interval("b", 1500, 1520)]
    train, _ = plan(long_genome, LENGTH, regions, None)
    places = list(drawn_places(long_genome, train))
    assert {len(p) for p in places} == {LENGTH, 20}
    inside = covered(long_genome, merged(regions))["b"]
    assert not (covered(long_genome, places)["b"] & ~inside).any()
    assert {p.strand for p in places} == {"+", "-"}
    assert len({p.start % LENGTH for p in places}) > 40


def test_a_window_is_left_out_where_more_than_half_of_it_is_unknown():
    half, more = "ACGTA" + 5 * "N", "ACGT" + 6 * "N"
    train, val = plan(InMemory([half + more + half]), 10, None, [])
    assert sorted([*train.start, *val.start]) == [0, 20]


def test_regions_that_overlap_are_joined():
    regions = [Interval("b", 5, 9, "-"), Interval("a", 7, 12), Interval("a", 3, 7), Interval("a", 20, 21)]
    assert merged(regions) == [Interval("a", 3, 12), Interval("a", 20, 21), Interval("b", 5, 9)]


def test_a_region_beyond_its_chromosome_is_named_as_given_not_as_joined():
    genome, regions = InMemory(["ACGT" * 25]), [Interval("0", 0, 60), Interval("0", 50, 101)]
    for call in (lambda: plan(genome, 10, regions, []), lambda: fit_markov(genome, 1, bed=regions)):
        with pytest.raises(ValueError, match=r"0:50-101\(.\) ends beyond 0, which has 100 bases"):
            call()


def test_windows_depend_only_on_seed_and_epoch():
    def epoch(seed, number):
        draws = Draws(40, LENGTH, 8, 10, seed)
        draws.set_epoch(number)
        return list(draws)

    assert epoch(0, 3) == epoch(0, 3)
    assert epoch(0, 3) != epoch(0, 4)
    assert epoch(0, 3) != epoch(1, 3)
    # every tile comes twice in 80 draws
    assert sorted(tile for batch in epoch(0, 3) for tile, _, _ in batch) == sorted([*range(40), *range(40)])


@pytest.mark.slow
@pytest.mark.parametrize(("start", "workers"), [("fork", 2), ("spawn", 1)])
def test_workers_cut_the_windows_that_one_process_would(long_genome, start, workers):
    train, _ = plan(long_genome, LENGTH, None, ["b"])

    def batches(**how):
        draws = Draws(len(train), LENGTH, 8, 6, seed=0)
        return list(DataLoader(Windows(long_genome, train, LENGTH), batch_size=None, sampler=draws, **how))

    long_genome.fetch("a:0-10")  # the file is open before the workers begin
    alone, shared = batches(), batches(num_workers=workers, multiprocessing_context=start)
    assert len(alone) == len(shared) == 6
    for one, other in zip(alone, shared, strict=True):
        assert all(a.equal(b) for a, b in zip(one, other, strict=True))


def test_validation_reads_every_tile_once_in_order():
    assert [d for batch in Draws(5, LENGTH, 2) for d in batch] == [(i, 0, False) for i in range(5)]


def test_each_base_is_the_target_of_those_before_it():
    tokens, targets = batch_of([encode("ACGNT"), encode("GG")])
    assert tokens.tolist() == [[4, 0, 1, 2, 4], [4, 2, 5, 5, 5]]
    assert targets.tolist() == [[0, 1, 2, IGNORE, 3], [2, 2, IGNORE, IGNORE, IGNORE]]


def test_strings_are_read_as_a_genome():
    source = InMemory(["ACGTT", "ggN"])
    assert source.lengths == {"0": 5, "1": 3}
    assert source.fetch(Interval("0", 1, 4, "-")) == reverse_complement("CGT")
    with pytest.raises(ValueError, match="ends beyond 0, which has 5 bases"):
        source.fetch(Interval("0", 0, 6))
    with pytest.raises(ValueError, match="the list of sequences is empty"):
        InMemory([])


@pytest.mark.real_data
def test_nothing_of_yeast_chromosome_iv_is_drawn(real_genome):
    yeast = real_genome("yeast")
    parts = plan(yeast, 1024, None, ["IV"])
    held = list(yeast.lengths).index("IV")
    for tiles in parts:
        assert len(tiles) > 200
        assert (tiles.chrom != held).all()
    assert sum(tiles.bases for tiles in parts) == 12_157_105 - 1_531_933


def test_a_sequence_given_as_a_genome_is_refused():
    for sequence in ("ACGT" * 100, "ACGTRYN" * 4):
        with pytest.raises(ValueError, match="put it in a list"):
            open_source(sequence)
    with pytest.raises(TypeError, match="got a mapping, which would give its keys"):
        open_source({"A": "ACGT"})


def test_regions_are_intervals_in_any_form():
    one = Interval("I", 5, 9)
    frame = pd.DataFrame({"chrom": ["I"], "start": [5], "end": [9]})
    assert read_regions(one) == read_regions([one]) == read_regions(frame) == [one]
    with pytest.raises(TypeError, match=r"must be Interval\(chrom, start, end\), got \('I', 5, 9\)"):
        read_regions([("I", 5, 9)])
    with pytest.raises(
        FileNotFoundError, match=r"BED file I:5-9 does not exist. To give a region, use Interval\(chrom, start, end\)"
    ):
        read_regions("I:5-9")


@pytest.mark.parametrize("kind", [list, np.array, pd.Series, set])
def test_names_of_chromosomes_come_in_any_collection(kind):
    genome = InMemory(["ACGT" * 20, "TTGA" * 20, "CCGA" * 20])
    names = kind(["0", "2"])
    found = [window.interval.chrom for window in genome.windows(100, holdout=names)]
    assert found == ["1"]
    assert [window.interval.chrom for window in genome.windows(100, chroms=names)] == ["0", "2"]


def test_a_letter_that_is_not_a_base_is_reported_before_training(write_fasta, tmp_path):
    genome = Genome(write_fasta({"I": "ACGT" * 100, "II": "ACGT" * 50 + "X" + "ACGT" * 50}), cache_dir=tmp_path)
    with pytest.raises(ValueError, match=r"II of genome\.fa has 'X' at position 200 "):
        plan(genome, LENGTH, None, [])
    assert plan(genome, LENGTH, None, ["II"])[0].bases == 350  # of 400, one window is for validation


def test_a_protein_is_refused_at_its_first_letter_that_is_not_a_base(write_fasta, tmp_path):
    genome = Genome(write_fasta({"P": "MKLVEEPTFA" * 30}), cache_dir=tmp_path)
    with pytest.raises(ValueError, match="has 'L' at position 2 "):
        plan(genome, LENGTH, None, [])


def test_processes_share_each_batch(monkeypatch):
    whole = list(Draws(40, 50, 8, 10, seed=0))
    parts = []
    for rank in range(2):
        monkeypatch.setattr(module, "processes", lambda rank=rank: (rank, 2))
        parts.append(list(Draws(40, 50, 8, 10, seed=0)))
    assert [sorted(a + b) for a, b in zip(*parts, strict=True)] == [sorted(batch) for batch in whole]
