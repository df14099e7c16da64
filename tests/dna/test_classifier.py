"""The classifier as an estimator: what it learns, and that it keeps sklearn's contract."""

import copy
import inspect
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import recall_score
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

from titans_core.archive import ArchiveError, load_archive, save_archive
from titans_dna.classifier import TitansDNAClassifier
from titans_dna.genomes.tokenizer import reverse_complement

MOTIF = "TGACTCAGC"


def classifier(**changes):
    small = dict(dim=16, num_layers=1, max_epochs=2, batch_size=16, device="cpu", random_state=0, verbose=0)
    return TitansDNAClassifier(**small | changes)


def planted(n, seed=0, low=30, high=50, share=0.5, strands=True):
    """Random sequences of different lengths; those labelled "yes" contain the motif on one of the strands."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for i in range(n):
        bases = "".join(rng.choice(list("ACGT"), rng.integers(low, high)))
        if i < n * share:
            motif = reverse_complement(MOTIF) if strands and rng.random() < 0.5 else MOTIF
            at = rng.integers(0, len(bases) - len(motif))
            bases = bases[:at] + motif + bases[at + len(motif) :]
        X.append(bases)
        y.append("yes" if i < n * share else "no")
    order = rng.permutation(n)
    return [X[i] for i in order], np.array(y)[order]


@pytest.fixture(scope="module")
def fitted():
    X, y = planted(40)
    return classifier().fit(X, y)


@pytest.mark.parametrize("mode", ["average", "equivariant"])
def test_a_planted_motif_is_learned_on_both_strands(mode):
    X, y = planted(300, seed=1, low=15, high=25)
    X_test, y_test = planted(100, seed=2, low=15, high=25)
    model = classifier(reverse_complement=mode, max_epochs=6, learning_rate=1e-2, dropout=0.0, pool=8).fit(X, y)
    assert model.score(X_test, y_test) > 0.9
    turned = [reverse_complement(s) for s in X_test]
    np.testing.assert_allclose(model.predict_proba(turned), model.predict_proba(X_test), atol=1e-5)


def test_kmers_separate_classes_that_differ_only_in_kmers():
    """The classes differ in 3-mers at any position; the reverse complement has as many."""
    rng = np.random.default_rng(0)
    words = {"no": ["ACG", "TTC"], "yes": ["AGC", "TCT"]}
    y = np.array(["no", "yes"] * 100)
    X = ["".join(rng.choice(words[label], 12)) for label in y]
    with_kmers, without_kmers = (classifier(kmers=k, max_epochs=4).fit(X[:150], y[:150]) for k in (3, 0))
    assert with_kmers.score(X[150:], y[150:]) == 1
    assert without_kmers.network_.kmers is None
    log_odds = [model.predict_proba(X[150:])[:, 1] for model in (with_kmers, without_kmers)]
    assert np.abs(log_odds[0] - 0.5).mean() > np.abs(log_odds[1] - 0.5).mean()


def test_probabilities_do_not_depend_on_the_neighbours(fitted):
    X, _ = planted(20, seed=3, low=10, high=90)
    X += ["A", "AC", "N", "acgtnry"]
    together = fitted.predict_proba(X)
    alone = np.concatenate([fitted.predict_proba([x]) for x in X])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(together.sum(1), 1)
    np.testing.assert_allclose(fitted.predict_proba(X[::-1])[::-1], together, atol=1e-6)


def test_sequences_shorter_than_a_chunk_and_a_filter_are_learned_from():
    model = classifier(max_epochs=15, learning_rate=2e-2, dropout=0.0).fit(["A", "C", "AA", "CC"] * 8, [1, 0, 1, 0] * 8)
    assert model.predict(["A", "C", "CC"]).tolist() == [1, 0, 0]


def test_the_same_seed_gives_the_same_model_and_another_seed_another():
    X, y = planted(40)
    one, same, other = (classifier(random_state=s).fit(X, y).predict_proba(X) for s in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 1e-4


def test_fit_leaves_the_callers_random_state_alone():
    X, y = planted(20)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    classifier().fit(X, y)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize(
    ("mode", "dtype"), [("none", "str"), ("augment", "object"), ("average", "int64"), ("equivariant", "bool")]
)
def test_fit_save_load_predict_gives_the_same_numbers(tmp_path, mode, dtype):
    X, y = planted(20)
    y = {"str": y, "object": y.astype(object), "int64": (y == "yes") * 7, "bool": y == "yes"}[dtype]
    model = classifier(reverse_complement=mode, max_epochs=1, class_weight={y[0]: Fraction(2)}).fit(X, y)
    model.save(tmp_path / "model")
    loaded = TitansDNAClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.predict(X).dtype == model.predict(X).dtype
    assert loaded.class_weight[y[0]] == 2.0
    assert loaded.get_params()["dim"] == 16


def test_a_model_with_arguments_of_another_version_is_refused_by_their_names(fitted, tmp_path):
    fitted.save(tmp_path)
    content, tensors = load_archive(tmp_path, "TitansDNAClassifier")
    save_archive(tmp_path, "TitansDNAClassifier", content | {"params": content["params"] | {"chunk": 8}}, tensors)
    with pytest.raises(ArchiveError, match=r"saved by another version, .* arguments \['chunk'\]"):
        TitansDNAClassifier.load(tmp_path)


def test_classes_are_sorted_by_name_and_predicted_as_given():
    X, _ = planted(30)
    model = classifier().fit(X, ["mouse", "human", "worm"] * 10)
    assert model.classes_.tolist() == ["human", "mouse", "worm"]
    assert set(model.predict(X)) <= {"human", "mouse", "worm"}
    assert model.predict_proba(X).shape == (30, 3)


def test_a_class_with_more_weight_is_predicted_more_often():
    X, y = planted(120, share=0.2)
    recall = [
        recall_score(y, classifier(class_weight=w, max_epochs=4).fit(X, y).predict(X), pos_label="yes")
        for w in ({"no": 10.0}, {"yes": 10.0})
    ]
    assert recall[0] < recall[1]


def test_balanced_weights_give_classes_equal_weight():
    X, y = planted(40, share=0.25)
    model = classifier(class_weight="balanced", max_epochs=1).fit(X, y)
    np.testing.assert_allclose(model.class_weight_ * [30, 10], 20)


def test_balanced_weights_count_sequences_by_their_weight():
    X, y = planted(40)
    kept = (y == "yes") | (np.arange(40) >= 20)
    balanced = classifier(class_weight="balanced")
    beside = clone(balanced).fit(X, y, sample_weight=kept.astype(float))
    alone = clone(balanced).fit(np.array(X)[kept], y[kept])
    assert alone.class_weight_[0] > alone.class_weight_[1]
    np.testing.assert_allclose(beside.class_weight_, alone.class_weight_)
    np.testing.assert_allclose(beside.predict_proba(X), alone.predict_proba(X), atol=1e-6)


def test_a_class_whose_sequences_all_weigh_nothing_has_a_balanced_weight_of_zero():
    X, y = planted(40, share=0.25)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = classifier(class_weight="balanced", max_epochs=1).fit(
            [*X, "ACGT", "TTAC"], [*y, "maybe", "maybe"], sample_weight=[1.0] * 40 + [0.0] * 2
        )
    assert model.classes_.tolist() == ["maybe", "no", "yes"]
    np.testing.assert_allclose(model.class_weight_ * [2, 30, 10], [0, 40 / 3, 40 / 3])


def test_a_weight_of_zero_leaves_a_sequence_out():
    X, y = planted(40)
    wrong = np.where(y == "yes", "no", "yes")
    options = dict(validation_fraction=0, batch_size=100, dropout=0.0, reverse_complement="none")
    alone = classifier(**options).fit(X, y, sample_weight=np.full(40, 2.0))
    beside = classifier(**options).fit(X + X, [*y, *wrong], sample_weight=[4.0] * 40 + [0.0] * 40)
    np.testing.assert_allclose(alone.predict_proba(X), beside.predict_proba(X), atol=1e-5)


def test_sequences_of_weight_zero_are_not_in_the_validation_part():
    X, y = planted(40)
    other, labels = planted(400, seed=4)
    alone = classifier(max_epochs=2).fit(X, y)
    beside = classifier(max_epochs=2).fit([*other, *X], [*labels, *y], sample_weight=[0.0] * 400 + [1.0] * 40)
    assert beside.history_.epochs == alone.history_.epochs
    np.testing.assert_array_equal(beside.predict_proba(X), alone.predict_proba(X))
    with pytest.raises(ValueError, match="class_weight and sample_weight give every sequence a weight of 0"):
        classifier(class_weight={"yes": 0.0}).fit(X, y, sample_weight=(np.asarray(y) == "yes").astype(float))


def test_training_stops_without_a_better_validation_error():
    X, y = planted(60)
    opposite = {"no": "yes", "yes": "no"}  # what is learned is wrong there
    other, labels = planted(30, seed=4)
    model = classifier(max_epochs=20, learning_rate=1e-2)
    model.fit(X, y, validation=(other, [opposite[label] for label in labels]))
    assert len(model.history_.epochs) < 20
    assert model.history_.best_epoch < len(model.history_.epochs) - 1


def test_the_validation_part_may_be_given():
    X, y = planted(40)
    model = classifier().fit(X, y, validation=planted(10, seed=4))
    assert "val_loss" in model.history_.epochs[0]
    with pytest.raises(ValueError, match=r"validation has classes that are not in y: \['maybe'\]"):
        classifier().fit(X, y, validation=(["ACGT"], ["maybe"]))
    with pytest.raises(ValueError, match="validation has only classes whose class_weight is 0"):
        classifier(class_weight={"no": 0}).fit(X, y, validation=(["ACGT"], ["no"]))


def test_training_interrupted_and_resumed_is_the_same_training(tmp_path):
    X, y = planted(40)

    class StopError(Exception):
        pass

    def stop(epoch, loss):
        if epoch == 1:
            raise StopError

    whole = classifier(max_epochs=3).fit(X, y)
    with pytest.raises(StopError):
        classifier(max_epochs=3).fit(X, y, checkpoint_dir=tmp_path, on_epoch=stop)
    resumed = classifier(max_epochs=3).fit(X, y, checkpoint_dir=tmp_path)
    np.testing.assert_allclose(resumed.predict_proba(X), whole.predict_proba(X), atol=1e-6)
    with pytest.raises(ValueError, match="the data differs"):
        classifier(max_epochs=3).fit(X[::-1], y, checkpoint_dir=tmp_path)


def test_a_classifier_resumes_saves_and_loads_in_the_home_folder(home):
    X, y = planted(40)
    epochs = []

    class StopError(Exception):
        pass

    def stop(epoch, loss):
        epochs.append(epoch)
        if epoch == 1:
            raise StopError

    with pytest.raises(StopError):
        classifier(max_epochs=3).fit(X, y, checkpoint_dir="~/run", on_epoch=stop)
    assert (home / "run" / "last.ckpt").exists()
    resumed = classifier(max_epochs=3).fit(
        X, y, checkpoint_dir="~/run", on_epoch=lambda epoch, loss: epochs.append(epoch)
    )
    assert epochs == [0, 1, 1, 2]
    resumed.save("~/model")
    assert (home / "model" / "model.json").exists()
    np.testing.assert_array_equal(TitansDNAClassifier.load("~/model").predict_proba(X), resumed.predict_proba(X))


def test_class_weights_in_another_order_are_the_same_fit(tmp_path):
    X, y = planted(40)
    labels, epochs = (y == "yes").astype(int), []
    classifier(class_weight={0: 1, 1: 2}).fit(X, labels, checkpoint_dir=tmp_path)
    classifier(class_weight={1: 2, 0: 1}).fit(
        X, labels, checkpoint_dir=tmp_path, on_epoch=lambda epoch, loss: epochs.append(epoch)
    )
    assert not epochs
    with pytest.raises(ValueError, match=r"class_weight is \{0: 1, 1: 2\} there and \{0: 2, 1: 1\} here"):
        classifier(class_weight={1: 1, 0: 2}).fit(X, labels, checkpoint_dir=tmp_path)


def test_a_fit_that_is_interrupted_leaves_no_half_fitted_model(fitted):
    X, y = planted(40)

    def stop(epoch, loss):
        raise KeyboardInterrupt

    model = classifier(max_epochs=3)
    with pytest.raises(KeyboardInterrupt, match=r"nothing is kept.*checkpoint_dir"):
        model.fit(X, y, on_epoch=stop)
    assert not [name for name in vars(model) if name.endswith("_")]
    before = copy.deepcopy(fitted)
    with pytest.raises(KeyboardInterrupt):
        before.fit(X, y, on_epoch=stop)
    np.testing.assert_array_equal(before.predict_proba(X), fitted.predict_proba(X))


# sklearn


def test_there_are_fewer_than_twenty_arguments_stored_unchanged():
    names = list(inspect.signature(TitansDNAClassifier).parameters)
    assert len(names) < 20
    given = {name: object() for name in names}
    assert all(TitansDNAClassifier(**given).get_params(deep=False)[name] is given[name] for name in names)


def test_a_clone_has_the_same_parameters_and_is_not_fitted(fitted):
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    assert not hasattr(copied, "network_")


def test_pipeline_cross_validation_and_grid_search():
    X, y = planted(40)
    steps = Pipeline([("upper", FunctionTransformer(lambda X: [s.upper() for s in X])), ("model", classifier())])
    assert cross_validate(steps, np.array(X), y, cv=2, error_score="raise")["test_score"].shape == (2,)
    search = GridSearchCV(classifier(max_epochs=1), {"pool": [1, 2]}, cv=2, error_score="raise").fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert search.best_params_ == search.cv_results_["params"][scores.argmax()]
    assert search.best_estimator_.network_.encoder.config.pool == search.best_params_["pool"]
    assert search.score(X, y) == search.best_estimator_.score(X, y)


@pytest.mark.parametrize(
    "wrap", [list, tuple, np.array, pd.Series, lambda X: np.array(X, object)[:, None], pd.DataFrame]
)
def test_every_form_of_the_same_sequences_gives_the_same_model(wrap):
    X, y = planted(20)
    expected = classifier(max_epochs=1).fit(X, y).predict_proba(X)
    model = classifier(max_epochs=1).fit(wrap(X), pd.Series(y))
    np.testing.assert_array_equal(model.predict_proba(wrap(X)), expected)


# the checks that never call fit; the others make matrices of numbers, which are no sequences: the tags skip them
CHECKS = (
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
)


@pytest.mark.parametrize("check", CHECKS)
def test_sklearns_own_checks(check):
    getattr(estimator_checks, check)("TitansDNAClassifier", classifier())


@pytest.mark.filterwarnings("ignore:Can't test estimator")
def test_sklearn_skips_the_checks_on_matrices():
    results = estimator_checks.check_estimator(classifier(), on_fail=None)
    assert {result["status"] for result in results} == {"passed"}
