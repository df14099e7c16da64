"""The training that fit sets up."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from titans_core import TitansConfig, TitansLM
from titans_dna import classifier as module
from titans_dna.classifier import TitansDNAClassifier
from titans_dna.genomes.tokenizer import PAD, VOCAB_SIZE

X = ["ACGTTGCAAC", "TTTACGNNACC", "ACG", "GGGTACCATTG"] * 50
Y = np.array(["a", "b"] * 100)


@pytest.fixture
def training_of(monkeypatch):
    """A function that returns the arguments of ``fit`` for ``train_network``."""

    class StopError(Exception):
        pass

    def of(X, y, validation=None, groups=None, sample_weight=None, **settings):
        given = []

        def take(*args, **options):
            given.extend(args)
            raise StopError

        monkeypatch.setattr(module, "train_network", take)
        with pytest.raises(StopError):
            TitansDNAClassifier(dim=16, random_state=0, verbose=0, **settings).fit(
                X, y, validation=validation, groups=groups, sample_weight=sample_weight
            )
        return dict(zip(("network", "loss", "train", "val", "options"), given, strict=False))

    return of


@pytest.mark.parametrize(("batch_size", "epochs"), [(200, 100), (4, 36), (1, 20)])
def test_epochs_make_1600_batches_within_bounds_and_patience_is_half_of_them(training_of, batch_size, epochs):
    options = training_of(X, Y, batch_size=batch_size)["options"]
    assert (options.max_epochs, options.patience) == (epochs, epochs // 2)
    assert training_of(X, Y, max_epochs=4)["options"].patience == 3


def test_given_validation_data_has_class_weights(training_of):
    val = training_of(X, Y, validation=(X[:4], Y[:4]), class_weight={"b": 3.0})["val"]
    ids, labels, weights = next(iter(val))
    assert (ids != PAD).sum(1).tolist() == [3, 10, 11, 11]
    assert weights.tolist() == [0.5, 0.5, 1.5, 1.5]  # in units of the mean weight in training
    assert labels.tolist() == [0, 0, 1, 1]


def test_classes_missing_in_the_validation_data_are_named(training_of):
    three = np.array(["a", "b", "c", "d"] * 50)
    with pytest.warns(UserWarning, match=r"validation contains no sequence of the classes \['c', 'd'\]") as warned:
        training_of(X, three, validation=(X[:2], ["a", "b"]))
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training_of(X, three, validation=(X[:4], three[:4]))
        training_of(X, three, validation=(X[:2], ["a", "b"]), class_weight={"c": 0, "d": 0})  # they have no say anyhow


def test_a_batch_has_sequences_of_similar_length_and_an_epoch_all_of_them(training_of):
    rng = np.random.default_rng(0)
    reads = ["".join(rng.choice(list("ACGT"), length)) for length in rng.integers(20, 400, 300)]
    labels = rng.permutation(np.arange(300) % 2)
    given = training_of(reads, labels, batch_size=10, validation=(reads[:100], labels[:100]))
    for part, have in (("train", reads), ("val", reads[:100])):
        batches = [((ids != PAD).sum(1), ids.shape[1]) for ids, _, _ in given[part]]
        assert sorted(length for lengths, _ in batches for length in lengths.tolist()) == sorted(map(len, have))
        assert sum(width * len(lengths) for lengths, width in batches) < 1.2 * sum(map(len, have))


def pretrained():
    config = TitansConfig("lmm", VOCAB_SIZE, dim=16, num_layers=1, num_heads=1, hidden=16, chunk_size=4)
    return SimpleNamespace(model_=TitansLM(config))


@pytest.mark.parametrize(("finetune", "rate"), [("full", 5e-4), ("gradual", 5e-4), ("frozen", 2e-3)])
def test_a_language_model_has_a_lower_learning_rate_than_new_layers(training_of, finetune, rate):
    assert training_of(X, Y, pretrained=pretrained(), finetune=finetune)["options"].learning_rate == rate
    assert training_of(X, Y)["options"].learning_rate == 2e-3
    assert (
        training_of(X, Y, pretrained=pretrained(), finetune=finetune, learning_rate=1.0)["options"].learning_rate == 1.0
    )


def test_a_fitted_network_can_be_trained_further_even_if_parts_were_frozen():
    settings = dict(finetune="frozen", max_epochs=1, device="cpu", random_state=0, verbose=0)
    model = TitansDNAClassifier(pretrained(), **settings).fit(X[:20], Y[:20])
    assert all(parameter.requires_grad for parameter in model.network_.parameters())


def test_score_uses_sample_weights():
    settings = dict(dim=16, num_layers=1, max_epochs=1, device="cpu", random_state=0, verbose=0)
    model = TitansDNAClassifier(**settings).fit(X[:20], Y[:20])
    predicted = model.predict(X[:4])
    truth = np.where(np.arange(4) < 1, predicted, np.where(predicted == "a", "b", "a"))
    assert model.score(X[:4], truth) == 0.25
    assert model.score(X[:4], truth, sample_weight=[3, 1, 1, 1]) == 0.5


def rows_of(given):
    return {part: set(given[part].dataset.rows.tolist()) for part in ("train", "val")}


def test_groups_are_not_split_and_classes_keep_their_fractions(training_of):
    rng = np.random.default_rng(0)
    groups, labels = rng.integers(0, 60, 200).astype(str), Y[rng.permutation(200)]
    without = rows_of(training_of(X, labels, validation_fraction=0.2))
    assert set(groups[list(without["train"])]) & set(groups[list(without["val"])])  # else there is nothing to see
    rows = rows_of(training_of(X, labels, groups=groups, validation_fraction=0.2))
    assert rows["train"] | rows["val"] == set(range(200))
    assert not set(groups[list(rows["train"])]) & set(groups[list(rows["val"])])
    cut = labels[list(rows["val"])].tolist()
    assert abs(cut.count("a") - 20) <= 2
    assert abs(cut.count("b") - 20) <= 2
    assert rows == rows_of(training_of(X, labels, groups=groups, validation_fraction=0.2))


def test_sequences_of_weight_zero_are_in_no_part_and_their_groups_do_not_matter(training_of):
    groups = np.repeat(np.arange(50), 4)
    rows = rows_of(training_of(X, Y, groups=groups, sample_weight=np.arange(200) >= 8))
    assert rows["train"] | rows["val"] == set(range(8, 200))


def test_groups_equal_to_classes_leave_a_class_out_of_validation_with_a_warning(training_of):
    three = np.array(["a", "b", "b", "b"] * 50)
    groups = np.where(three == "a", -1, np.arange(200))
    with pytest.warns(UserWarning, match=r"groups set aside for validation contain no sequence of the classes \['a'\]"):
        rows = rows_of(training_of(X, three, groups=groups))
    assert set(three[list(rows["val"])]) == {"b"}


def test_classes_of_too_few_sequences_for_validation_are_named(training_of):
    three = np.array(["a", "b"] * 100)
    three[:3] = "c"
    with pytest.warns(UserWarning, match=r"sequences set aside for validation contain no .* classes \['c'\]") as warned:
        rows = rows_of(training_of(X, three))
    assert warned[0].filename == __file__
    assert {0, 1, 2} <= rows["train"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training_of(X, three, validation_fraction=0.3)
        training_of(X, three, class_weight={"c": 0})


def test_groups_that_cannot_be_split_or_read_are_refused(training_of):
    with pytest.warns(UserWarning, match="200 sequences is less than half of any group, so training cannot stop early"):
        assert training_of(X, Y, groups=np.arange(200) // 100)["val"] is None
    for groups, says in (
        (["x"] * 3, r"groups must have one entry for each of the 200 sequences, got shape \[3\]"),
        ("chr1", r"groups must have one entry for each of the 200 sequences, got shape \[\]"),
        ([None] + ["x"] * 199, r"groups has 1 missing entries, the first at 0"),
    ):
        with pytest.raises(ValueError, match=says):
            TitansDNAClassifier(verbose=0).fit(X, Y, groups=groups)
    with pytest.raises(ValueError, match="groups and validation cannot be combined"):
        TitansDNAClassifier(verbose=0).fit(X, Y, groups=[0] * 200, validation=(X, Y))
