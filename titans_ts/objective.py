"""What the network is trained to say of each step: a point, quantiles, or a distribution."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Distribution, Laplace, Normal, StudentT

from titans_ts.parts import normalised
from titans_ts.simba import Simba
from titans_ts.windows import Batch

POINTS = ("mae", "mse", "huber")
FAMILIES = ("normal", "laplace", "student_t")
LOSSES = (*POINTS, "quantile", *FAMILIES)
PROBABILITIES = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
_MEDIAN = PROBABILITIES.index(0.5)
_SCORES = torch.tensor([NormalDist().inv_cdf(p) for p in PROBABILITIES])
_LEAST_SPREAD = 1e-3  # in units of the window


class Objective(Protocol):
    """How raw outputs of the network are read, in the units of each window.

    Attributes:
        name: of the loss.
        outputs: numbers that the network says of a step.
        probabilistic: whether it knows intervals of its own.
    """

    @property
    def name(self) -> str: ...
    @property
    def outputs(self) -> int: ...
    @property
    def probabilistic(self) -> bool: ...

    def error(self, raw: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        """raw ``[..., outputs]`` and target ``[...]`` in window units, scale ``[...]`` of the windows -> ``[...]``."""
        ...

    def point(self, raw: Tensor) -> Tensor:
        """raw ``[..., outputs]`` -> the forecast ``[...]``."""
        ...

    def score(self, raw: Tensor, error: Tensor) -> Tensor:
        """How far off the point a target is, beside what ``raw`` ``[..., outputs]`` says of the spread: from ``error``
        ``[...]`` in window units, ``[...]``, at least 0."""
        ...

    def offset(self, raw: Tensor, score: Tensor, side: int) -> Tensor:
        """The error ``[...]``, below (side -1) or above (1) the point, that has this score."""
        ...

    def nominal(self, raw: Tensor, level: float) -> Tensor:
        """The score ``[...]`` that ``level`` percent of targets have at most, as the network says it."""
        ...


@dataclass(frozen=True)
class Point:
    """One number a step. Errors count in the units of the series: calm windows weigh less than restless ones."""

    name: str
    outputs: int = 1
    probabilistic: bool = False

    def error(self, raw: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        error = (raw.squeeze(-1) - target) * scale
        if self.name == "mae":
            return error.abs()
        return error.square() if self.name == "mse" else F.huber_loss(error, torch.zeros_like(error), reduction="none")

    def point(self, raw: Tensor) -> Tensor:
        return raw.squeeze(-1)

    def score(self, raw: Tensor, error: Tensor) -> Tensor:
        return error.abs()

    def offset(self, raw: Tensor, score: Tensor, side: int) -> Tensor:
        return side * score

    def nominal(self, raw: Tensor, level: float) -> Tensor:
        raise NotImplementedError("a point forecast has no intervals of its own")


@dataclass(frozen=True)
class Quantiles:
    """Quantiles at :data:`PROBABILITIES` by the pinball loss (Koenker & Bassett 1978).

    A score is the standard normal's quantile at the same probability; straight lines, over these, lead from one
    quantile to the next, and on beyond the outermost as from the second before them.
    """

    name: str = "quantile"
    outputs: int = len(PROBABILITIES)
    probabilistic: bool = True

    def error(self, raw: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        p = raw.new_tensor(PROBABILITIES)
        above = target.unsqueeze(-1) - raw
        # twice the pinball loss: at the median this is the absolute error
        return 2 * torch.maximum(p * above, (p - 1) * above).mean(dim=-1) * scale

    def point(self, raw: Tensor) -> Tensor:
        return raw.sort(dim=-1).values[..., _MEDIAN]

    def score(self, raw: Tensor, error: Tensor) -> Tensor:
        knots, slopes = self._lines(raw)
        part = torch.searchsorted(knots, error.unsqueeze(-1).contiguous())
        begin = (part - 1).clamp(min=0)
        found = _SCORES.to(raw)[begin] + (error.unsqueeze(-1) - knots.gather(-1, begin)) / slopes.gather(-1, part)
        return found.squeeze(-1).abs()

    def offset(self, raw: Tensor, score: Tensor, side: int) -> Tensor:
        knots, slopes = self._lines(raw)
        scores, score = _SCORES.to(raw), side * score.to(raw).expand(raw.shape[:-1]).unsqueeze(-1)
        part = torch.searchsorted(scores, score.contiguous())
        begin = (part - 1).clamp(min=0)
        return (knots.gather(-1, begin) + (score - scores[begin]) * slopes.gather(-1, part)).squeeze(-1)

    def nominal(self, raw: Tensor, level: float) -> Tensor:
        widest = 100 * (PROBABILITIES[-1] - PROBABILITIES[0])
        if level > widest + 1e-9:
            raise ValueError(
                f"loss='quantile' learns levels up to {widest:g}. For wider intervals fit with a larger val_size, or "
                "take a distribution such as loss='student_t'."
            )
        return raw.new_full(raw.shape[:-1], NormalDist().inv_cdf((1 + level / 100) / 2))

    def _lines(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Quantiles less the median, ``[..., 9]``, and the slopes before, between and behind them, ``[..., 10]``.

        No slope is 0, so that one score belongs to each error.
        """
        ordered = raw.sort(dim=-1).values  # quantiles that were learned apart may cross
        scores = _SCORES.to(raw)
        inner = (ordered.diff(dim=-1) / scores.diff()).clamp(min=_LEAST_SPREAD)
        knots = F.pad((inner * scores.diff()).cumsum(dim=-1), (1, 0))
        knots = knots - knots[..., _MEDIAN : _MEDIAN + 1]
        outer = (knots[..., [2, -1]] - knots[..., [0, -3]]) / (scores[[2, -1]] - scores[[0, -3]])
        return knots, torch.cat((outer[..., :1], inner, outer[..., 1:]), dim=-1)


@dataclass(frozen=True)
class Family:
    """A distribution of a location-scale family, by maximum likelihood."""

    name: str
    probabilistic: bool = True

    @property
    def outputs(self) -> int:
        return 3 if self.name == "student_t" else 2

    def error(self, raw: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        # the density is of a number in units of the window; in units of the series it is as much thinner as they differ
        return scale.log() - self._distribution(raw).log_prob(target)

    def point(self, raw: Tensor) -> Tensor:
        return raw[..., 0]

    def score(self, raw: Tensor, error: Tensor) -> Tensor:
        return error.abs() / _spread(raw[..., 1])

    def offset(self, raw: Tensor, score: Tensor, side: int) -> Tensor:
        return side * score * _spread(raw[..., 1])

    def nominal(self, raw: Tensor, level: float) -> Tensor:
        from scipy import stats

        p = (1 + level / 100) / 2
        if self.name == "student_t":
            return torch.from_numpy(stats.t.ppf(p, _freedom(raw[..., 2]).double().numpy())).to(raw)
        return raw.new_full(raw.shape[:-1], (stats.norm if self.name == "normal" else stats.laplace).ppf(p))

    def _distribution(self, raw: Tensor) -> Distribution:
        loc, spread = raw[..., 0], _spread(raw[..., 1])
        if self.name == "student_t":
            return StudentT(_freedom(raw[..., 2]), loc, spread, validate_args=False)
        return (Normal if self.name == "normal" else Laplace)(loc, spread, validate_args=False)


def _spread(raw: Tensor) -> Tensor:
    return F.softplus(raw) + _LEAST_SPREAD


def _freedom(raw: Tensor) -> Tensor:
    # above 2 the variance exists
    return F.softplus(raw) + 2


def objective_of(loss: str) -> Objective:
    """The objective by the name of its loss.

    Raises:
        ValueError: an unknown name.
    """
    if loss in POINTS:
        return Point(loss)
    if loss == "quantile":
        return Quantiles()
    if loss in FAMILIES:
        return Family(loss)
    raise ValueError(f"loss must be one of {LOSSES}, got {loss!r}.")


def step_weights(h: int, device: torch.device | None = None) -> Tensor:
    """Step t of a horizon weighs ``t ** -0.5``, ``[h]``: far steps are mostly noise; weighing them less makes what is
    learned more general (CARD, arXiv:2305.12095)."""
    return torch.arange(1, h + 1, device=device).rsqrt()


def weighted_mean(error: Tensor, weight: Tensor) -> Tensor:
    """0 where nothing weighs."""
    return (error * weight).sum() / weight.sum().clamp(min=1e-9)


@dataclass(frozen=True)
class DecayingError:
    """The mean error of a batch of windows by :func:`step_weights`, and the number of values. Targets that are not
    known do not count."""

    objective: Objective

    def __call__(self, network: nn.Module, batch: Batch) -> tuple[Tensor, int]:
        network = cast(Simba, network)
        raw, center, scale = normalised(network, batch)
        target = (batch.y - center) / scale
        known = target.isfinite()
        told = scale if batch.unit is None else scale * batch.unit
        error = self.objective.error(raw, target.where(known, 0.0), told.expand_as(target))
        weight = step_weights(error.shape[1], error.device)
        weight = (weight / weight.mean())[:, None] * known
        return weighted_mean(error, weight), max(1, int(known.sum()))
