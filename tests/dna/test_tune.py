"""Laws of the classifier's search: it returns the best trial, continues a study, and refuses other data."""

import math
import warnings

import numpy as np
import optuna
import pytest

from titans_core.train import History
from titans_dna import DNALanguageModel, Interval, TitansDNAClassifier
from titans_dna.genomes.sources import InMemory
from titans_dna.tune import default_space, plot_history, plot_importance, tune

RNG = np.random.default_rng(0)
X = ["".join(RNG.choice(list("ACGT"), 24, p=p)) for p in [(0.4, 0.1, 0.1, 0.4), (0.1, 0.4, 0.4, 0.1)] * 40]
Y = np.array(["poor", "rich"] * 40)


def small(**changes):
    settings = dict(dim=16, num_layers=1, max_epochs=3, batch_size=16, device="cpu", verbose=0)
    return TitansDNAClassifier(**settings | changes)


def space(trial, facts):
    return {"learning_rate": trial.suggest_categorical("learning_rate", [1e-6, 1e-2])}


def test_the_best_trial_comes_back_fitted():
    base = small()
    found = tune(X, Y, base, n_trials=5, space=space, random_state=0, verbose=0)
    assert found.learning_rate == 1e-2
    assert found.dim == 16
    assert not hasattr(base, "network_")
    values = [t.value for t in found.study_.trials if t.value is not None]
    assert found.study_.best_value == min(values)
    assert found.history_.epochs[found.history_.best_epoch]["val_loss"] == pytest.approx(min(values), rel=1e-6)
    assert found.score(X, Y) > 0.8
    assert plot_history(found.study_).axes[0].get_ylabel() == "validation loss"
    assert "learning_rate" in [t.get_text() for t in plot_importance(found.study_).axes[0].get_yticklabels()]


@pytest.mark.slow
@pytest.mark.parametrize("file", ["study.db", "study.journal"])
def test_a_study_continues_up_to_n_trials(tmp_path, file):
    options = {"space": space, "storage": tmp_path / file, "verbose": 0}
    base = small(max_epochs=1)
    assert len(tune(X, Y, base, n_trials=1, **options).study_.trials) == 1
    assert len(tune(X, Y, base, n_trials=2, **options).study_.trials) == 2
    assert len(tune(X, Y, base, n_trials=2, **options).study_.trials) == 2
    with pytest.raises(ValueError, match=r"belongs to another search \(different: data\)"):
        tune(X[1:], Y[1:], base, n_trials=4, **options)
    with pytest.raises(ValueError, match=r"belongs to another search \(different: data\)"):
        tune(X, Y[::-1], base, n_trials=4, **options)
    with pytest.raises(ValueError, match=r"belongs to another search \(different: pool\)"):
        tune(X, Y, small(max_epochs=1, pool=2), n_trials=4, **options)


def test_trials_are_scored_on_the_given_validation_data():
    judged = []

    class Recording(TitansDNAClassifier):
        def fit(self, X, y, *, validation=None, **options):
            judged.append(validation)
            return super().fit(X, y, validation=validation, **options)

    settings = small(max_epochs=1, validation_fraction=0.0).get_params()
    given = (X[:10], Y[:10])
    tune(X[10:], Y[10:], Recording(**settings), n_trials=1, space=space, validation=given, verbose=0)
    assert judged == [given, given]
    with pytest.raises(ValueError, match="need validation sequences"):
        tune(X, Y, small(validation_fraction=0.0), n_trials=1)


def test_bad_sequences_are_refused_before_any_trial():
    with pytest.raises(ValueError, match="U"):
        tune(["ACGU"] * 80, Y, small(), n_trials=1)
    with pytest.raises(ValueError, match="inconsistent lengths"):
        tune(X, Y[:-1], small(), n_trials=1)


def test_too_few_validation_sequences_are_refused_before_any_trial():
    with pytest.raises(ValueError, match="there are no validation sequences"):
        tune(X[:6], Y[:6], small(), n_trials=1, space=space, random_state=0, verbose=0)


def test_the_default_space_has_settings_that_train():
    def trial(pretrained):
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
        return default_space(study.ask(), {"rows": 80, "length": 24, "pretrained": pretrained})

    settings = trial(False)
    assert settings["pool"] <= 6
    fitted = small(**{**settings, "max_epochs": 1}).fit(X, Y)
    assert {name: fitted.get_params()[name] for name in settings} == settings
    assert math.isfinite(fitted.history_.epochs[0]["val_loss"])
    assert set(trial(True)) == {"dropout", "finetune", "learning_rate"}


def test_how_a_language_model_is_tuned_can_be_searched(tmp_path):
    language = DNALanguageModel(
        dim=16, num_layers=1, num_heads=2, chunk_size=8, length=32, max_steps=2, device="cpu", random_state=0, verbose=0
    ).fit(X)
    storage = tmp_path / "study.db"
    found = tune(X, Y, small(pretrained=language, max_epochs=1), n_trials=1, storage=storage, verbose=0)
    assert set(found.study_.best_params) == {"dropout", "finetune", "learning_rate"}
    assert found.pretrained is language
    language.fit(X[::-1])
    with pytest.raises(ValueError, match=r"different: pretrained\)"):
        tune(X, Y, small(pretrained=language, max_epochs=1), n_trials=2, storage=storage, verbose=0)


def test_silence_is_silent(tmp_path, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tune(X, Y, small(max_epochs=1), n_trials=1, space=space, storage=tmp_path / "study.db", verbose=0)
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""


def test_sequences_may_be_an_iterator_and_the_model_must_be_a_classifier():
    found = tune(iter(X), Y, small(max_epochs=1), n_trials=2, space=space, verbose=0)
    assert len(found.study_.trials) == 2
    with pytest.raises(TypeError, match="must be a TitansDNAClassifier, got DNALanguageModel"):
        tune(X, Y, DNALanguageModel())


def test_intervals_may_be_an_iterator_too():
    genome = InMemory(X)
    intervals = (Interval(name, 0, length) for name, length in genome.lengths.items())
    found = tune((intervals, genome), Y, small(max_epochs=1), n_trials=1, space=space, verbose=0)
    assert len(found.predict(X)) == len(X)


def test_a_trial_is_scored_by_its_best_epoch():
    class Fitted(TitansDNAClassifier):
        def fit(self, X, y, **options):
            self.history_ = History([{"val_loss": 0.5}, {"val_loss": 0.25}, {"val_loss": 0.75}], 1)
            return self

    found = tune(X, Y, Fitted(), n_trials=1, space=lambda trial, facts: {}, verbose=0)
    assert found.study_.best_value == 0.25


def test_a_study_continues_with_another_seed_only_on_given_validation_data(tmp_path):
    class Fitted(TitansDNAClassifier):
        def fit(self, X, y, **options):
            self.history_ = History([{"val_loss": 0.5}], 0)
            return self

    settings = dict(space=lambda trial, facts: {}, verbose=0)
    split = dict(settings, storage=tmp_path / "split.db")
    tune(X, Y, Fitted(), n_trials=1, random_state=0, **split)
    with pytest.raises(ValueError, match=r"belongs to another search \(different: random_state\)"):
        tune(X, Y, Fitted(), n_trials=2, random_state=1, **split)
    assert len(tune(X, Y, Fitted(), n_trials=2, random_state=0, **split).study_.trials) == 2
    given = dict(settings, storage=tmp_path / "given.db", validation=(X[:10], Y[:10]))
    tune(X, Y, Fitted(), n_trials=1, random_state=0, **given)
    assert len(tune(X, Y, Fitted(), n_trials=2, random_state=1, **given).study_.trials) == 2


def test_trials_are_scored_on_whole_groups(tmp_path):
    given = []

    class Fitted(TitansDNAClassifier):
        def fit(self, X, y, *, groups=None, **options):
            given.append(groups)
            self.history_ = History([{"val_loss": 0.5}], 0)
            return self

    groups, storage = np.arange(len(X)), tmp_path / "study.db"
    settings = dict(n_trials=1, space=lambda trial, facts: {}, storage=storage, verbose=0)
    tune(X, Y, Fitted(), groups=groups, **settings)
    assert all(found is groups for found in given)
    assert len(given) == 2
    with pytest.raises(ValueError, match=r"different: data\)"):  # another part would judge
        tune(X, Y, Fitted(), groups=groups // 2, **settings)
    with pytest.raises(ValueError, match="is less than half of any group"):
        tune(X, Y, Fitted(), groups=groups // len(X), n_trials=1, verbose=0)


def test_arguments_that_no_trial_could_use_are_refused_before_a_study_is_opened(tmp_path):
    storage = tmp_path / "study.db"
    for classifier, options, message in (
        (TitansDNAClassifier(), {"groups": np.arange(len(X)), "validation": (X, Y)}, "cannot be combined"),
        (TitansDNAClassifier(class_weight={"neither": 2}), {}, "unknown classes"),
    ):
        with pytest.raises(ValueError, match=message):
            tune(X, Y, classifier, storage=storage, n_trials=1, verbose=0, **options)
    assert not storage.exists()


@pytest.mark.parametrize("kept", [True, False])
def test_an_interrupted_search_says_what_is_kept(tmp_path, kept):
    def interrupted(study, trial):
        if trial.number == 1:
            raise KeyboardInterrupt

    storage = tmp_path / "study.journal" if kept else None
    says = "are in the storage; the same call continues" if kept else "nothing is kept. Give storage"
    options = dict(space=space, random_state=0, verbose=0, storage=storage, callbacks=[interrupted])
    with pytest.raises(KeyboardInterrupt, match=f"interrupted after 2 finished trials.*{says}"):
        tune(X, Y, small(max_epochs=1), n_trials=5, **options)
