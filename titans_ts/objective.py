"""What the network is trained to say of each step: a point, quantiles, or a distribution."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Distribution, Laplace, Normal, StudentT

from titans_ts.parts import normalised_in_parts
from titans_ts.simba import Simba
from titans_ts.windows import Batch

POINTS = ("mae", "mse", "huber")
FAMILIES = ("normal", "laplace", "student_t")
LOSSES = (*POINTS, "quantile", *FAMILIES)
PROBABILITIES = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
_MEDIAN = PROBABILITIES.index(0.5)
WIDEST = round(100 * (PROBABILITIES[-1] - PROBABILITIES[0]), 9)
_LEAST_SPREAD = 1e-3  # in units of the window


class Objective(Protocol):
    """How raw outputs of the network are read, in the units of each window.

    Attributes:
        name: of the loss.
        outputs: numbers that the network says of a step.
        probabilistic: whether it knows intervals of its own.
        widest: the widest level of these.
    """

    @property
    def name(self) -> str: ...
    @property
    def outputs(self) -> int: ...
    @property
    def probabilistic(self) -> bool: ...
    @property
    def widest(self) -> float: ...

    def error(self, raw: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        """raw ``[..., outputs]`` and target ``[...]`` in window units, scale ``[...]`` of the windows -> ``[...]``."""
        ...

    def point(self, raw: Tensor) -> Tensor:
        """raw ``[..., outputs]`` -> the forecast ``[...]``."""
        ...

    def cost(self, error: Tensor) -> Tensor:
        """What an error of the point counts, ``[...]``, where it is corrected later: by what is least, it stays what it
        is, such as a mean."""
        ...

    def score(self, raw: Tensor, error: Tensor, scale: Tensor) -> Tensor:
        """How far off the point a target is, beside what ``raw`` ``[..., outputs]`` says of the spread: from ``error``
        ``[...]`` in window units, and the scale of the windows, ``[...]``, at least 0."""
        ...

    def offset(self, raw: Tensor, score: Tensor, scale: Tensor, side: int) -> Tensor:
        """The error ``[...]``, below (side -1) or above (1) the point, that has this score; its inverse."""
        ...

    def nominal(self, raw: Tensor, level: float, side: int) -> Tensor:
        """The error ``[...]``, below or above the point, at which the interval of ``level`` percent ends that the
        network itself foretells.

        Raises:
            ValueError: it foretells none of this level.
        """
        ...


@dataclass(frozen=True)
class Point:
    """One number a step. Errors count in the units of the series: calm windows weigh less than restless ones."""

    name: str
    outputs: int = 1
    probabilistic: bool = False
    widest: float = 0.0

    def error(self, raw: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        return self.cost((raw.squeeze(-1) - target) * scale)

    def cost(self, error: Tensor) -> Tensor:
        if self.name == "mae":
            return error.abs()
        return error.square() if self.name == "mse" else F.huber_loss(error, torch.zeros_like(error), reduction="none")

    def point(self, raw: Tensor) -> Tensor:
        return raw.squeeze(-1)

    def score(self, raw: Tensor, error: Tensor, scale: Tensor) -> Tensor:
        return error.abs()

    def offset(self, raw: Tensor, score: Tensor, scale: Tensor, side: int) -> Tensor:
        return side * score

    def nominal(self, raw: Tensor, level: float, side: int) -> Tensor:
        raise ValueError("a point forecast has no intervals of its own")


class Learned(ABC):
    """Scores of a loss that learns the spread.

    Up to the edge of the network's interval of :data:`WIDEST` percent a score is where in it a target lies: 0 at the
    point, 1 at the edge. Beyond, it is 1 and how far outside, in units of the series: so what the network took for
    certain, and was wrong, does not draw out the intervals of all that it takes for uncertain (the additive score of
    Romano et al. 2019 there, and a ratio inside).
    """

    @abstractmethod
    def parts(self, raw: Tensor, distance: Tensor, side: int) -> tuple[Tensor, Tensor]:
        """Of a distance from the point, at least 0: where up to the edge it lies, 0 to 1, and how far beyond."""

    @abstractmethod
    def distance(self, raw: Tensor, score: Tensor, side: int) -> Tensor:
        """The distance of a score of at most 1."""

    def cost(self, error: Tensor) -> Tensor:
        return error.abs()

    def score(self, raw: Tensor, error: Tensor, scale: Tensor) -> Tensor:
        def on(side: int) -> Tensor:
            inside, beyond = self.parts(raw, (side * error).clamp(min=0), side)
            return inside + beyond * scale

        return torch.where(error < 0, on(-1), on(1))

    def offset(self, raw: Tensor, score: Tensor, scale: Tensor, side: int) -> Tensor:
        score = score.to(raw).expand(raw.shape[:-1])
        beyond = (score - 1).clamp(min=0) / scale
        return side * (self.distance(raw, score.clamp(max=1), side) + beyond)


@dataclass(frozen=True)
class Quantiles(Learned):
    """Quantiles at :data:`PROBABILITIES` by the pinball loss (Koenker & Bassett 1978).

    Scores of quantiles are those of the standard normal at the same probabilities, in straight lines between.
    """

    name: str = "quantile"
    outputs: int = len(PROBABILITIES)
    probabilistic: bool = True
    widest: float = WIDEST

    def error(self, raw: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        p = raw.new_tensor(PROBABILITIES)
        above = target.unsqueeze(-1) - raw
        # twice the pinball loss: at the median this is the absolute error
        return 2 * torch.maximum(p * above, (p - 1) * above).mean(dim=-1) * scale

    def point(self, raw: Tensor) -> Tensor:
        return raw.sort(dim=-1).values[..., _MEDIAN]

    def parts(self, raw: Tensor, distance: Tensor, side: int) -> tuple[Tensor, Tensor]:
        knots = self._knots(raw, side)
        edge = knots[..., -1]
        return _on_lines(knots, _SCORES.to(raw), distance.minimum(edge)), (distance - edge).clamp(min=0)

    def distance(self, raw: Tensor, score: Tensor, side: int) -> Tensor:
        return _on_lines(_SCORES.to(raw), self._knots(raw, side), score)

    def nominal(self, raw: Tensor, level: float, side: int) -> Tensor:
        if level > self.widest:
            raise ValueError(
                f"loss='quantile' learns levels up to {WIDEST:g}. For wider intervals fit with val_size, or take a "
                "distribution such as loss='student_t'."
            )
        return side * self.distance(raw, raw.new_full(raw.shape[:-1], normal_end(level) / normal_end(WIDEST)), side)

    def _knots(self, raw: Tensor, side: int) -> Tensor:
        """Distances of the quantiles on one side from the median, which is the first, ``[..., 5]``; each larger than
        the one before, so that one score belongs to each distance."""
        ordered = raw.sort(dim=-1).values  # quantiles that were learned apart may cross
        outward = ordered[..., _MEDIAN:] if side > 0 else ordered[..., : _MEDIAN + 1].flip(-1)
        least = _LEAST_SPREAD * normal_end(WIDEST) * _SCORES.diff().to(raw)
        return F.pad(outward.diff(dim=-1).abs().maximum(least).cumsum(dim=-1), (1, 0))


def _on_lines(x: Tensor, y: Tensor, at: Tensor) -> Tensor:
    """The value at ``at`` ``[...]`` of straight lines through the points (x, y), ``[..., K]`` or ``[K]``, x growing."""
    x, y, at = x.expand(*at.shape, -1), y.expand(*at.shape, -1), at.unsqueeze(-1)
    right = torch.searchsorted(x.contiguous(), at.contiguous()).clamp(1, x.shape[-1] - 1)
    (x0, x1), (y0, y1) = ((t.gather(-1, right - 1), t.gather(-1, right)) for t in (x, y))
    return (y0 + (at - x0) / (x1 - x0) * (y1 - y0)).squeeze(-1)


@dataclass(frozen=True)
class Family(Learned):
    """A distribution of a location-scale family, by maximum likelihood."""

    name: str
    probabilistic: bool = True
    widest: float = 100.0

    @property
    def outputs(self) -> int:
        return 3 if self.name == "student_t" else 2

    def error(self, raw: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        # the density is of a number in units of the window; in units of the series it is as much thinner as they differ
        return scale.log() - self._distribution(raw).log_prob(target)

    def point(self, raw: Tensor) -> Tensor:
        return raw[..., 0]

    def parts(self, raw: Tensor, distance: Tensor, side: int) -> tuple[Tensor, Tensor]:
        edge = self._edge(raw)
        return distance.minimum(edge) / edge, (distance - edge).clamp(min=0)

    def distance(self, raw: Tensor, score: Tensor, side: int) -> Tensor:
        return score * self._edge(raw)

    def _edge(self, raw: Tensor) -> Tensor:
        """As far on both sides."""
        return self.nominal(raw, WIDEST, 1)

    def cost(self, error: Tensor) -> Tensor:
        return error.square() if self.name == "normal" else super().cost(error)  # the mean, or about the median

    def nominal(self, raw: Tensor, level: float, side: int) -> Tensor:
        from scipy import stats

        p = (1 + level / 100) / 2
        if self.name == "student_t":
            found = torch.from_numpy(stats.t.ppf(p, _freedom(raw[..., 2]).double().numpy())).to(raw)
        else:
            found = raw.new_tensor((stats.norm if self.name == "normal" else stats.laplace).ppf(p))
        return side * found * _spread(raw[..., 1])

    def _distribution(self, raw: Tensor) -> Distribution:
        loc, spread = raw[..., 0], _spread(raw[..., 1])
        if self.name == "student_t":
            return StudentT(_freedom(raw[..., 2]), loc, spread, validate_args=False)
        return (Normal if self.name == "normal" else Laplace)(loc, spread, validate_args=False)


def normal_end(level: float) -> float:
    """Where the interval of ``level`` percent of the standard normal ends."""
    return NormalDist().inv_cdf((1 + level / 100) / 2)


# of the median and the quantiles on one side of it: 0 to 1
_SCORES = torch.tensor([normal_end(100 * (2 * p - 1)) / normal_end(WIDEST) for p in PROBABILITIES[_MEDIAN:]])


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
        raw, center, scale = normalised_in_parts(network, batch)
        target = (batch.y - center) / scale
        known = target.isfinite()
        told = scale if batch.unit is None else scale * batch.unit
        error = self.objective.error(raw, target.where(known, 0.0), told.expand_as(target))
        weight = step_weights(error.shape[1], error.device)
        weight = (weight / weight.mean())[:, None] * known
        return weighted_mean(error, weight), max(1, int(known.sum()))
