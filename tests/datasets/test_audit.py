"""The split audit: laws on made data, and the published figures on the official splits."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from titans_datasets import info
from titans_datasets.audit import (
    Spans,
    SplitAudit,
    audit_intervals,
    audit_kmers,
    best_overlap,
    kmer_groups,
    lookup_labels,
    score_clean,
)
from titans_datasets.audit import intervals as intervals_module

# ---- intervals

spans = st.lists(
    st.tuples(st.sampled_from(["chr1", "chr2"]), st.integers(0, 60), st.integers(1, 30)), min_size=1, max_size=12
)


def columns(rows):
    chrom, start, length = zip(*rows, strict=True)
    return Spans(chrom, start, np.add(start, length))


def overlap(a, b):
    return max(0, min(a[1] + a[2], b[1] + b[2]) - max(a[1], b[1])) if a[0] == b[0] else 0


@settings(deadline=None)
@given(spans, spans)
def test_the_best_overlap_is_the_largest_there_is(train, test):
    match, shared = best_overlap(columns(train), columns(test))
    for row, i, found in zip(test, match, shared, strict=True):
        assert found == max(overlap(t, row) for t in train)
        assert found == 0 or overlap(train[i], row) == found


@settings(deadline=None)
@given(spans)
def test_no_interval_is_its_own_match(train):
    shared = best_overlap(columns(train), columns(train), exclude_self=True)[1]
    for i, row in enumerate(train):
        assert shared[i] == max([overlap(t, row) for j, t in enumerate(train) if j != i], default=0)


def test_order_and_batches_of_intervals_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    train = Spans(rng.choice(["a", "b"], 300), start := rng.integers(0, 5000, 300), start + rng.integers(1, 80, 300))
    test = Spans(
        rng.choice(["b", "c", "a"], 100), start := rng.integers(0, 5000, 100), start + rng.integers(1, 80, 100)
    )
    shared = best_overlap(train, test)[1]
    order = rng.permutation(300)
    np.testing.assert_array_equal(best_overlap(Spans(*(column[order] for column in train)), test)[1], shared)
    monkeypatch.setattr(intervals_module, "_BATCH", 7)
    np.testing.assert_array_equal(best_overlap(train, test)[1], shared)


def test_the_lookup_needs_half_of_the_test_interval_covered():
    train = Spans(["chr1", "chr1", "chr2"], [0, 1000, 0], [100, 1100, 100])
    test = Spans(["chr1", "chr1", "chr1", "chr2"], [50, 51, 1040, 500], [150, 151, 1090, 600])
    found = lookup_labels(train, ["a", "b", "c"], test)
    assert found.found.tolist() == [True, False, True, False]
    assert found.labels.tolist() == ["a", found.fallback, "b", found.fallback]
    with pytest.raises(ValueError, match="min_overlap must be"):
        lookup_labels(train, ["a", "b", "c"], test, min_overlap=1.5)
    assert lookup_labels(train, ["a", "b", "c"], test, min_overlap=0).found.tolist() == [True, True, True, False]


def test_the_fallback_is_the_commonest_label_of_isolated_train_intervals():
    # three "a" upon each other, two "b" alone: what nothing covers is more likely a "b"
    train = Spans(["chr1"] * 5, [0, 1, 2, 500, 900], [100, 101, 102, 600, 1000])
    assert lookup_labels(train, list("aaabb"), Spans(["chr1"], [2000], [2100])).labels.tolist() == ["b"]


def test_clean_intervals_touch_no_train_interval():
    train, test = Spans(["x"], [10], [20]), Spans(["x", "x", "y"], [0, 19, 12], [10, 40, 15])
    report = audit_intervals(train, ["a"], test, ["a", "b", "b"])
    assert report.clean.tolist() == [True, False, True]
    assert report.touching == pytest.approx(1 / 3)
    assert report.covered == 0


@pytest.mark.parametrize(("bases", "length"), [(55, 100), (7, 100), (14, 25), (7, 25), (3, 10)])
def test_exactly_the_least_overlap_is_enough(bases, length):
    train, test = Spans(["x"], [0], [bases]), Spans(["x"], [0], [length])
    assert lookup_labels(train, ["a"], test, min_overlap=bases / length).found.all()
    assert not lookup_labels(train, ["a"], test, min_overlap=(bases + 1) / length).found.any()


def test_an_audit_uses_the_given_min_overlap():
    # a fifth of the first is covered, half of the second; test is mostly "b", train all "a"
    train, test = Spans(["x"] * 3, [0, 50, 900], [10, 60, 910]), Spans(["x"] * 3, [8, 55, 500], [18, 65, 510])
    strict, lax = (audit_intervals(train, list("aaa"), test, list("abb"), min_overlap=part) for part in (0.5, 0.2))
    assert (strict.min_overlap, strict.covered) == (0.5, pytest.approx(1 / 3))
    assert (lax.min_overlap, lax.covered) == (0.2, pytest.approx(2 / 3))
    assert lax.covered_per_class == {"a": 1, "b": 0.5}
    assert strict.commonest == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="min_overlap must be from 0 to 1, got 2"):
        audit_intervals(train, list("aaa"), test, list("abb"), min_overlap=2)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Spans(["x"], [5], [5]), "test has 1 intervals without 0 <= start < end, first in row 0: 5 to 5"),
        (Spans(["x"], [-1], [5]), "first in row 0: -1 to 5"),
        (Spans(["x", "y"], [1], [5]), "of the same length"),
        (Spans([], [], []), "of the same length, at least 1"),
    ],
)
def test_bad_intervals_are_named(bad, message):
    with pytest.raises(ValueError, match=message):
        best_overlap(Spans(["x"], [0], [1]), bad)


@pytest.mark.parametrize(
    ("train", "test", "what"), [("abc", "ab", "train"), ("ab", "a", "test"), ("ab", "abc", "test")]
)
def test_other_numbers_of_labels_than_of_intervals_are_refused(train, test, what):
    spans = Spans(["x", "x"], [0, 10], [5, 20])
    with pytest.raises(ValueError, match=f"one label per interval is needed, but {what} has 2 intervals"):
        audit_intervals(spans, list(train), spans, list(test))
    with pytest.raises(ValueError, match="train has 2 intervals and labels of shape"):
        lookup_labels(spans, ["a"], spans)


@pytest.mark.parametrize(
    "other", [pd.DataFrame({"Chromosome": ["x"], "Start": [0], "End": [5]}), (["x"], [0], [5]), [("x", 0, 5)]]
)
def test_intervals_in_another_form_are_refused_with_advice(other):
    spans = Spans(["x"], [0], [5])
    for train, test, what in ((spans, other, "test"), (other, spans, "train")):
        with pytest.raises(TypeError, match=rf"{what} must be Spans\(chrom, start, end\), three columns; got"):
            audit_intervals(train, ["a"], test, ["a"])


def test_scores_on_the_clean_subset():
    true, predicted = np.array(list("aaaabb")), np.array(list("aaabab"))
    score = score_clean(true, predicted, [False, True, True, True, True, True])
    assert (score.n, score.n_clean) == (6, 5)
    assert score.accuracy == pytest.approx(4 / 6)
    assert score.clean_accuracy == pytest.approx(3 / 5)
    assert score.clean_balanced_accuracy == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert "on the 5 clean ones 0.600, balanced 0.583" in str(score)
    # of a class without a clean row nothing is known, so it has no part in the mean
    assert score_clean(true, predicted, [True] * 4 + [False] * 2).clean_balanced_accuracy == pytest.approx(3 / 4)
    with pytest.raises(ValueError, match="no test row is clean"):
        score_clean(true, predicted, np.zeros(6, dtype=bool))
    with pytest.raises(ValueError, match="shapes differ"):
        score_clean(true, predicted[1:], np.ones(6, dtype=bool))


@pytest.mark.parametrize("as_read", [list, pd.Series, lambda labels: np.array(labels, dtype=object)])
def test_labels_that_are_text_on_one_side_only_are_refused(as_read):
    text, numbers = as_read(["0", "1"]), as_read([0, 1])
    assert score_clean(text, ["0", "1"], [True, True]).accuracy == 1
    with pytest.raises(ValueError, match=r"two types.*y_true text \('0'\) and y_pred numbers \(0\)"):
        score_clean(text, numbers, [True, True])
    with pytest.raises(ValueError, match=r"y_true numbers \(0\) and y_pred text \('0'\)"):
        score_clean(numbers, text, [True, True])


def test_one_chromosome_under_two_names_is_reported():
    train, test = Spans(["chr1", "chr2"], [0, 0], [10, 10]), Spans(["2", "3"], [0, 0], [10, 10])
    for one, other, name, there in ((train, test, "chr2", "2"), (test, train, "2", "chr1")):
        with pytest.raises(ValueError, match=f"train names a chromosome '{name}', but test has '{there}'"):
            audit_intervals(one, ["a", "b"], other, ["a", "b"])
    apart = audit_intervals(train, ["a", "b"], Spans(["chr3"], [0], [10]), ["a"])
    assert apart.clean.all()


# ---- the official splits


def official(real_data, name):
    frame = pd.read_parquet(real_data / "dna" / "gb_intervals" / f"{name}.parquet")
    train, test = (frame[frame["split"] == part] for part in ("train", "test"))
    report = audit_intervals(
        Spans(train["region"], train["start"], train["end"]),
        train["class"].astype(str),
        Spans(test["region"], test["start"], test["end"]),
        test["class"].astype(str),
    )
    return SplitAudit(name, report, None)


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "lookup", "touch", "covered", "touching", "leaks"),
    [
        ("human_nontata_promoters", 99.6, 99.7, 47.5, 49.2, True),
        ("human_enhancers_ensembl", 87.6, 87.5, 38.1, 38.5, True),
        ("human_enhancers_cohn", 50.3, 50.7, 0.3, 0.7, False),
        ("human_ocr_ensembl", 50.2, 50.4, 0.8, 1.5, False),
        ("human_ensembl_regulatory", 37.0, 37.0, 0.0, 0.0, False),
        ("demo_coding_vs_intergenomic_seqs", 50.3, 50.7, 0.3, 0.7, False),
        # little is covered by half, but what is touched is of one class
        ("demo_human_or_worm", 53.6, 57.2, 3.8, 7.5, True),
        ("drosophila_enhancers_stark", 51.2, 69.0, 3.1, 26.6, True),
        ("dummy_mouse_enhancers_ensembl", 50.0, 50.4, 0.0, 0.4, False),
    ],
)
def test_lookup_accuracy_of_the_official_splits(real_data, name, lookup, touch, covered, touching, leaks):
    report = official(real_data, name)
    found = report.intervals
    numbers = (found.lookup_accuracy, found.touch_accuracy, found.covered, found.touching)
    assert [round(100 * x, 1) for x in numbers] == [lookup, touch, covered, touching]
    assert report.leaks == leaks
    assert f"lookup accuracy {lookup}%" in str(report)
    note = info(name).note
    assert ("LEAKS" in note) == leaks == any(f"scores {accuracy} % on test" in note for accuracy in (lookup, touch))


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["human_nontata_promoters", "human_enhancers_cohn"])
def test_groups_of_official_test_sequences(real_data, name):
    folder = real_data / "dna" / "gb" / name
    groups = kmer_groups(pd.read_parquet(folder / "test.parquet")["seq"].tolist())
    known = pd.read_parquet(folder / "test_groups_shared40mer.parquet")["group"]
    np.testing.assert_array_equal(groups, pd.factorize(known)[0])


@pytest.mark.real_data
def test_nearly_all_test_negatives_of_nontata_promoters_share_a_40mer(real_data):
    frame = pd.read_parquet(real_data / "dna" / "gb" / "human_nontata_promoters" / "test.parquet")
    report = audit_kmers(frame["seq"].tolist(), frame["label"], ["test"] * len(frame))
    assert round(100 * report.shared_per_class["0"], 1) == 94.7
    assert round(100 * report.shared_per_class["1"], 1) == 2.9
    assert "0 94.7%" in str(report)
