"""Input of the classifier, and errors on bad input."""

import tracemalloc
from enum import Enum
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyfaidx
import pytest
import torch
from sklearn.exceptions import NotFittedError

from titans_dna import Genome, Interval
from titans_dna.classification.labels import stratified_cut, validation_cut
from titans_dna.classification.sequences import read_sequences, reads_of
from titans_dna.classifier import TitansDNAClassifier
from titans_dna.language import DNALanguageModel

X = ["ACGTTGCA", "TTTACGNNA", "ACG", "GGGTACCA"] * 5
Y = ["a", "b"] * 10


def classifier(**changes):
    small = dict(dim=16, num_layers=1, max_epochs=1, device="cpu", random_state=0, verbose=0)
    return TitansDNAClassifier(**small | changes)


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(X, Y)


def test_the_records_of_a_fasta_file_are_its_sequences(write_fasta, fitted):
    path = write_fasta({f"s{i}": sequence for i, sequence in enumerate(X)})
    assert read_sequences(path) == X
    model = classifier().fit(path, Y)
    for source in (path, str(path), Genome(path)):
        np.testing.assert_array_equal(model.predict_proba(source), fitted.predict_proba(X))
    assert model.score(path, Y) == fitted.score(X, Y)
    with pyfaidx.Fasta(str(path)) as open_there:
        np.testing.assert_array_equal(fitted.predict(open_there), fitted.predict(X))


def test_intervals_and_their_genome_are_read_on_their_strand(tmp_path, genome, fitted):
    regions = [Interval("chrI", 10, 50, "+"), Interval("chrIII", 0, 33, "-"), Interval("chrI", 320, 350, ".")]
    expected = [genome.fetch(region) for region in regions]
    bed = tmp_path / "peaks.bed"
    bed.write_text("".join(f"{r.chrom}\t{r.start}\t{r.end}\tname\t0\t{r.strand}\n" for r in regions))
    assert read_sequences(genome, bed) == expected
    learned = classifier().fit(expected, ["a", "b", "a"], validation=(X, Y))
    for pair in ((bed, genome.path), (str(bed), str(genome.path)), (regions, genome)):
        np.testing.assert_array_equal(fitted.predict_proba(pair), fitted.predict_proba(expected))
        again = classifier().fit(pair, ["a", "b", "a"], validation=(X, Y))
        np.testing.assert_array_equal(again.predict_proba(X), learned.predict_proba(X))


def test_a_letter_that_is_not_a_base_is_named_with_record_and_file(write_fasta):
    path = write_fasta({"one": "ACGT" * 5, "two": "ACGT" * 30 + "ACGUACGT"}, name="rna.fa")
    with pytest.raises(ValueError, match=r"two of rna\.fa has 'U' at position 123 .*U instead of T"):
        classifier().fit(path, ["a", "b"])
    with pytest.raises(ValueError, match=r"two:110-125 of rna\.fa has 'U' at position 13 .*U instead of T"):
        classifier().fit(([Interval("one", 0, 10), Interval("two", 110, 125)], path), ["a", "b"])
    with pytest.raises(ValueError, match=r"two of rna\.fa has 'U' at position 123 .*U instead of T"):
        classifier().fit(([Interval("one", 0, 10), Interval("two", 110, 125, "-")], path), ["a", "b"])
    with pytest.raises(ValueError, match="sequence 1 has 'U' at position 3"):
        classifier().fit(["ACGT", "ACGU"], ["a", "b"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        (">one\nACGT\n>one\nACGA\n", "'one'"),
        (">one\nAC-T\n>two\nACGA\n", "one of odd.fa has '-' at position 2"),
    ],
    ids=["empty", "one name twice", "a gap"],
)
def test_unreadable_files_are_refused_by_both_estimators(tmp_path, text, says):
    path = tmp_path / "odd.fa"
    path.write_text(text)
    with pytest.raises(ValueError, match=says):
        classifier().fit(path, ["a", "b"])
    with pytest.raises(ValueError, match=says):
        DNALanguageModel(dim=16, num_layers=1, num_heads=2, max_steps=1, verbose=0).fit(path)


def test_the_validation_part_has_each_class_and_no_training_sequence():
    labels = np.array([0] * 40 + [1] * 20 + [2] * 3 + [3])
    rows, cut = stratified_cut(labels, 0.25, seed=0)
    assert sorted([*rows, *cut]) == list(range(len(labels)))
    assert np.bincount(labels[cut], minlength=4).tolist() == [10, 5, 1, 0]
    assert (
        cut.tolist() == stratified_cut(labels, 0.25, seed=0)[1].tolist() != stratified_cut(labels, 0.25, 1)[1].tolist()
    )
    assert [len(part) for part in stratified_cut(labels, 0, seed=0)] == [64, 0]


@pytest.mark.parametrize("grouped", [False, True])
def test_a_class_is_never_entirely_in_the_validation_part(grouped):
    labels = np.array([0] * 20 + [1] * 4)
    groups = np.minimum(np.arange(24), 20)  # class 1 is one group
    rows, cut, _ = validation_cut(labels, groups if grouped else None, 0.9, seed=0)
    assert len(cut)
    assert set(labels[rows]) == {0, 1}


def test_two_sequences_in_a_tuple_are_two_sequences(fitted):
    for pair in (("ACGT", "TTTT"), ("ACGT", "T" * 5000)):
        np.testing.assert_array_equal(fitted.predict(pair), fitted.predict(list(pair)))


def test_a_fasta_file_with_an_empty_record_is_refused(tmp_path):
    path = tmp_path / "some.fa"
    path.write_text(">one\nACGT\n>two\n>three\nACGT\n")
    with pytest.raises(ValueError, match=r"records without bases: \['two'\]"):
        read_sequences(path)


@pytest.mark.parametrize(
    ("sequences", "labels", "message"),
    [
        ([], [], "sequences is empty; give at least one sequence"),
        (["ACGT", ""], ["a", "b"], "sequence 1 is empty"),
        (["ACGT", "ACXT"], ["a", "b"], "sequence 1 has 'X' at position 2"),
        (["ACGU", "ACGT"], ["a", "b"], "sequence 0 has 'U' at position 3 .*U instead of T"),
        (["ACGT", "ACCT"], ["a", "a"], "only one class, 'a'"),
        (["ACGT", "ACCT"], ["a"], "X has 2 sequences, but y has 1 labels"),
        (["ACGT", "ACCT"], None, "y is None"),
        (["ACGT", "ACCT"], ["a", None], r"y has 1 missing labels, the first at 1"),
        (["ACGT", "ACCT"], [0.5, 1.7], "Unknown label type"),
        (np.array([["ACGT", "ACCT"], ["ACGT", "ACCT"]]), ["a", "b"], r"\[n\] or \[n, 1\], got shape \(2, 2\)"),
    ],
)
def test_bad_sequences_and_labels_are_named(sequences, labels, message):
    with pytest.raises(ValueError, match=message):
        classifier().fit(sequences, labels)


def test_a_frame_of_polars_is_read_as_one_of_pandas(fitted):
    column = pl.DataFrame({"sequence": X})
    np.testing.assert_array_equal(fitted.predict(column), fitted.predict(X))
    with pytest.raises(ValueError, match=r"got shape \(20, 2\).* select the column of sequences"):
        fitted.predict(column.with_columns(label=pl.lit("a")))


def test_mappings_and_unordered_collections_are_refused(fitted):
    for sequences, message in (({"ACG": "TTT"}, r"got a mapping.*use list\(d"), ({"ACG", "TTT"}, "got a set")):
        with pytest.raises(TypeError, match=message):
            fitted.predict(sequences)
    with pytest.raises(TypeError, match=r"y mixes text and numbers, 'a' and 1: convert all to one type"):
        classifier().fit(X, ["a", 1] * 10)
    with pytest.raises(TypeError, match=r"validation must be a pair \(X, y\), got 0.2\. .* validation_fraction"):
        classifier().fit(X, Y, validation=0.2)


def test_training_without_early_stopping_is_warned_of(recwarn):
    classifier(validation_fraction=0).fit(X[:4], Y[:4])
    classifier().fit(X, Y)
    assert not [w for w in recwarn if "cannot stop early" in str(w.message)]
    with pytest.warns(
        UserWarning,
        match="validation_fraction=0.1 of 4 sequences rounds to 0 sequences in each class, so .* cannot stop early",
    ):
        classifier().fit(X[:4], Y[:4])


def test_log_probabilities_are_those_of_the_probabilities(fitted):
    np.testing.assert_allclose(fitted.predict_log_proba(X), np.log(fitted.predict_proba(X)), rtol=1e-12)


@pytest.mark.parametrize(
    ("sequences", "message"),
    [
        ("ACGT", "X is a string"),
        ([1.5, 2.5], "sequence 0 must be str"),
        (["ACGT", None], "sequence 1 must be str"),
        ([Interval("I", 0, 4)], "X contains intervals: give them together with their FASTA file"),
        (3, "X"),
    ],
)
def test_inputs_that_are_not_sequences_are_a_type_error(sequences, message):
    with pytest.raises(TypeError, match=message):
        classifier().fit(sequences, ["a", "b"])


@pytest.mark.parametrize("name", ["peaks.bed", "peaks.narrowPeak.gz", "genes.gff3"])
def test_a_file_of_intervals_alone_asks_for_the_fasta(name):
    with pytest.raises(ValueError, match="contains intervals: give their FASTA file as well"):
        classifier().fit(name, ["a"])


def test_a_missing_fasta_file_is_named():
    with pytest.raises(FileNotFoundError, match=r"nowhere\.fa"):
        classifier().fit("nowhere.fa", ["a"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reverse_complement": "both"}, "reverse_complement must be one of"),
        ({"finetune": "half"}, "finetune must be one of"),
        ({"dim": 20}, "dim must be a multiple of 16"),
        ({"kernel_size": 8}, "kernel_size must be odd"),
        ({"kmers": -1}, "kmers must be an integer >= 0"),
        ({"kmers": 9}, "kmers must be at most 8, got 9"),
        ({"max_epochs": 0}, "max_epochs must be an integer >= 1"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\)"),
        ({"validation_fraction": -0.1}, r"validation_fraction must be in \[0, 1\)"),
        ({"learning_rate": 0}, "learning_rate must be positive"),
        ({"learning_rate": float("inf")}, "learning_rate must be positive and finite, got inf"),
        ({"class_weight": "even"}, "class_weight must be None, 'balanced' or a dict"),
        ({"class_weight": {"z": 1}}, r"class_weight has the unknown classes \['z'\]; y has the classes \['a', 'b'\]"),
        ({"class_weight": {"a": -1}}, "class_weight must be at least 0"),
        ({"device": "tpu"}, "device must be"),
    ],
)
def test_bad_arguments_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        classifier(**changes).fit(X, Y)


@pytest.mark.parametrize(
    ("weights", "got"),
    [([1.0], "1 of them"), ([1.0] * 3 + [-1.0] * 17, "-1.0 at 3"), ([0.0] * 20, "0s"), ([np.nan] * 20, "nan at 0")],
)
def test_bad_sample_weights_are_refused(weights, got):
    with pytest.raises(ValueError, match=f"sample_weight must be 20 numbers of at least 0, not all 0; got {got}"):
        classifier().fit(X, Y, sample_weight=weights)


@pytest.mark.parametrize(
    ("weights", "got"),
    [(2.0, "2.0"), (np.float64(2), ""), ("balanced", "'bal"), (np.ones((20, 2)), "shape")],
)
def test_sample_weights_that_are_not_one_for_each_sequence_are_refused(weights, got):
    with pytest.raises(ValueError, match=f"sample_weight must be 20 numbers, one for each sequence; got {got}"):
        classifier().fit(X, Y, sample_weight=weights)


def test_weights_that_are_no_numbers_are_named():
    with pytest.raises(ValueError, match="sample_weight must be 20 numbers, one for each sequence: could not convert"):
        classifier().fit(X, Y, sample_weight=["a"] * 20)
    with pytest.raises(ValueError, match="class_weight must have numbers as values, got"):
        classifier(class_weight={Y[0]: "x"}).fit(X, Y)


def test_validation_losses_are_not_promised_without_validation_data():
    with pytest.raises(ValueError, match="on_epoch gets the validation loss of each epoch, but there are no valid"):
        classifier(validation_fraction=0).fit(X, Y, on_epoch=print)


@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_predicting_before_fit_is_refused(method):
    with pytest.raises(NotFittedError):
        getattr(classifier(), method)(X)


def test_saving_before_fit_is_refused(tmp_path):
    with pytest.raises(NotFittedError):
        classifier().save(tmp_path / "model")


def test_a_class_with_one_sequence_is_only_used_in_training():
    with pytest.warns(UserWarning, match=r"contain no sequence of the classes \['c'\]"):
        model = classifier(validation_fraction=0.5).fit([*X, "ACGTACGT"], [*Y, "c"])
    assert model.classes_.tolist() == ["a", "b", "c"]


def test_short_sequences_are_not_padded_to_a_long_one():
    """Padding 2,000 sequences to the longest would take 2,000 times its memory."""
    texts = ["ACGT" * 5] * 2000 + ["ACGT" * 25_000]
    tracemalloc.start()
    reads = reads_of(texts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(reads) == 2001
    assert reads.lengths[-1] == 100_000
    assert peak < 20 * sum(map(len, texts))


def test_resuming_needs_a_seed_or_given_validation_data(tmp_path):
    texts, labels = ["ACGT" * 10, "TTGA" * 10] * 10, [0, 1] * 10
    with pytest.raises(ValueError, match="checkpoint_dir needs an integer random_state"):
        classifier(random_state=None).fit(texts, labels, checkpoint_dir=tmp_path)
    classifier(random_state=None).fit(texts, labels, validation=(texts, labels), checkpoint_dir=tmp_path)
    for validation in (None, (texts, labels)):
        with pytest.raises(ValueError, match="checkpoint_dir needs random_state to be an integer or None"):
            classifier(random_state=np.random.RandomState(0)).fit(
                texts, labels, validation=validation, checkpoint_dir=tmp_path / "other"
            )


def test_a_saved_model_keeps_its_seed_and_training_time(tmp_path):
    texts, labels = ["ACGT" * 10, "TTGA" * 10] * 10, [0, 1] * 10
    model = classifier(random_state=np.int64(3)).fit(texts, labels)
    model.save(tmp_path / "model")
    again = TitansDNAClassifier.load(tmp_path / "model")
    assert again.random_state == 3
    assert again.seconds_ == model.seconds_


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(["a", pd.NA] * 10, dtype="string"),
        pd.Series(["a", None] * 10, dtype=object),
        ["a", float("nan")] * 10,
        pd.Series([1, pd.NA] * 10, dtype="Int64"),
    ],
)
def test_missing_labels_of_every_kind_are_refused(labels):
    with pytest.raises(ValueError, match=r"y has 10 missing labels, the first at 1 \(0-based\)"):
        classifier().fit(X, labels)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (pd.Series([3, 1] * 10, dtype="Int64"), [1, 3]),
        (pd.Series([True, False] * 10, dtype="boolean"), [False, True]),
        (pd.Series([3, 1] * 10, dtype=object), [1, 3]),
        (pd.Series(["b", "a"] * 10, dtype="category"), ["a", "b"]),
        (pd.Series(["b", "a"] * 10, dtype="string"), ["a", "b"]),
        (np.array(["b", "a"] * 10, dtype=getattr(np.dtypes, "StringDType", lambda: object)()), ["a", "b"]),  # NumPy 2
    ],
)
def test_labels_keep_their_type_in_other_dtypes(labels, classes):
    model = classifier().fit(X, labels)
    assert model.classes_.tolist() == classes
    assert [type(name) for name in model.classes_.tolist()] == [type(name) for name in classes]
    assert 0 <= model.score(X, labels) <= 1


@pytest.mark.parametrize(("dtype", "classes"), [("Int64", [0, 1]), ("boolean", [False, True])])
def test_labels_keep_their_type_in_a_frame_of_one_column(dtype, classes):
    frame = pd.DataFrame({"label": pd.array([0, 1] * 10, dtype=dtype)})
    with pytest.warns(UserWarning, match="column-vector"):
        model = classifier().fit(X, frame)
    assert [type(name) for name in model.classes_.tolist()] == [type(name) for name in classes]


def test_times_are_refused_as_labels():
    with pytest.raises(ValueError, match="y has dates or times as labels"):
        classifier().fit(X, pd.to_datetime(["2020-01-01", "2020-01-02"] * 10))


def test_labels_of_another_type_have_no_score():
    model = classifier().fit(X, [0, 1] * 10)
    with pytest.raises(ValueError, match="Mix of label input types"):
        model.score(X, ["0", "1"] * 10)


def test_numpy_numbers_are_accepted_as_parameters(tmp_path):
    settings = {"dim": 16, "num_layers": 1, "kernel_size": 9, "pool": 2, "kmers": 2, "batch_size": 8, "max_epochs": 2}
    model = classifier(**{name: np.int64(value) for name, value in settings.items()}, device=torch.device("cpu"))
    model.set_params(dropout=Fraction(1, 4)).fit(X, Y).save(tmp_path)
    expected = classifier(**settings, dropout=0.25).fit(X, Y)
    np.testing.assert_array_equal(TitansDNAClassifier.load(tmp_path).predict_proba(X), expected.predict_proba(X))


def test_the_unit_of_the_weights_makes_no_difference():
    alone, beside = (classifier().fit(X, Y, sample_weight=np.full(20, weight)) for weight in (1.0, 2.0**-20))
    np.testing.assert_array_equal(beside.predict_proba(X), alone.predict_proba(X))
    assert beside.history_.epochs == alone.history_.epochs
    alone, beside = (
        classifier(class_weight=dict.fromkeys(set(Y), weight)).fit(X, Y, validation=(X, Y))
        for weight in (1.0, 2.0**-20)
    )
    assert beside.history_.epochs == alone.history_.epochs


def test_members_of_an_enumeration_of_texts_are_classes_by_their_values():
    class Site(str, Enum):
        ENHANCER = "enhance"
        ENHANCER_WEAK = "weak"

    names = [Site.ENHANCER if i % 2 else Site.ENHANCER_WEAK for i in range(20)]
    assert classifier().fit(X, names).classes_.tolist() == ["enhance", "weak"]
