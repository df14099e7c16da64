"""Classifier networks that read one strand of a sequence, either or both.

none          the given strand
augment       a random strand in training, the given strand in prediction
average       a random strand in training; in prediction, the scores of both strands are averaged
equivariant   always both strands, combined at each position: both have the same score by construction

Scores of k-mers (:mod:`titans_dna.network.kmers`) are added to those of the network.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titans_core.nn.dropout import Dropout
from titans_dna.genomes.tokenizer import PAD, N
from titans_dna.network.kmers import KmerScores
from titans_dna.network.pooling import mean_and_max

__all__ = ["NETWORKS", "SequenceNetwork", "in_place", "other_strand"]

# fraction of the k-mers dropped in training; a fifth was no better
_LEFT_OUT = 0.5


def other_strand(ids: Tensor) -> Tensor:
    """Reverse complement of ids ``[B, T]``, which are padded on the right and stay so, or of proportions of the bases
    ``[B, T, 4]``."""
    if ids.ndim == 3:
        return ids.flip(1, 2)
    lengths = (ids != PAD).sum(1, keepdim=True)
    source = lengths - 1 - torch.arange(ids.shape[1], device=ids.device)
    other = ids.gather(1, source.clamp(min=0))
    return torch.where(other < N, N - 1 - other, other).where(source >= 0, PAD)


def in_place(there: Tensor, mask: Tensor) -> Tensor:
    """Reorder features of the other strand ``[B, S, dim]`` to the positions of this strand. ``mask`` ``[B, S]`` marks
    the positions that are not padding, which is on the right."""
    places = mask.sum(1, keepdim=True) - 1 - torch.arange(mask.shape[1], device=mask.device)
    return there.gather(1, places.clamp(min=0)[..., None].expand_as(there))


class SequenceNetwork(nn.Module):
    """Map ids ``[B, T]`` to a score for each class ``[B, classes]``.

    In evaluation mode, proportions of the bases ``[B, T, 4]`` are also accepted (:mod:`titans_dna.network.encoder`).

    Args:
        encoder: module that maps ids to features ``[B, S, dim]`` and their mask ``[B, S]``; has an attribute ``dim``.
        classes: number of classes.
        dropout: dropout rate before the head. If above 0, half of the k-mers are also dropped in training.
        kmers: length of the longest k-mers to count; 0 for none.
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
        """Features along the sequence ``[B, S, dim]``, and their mask ``[B, S]``."""
        return self.encoder(ids)


class OneStrand(SequenceNetwork):
    """Reads the given strand; k-mers are those of this strand."""

    either_strand = False


class Augmented(SequenceNetwork):
    """Reads a random strand in training, and the given strand in prediction."""

    def forward(self, ids: Tensor) -> Tensor:
        if self.training:
            turned = torch.rand(len(ids), 1, device=ids.device) < 0.5
            ids = torch.where(turned, other_strand(ids), ids)
        return super().forward(ids)


class Averaged(Augmented):
    """Reads a random strand in training, and averages the scores of both strands in prediction."""

    def forward(self, ids: Tensor) -> Tensor:
        if self.training:
            return super().forward(ids)
        return (super().forward(ids) + super().forward(other_strand(ids))) / 2


class Equivariant(SequenceNetwork):
    """Reads both strands with one encoder, and combines features of the same position by sum and maximum.

    These operations do not depend on which strand is first. For the reverse complement, the combined features are in
    reverse order, which pooling ignores. A combined position has seen the sequence on both sides.
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
