"""Scores from k-mer counts, independent of position.

    score = sum_k sum_w  count_w(sequence) table_k[w] / sqrt(bases)          k = 1 .. longest, words w of k bases

Logistic regression on such counts is hard to beat with few sequences, or where nothing in them has a fixed order. When
trained together with a network, which sees order, the two complement each other.
"""

import torch
from torch import Tensor, nn

from titans_dna.genomes.tokenizer import N
from titans_dna.network.encoder import BASES, within

__all__ = ["LONGEST", "KmerScores"]

# limits the number of weights: there are 4 ** LONGEST words of this length
LONGEST = 8


class KmerScores(nn.Module):
    """Map ids ``[B, T]``, or proportions of the bases ``[B, T, 4]``, to a score for each class ``[B, classes]``.

    Words with an N are not counted. For proportions, each word counts as the product of the proportions of its bases.
    Scores are 0 before training.

    Args:
        longest: length of the longest words, 1 to ``LONGEST``.
        classes: number of classes.
        either_strand: whether a word and its reverse complement are one, so that both strands have the same score.
        dropout: fraction of the words of a sequence that are dropped at random in training.
    """

    def __init__(self, longest: int, classes: int, either_strand: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.longest, self.dropout = longest, dropout
        rows = 1  # row 0 is for words that are not counted
        for k in range(1, longest + 1):
            place, found = _places(k, either_strand)
            self.register_buffer(f"rows_{k}", place + rows, persistent=False)
            rows += found
        self.table = nn.Embedding(rows, classes, padding_idx=0)
        nn.init.zeros_(self.table.weight)

    def forward(self, ids: Tensor) -> Tensor:
        bases = within(ids).sum(1, keepdim=True).to(self.table.weight.dtype)
        return (self._counted(ids) if ids.ndim == 2 else self._expected(ids)) / bases.sqrt()

    def _counted(self, ids: Tensor) -> Tensor:
        words, known = torch.zeros_like(ids), torch.ones_like(ids, dtype=torch.bool)
        rows = []
        for k in range(1, min(self.longest, ids.shape[1]) + 1):
            last = ids[:, k - 1 :]
            beside = slice(0, last.shape[1])
            words, known = words[:, beside] * BASES + last.clamp(max=BASES - 1), known[:, beside] & (last < N)
            rows.append(self._rows(k)[words].where(known, 0))
        found = torch.cat(rows, dim=1)
        if not self.training:
            return self.table(found).sum(1)
        kept = torch.rand(found.shape, device=found.device) >= self.dropout
        return self.table(found.where(kept, 0)).sum(1) / (1 - self.dropout)

    def _expected(self, shares: Tensor) -> Tensor:
        """Expected scores. Words are split into halves, so only ``4 ** (k / 2)`` products are made per position."""
        shares = shares.to(self.table.weight.dtype)
        length = shares.shape[1]
        # products for all words of 0, 1, ... bases, by their start; words of 0 bases can also start at the end
        halves = [shares.new_ones(len(shares), length + 1, 1)]
        scores = shares.new_zeros(len(shares), self.table.embedding_dim)
        for k in range(1, min(self.longest, length) + 1):
            first, second = k - k // 2, k // 2
            if first == len(halves):
                last = shares[:, first - 1 :, None, :]
                halves.append((halves[-1][:, : last.shape[1], :, None] * last).flatten(2))
            table = self.table(self._rows(k)).unflatten(0, (BASES**first, BASES**second)).flatten(1)
            places = slice(0, length - k + 1)
            of_second = (halves[first][:, places] @ table).unflatten(-1, (BASES**second, -1))
            scores = scores + (of_second * halves[second][:, first:, :, None]).sum((1, 2))
        return scores

    def _rows(self, k: int) -> Tensor:
        return self.get_buffer(f"rows_{k}")


def _places(k: int, either_strand: bool) -> tuple[Tensor, int]:
    """A row for each word of k bases ``[4 ** k]``, and the number of rows."""
    words = torch.arange(BASES**k)
    if not either_strand:
        return words, len(words)
    letters = words[:, None] // BASES ** torch.arange(k) % BASES  # digits, last base first
    other = ((BASES - 1 - letters) * BASES ** torch.arange(k - 1, -1, -1)).sum(1)
    found, place = torch.minimum(words, other).unique(return_inverse=True)
    return place, len(found)
