"""Shared k-mers, compared with a simple implementation by sets."""

import time
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from titans_datasets.audit import SplitAudit, audit_kmers, kmer_groups, shared_kmers
from titans_datasets.audit import packing as packing_module

COMPLEMENT = str.maketrans("ACGT", "TGCA")


def bases(n, seed):
    return "".join(np.random.default_rng(seed).choice(list("ACGT"), n))


def other_strand(sequence):
    return sequence.translate(COMPLEMENT)[::-1]


def kmers(sequence, k):
    """Canonical k-mers by a simple implementation; the sequence itself if it has none."""
    sequence = sequence.upper()
    pieces = (sequence[i : i + k] for i in range(len(sequence) - k + 1))
    found = {min(p, other_strand(p)) for p in pieces if set(p) <= set("ACGT")}
    return found or {("whole", min(sequence, other_strand(sequence)))}


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.text("ACG", max_size=12) | st.text("ACGTNacgt", max_size=12), min_size=1, max_size=8),
    st.integers(1, 9),
)
def test_sharing_and_groups_are_those_of_sets_of_kmers(sequences, k):
    sets = [kmers(s, k) for s in sequences]
    n = len(sequences)
    joined = np.array([[i == j or bool(sets[i] & sets[j]) for j in range(n)] for i in range(n)])
    np.testing.assert_array_equal(shared_kmers(sequences, k=k), joined.sum(axis=1) > 1)
    for _ in range(n):  # through others, and through others of those
        joined = joined @ joined
    groups = kmer_groups(sequences, k=k)
    np.testing.assert_array_equal(groups[:, None] == groups, joined)
    assert list(dict.fromkeys(groups.tolist())) == list(range(groups.max() + 1))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.text("ACGTN", max_size=12), min_size=1, max_size=5),
    st.lists(st.text("ACGTN", max_size=12), min_size=1, max_size=5),
    st.integers(1, 6),
)
def test_sharing_with_a_reference_is_that_of_sets_of_kmers(sequences, reference, k):
    known = set().union(*(kmers(s, k) for s in reference))
    np.testing.assert_array_equal(
        shared_kmers(sequences, reference, k=k), [bool(kmers(s, k) & known) for s in sequences]
    )


@pytest.mark.parametrize("k", [1, 2, 3, 31, 32, 33, 40, 63, 64])
def test_kmers_of_any_length_are_compared_base_by_base(k):
    piece = bases(k, 7)
    changed = [piece[:i] + ("A" if piece[i] != "A" else "C") + piece[i + 1 :] for i in range(k)]
    found = shared_kmers(changed, [piece], k=k)
    expected = [bool(kmers(c, k) & kmers(piece, k)) for c in changed]
    np.testing.assert_array_equal(found, expected)
    assert shared_kmers([other_strand(piece)], ["TT" + piece + "A"], k=k).all()


def test_nothing_depends_on_the_strand():
    sequences = [bases(100, seed) for seed in range(20)] + [bases(100, 3)[20:70] + bases(60, 99)]
    flipped = [other_strand(s) if i % 2 else s for i, s in enumerate(sequences)]
    np.testing.assert_array_equal(shared_kmers(sequences), shared_kmers(flipped))
    np.testing.assert_array_equal(kmer_groups(sequences), kmer_groups(flipped))
    assert shared_kmers(sequences)[[3, 20]].all()
    assert shared_kmers(sequences).sum() == 2


def test_lower_case_is_equal_and_n_is_not_a_base():
    piece = bases(40, 1)
    assert shared_kmers([piece], [piece.lower()]).all()
    broken = piece[:20] + "N" + piece[21:]
    assert not shared_kmers([broken], [piece]).any()
    assert not shared_kmers([broken + "A"], [broken]).any()


def test_equal_sequences_without_a_kmer_are_found_and_counted():
    short, broken, rna = bases(30, 1), bases(39, 2) + "N" + bases(39, 3), bases(60, 4).replace("T", "U")
    sequences = [
        short,
        broken,
        rna,
        other_strand(short).lower(),
        broken,
        rna.replace("U", "T"),
        bases(30, 5),
        bases(50, 6),
    ]
    report = audit_kmers(sequences, [0, 1] * 4, ["train"] * 3 + ["test"] * 5)
    assert report.shared_with_train == 3 / 5
    assert report.clean.tolist() == [True] * 3 + [False] * 3 + [True] * 2
    assert report.groups.tolist() == [0, 1, 2, 0, 1, 2, 3, 4]
    assert report.without == 5
    assert "5 have no 40-mer" in str(report)


def test_short_sequences_beside_a_long_unknown_one_take_little_memory():
    sequences = ["N" * 100_000, *(bases(20, seed) for seed in range(300))]
    tracemalloc.start()
    assert not shared_kmers(sequences).any()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 30e6  # each with the room of the longest would be 120 MB


def test_the_report_says_of_which_part_its_shares_by_class_are():
    """Both classes of test may be above the share over all sequences."""
    test = [bases(60, 1), bases(60, 2)]
    report = audit_kmers([*test, *test, bases(60, 3)], [0, 1, 0, 1, 0], ["train"] * 2 + ["test"] * 2 + ["train"])
    assert "80.0% share a 40-mer with another sequence, per class of test: 0 100.0%, 1 100.0%" in str(report)
    assert "80.0% share a 40-mer with another sequence, per class: 0 66.7%" in str(
        audit_kmers([*test, *test, bases(60, 3)], [0, 1, 0, 1, 0])
    )


def test_a_sequence_longer_than_a_batch_is_read_in_pieces(monkeypatch):
    """Every k-mer once, those across the cuts too, and memory for one batch."""
    long = bases(5000, 8)
    monkeypatch.setattr(packing_module, "_BATCH", 100)
    assert shared_kmers([long[i : i + 40] for i in range(0, 4961)], [long]).all()
    sizes = [len(codes) for codes, _ in packing_module._letters([long, "ACGT"], 40)]
    assert max(sizes) <= 100 + 2 * 40
    assert shared_kmers([long[:30] + "A" * 40 + long[30:60]], [long]).tolist() == [False]


def test_a_kmer_does_not_run_over_the_end_of_its_sequence():
    piece = bases(40, 2)
    assert not shared_kmers([piece[:20], piece[20:]], [piece]).any()
    assert kmer_groups(["", "A"], k=40).tolist() == [0, 1]


def test_batches_and_buckets_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    genome = bases(3000, 5)
    sequences = [genome[i : i + 80] for i in rng.integers(0, 2900, 60)]
    whole = audit_kmers(sequences, rng.integers(0, 2, 60), rng.choice(["train", "test"], 60), k=40)
    monkeypatch.setattr(packing_module, "_BATCH", 200)
    monkeypatch.setattr(packing_module, "_BUCKET", 500)
    rng = np.random.default_rng(0)
    rng.integers(0, 2900, 60)
    pieces = audit_kmers(sequences, rng.integers(0, 2, 60), rng.choice(["train", "test"], 60), k=40)
    assert str(pieces) == str(whole)
    np.testing.assert_array_equal(pieces.groups, whole.groups)
    np.testing.assert_array_equal(pieces.clean, whole.clean)


def test_groups_are_kept_together_by_group_kfold():
    model_selection = pytest.importorskip("sklearn.model_selection")
    rng = np.random.default_rng(1)
    genome = bases(20_000, 6)
    sequences = np.array([genome[i : i + 100] for i in rng.integers(0, 19_900, 200)])
    groups = kmer_groups(list(sequences))
    assert groups.max() + 1 < 200
    for train, test in model_selection.GroupKFold(5).split(sequences, groups=groups):
        assert not shared_kmers(list(sequences[test]), list(sequences[train])).any()


def test_the_kmer_lookup_copies_labels_from_train():
    pieces = [bases(60, seed) for seed in range(40)]
    labels = np.array(["a", "b"] * 20)
    test = [other_strand(p)[5:] for p in pieces[:10]] + [bases(60, 100)]
    split = np.array(["train"] * 40 + ["test"] * 11)
    report = audit_kmers(pieces + test, np.concatenate([labels, labels[:10], ["b"]]), split)
    assert report.shared_with_train == pytest.approx(10 / 11)
    assert report.lookup_accuracy == pytest.approx(10 / 11)  # the one without a match is answered "a": 20 of each
    assert report.commonest == pytest.approx(6 / 11)
    np.testing.assert_array_equal(np.flatnonzero(report.clean), [*range(40), 50])
    assert SplitAudit("made", None, report).leaks
    assert "LEAKS" in str(SplitAudit("made", None, report))


def test_the_labels_of_a_kmer_that_train_holds_often_have_one_vote_together():
    """Five train sequences "b" share one k-mer with the test sequence, one "a" two others: two votes against one."""
    unique, common = bases(41, 1), bases(40, 2)
    train = [unique, *(bases(20, 10 + i) + common for i in range(5))]
    report = audit_kmers([*train, unique + "N" + common], list("abbbbba"), ["train"] * 6 + ["test"])
    assert report.lookup_accuracy == 1


def test_a_part_that_is_neither_train_nor_test_is_clean_whatever_it_shares():
    piece = bases(60, 1)
    report = audit_kmers([piece, piece, piece], [0, 1, 0], ["train", "dev", "test"])
    assert report.clean.tolist() == [True, True, False]


def test_without_a_train_part_leaks_are_unknown():
    report = SplitAudit("made", None, audit_kmers([bases(60, 1), bases(60, 2)], [0, 1], ["test", "test"]))
    assert report.leaks is None
    assert "unknown whether test shares anything with train" in str(report)


@pytest.mark.slow
def test_the_audit_of_36131_sequences_of_251_bases_takes_seconds():
    rng = np.random.default_rng(0)
    letters = np.frombuffer(b"ACGT", dtype=np.uint8)[rng.integers(0, 4, (36_131, 251))]
    letters[:500] = letters[500:1000]  # some that share
    sequences = [row.tobytes().decode() for row in letters]
    begin = time.perf_counter()
    report = audit_kmers(sequences, rng.integers(0, 2, 36_131), np.where(rng.random(36_131) < 0.75, "train", "test"))
    assert time.perf_counter() - begin < 60
    assert report.n_groups == 36_131 - 500


@pytest.mark.parametrize("k", [0, 65, 2.0, "4", True])
def test_k_out_of_range_is_refused(k):
    with pytest.raises(ValueError, match="k must be an integer from 1 to 64"):
        shared_kmers(["ACGT"], k=k)


def test_a_series_with_an_index_of_its_own_is_read_in_its_order():
    texts = ["ACGTTGCA" * 3, "TTTTGGCCA" * 3, "ACGTTGCA" * 4]
    series = pd.Series(texts, index=["x", "z", "y"])
    np.testing.assert_array_equal(kmer_groups(series, k=10), kmer_groups(texts, k=10))


def test_columns_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="2 sequences, 1 labels"):
        audit_kmers(["A", "C"], [0])


@pytest.mark.parametrize(
    ("sequences", "message"),
    [("ACGT", "is a single string"), (["ACGT", None], r"sequence 1 \(0-based\) is not a string: None")],
)
def test_inputs_other_than_a_list_of_strings_are_refused(sequences, message):
    with pytest.raises(TypeError, match=message):
        kmer_groups(sequences, k=2)


def test_a_reference_must_be_a_list_of_strings():
    """A single string would be read as sequences of one letter, without shared k-mers."""
    piece = bases(60, 0)
    for sequences, reference, message in (
        ([piece], bases(20, 1) + piece, "reference is a single string"),
        (piece, [piece], "sequences is a single string"),
        ([piece], [piece, None], r"reference 1 \(0-based\) is not a string: None"),
    ):
        with pytest.raises(TypeError, match=message):
            shared_kmers(sequences, reference, k=40)


def test_parts_with_similar_names_are_refused_not_ignored():
    with pytest.raises(ValueError, match=r"split has the parts \['Test', 'Train'\]: rename .* 'train' and 'test'"):
        audit_kmers(["ACGT", "ACGT"], [0, 1], ["Train", "Test"], k=4)
    for parts in ([False, True], [0, 1], ["tr", "te"], ["train ", "test "], ["train", "test "]):
        with pytest.raises(ValueError, match="rename the parts to compare to 'train' and 'test'"):
            audit_kmers(["ACGT", "ACGT"], [0, 1], parts, k=4)
    assert audit_kmers(["ACGT", "ACGT"], [0, 1], ["train", "dev"], k=4).shared_with_train is None


def test_sequences_without_a_match_get_the_commonest_label_of_isolated_train_sequences():
    copies = [bases(60, 0)[i:] for i in range(3)]  # three "a" that are one
    sequences = [*copies, bases(60, 1), bases(60, 2), bases(60, 3)]
    report = audit_kmers(sequences, list("aaabbb"), ["train"] * 5 + ["test"])
    assert report.lookup_accuracy == 1


@pytest.mark.parametrize("sequence", [" ACGT", "ACGT\n", "AC GT"])
def test_a_blank_in_a_sequence_is_named_and_not_counted_as_an_unknown_letter(sequence):
    with pytest.raises(ValueError, match=r"sequence 1 \(0-based\) has a blank before, in or after it"):
        audit_kmers(["ACGT", sequence], [0, 1], k=2)
    with pytest.raises(ValueError, match=r"reference 0 \(0-based\) has a blank"):
        shared_kmers(["ACGT"], [sequence], k=2)
