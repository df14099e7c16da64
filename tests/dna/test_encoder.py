"""The encoder of sequences, and pooling over its features."""

import pytest
import torch
from encoders import encoder_of

from titans_dna.genomes.tokenizer import encode_batch
from titans_dna.network.encoder import one_hot, within
from titans_dna.network.pooling import mean_and_max


def ids_of(sequences, length=None):
    return torch.from_numpy(encode_batch(sequences, length=length).ids).long()


def encoder(**changes):
    torch.manual_seed(0)
    return encoder_of(**{"num_layers": 2, "chunk_size": 2} | changes).double().eval()


@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("pool", [1, 2, 3])
@pytest.mark.parametrize("length", [1, 2, 5, 8, 13])
def test_features_do_not_depend_on_the_batch(pool, length, positions):
    network, sequence = encoder(pool=pool, positions=positions), "ACGTTGCANCGTA"[:length]
    alone, mask = network(ids_of([sequence]))
    padded, padded_mask = network(ids_of([sequence, "G" * 17]))
    places = -(-length // pool)
    assert mask.all()
    assert mask.shape[1] == places
    assert padded_mask[0].tolist() == [True] * places + [False] * (padded_mask.shape[1] - places)
    torch.testing.assert_close(padded[0, :places], alone[0], rtol=0, atol=1e-9)


def test_long_sequences_read_in_groups_have_the_same_features_as_alone():
    network = encoder(num_layers=1, chunk_size=16, pool=4)
    ids = ids_of(["ACGTTGCA" * 700, "GATTACA" * 700, "CCGTA" * 700, "TTG" * 700])
    together, mask = network(ids)
    assert ids.numel() > 1 << 14
    for i, row in enumerate(ids):
        alone, mask_alone = network(row[None])
        assert mask[i].equal(mask_alone[0])
        torch.testing.assert_close(together[i], alone[0], rtol=0, atol=1e-9)


def test_a_run_of_one_base_has_a_constant_gradient():
    """Pooling prefers none of several equal values; otherwise attributions along a run would alternate."""
    stem = encoder(pool=4).stem
    shares = one_hot(ids_of(["A" * 64]), torch.float64).requires_grad_()
    (found,) = torch.autograd.grad(stem(shares, within(shares))[0].sum(), shares)
    torch.testing.assert_close(found[0, 20:40], found[0, 20].expand(20, -1), rtol=1e-9, atol=1e-12)


def test_every_base_counts():
    """A single change anywhere changes the features of the sequence, however far from the end."""
    network, sequence = encoder(), "ACGTTGCATCGTACCA"
    changed = [sequence[:i] + ("A" if sequence[i] != "A" else "C") + sequence[i + 1 :] for i in range(len(sequence))]
    vectors = mean_and_max(*network(ids_of([sequence, *changed])))
    assert ((vectors[1:] - vectors[0]).abs().max(dim=1).values > 1e-4).all()


def test_the_memory_looks_back_only():
    """Beyond the reach of the convolutions, a later base changes no earlier feature."""
    network = encoder(pool=1, kernel_size=3)
    first, second = (network(ids_of(["ACGTTGCATCGTACCA" + end]))[0] for end in "AC")
    torch.testing.assert_close(first[:, :13], second[:, :13], rtol=0, atol=1e-12)


def test_positions_encode_the_distance_to_both_ends():
    """The same bases at two positions differ only in the distance to the ends."""
    for positions, differ in ((True, True), (False, False)):
        network = encoder(num_layers=1, pool=1, kernel_size=3, positions=positions)
        seen = [network.stem(one_hot(ids_of([s]), torch.float64), within(ids_of([s])))[0] for s in ("A" * 48, "A" * 96)]
        assert (not torch.allclose(seen[0][:, 10:20], seen[0][:, 20:30])) == differ
        assert (not torch.allclose(seen[0][:, 10:20], seen[1][:, 10:20])) == differ


def test_n_is_encoded_as_no_base():
    assert one_hot(ids_of(["ACGTN"], length=6))[0].tolist() == [*torch.eye(4).tolist(), [0.0] * 4, [0.0] * 4]


def test_mean_and_maximum_do_not_see_what_is_masked():
    x = torch.tensor([[[1.0, -2.0], [3.0, -4.0], [float("nan"), float("inf")]]])
    mask = torch.tensor([[True, True, False]])
    assert mean_and_max(x, mask).tolist() == [[2.0, -3.0, 3.0, -2.0]]


def test_masked_positions_have_no_gradient():
    x = torch.randn(2, 3, 4, requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    mean_and_max(x, mask).sum().backward()
    assert (x.grad[~mask] == 0).all()
    assert x.grad.isfinite().all()
