"""Markov models: counts, smoothing and scores, compared with their definitions."""

from collections import Counter

import numpy as np
import pytest
from random_dna import bases, chain

from titans_dna import Genome, encode, markov, reverse_complement
from titans_dna.markov import all_orders, fit_markov

TRUE_BITS = -0.85 * np.log2(0.85) - 0.15 * np.log2(0.05)


@pytest.mark.parametrize("order", [0, 1, 3])
def test_counts_are_those_of_both_strands(order):
    text = bases(500) + "N" + bases(40, 1)
    model = fit_markov([text], order)
    expected = Counter()
    for strand in (text, reverse_complement(text)):
        for i in range(order, len(strand)):
            word = strand[i - order : i + 1]
            expected["".join(word)] += "N" not in word
    found = {}
    for word in expected:
        if "N" not in word:
            *context, base = encode(word).tolist()
            found[word] = int(model.counts[order][int("0" + "".join(map(str, context)), 4), base])
    assert found == {word: n for word, n in expected.items() if "N" not in word}


@pytest.mark.parametrize("joined", [0, 100, 1 << 16])
def test_short_sequences_read_together_are_scored_as_separate_ones(joined, monkeypatch):
    texts = [bases(n, n) for n in (50, 1, 90, 2, 300, 3, 40)]
    texts[2] = texts[2][:30] + "N" + texts[2][31:]
    monkeypatch.setattr(markov, "SHORT", 0)
    apart = fit_markov(texts, 2)
    bits = [apart.bits_per_base([text]).drop(columns="order") * len(text.replace("N", "")) for text in texts]
    monkeypatch.setattr(markov, "SHORT", 100)  # one is longer
    monkeypatch.setattr(markov, "_JOINED", joined)
    for one, two in zip(apart.counts, fit_markov(texts, 2).counts, strict=True):
        np.testing.assert_array_equal(one, two)
    found = apart.bits_per_base(texts).drop(columns="order")
    np.testing.assert_allclose(found, sum(bits) / sum(len(text.replace("N", "")) for text in texts), rtol=1e-12)


def test_counts_of_a_lower_order_are_sums_over_the_first_base():
    model = fit_markov([bases(3000)], 4)
    for low, high in zip(model.counts, model.counts[1:], strict=False):
        np.testing.assert_array_equal(low, high.reshape(4, -1, 4).sum(0))


def test_a_chain_is_scored_at_its_entropy_from_order_1_on():
    model = fit_markov([chain(200_000)], 6)
    bits = model.bits_per_base([chain(50_000, seed=1)])
    assert bits.loc[0, "additive"] == pytest.approx(2, abs=1e-3)
    np.testing.assert_allclose(bits.loc[1:, ["additive", "interpolated"]], TRUE_BITS, atol=0.03)


def test_longer_contexts_never_harm_if_interpolated_with_shorter_ones():
    bits = fit_markov([chain(20_000)], 9).bits_per_base([chain(20_000, seed=1)])
    assert bits.loc[9, "interpolated"] < bits.loc[1, "interpolated"] + 0.01
    assert bits.loc[9, "additive"] > bits.loc[1, "additive"] + 0.05


def test_strengths_are_chosen_on_bases_that_were_not_counted():
    rng = np.random.default_rng(0)

    def random(n):
        return ["".join(rng.choice(list("ACGT"), n))]

    found = fit_markov(random(2000), 10).bits_per_base(random(50_000))
    assert found["additive"].iloc[8] < 2.01  # 2 is the entropy; chosen on counted bases: 2.05
    assert found["interpolated"].iloc[10] < 2.06  # 2.13


def test_a_probability_sums_to_one():
    """The probabilities of all continuations of a context add up to 1."""
    model = fit_markov([bases(5000)], 3)
    for column in ("additive", "interpolated"):
        logs = []
        for base in "ACGT":
            whole = model.bits_per_base(["ACG" + base])[column][3] * 4
            logs.append(whole - model.bits_per_base(["ACG"])[column][3] * 3)
        assert sum(2.0**-x for x in logs) == pytest.approx(1)


def test_both_strands_score_alike_and_pieces_do_not_matter(monkeypatch):
    text = bases(3000) + "NNN" + chain(2000)
    model = fit_markov([text], 5)
    whole = model.bits_per_base([text])
    monkeypatch.setattr("titans_dna.markov._BLOCK", 97)
    np.testing.assert_allclose(model.bits_per_base([text]), whole)
    again = fit_markov([text], 5)
    np.testing.assert_array_equal(again.counts[0], model.counts[0])


def test_a_holdout_is_not_counted(write_fasta, tmp_path):
    one, two = chain(30_000), bases(30_000)
    genome = Genome(write_fasta({"one": one, "two": two}), cache_dir=tmp_path)
    np.testing.assert_array_equal(fit_markov(genome, 3, holdout=["two"]).counts[3], fit_markov([one], 3).counts[3])


def test_repr_is_one_line():
    assert repr(fit_markov([bases(2000)], 4)) == "MarkovModels(orders 0 to 4)"


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="order must be an integer from 0 to 12, got 13"):
        fit_markov(["ACGT"], 13)
    with pytest.raises(ValueError, match="no base with 3 known bases before it"):
        fit_markov(["ACN"], 3)
    with pytest.raises(ValueError, match="no known base"):
        fit_markov([bases(100)], 1).bits_per_base(["NNN"])
    with pytest.raises(ValueError, match="has no chromosome 'x'"):
        fit_markov([bases(100)], 1, holdout=["x"])
    with pytest.raises(ValueError, match=r"without holdout=\['0'\] select no sequence of sequences"):
        fit_markov([bases(100)], 1, holdout=["0"])


def test_held_out_chromosomes_given_by_an_iterator_are_not_counted(write_fasta):
    path = write_fasta({"I": "ACGT" * 50, "II": "G" * 500})
    counts = fit_markov(path, 0, holdout=(name for name in ["II"])).counts[0]
    assert counts.sum() == 400


def test_counts_of_short_words_do_not_overflow():
    """A genome of 4 Gb has more bases than 32 bits can count."""
    top = np.full((4**10, 4), 2**20, dtype=np.int32)
    tables = all_orders(top)
    assert [int(table.sum()) for table in tables] == [4**11 * 2**20] * 11
    assert fit_markov(["ACGT" * 50], 3).counts[3].dtype == np.int64
