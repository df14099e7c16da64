"""Mixture of a language model with Markov models of the same genome, weighted separately at each base.

    log P(x) = sum_e w_e log P_e(x) + const        w_e = sum_f W[f, e] * feature_f

Experts ``e`` are the language model and interpolated Markov models of several orders. Their weights depend on features
that are known before the base: how often the longest context occurred in training, and how well the longest Markov
model and the first expert predicted the preceding bases, which indicates a repeat. The loss of such a geometric mixture
is convex in ``W``. It is the logistic mixing of PAQ (Mahoney 2005); GeCo3 (Silva et al. 2020) uses a neural network
instead.

On sequences unlike those on which ``W`` was fitted, the mixture can be confidently wrong. It is therefore one of
several predictors, together with each expert alone. The best predictor is tracked from base to base (fixed share;
Herbster & Warmuth 1998), so that a better one takes over within a few bases.

``W`` is fitted on windows that no expert was trained on: the validation windows of the language model. For this, the
Markov models are first counted without these windows; the final counts include them.
"""

import itertools
import math
from collections import Counter, defaultdict
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
from titans_core.warn import warn_caller
from titans_dna import saved_mixture
from titans_dna.genomes.genome import Genome
from titans_dna.genomes.intervals import Interval
from titans_dna.genomes.sources import among, cut, intervals_of, marks_of, merged, open_source, read_regions, without
from titans_dna.genomes.tokenizer import N
from titans_dna.inference.masked import BOTH_SIDES, refuse_masked
from titans_dna.markov import MOST, MarkovModels, fit_markov
from titans_dna.network.likelihood import log_probabilities
from titans_dna.network.stream import reading, stream
from titans_dna.pretraining.windows import plan

if TYPE_CHECKING:
    from titans_dna.language import DNALanguageModel

__all__ = ["Mixture", "fit_mixture"]

# orders used: the highest and every third below, since adjacent orders are very similar
_STEP = 3
# time constant, in bases, of the average over preceding bases
_RECENT = 32
# nats per base better than a random guess: thresholds for a likely and an almost certain repeat
_LIKELY, _CERTAIN = 0.3, 0.7
_GUESS = math.log(4)
_PENALTY = 1e-6
# prior weight of the mixture; weight redistributed at each base; windows tracked in parallel
_TRUST, _SHARE, _TOGETHER = 0.9, 1 / 200, 64
_LENGTH = 1024


class _Read(NamedTuple):
    """For n known bases: log probabilities of the experts [n, E, 4], features [n, F], and the observed bases [n]."""

    experts: Tensor
    features: Tensor
    bases: Tensor

    def mixed(self, weights: Tensor) -> Tensor:
        """Unnormalised log probabilities of the mixture, [n, 4]."""
        return torch.einsum("ne,neb->nb", self.features @ weights, self.experts)

    def chances(self, weights: Tensor) -> Tensor:
        """Probability of each observed base under the mixture and under each expert, [n, 1 + E]."""
        all_of_them = torch.cat((self.mixed(weights).log_softmax(-1)[:, None], self.experts), dim=1)
        return all_of_them.gather(-1, self.bases[:, None, None].expand(-1, all_of_them.shape[1], 1))[..., 0].exp()


@dataclass(frozen=True, eq=False, repr=False)
class Mixture:
    """A language model mixed with Markov models; made by :func:`fit_mixture`.

    Attributes:
        model: the language model; None if there are only Markov models.
        markov: the Markov models.
        weights: ``W``, float32 [features, experts]; experts are the language model, then the Markov models by order.
        counted: intervals that were read to make the mixture, without overlaps.
        marks: for each chromosome of that genome, text that identifies its sequence.
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
        """Compute the mean of ``-log2 P(base | the bases before it in its window)`` over all known bases.

        Scores on sequence that was read to make the mixture, or by an earlier fit of its language model, are
        meaningless; a warning is given.

        Args:
            source: path of a FASTA file, a Genome, or a list of sequences.
            chroms: names of the chromosomes to score. Default: all.
            regions: intervals, or a BED file, to score instead of whole chromosomes. Each is read separately on its
                strand, so bases in two regions count twice.
            context: number of bases in a window; windows are read independently.

        Raises:
            ValueError: a chromosome is unknown; a region ends beyond its chromosome; there is no known base; or
                ``context`` is below 1.
        """
        at_least("context", context)
        genome = open_source(source)
        intervals = intervals_of(genome, chroms, regions)
        self._warn_of_counted(genome, intervals)
        nats, count = 0.0, 0
        reads = _read(genome, cut(intervals, context), self.model, self.markov)
        while together := [read.chances(self.weights) for read in itertools.islice(reads, _TOGETHER)]:
            nats += _tracked(together)
            count += sum(map(len, together))
        if count == 0:
            raise ValueError(f"{genome.path.name} has no known base (A, C, G or T) to score; check the selection.")
        return nats / math.log(2) / count

    def save(self, path: str | Path) -> None:
        """Save the mixture and its language model to the folder ``path`` (JSON and safetensors).

        Raises:
            ArchiveError: ``path`` is a file, or holds a model of another kind.
        """
        saved_mixture.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "Mixture":
        """Load a mixture saved by :meth:`save`. Nothing is unpickled.

        Raises:
            FileNotFoundError: the folder has no saved mixture.
            ArchiveError: a file is truncated or changed, or the folder holds a model of another kind.
        """
        return saved_mixture.load(cls, path)

    def _warn_of_counted(self, genome: Genome, intervals: list[Interval]) -> None:
        here = defaultdict(list)  # the same sequence may have another name
        for chrom in {interval.chrom for interval in intervals}:
            here[marks_of(genome, chrom)].append(chrom)
        counted = [
            Interval(chrom, c.start, c.end) for c in self.counted for chrom in here.get(self.marks.get(c.chrom, ""), ())
        ]
        every, other = (_bases_by_chrom(part) for part in (merged(intervals), without(intervals, counted)))
        read = sorted(chrom for chrom in every if other[chrom] < every[chrom])
        known = set(self.marks.values())
        new = [chrom for marks, chroms in here.items() if marks not in known for chrom in chroms]
        earlier = [] if self.model is None else sorted(among(genome, new, self.model.read_))
        for reader, names in (("fit_mixture", read), ("an earlier fit of the language model", earlier)):
            if names:
                warn_caller(
                    f"{reader} has read {names[:8]}, so scores there are too good. Hold them out in fit of the "
                    "language model, or, without one, with fit_mixture(..., holdout=[...])."
                )


def _bases_by_chrom(intervals: Iterable[Interval]) -> Counter[str]:
    found = Counter[str]()
    for interval in intervals:
        found[interval.chrom] += len(interval)
    return found


def fit_mixture(
    genome: Any,
    model: "DNALanguageModel | None" = None,
    *,
    order: int = MOST,
    bed: Any = None,
    holdout: Iterable[str] | None = None,
) -> Mixture:
    """Fit a mixture: count the Markov models, and fit the weights.

    Args:
        genome: path of a FASTA file, a Genome, or a list of sequences. With a model, the genome it was fitted on.
        model: a fitted language model with ``objective="next"``. None mixes only Markov models.
        order: order of the longest Markov model, 1 to 12.
        bed: restrict the mixture to these regions. With a model, the regions passed to its ``fit``.
        holdout: names of chromosomes to exclude. With a model, leave it out: the model's held-out chromosomes are used.

    Raises:
        NotFittedError: the model is not fitted.
        ValueError: the model has ``objective="masked"``; both ``model`` and ``holdout`` are given; the genome is not
            that of the model; the order is out of range; or there is too little sequence to fit weights on.
    """
    at_least("order", order)
    source, regions, length = open_source(genome), read_regions(bed), _LENGTH
    if model is not None:
        check_is_fitted(model, "model_")
        refuse_masked(model.objective_, "fit_mixture", BOTH_SIDES)
        if holdout is not None:
            raise ValueError(f"holdout cannot be given with a model; the model held out {model.holdout_}. Remove it.")
        length, holdout = model.length_, model.holdout_
    left_out = source.left_out(holdout)
    training, validation = plan(source, length, regions, left_out)
    if model is not None and training.digest != model.digest_:
        raise ValueError(
            f"the model was fitted on {model.n_bases_:,} bases; genome and bed give {training.bases:,}, which are not "
            "the same. Give the genome and regions of its fit; otherwise the weights would be fitted on the model's "
            "training data."
        )
    tiles = validation.intervals()
    if not tiles:
        raise ValueError(
            f"{source.path.name} has a single window, so none is left to fit the weights on. Give more sequence."
        )
    given = intervals_of(source) if regions is None else regions
    rest = without(given, tiles)
    apart = fit_markov(source, order, bed=rest, holdout=left_out)
    reads = list(_read(source, tiles, model, apart))
    with torch.inference_mode(False):  # cat copies what was read under inference mode, as gradients need
        weights = _fit(_Read(*(torch.cat(part) for part in zip(*reads, strict=True))))
    markov = fit_markov(source, order, bed=regions, holdout=left_out)
    counted = tuple(region for region in merged(given) if region.chrom not in left_out)
    marks = {chrom: marks_of(source, chrom) for chrom in {region.chrom for region in counted}}
    return Mixture(model, markov, weights, counted, marks)


def _read(
    genome: Genome, windows: Sequence[Interval], model: "DNALanguageModel | None", markov: MarkovModels
) -> Iterator[_Read]:
    """Predictions of the experts for each window, read from its first base."""
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
    """Yield each window with its log probabilities [L, 4] under the language model, or None without a model."""
    if model is None:
        yield from ((window, None) for window in windows)
        return
    whole_windows = 1 + max(map(len, windows), default=0)
    with reading(model.model_, model.device) as network, torch.no_grad():
        for piece in stream(network, genome, windows, batch_size=model.batch_size, piece=whole_windows):
            log_p = log_probabilities(network, piece.hidden).cpu()
            yield from ((windows[i], row[: len(windows[i])]) for i, row in zip(piece.rows, log_p, strict=True))


def _features(experts: Tensor, bases: Tensor, seen: Tensor) -> Tensor:
    """Features of each base, [n, F], computed from what is known before it."""
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
    """Nats of all bases under the tracked predictors, from probabilities [n, K] of each window (see fixed share)."""
    padded = pad_sequence(list(chances), batch_first=True, padding_value=1.0).double()  # padding costs log 1 = 0
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
    """Weights that minimise the cross-entropy (a convex problem), starting from equal weights."""
    weights = read.features.new_zeros(read.features.shape[1], read.experts.shape[1])
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
