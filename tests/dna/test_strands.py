"""Both strands: reverse complements, and the scores of each strand option."""

import numpy as np
import pytest
import torch
from encoders import encoder_of

from titans_dna.genomes.tokenizer import encode_batch, reverse_complement
from titans_dna.network.strands import NETWORKS, other_strand

SEQUENCES = ["ACGTTGCAAC", "T", "GGNACCA", "CCCCCGTACGTAGCTAGCA", "AC"]


def ids_of(sequences):
    return torch.from_numpy(encode_batch(sequences).ids).long()


@pytest.fixture
def network(request):
    torch.manual_seed(0)
    encoder = encoder_of(chunk_size=2)
    return NETWORKS[request.param](encoder, 3, 0.2).double().eval()


def test_the_other_strand_is_that_of_the_letters():
    assert torch.equal(other_strand(ids_of(SEQUENCES)), ids_of([reverse_complement(s) for s in SEQUENCES]))


def test_reversing_twice_is_the_identity():
    assert torch.equal(other_strand(other_strand(ids_of(SEQUENCES))), ids_of(SEQUENCES))


@pytest.mark.parametrize("network", ["average", "equivariant"], indirect=True)
def test_a_sequence_and_its_reverse_complement_score_alike(network):
    ids = ids_of(SEQUENCES)
    torch.testing.assert_close(network(ids), network(other_strand(ids)), rtol=0, atol=1e-9)


@pytest.mark.parametrize("network", ["equivariant"], indirect=True)
def test_an_equivariant_network_is_symmetric_while_it_learns_too(network):
    ids = ids_of(SEQUENCES)
    network.train()
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    torch.testing.assert_close(network(ids), network(other_strand(ids)), rtol=0, atol=1e-9)


@pytest.mark.parametrize("network", ["none", "augment"], indirect=True)
def test_the_given_strand_alone_is_not_symmetric(network):
    ids = ids_of(SEQUENCES)
    assert (network(ids) - network(other_strand(ids))).abs().max() > 1e-3


def test_the_average_is_the_mean_of_both_strands_scores():
    torch.manual_seed(0)
    given = NETWORKS["none"](encoder_of(), 2, 0.0).eval()
    average = NETWORKS["average"](given.encoder, 2, 0.0).eval()
    average.load_state_dict(given.state_dict())
    ids = ids_of(SEQUENCES)
    torch.testing.assert_close(average(ids), (given(ids) + given(other_strand(ids))) / 2)


@pytest.mark.parametrize("name", ["augment", "average"])
def test_in_training_both_strands_are_read(name):
    torch.manual_seed(0)
    network = NETWORKS[name](encoder_of(dropout=0.0), 2, 0.0)
    ids = ids_of(["ACGTTGCAACC"])
    scores = {round(float(network(ids)[0, 0].detach()), 4) for _ in range(20)}
    given = NETWORKS["none"](network.encoder, 2, 0.0)
    given.load_state_dict(network.state_dict())
    assert scores == {round(float(given(x)[0, 0].detach()), 4) for x in (ids, other_strand(ids))}


@pytest.mark.parametrize("network", NETWORKS, indirect=True)
def test_padding_never_changes_a_score(network):
    """Nor do other sequences in the batch: alone, together, and with extra padding."""
    together = network(ids_of(SEQUENCES))
    alone = torch.cat([network(ids_of([s])) for s in SEQUENCES])
    spare = network(torch.from_numpy(encode_batch(SEQUENCES, length=41).ids).long())
    np.testing.assert_allclose(alone.detach(), together.detach(), rtol=0, atol=1e-9)
    np.testing.assert_allclose(spare.detach(), together.detach(), rtol=0, atol=1e-9)


def test_in_training_each_sequence_of_a_batch_draws_its_own_strand():
    torch.manual_seed(0)
    network = NETWORKS["augment"](encoder_of(dropout=0.0), 2, 0.0)
    ids = torch.from_numpy(encode_batch(["ACGTTGCAACC"] * 32).ids).long()
    scores = network(ids)[:, 0].detach().numpy().round(4)
    assert len(np.unique(scores)) == 2
