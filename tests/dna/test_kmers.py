"""Scores of k-mers, compared with counting by hand: on both strands, of bases and of probabilities of bases."""

from itertools import product

import pytest
import torch

from titans_dna.genomes.tokenizer import encode_batch, reverse_complement
from titans_dna.network.encoder import one_hot
from titans_dna.network.kmers import KmerScores
from titans_dna.network.strands import other_strand

SEQUENCES = ["ACGTTGCAACTTGNACGT", "T", "GGNACCA", "CCCCCGTACGTAGCTAGCA", "AC", "NNN", "ACGT"]
CLASSES = 3


def ids_of(sequences):
    return torch.from_numpy(encode_batch(sequences).ids).long()


def learned(longest, either_strand, dropout=0.0):
    torch.manual_seed(longest)
    scores = KmerScores(longest, CLASSES, either_strand, dropout).double().eval()
    with torch.no_grad():
        scores.table.weight[1:].normal_()
    return scores


def by_hand(module, sequence, longest, either_strand):
    """K-mers sorted by k, then by letters; one merged with its reverse complement has the place of the smaller."""
    total, begin = torch.zeros(CLASSES, dtype=torch.double), 1
    for k in range(1, longest + 1):
        words = ["".join(word) for word in product("ACGT", repeat=k)]
        if either_strand:
            words = sorted({min(word, reverse_complement(word)) for word in words})
        place = {word: begin + i for i, word in enumerate(words)}
        begin += len(words)
        for i in range(len(sequence) - k + 1):
            word = sequence[i : i + k]
            word = min(word, reverse_complement(word)) if either_strand else word
            if word in place:
                total += module.table.weight[place[word]].detach()
    assert begin == len(module.table.weight)
    return total / len(sequence) ** 0.5


@pytest.mark.parametrize("either_strand", [True, False])
@pytest.mark.parametrize("longest", [1, 2, 3, 6])
def test_scores_are_what_counting_by_hand_gives(longest, either_strand):
    module = learned(longest, either_strand)
    expected = torch.stack([by_hand(module, s, longest, either_strand) for s in SEQUENCES])
    torch.testing.assert_close(module(ids_of(SEQUENCES)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("longest", [1, 2, 5, 6, 7])
def test_one_hot_probabilities_score_as_the_sequence(longest):
    module = learned(longest, True)
    for sequence in SEQUENCES:
        ids = ids_of([sequence])
        torch.testing.assert_close(module(one_hot(ids, torch.double)), module(ids), rtol=0, atol=1e-12)


def test_probabilities_count_each_kmer_by_the_product_of_its_bases():
    """The score of probabilities is the mean score of sequences drawn from them."""
    module = learned(4, True)
    letters = torch.tensor(list(product(range(4), repeat=5)))
    shares = torch.rand(5, 4, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    shares = shares / shares.sum(1, keepdim=True)
    chances = torch.stack([shares[i, letters[:, i]] for i in range(5)]).prod(0)
    expected = (chances[:, None] * module(letters)).sum(0)
    torch.testing.assert_close(module(shares[None])[0], expected, rtol=0, atol=1e-12)


def test_gradients_by_probabilities_equal_finite_differences():
    module = learned(5, True)
    shares = torch.rand(2, 9, 4, dtype=torch.double, generator=torch.Generator().manual_seed(1), requires_grad=True)
    assert torch.autograd.gradcheck(module, shares)


def test_both_strands_have_one_score_where_strand_does_not_matter():
    ids = ids_of(SEQUENCES)
    symmetric, given = learned(6, True), learned(6, False)
    torch.testing.assert_close(symmetric(other_strand(ids)), symmetric(ids), rtol=0, atol=1e-12)
    assert (given(other_strand(ids)) - given(ids)).abs().max() > 0.1


def test_untrained_kmers_score_zero_and_ignored_kmers_have_no_gradient():
    module = KmerScores(4, CLASSES, True)
    ids = ids_of(SEQUENCES)
    assert not module(ids).any()
    module(ids).sum().backward()
    assert not module.table.weight.grad[0].any()
    assert module.table.weight.grad[1:].any()


def test_in_training_half_of_the_kmers_are_dropped_and_the_mean_is_kept():
    torch.manual_seed(0)
    module = learned(3, True, dropout=0.5)
    ids = ids_of(["ACGTTGCAACTTGACGT"])
    whole = module(ids)
    module.train()
    drawn = module(ids.expand(20_000, -1)).detach()
    assert len(drawn.unique(dim=0)) > 100
    torch.testing.assert_close(drawn.mean(0), whole[0], rtol=0, atol=4 * float(drawn.std(0).max()) / 20_000**0.5)
