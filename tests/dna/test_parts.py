"""Reading a batch in parts gives the same result, without padding all to a long sequence."""

import numpy as np
import pytest
import torch
from encoders import encoder_of

from titans_dna import DNALanguageModel, TitansDNAClassifier
from titans_dna.genomes.tokenizer import encode_batch
from titans_dna.network import parts
from titans_dna.network.parts import in_parts
from titans_dna.network.strands import NETWORKS, SequenceNetwork

RNG = np.random.default_rng(0)
LENGTHS = [30, 3000, 7, 60, 700, 50, 45, 31, 900, 30]
X = ["".join(RNG.choice(list("ACGT"), length)) for length in LENGTHS]
Y = np.array(["a", "b"] * 5)


@pytest.fixture
def read(monkeypatch):
    """Shapes of the network's inputs in training."""
    shapes = []
    forward = SequenceNetwork.forward

    def heard(network, ids):
        if torch.is_grad_enabled():
            shapes.append(tuple(ids.shape))
        return forward(network, ids)

    monkeypatch.setattr(SequenceNetwork, "forward", heard)
    return shapes


@pytest.fixture
def small(monkeypatch):
    """Lower the bounds, because the batches of a test are small."""

    def bound(part, kept):
        monkeypatch.setattr(parts, "_PART", part)
        monkeypatch.setattr(parts, "_KEPT", kept)

    return bound


def classifier(**settings):
    options = dict(dim=16, num_layers=1, batch_size=10, max_epochs=2, validation_fraction=0, random_state=0)
    return TitansDNAClassifier(**{**options, **settings}, device="cpu", verbose=0)


def test_one_long_sequence_does_not_pad_all_others(read):
    short = ["ACGTTGCA" * 12] * 63
    classifier(batch_size=64, max_epochs=1).fit([*short, "ACGT" * 3000], ["a", "b"] * 32)
    assert sorted(read) == [(1, 12000), (63, 96)]


def test_a_batch_without_long_sequences_is_read_as_one(read):
    classifier(max_epochs=1).fit(X, Y)
    assert read == [(10, 3000)]


@pytest.mark.slow
@pytest.mark.parametrize("kept", [10**6, 0])
@pytest.mark.parametrize("strand", NETWORKS)
def test_scores_and_gradients_are_those_of_the_whole_batch(small, strand, kept):
    torch.manual_seed(0)
    network = NETWORKS[strand](encoder_of(dropout=0.0), 2, 0.0, kmers=3).double()
    torch.nn.init.normal_(network.kmers.table.weight[1:])  # the first row is of what does not count
    network.eval()  # no strand at random
    ids = torch.from_numpy(encode_batch([x[:800] for x in X]).ids).long()
    found = []
    for part in (10**6, 300):
        small(part, kept)
        network.zero_grad()
        scores = in_parts(network, ids)
        scores.square().mean().backward()
        found.append([scores.detach(), *(p.grad.clone() for p in network.parameters() if p.grad is not None)])
    for whole, split in zip(*found, strict=True):
        torch.testing.assert_close(split, whole)


def test_memory_kept_for_the_backward_pass_is_bounded(small, read):
    small(1000, 2000)
    classifier(max_epochs=1).fit(X, Y)
    # once forward, and once again in the backward pass
    assert sorted(read) == sorted([(1, 3000), (1, 900), (1, 700), (6, 60), (1, 7)] * 2)
    read.clear()
    small(1000, 10**6)
    classifier(max_epochs=1).fit(X, Y)
    assert sorted(read) == sorted([(1, 3000), (2, 900), (6, 60), (1, 7)])


@pytest.mark.slow
@pytest.mark.parametrize("finetune", [None, "gradual"])
def test_training_in_parts_repeats_resumes_and_takes_as_many_steps(small, tmp_path, finetune):
    class StopError(Exception):
        pass

    def stop(epoch, loss):
        raise StopError

    small(150, 300)
    short = [x[:400] for x in X]
    options = {}
    if finetune:
        language = DNALanguageModel(
            dim=16, num_layers=1, num_heads=2, length=64, max_steps=2, random_state=0, verbose=0
        )
        options = dict(pretrained=language.fit(["ACGTTGCAAC" * 50]), finetune=finetune)
    once, again = (classifier(**options).fit(short, Y, validation=(short, Y)) for _ in range(2))
    np.testing.assert_array_equal(again.predict_proba(short), once.predict_proba(short))
    with pytest.raises(StopError):
        classifier(**options).fit(short, Y, validation=(short, Y), checkpoint_dir=tmp_path, on_epoch=stop)
    resumed = classifier(**options).fit(short, Y, validation=(short, Y), checkpoint_dir=tmp_path)
    np.testing.assert_allclose(resumed.predict_proba(short), once.predict_proba(short), atol=1e-6)
    if finetune:
        assert int(once.network_.encoder.step) == 2  # epochs of one batch
