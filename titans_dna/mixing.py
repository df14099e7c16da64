"""A language model and Markov models of one genome, mixed base by base: what each knows and the other does not.

    log P(x) = sum_e w_e log P_e(x) + const        w_e = sum_f W[f, e] * feature_f

Experts ``e`` are the language model and interpolated Markov models of several orders. Their weights follow from what is
known before the base is read: how often the longest context was seen in training, and how well the longest Markov
model and the first expert did on the bases just before, which tells a repeat from the rest. A geometric mixture by
such features is convex in ``W``: it is the logistic mixing of PAQ (Mahoney 2005), and what GeCo3 (Silva et al. 2020)
does with a network in its place.

Far from what the weights were found on, such a mixture can be sure of nonsense. So it is one of several predictors,
beside each expert alone, among which the best is tracked from base to base (fixed share; Herbster & Warmuth 1998):
where the mixture fails, what is right takes over within a few bases.

``W`` is found on tiles that neither expert was trained on: those by which the language model's training was stopped.
The Markov models are counted without them for that, and with them afterwards.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.signal import lfilter
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from titans_core.checks import at_least
from titans_datasets.warn import warn_caller
from titans_dna import saved_mixture
from titans_dna.genome import Genome
from titans_dna.intervals import Interval
from titans_dna.markov import MOST, MarkovModels, fit_markov
from titans_dna.pretrain_data import plan
from titans_dna.sources import asked, cut, marks_of, merged, open_source, read_regions, whole, without
from titans_dna.stream import log_probabilities, reading, stream
from titans_dna.tokenizer import N

if TYPE_CHECKING:
    from titans_dna.language import DNALanguageModel

__all__ = ["Mixture", "fit_mixture"]

# orders of the Markov models: the longest, and every third below; neighbours know much the same
_STEP = 3
# bases over which "just before" reaches, about
_RECENT = 32
# nats a base better than a guess, from where a stretch is likely, and almost certainly, a repeat
_LIKELY, _CERTAIN = 0.3, 0.7
_GUESS = math.log(4)
_PENALTY = 1e-6
# the mixture's share at first and of what is shared out; what is shared out at each base; windows tracked side by side
_TRUST, _SHARE, _TOGETHER = 0.9, 1 / 200, 64
_LENGTH = 1024


class _Read(NamedTuple):
    """Of n known bases: experts' log probabilities [n, E, 4], features [n, F], and the bases that came, [n]."""

    experts: Tensor
    features: Tensor
    bases: Tensor

    def mixed(self, weights: Tensor) -> Tensor:
        """Log probabilities less a constant, [n, 4]."""
        return torch.einsum("ne,neb->nb", self.features @ weights, self.experts)

    def chances(self, weights: Tensor) -> Tensor:
        """What the mixture, and each expert, gave the base that came, [n, 1 + E]."""
        all_of_them = torch.cat((self.mixed(weights).log_softmax(-1)[:, None], self.experts), dim=1)
        return all_of_them.gather(-1, self.bases[:, None, None].expand(-1, all_of_them.shape[1], 1))[..., 0].exp()


@dataclass(frozen=True, eq=False, repr=False)
class Mixture:
    """A language model mixed with Markov models; made by :func:`fit_mixture`.

    Attributes:
        model: the language model; None: Markov models alone.
        markov: the Markov models.
        weights: ``W``, float32 [features, experts]; experts: the language model, then the Markov models by order.
        counted: what was read to make it, each base once.
        marks: what tells each chromosome of that genome from another of its name.
    """

    model: "DNALanguageModel | None"
    markov: MarkovModels
    weights: Tensor
    counted: tuple[Interval, ...] = ()
    marks: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        model = (
            "no language model" if self.model is None else f"{type(self.model).__name__} {self.model.architecture!r}"
        )
        return f"Mixture({model}, {self.markov}; {sum(map(len, self.counted)):,} bases read)"

    def bits_per_base(
        self,
        source: Any,
        *,
        chroms: Iterable[str] | None = None,
        regions: Any = None,
        context: int = 4096,
    ) -> float:
        """Mean of ``-log2 P(base | the bases before it in its window)`` over all known bases.

        What was read to make the mixture is known to it by heart: a score there says nothing, and is warned of.

        Args:
            source: path of a FASTA file, a Genome, or a list of sequences.
            chroms: only these chromosomes; default all.
            regions: intervals, or a BED file, instead of whole chromosomes. Each is read by itself, on its strand, so a
                base that lies in two of them counts twice.
            context: bases of a window; each is read anew.

        Raises:
            ValueError: an unknown chromosome, a region off its end, no known base, a context below 1.
        """
        at_least("context", context)
        genome = open_source(source)
        intervals = asked(genome, chroms, regions)
        self._warn_of_what_it_knows(genome, intervals)
        nats, count = 0.0, 0
        reads = _read(genome, cut(intervals, context), self.model, self.markov)
        while together := [read.chances(self.weights) for read in itertools.islice(reads, _TOGETHER)]:
            nats += _tracked(together)
            count += sum(map(len, together))
        if count == 0:
            raise ValueError(f"{genome.path.name} has no known base (A C G T) to score.")
        return nats / math.log(2) / count

    def save(self, path: str | Path) -> None:
        """Write it to the folder ``path`` (JSON and safetensors), its language model too.

        Raises:
            ArchiveError: a file of this name, or a model of another kind.
        """
        saved_mixture.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "Mixture":
        """A mixture from the folder that :meth:`save` wrote. Nothing is unpickled.

        Raises:
            FileNotFoundError: none there.
            ArchiveError: a truncated or changed file, another kind of model, or another language model within.
        """
        return saved_mixture.load(path)

    def _warn_of_what_it_knows(self, genome: Genome, intervals: list[Interval]) -> None:
        told = {chrom: marks_of(genome, chrom) == self.marks.get(chrom) for chrom in {i.chrom for i in intervals}}
        here = merged(i for i in intervals if told[i.chrom])
        asked, new = Counter[str](), Counter[str]()
        for found, count in ((here, asked), (without(here, self.counted), new)):
            for interval in found:
                count[interval.chrom] += len(interval)
        names = sorted(chrom for chrom, bases in asked.items() if new[chrom] < bases)
        if names:
            warn_caller(
                f"fit_mixture has read {names[:8]}: a score there flatters the mixture. Hold them out, in the fit of "
                "the language model, or without one by fit_mixture(..., holdout=[...])."
            )


def fit_mixture(
    genome: Any,
    model: "DNALanguageModel | None" = None,
    *,
    order: int = MOST,
    bed: Any = None,
    holdout: Iterable[str] | None = None,
) -> Mixture:
    """Count the Markov models, and find the weights.

    Args:
        genome: path of a FASTA file, a Genome, or a list of sequences; with a model, what it was fitted on.
        model: a fitted language model with ``objective="next"``; None mixes Markov models alone.
        order: of the longest Markov model, 1 to 12.
        bed: only these regions; with a model, those of its ``fit``.
        holdout: chromosomes that are not read, for an honest score afterwards; a model brings its own.

    Raises:
        NotFittedError: a model that is not fitted.
        ValueError: a model of hidden bases; a holdout beside a model; another genome than the model's; an order out of
            range; or so little sequence that no window is left to find weights on.
    """
    at_least("order", order)
    source, regions, length = open_source(genome), read_regions(bed), _LENGTH
    if model is not None:
        check_is_fitted(model, "model_")
        if model.objective_ == "masked":
            raise ValueError("Markov models see one side of a base: mix them with a model with objective='next'.")
        if holdout is not None:
            raise ValueError(f"leave holdout out: the model held out {model.holdout_}, and so does its mixture.")
        length, holdout = model.length_, model.holdout_
    left_out = source.left_out(holdout)
    training, validation = plan(source, length, regions, left_out)
    if model is not None and training.bases != model.n_bases_:
        raise ValueError(
            f"the model was fitted on {model.n_bases_:,} bases, and genome and bed have {training.bases:,} to fit on: "
            "give those of its fit, or weights would be found on what it was trained on."
        )
    tiles = validation.intervals()
    if not tiles:
        raise ValueError(
            f"{source.path.name} has a single window, and weights are found on one in twenty; give more sequence."
        )
    given = whole(source) if regions is None else regions
    rest = without(given, tiles)
    apart = fit_markov(source, order, bed=rest, holdout=left_out)
    reads = list(_read(source, tiles, model, apart))
    weights = _fit(_Read(*(torch.cat(part) for part in zip(*reads, strict=True))))
    markov = fit_markov(source, order, bed=regions, holdout=left_out)
    counted = tuple(region for region in merged(given) if region.chrom not in left_out)
    marks = {chrom: marks_of(source, chrom) for chrom in {region.chrom for region in counted}}
    return Mixture(model, markov, weights, counted, marks)


def _read(
    genome: Genome, windows: Sequence[Interval], model: "DNALanguageModel | None", markov: MarkovModels
) -> Iterator[_Read]:
    """What the experts say of each window, read from its first base."""
    for window, log_p in _with_model(genome, windows, model):
        ids = genome.ids(window)
        known = ids < N
        counted, seen = markov.probabilities(ids, range(markov.order, 0, -_STEP)[::-1])
        parts = [torch.from_numpy(np.log(counted)).float()]
        if log_p is not None:
            parts.insert(0, log_p[:, None])
        experts = torch.cat(parts, 1)[torch.from_numpy(known)]
        bases = torch.from_numpy(ids[known].astype(np.int64))
        yield _Read(experts, _features(experts, bases, torch.from_numpy(seen[known])), bases)


def _with_model(
    genome: Genome, windows: Sequence[Interval], model: "DNALanguageModel | None"
) -> Iterator[tuple[Interval, Tensor | None]]:
    """Each window and its log probabilities [L, 4] by the language model."""
    if model is None:
        yield from ((window, None) for window in windows)
        return
    whole_windows = 1 + max(map(len, windows), default=0)
    with reading(model.model_, model.device) as network, torch.no_grad():
        for piece in stream(network, genome, windows, batch_size=model.batch_size, piece=whole_windows):
            log_p = log_probabilities(network, piece.hidden).cpu()
            yield from ((windows[i], row[: len(windows[i])]) for i, row in zip(piece.rows, log_p, strict=True))


def _features(experts: Tensor, bases: Tensor, seen: Tensor) -> Tensor:
    """What the weights follow from, [n, F]; of each base, what is known before it."""
    gain = experts.gather(-1, bases[:, None, None].expand(-1, experts.shape[1], 1))[..., 0] + _GUESS
    keep = math.exp(-1 / _RECENT)
    recent = torch.zeros_like(gain)
    recent[1:] = torch.from_numpy(lfilter([1 - keep], [1, -keep], gain[:-1].numpy(), axis=0))
    longest, first = recent[:, -1], recent[:, 0]
    columns = [
        torch.ones_like(longest),
        seen.log1p(),
        seen == 0,
        longest,
        longest - first,
        (longest - _LIKELY).relu(),
        (longest - _CERTAIN).relu(),
    ]
    return torch.stack([column.float() for column in columns], dim=1)


def _tracked(chances: Sequence[Tensor]) -> float:
    """Nats of all bases by the best of several predictors, tracked in each window: chances [n, K] of each window."""
    padded = pad_sequence(list(chances), batch_first=True, padding_value=1.0).double()  # behind the end nothing is lost
    first = torch.full((padded.shape[-1],), (1 - _TRUST) / (padded.shape[-1] - 1), dtype=padded.dtype)
    first[0] = _TRUST
    share, nats = first, 0.0
    for given in padded.unbind(1):
        joint = share * given
        total = joint.sum(-1, keepdim=True)
        nats -= float(total.log().sum())
        share = (1 - _SHARE) * joint / total + _SHARE * first
    return nats


def _fit(read: _Read) -> Tensor:
    """The weights of least cross-entropy: convex, from an equal share for all."""
    weights = torch.zeros(read.features.shape[1], read.experts.shape[1])
    weights[0] = 1 / weights.shape[1]
    weights.requires_grad_()
    optimiser = torch.optim.LBFGS([weights], max_iter=200, history_size=20, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = F.cross_entropy(read.mixed(weights), read.bases) + _PENALTY * weights.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    return weights.detach()
