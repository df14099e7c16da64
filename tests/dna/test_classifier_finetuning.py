"""A language model as the encoder of the classifier."""

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV, cross_validate

from titans_core import TitansConfig, TitansLM
from titans_dna.classification.fine_tuning import LanguageEncoder, network_of
from titans_dna.classifier import TitansDNAClassifier
from titans_dna.genomes.tokenizer import VOCAB_SIZE, encode_batch
from titans_dna.language import DNALanguageModel

X = ["ACGTTGCAAC", "TTTACGNNACC", "ACG", "GGGTACCATTG"] * 5
Y = ["a", "b"] * 10


class Pretrained(BaseEstimator):
    """A stand-in for a language model, of which only the network is used."""

    def __init__(self, architecture="lmm"):
        self.architecture = architecture

    def fit(self):
        torch.manual_seed(0)
        self.model_ = TitansLM(
            TitansConfig(
                architecture=self.architecture,
                vocab_size=VOCAB_SIZE,
                dim=16,
                num_layers=2,
                num_heads=1,
                hidden=32,
                chunk_size=4,
                segment=4,
                window=4,
                num_persistent=2,
            )
        ).eval()
        return self


def classifier(pretrained, **changes):
    small = dict(max_epochs=3, batch_size=10, device="cpu", random_state=0, verbose=0)
    return TitansDNAClassifier(pretrained, **small | changes)


def moved(model, pretrained):
    """The parts of the language model whose weights changed, from the embedding to the last block."""
    before, after = pretrained.model_.state_dict(), model.network_.encoder.model.state_dict()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    return [any(name.startswith(part) for name in changed) for part in ("embedding", "blocks.0", "blocks.1")]


@pytest.mark.parametrize("architecture", ["lmm", "mac", "mag", "mal"])
@pytest.mark.parametrize("mode", ["average", "equivariant"])
def test_features_are_the_hidden_states_after_each_base_and_padding_never_changes_a_score(architecture, mode):
    pretrained = Pretrained(architecture).fit()
    model = classifier(pretrained, max_epochs=1, reverse_complement=mode).fit(X, Y)
    alone = np.concatenate([model.predict_proba([x]) for x in X[:4]])
    np.testing.assert_allclose(model.predict_proba(X[:4]), alone, atol=1e-6)
    ids = torch.from_numpy(encode_batch(["ACGT", "NACGT"]).ids).long()
    features, mask = LanguageEncoder(pretrained.model_, "full", 1, positions=True)(ids[:1, :4])
    torch.testing.assert_close(features[0], pretrained.model_.hidden(ids[1:])[0][0, 1:])
    assert mask.all()


def test_a_frozen_model_does_not_learn_and_a_free_one_does():
    pretrained = Pretrained().fit()
    kept = {name: value.clone() for name, value in pretrained.model_.state_dict().items()}
    frozen, full = (classifier(pretrained, finetune=f).fit(X, Y) for f in ("frozen", "full"))
    assert moved(frozen, pretrained) == [False, False, False]
    assert moved(full, pretrained) == [True, True, True]
    # what was given is borrowed
    assert all(torch.equal(value, kept[name]) for name, value in pretrained.model_.state_dict().items())


def test_a_model_that_learns_gets_positions_and_a_frozen_one_does_not(tmp_path):
    pretrained = Pretrained().fit()
    with_positions, without_positions = (classifier(pretrained, positions=p).fit(X, Y) for p in (True, False))
    assert with_positions.network_.encoder.places.linear.weight.abs().max() > 1e-4
    assert without_positions.network_.encoder.places is None
    assert np.abs(with_positions.predict_proba(X) - without_positions.predict_proba(X)).max() > 1e-4
    assert classifier(pretrained, finetune="frozen").fit(X, Y).network_.encoder.places is None
    without_positions.save(tmp_path / "model")
    np.testing.assert_array_equal(
        TitansDNAClassifier.load(tmp_path / "model").predict_proba(X), without_positions.predict_proba(X)
    )


def test_gradual_fine_tuning_begins_with_the_last_block_and_ends_with_all():
    encoder = LanguageEncoder(Pretrained().fit().model_, "gradual", steps=16, positions=True)
    ids = torch.zeros(1, 4, dtype=torch.long)
    learning = []
    for _ in range(16):
        encoder.begin_batch()
        encoder(ids)
        learning.append([next(part.parameters()).requires_grad for part in encoder.parts()])
    assert learning[0] == [True, False, False, False]
    assert learning[2] == [True, True, False, False]
    assert learning[4] == [True, True, True, False]
    assert all(all(parts) for parts in learning[6:])
    model = classifier(pretrained := Pretrained().fit(), finetune="gradual").fit(X, Y)
    assert moved(model, pretrained) == [True, True, True]


def test_gradual_fine_tuning_resumed_is_the_same_fine_tuning(tmp_path):
    class StopError(Exception):
        pass

    def stop(epoch, loss):
        if epoch == 1:
            raise StopError

    options = dict(pretrained=Pretrained().fit(), finetune="gradual")
    whole = classifier(**options).fit(X, Y)
    with pytest.raises(StopError):
        classifier(**options).fit(X, Y, checkpoint_dir=tmp_path, on_epoch=stop)
    resumed = classifier(**options).fit(X, Y, checkpoint_dir=tmp_path)
    np.testing.assert_allclose(resumed.predict_proba(X), whole.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("finetune", ["full", "frozen", "gradual"])
def test_fit_save_load_predict_gives_the_same_numbers_without_the_language_model(tmp_path, finetune):
    model = classifier(Pretrained().fit(), finetune=finetune).fit(X, Y)
    model.save(tmp_path / "model")
    loaded = TitansDNAClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.pretrained == "not stored"


def test_a_clone_keeps_the_fitted_language_model():
    pretrained = Pretrained().fit()
    assert clone(classifier(pretrained)).pretrained is pretrained
    cross_validate(classifier(pretrained, max_epochs=1), X, Y, cv=2, error_score="raise")


def test_parameters_of_the_language_model_are_not_the_classifiers():
    model = classifier(pretrained := Pretrained().fit())
    assert not [name for name in model.get_params(deep=True) if "__" in name]
    assert model.get_params()["pretrained"] is pretrained
    with pytest.raises(ValueError, match=r"Invalid parameter 'pretrained__architecture' .* is fitted already"):
        model.set_params(pretrained__architecture="mac")
    with pytest.raises(ValueError, match="Invalid parameter 'pretrained__architecture'"):
        GridSearchCV(model, {"pretrained__architecture": ["mac"]}, cv=2).fit(X, Y)
    with pytest.raises(ValueError, match="Invalid parameter 'width'"):
        model.set_params(width=3)
    assert pretrained.architecture == "lmm"
    assert model.set_params(finetune="frozen", pretrained=None).get_params()["finetune"] == "frozen"


def test_a_pretrained_model_and_its_folder_give_the_same_classifier(tmp_path):
    rng = np.random.default_rng(0)
    genome = ["".join(rng.choice(list("ACGT"), 400)) for _ in range(4)]
    small = dict(dim=16, num_layers=1, num_heads=1, length=64, max_steps=2, batch_size=2, random_state=0, verbose=0)
    pretrained = DNALanguageModel(**small, device="cpu").fit(genome)
    pretrained.save(tmp_path / "language")
    model, by_path, by_name = (
        classifier(given, max_epochs=1).fit(X, Y)
        for given in (pretrained, tmp_path / "language", str(tmp_path / "language"))
    )
    np.testing.assert_array_equal(by_path.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(by_name.predict_proba(X), model.predict_proba(X))
    by_path.save(tmp_path / "classifier")
    assert TitansDNAClassifier.load(tmp_path / "classifier").pretrained == str(tmp_path / "language")


def test_a_checkpoint_of_another_language_model_is_refused(tmp_path):
    one, other = Pretrained().fit(), Pretrained().fit()
    with torch.no_grad():
        other.model_.embedding.weight.mul_(1.1)
    classifier(one, max_epochs=1).fit(X, Y, checkpoint_dir=tmp_path)
    with pytest.raises(ValueError, match="the pretrained differs"):
        classifier(other, max_epochs=1).fit(X, Y, checkpoint_dir=tmp_path)


def test_pretrained_must_be_a_language_model(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        network_of(Pretrained())
    with pytest.raises(TypeError, match="must be a fitted DNALanguageModel or the folder of a saved one, got int"):
        network_of(3)
    with pytest.raises(TypeError, match="the folder of a saved one, got TitansDNAClassifier"):
        network_of(classifier(None).fit(X, Y))
    other = Pretrained().fit()
    other.model_ = TitansLM(TitansConfig(vocab_size=3, dim=16, num_layers=1, num_heads=1, hidden=16))
    with pytest.raises(ValueError, match="vocabulary of 3 tokens"):
        network_of(other)


def test_a_loaded_model_is_not_fitted_again_without_its_language_model(tmp_path):
    pretrained = Pretrained().fit()
    classifier(pretrained).fit(X, Y).save(tmp_path)
    loaded = TitansDNAClassifier.load(tmp_path)
    loaded.save(tmp_path / "again")
    for model in (loaded, clone(loaded), TitansDNAClassifier.load(tmp_path / "again")):
        with pytest.raises(ValueError, match=r"was not saved with it.*set_params"):
            model.fit(X, Y)
    assert isinstance(loaded.set_params(pretrained=pretrained).fit(X, Y).network_.encoder, LanguageEncoder)
