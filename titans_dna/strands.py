"""A sequence has two strands: the networks that read one, either or both of them.

none          the strand that is given
augment       a strand at random in training, the given one afterwards
average       a strand at random in training, afterwards both: their scores are averaged
equivariant   both, always, joined position by position: the score is the same for either by construction

Scores of k-mers (:mod:`titans_dna.kmers`) are added to those of the network.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titans_core.nn.dropout import Dropout
from titans_dna.kmers import KmerScores
from titans_dna.pooling import mean_and_max
from titans_dna.tokenizer import PAD, N

__all__ = ["NETWORKS", "SequenceNetwork", "in_place", "other_strand"]

# share of the k-mers; a fifth was no better
_LEFT_OUT = 0.5


def other_strand(ids: Tensor) -> Tensor:
    """Reverse complement of ids ``[B, T]`` padded on the right; the padding stays there. Or of shares of the bases
    ``[B, T, 4]``, where A and T are the first and the last."""
    if ids.ndim == 3:
        return ids.flip(1, 2)
    lengths = (ids != PAD).sum(1, keepdim=True)
    source = lengths - 1 - torch.arange(ids.shape[1], device=ids.device)
    other = ids.gather(1, source.clamp(min=0))
    return torch.where(other < N, N - 1 - other, other).where(source >= 0, PAD)


def in_place(there: Tensor, mask: Tensor) -> Tensor:
    """Features of the other strand ``[B, S, dim]``, as they came, in the order of places on this one; mask ``[B, S]``
    says which places are real, from the left."""
    places = mask.sum(1, keepdim=True) - 1 - torch.arange(mask.shape[1], device=mask.device)
    return there.gather(1, places.clamp(min=0)[..., None].expand_as(there))


class SequenceNetwork(nn.Module):
    """Ids ``[B, T]`` -> a score for each class ``[B, classes]``.

    In evaluation mode, shares of the bases ``[B, T, 4]`` may take the place of ids (:mod:`titans_dna.encoder`).

    Args:
        encoder: ids -> features ``[B, S, dim]`` and their mask ``[B, S]``; has ``dim``.
        classes: number of classes.
        dropout: before the head. Unless it is 0, half of the k-mers are left out in training.
        kmers: k of the longest k-mers that are counted; 0: none are.
    """

    either_strand = True

    def __init__(self, encoder: nn.Module, classes: int, dropout: float, kmers: int = 0) -> None:
        super().__init__()
        self.encoder = encoder
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(2 * int(encoder.dim), classes)  # type: ignore[arg-type]
        left_out = _LEFT_OUT if dropout else 0.0
        self.kmers = KmerScores(kmers, classes, self.either_strand, left_out) if kmers else None

    def forward(self, ids: Tensor) -> Tensor:
        scores = self.head(self.dropout(mean_and_max(*self.features(ids))))
        return scores if self.kmers is None else scores + self.kmers(ids)

    def features(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Along the sequence ``[B, S, dim]``, and where they are real ``[B, S]``."""
        return self.encoder(ids)


class OneStrand(SequenceNetwork):
    """The given strand, and words as they stand on it."""

    either_strand = False


class Augmented(SequenceNetwork):
    """A strand at random in training, the given one afterwards."""

    def forward(self, ids: Tensor) -> Tensor:
        if self.training:
            turned = torch.rand(len(ids), 1, device=ids.device) < 0.5
            ids = torch.where(turned, other_strand(ids), ids)
        return super().forward(ids)


class Averaged(Augmented):
    """A strand at random in training, the mean of both strands' scores afterwards."""

    def forward(self, ids: Tensor) -> Tensor:
        if self.training:
            return super().forward(ids)
        return (super().forward(ids) + super().forward(other_strand(ids))) / 2


class Equivariant(SequenceNetwork):
    """Both strands through one encoder; features of the same place are joined by sum and maximum, which do not ask
    which strand came first.

    With the other strand as input the joined features come in reverse order, and pooling does not see order. A position
    so joined has seen the sequence on both sides.
    """

    def __init__(self, encoder: nn.Module, classes: int, dropout: float, kmers: int = 0) -> None:
        super().__init__(encoder, classes, dropout, kmers)
        dim = int(encoder.dim)  # type: ignore[arg-type]
        self.join = nn.Linear(2 * dim, dim)

    def features(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        both, mask = self.encoder(torch.cat((ids, other_strand(ids))))
        mask = mask[: len(ids)]
        here, there = both.chunk(2)
        there = in_place(there, mask)
        return F.gelu(self.join(torch.cat((here + there, torch.maximum(here, there)), dim=-1))), mask


NETWORKS: dict[str, type[SequenceNetwork]] = {
    "none": OneStrand,
    "augment": Augmented,
    "average": Averaged,
    "equivariant": Equivariant,
}
