"""Warm starts of a language model: from which weights, on which data, and with which holdout."""

import copy
import warnings

import pytest
import torch
from random_dna import chain
from sklearn.base import clone

from titans_dna import language
from titans_dna.genomes.sources import InMemory
from titans_dna.language import DNALanguageModel

SMALL = dict(dim=16, num_layers=1, num_heads=2, window=16, length=64, batch_size=8, device="cpu", verbose=0)


@pytest.fixture(scope="module")
def begun():
    settings = dict(SMALL, max_steps=10, learning_rate=1e-2, random_state=0, warm_start=True)
    return DNALanguageModel(**settings).fit([chain(8000), chain(500, seed=7)], holdout=["1"])


@pytest.fixture
def model(begun):
    return copy.deepcopy(begun)


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.model_.parameters()])


def test_a_warm_start_continues_training_and_improves(model):
    other, before = [chain(3000, seed=1)], weights(model)
    first = model.bits_per_base(other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of Lightning: a network in evaluation mode
        model.set_params(learning_rate=1e-9).fit([chain(8000)])
    torch.testing.assert_close(weights(model), before, atol=1e-6, rtol=0)
    model.set_params(learning_rate=1e-2).fit([chain(8000)])
    assert model.bits_per_base(other) < first - 0.02


def test_a_warm_start_may_use_another_genome(model):
    other = chain(3000, seed=1, step=0)
    before = model.bits_per_base([other])
    model.fit([chain(8000, step=0)])
    assert model.bits_per_base([other]) < before - 0.5


def test_without_a_warm_start_every_fit_starts_from_random_weights(model):
    anew = clone(model).fit([chain(8000)])
    cold = clone(model).set_params(warm_start=False).fit([chain(8000)])
    assert torch.equal(weights(anew), weights(cold))
    assert torch.equal(weights(model.set_params(warm_start=False).fit([chain(8000)])), weights(cold))


def test_a_loaded_model_continues_as_the_saved_one(model, tmp_path):
    model.save(tmp_path / "model")
    again = DNALanguageModel.load(tmp_path / "model").fit([chain(4000, seed=3)])
    assert torch.equal(weights(again), weights(model.fit([chain(4000, seed=3)])))
    assert again.read_ == model.read_


def test_an_interrupted_fit_leaves_the_model_and_resumes(model, tmp_path, monkeypatch):
    monkeypatch.setattr(language, "EPOCH", 5)
    text, before = [chain(4000, seed=3)], weights(model)
    unbroken = copy.deepcopy(model).fit(text)
    calls, loss = [], language.LOSSES["next"]

    def breaks(network, batch):
        calls.append(None)
        if len(calls) == 9:  # in the second epoch of 5 batches and 1 of validation
            raise RuntimeError("power cut")
        return loss(network, batch)

    monkeypatch.setitem(language.LOSSES, "next", breaks)
    with pytest.raises(RuntimeError, match="power cut"):
        model.fit(text, checkpoint_dir=tmp_path)
    monkeypatch.setitem(language.LOSSES, "next", loss)
    assert torch.equal(weights(model), before)
    with pytest.raises(ValueError, match="the network that it goes on with differs"):
        copy.deepcopy(unbroken).fit(text, checkpoint_dir=tmp_path)
    with pytest.raises(ValueError, match="network that it goes on with"):
        clone(model).fit(text, checkpoint_dir=tmp_path)
    resumed = copy.deepcopy(model).fit(text, checkpoint_dir=tmp_path)
    assert torch.equal(weights(resumed), weights(unbroken))
    assert resumed.history_ == unbroken.history_


def test_arguments_of_another_network_are_refused(model):
    with pytest.raises(ValueError, match=r"arguments \(here\) differ: dim 16 there and 32 here.*warm_start=False"):
        model.set_params(dim=32).fit([chain(1000)])


def test_sequence_read_by_an_earlier_fit_is_not_compared_on(model):
    model.set_params(max_steps=1).fit([chain(500, seed=7), chain(900, seed=2)])
    held, second = chain(600, seed=6), [chain(2000, seed=5), chain(600, seed=6)]
    model.fit(second, holdout=["1"])
    for known in (chain(900, seed=2), chain(8000)):  # read as "1" and as "0"
        with pytest.raises(ValueError, match=r"\['1'\] was not held out in each fit"):
            model.compare([held, known], chroms=["1"], max_order=1)
    assert len(model.compare(second, chroms=["1"], max_order=1)) == 1 + 2 * 2
    assert len(model.compare([chain(8000), chain(700, seed=8)], max_order=1)) == 1 + 2 * 2


def test_sequence_read_by_an_earlier_fit_cannot_be_held_out(model, tmp_path):
    genome = InMemory([chain(8000), chain(500, seed=7)])
    model.fit(genome, holdout=["1"])  # as before
    assert model.holdout_ == ["1"]
    model.set_params(max_steps=1).save(tmp_path / "model")
    # under whatever name, and after loading
    turned = InMemory([chain(500, seed=7), chain(8000)])
    for given in (model, DNALanguageModel.load(tmp_path / "model")):
        with pytest.raises(ValueError, match=r"holdout=\['1'\] was read by an earlier fit of this model"):
            given.fit(turned, holdout=["1"])
    model.fit([chain(2000, seed=5), chain(2000, seed=6)], holdout=["0"])  # of another genome
    assert model.holdout_ == ["0"]
    with pytest.raises(ValueError, match="read by an earlier fit"):
        model.fit(genome, holdout=["0"])  # of the first of three
    model.fit(genome)
    with pytest.raises(ValueError, match="read by an earlier fit"):
        model.fit(genome, holdout=["1"])
    assert model.set_params(warm_start=False).fit(genome, holdout=["1"]).holdout_ == ["1"]
