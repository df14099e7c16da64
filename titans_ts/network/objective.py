"""Training objectives: point forecasts, quantiles, or distributions."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Distribution, Laplace, Normal, StudentT

from titans_ts.network.parts import normalised_in_parts
from titans_ts.network.simba import Simba
from titans_ts.network.windows import Batch

POINTS = ("mae", "mse", "huber")
FAMILIES = ("normal", "laplace", "student_t")
LOSSES = (*POINTS, "quantile", *FAMILIES)
PROBABILITIES = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
_MEDIAN = PROBABILITIES.index(0.5)
WIDEST = round(100 * (PROBABILITIES[-1] - PROBABILITIES[0]), 9)
_LEAST_SPREAD = 1e-3  # in units of the window


class Objective(Protocol):
    """The interpretation of raw outputs of the network, in units of each window.

    Attributes:
        name: name of the loss.
        outputs: outputs of the network per step.
        probabilistic: whether it predicts intervals itself.
        widest: the widest level of these intervals.
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
        """The loss ``[...]`` of raw ``[..., outputs]`` for target ``[...]`` in window units; scale ``[...]`` of the
        windows."""
        ...

    def point(self, raw: Tensor) -> Tensor:
        """The point forecast ``[...]`` of raw ``[..., outputs]``."""
        ...

    def cost(self, error: Tensor) -> Tensor:
        """The loss ``[...]`` of an error of the point forecast, to train later corrections. Minimising it keeps the
        meaning of the point forecast, such as a mean."""
        ...

    def score(self, raw: Tensor, error: Tensor, scale: Tensor) -> Tensor:
        """The conformity score, at least 0: ``error`` ``[...]`` of the point forecast in window units, relative to the
        spread that ``raw`` ``[..., outputs]`` predicts; scale ``[...]`` of the windows."""
        ...

    def offset(self, raw: Tensor, score: Tensor, scale: Tensor, side: int) -> Tensor:
        """The inverse of :meth:`score`: the error ``[...]`` with this score, below (side -1) or above (1) the point."""
        ...

    def nominal(self, raw: Tensor, level: float, side: int) -> Tensor:
        """The end of the network's own interval of ``level`` percent, as an error ``[...]`` below (side -1) or above
        (1) the point.

        Raises:
            ValueError: the network does not predict this level.
        """
        ...


@dataclass(frozen=True)
class Point:
    """One number per step. Losses are in units of the series, so windows with small variation weigh less."""

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
    """Scores for losses that learn the spread.

    Inside the network's interval of :data:`WIDEST` percent, the score is the relative position: 0 at the point, 1 at
    the end. Outside, it is 1 plus the distance from the interval in units of the series (the additive score of Romano
    et al. 2019). So errors of forecasts with a very small predicted spread do not inflate all other intervals.
    """

    @abstractmethod
    def parts(self, raw: Tensor, distance: Tensor, side: int) -> tuple[Tensor, Tensor]:
        """Split a distance from the point into its position in the interval, 0 to 1, and the distance beyond it."""

    @abstractmethod
    def distance(self, raw: Tensor, score: Tensor, side: int) -> Tensor:
        """The distance from the point for a score of at most 1."""

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
    """Quantiles at :data:`PROBABILITIES`, trained by the pinball loss (Koenker & Bassett 1978).

    Scores at the quantiles are the normalised quantiles of the standard normal, with linear interpolation between.
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
                f"loss='quantile' predicts levels up to {WIDEST:g}. For wider intervals, fit with val_size, or use a "
                "distribution such as loss='student_t'."
            )
        return side * self.distance(raw, raw.new_full(raw.shape[:-1], normal_end(level) / normal_end(WIDEST)), side)

    def _knots(self, raw: Tensor, side: int) -> Tensor:
        """Distances of the quantiles on one side from the median, ``[..., 5]``, starting with the median itself and
        strictly increasing, so that score and distance are one-to-one."""
        ordered = raw.sort(dim=-1).values  # learned quantiles may cross
        outward = ordered[..., _MEDIAN:] if side > 0 else ordered[..., : _MEDIAN + 1].flip(-1)
        least = _LEAST_SPREAD * normal_end(WIDEST) * _SCORES.diff().to(raw)
        return F.pad(outward.diff(dim=-1).abs().maximum(least).cumsum(dim=-1), (1, 0))


def _on_lines(x: Tensor, y: Tensor, at: Tensor) -> Tensor:
    """Linear interpolation at ``at`` ``[...]`` through points (x, y), ``[..., K]`` or ``[K]``, with increasing x."""
    x, y, at = x.expand(*at.shape, -1), y.expand(*at.shape, -1), at.unsqueeze(-1)
    right = torch.searchsorted(x.contiguous(), at.contiguous()).clamp(1, x.shape[-1] - 1)
    (x0, x1), (y0, y1) = ((t.gather(-1, right - 1), t.gather(-1, right)) for t in (x, y))
    return (y0 + (at - x0) / (x1 - x0) * (y1 - y0)).squeeze(-1)


@dataclass(frozen=True)
class Family(Learned):
    """A location-scale distribution, trained by maximum likelihood."""

    name: str
    probabilistic: bool = True
    widest: float = 100.0

    @property
    def outputs(self) -> int:
        return 3 if self.name == "student_t" else 2

    def error(self, raw: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        # + log(scale) converts the density from units of the window to units of the series
        return scale.log() - self._distribution(raw).log_prob(target)

    def point(self, raw: Tensor) -> Tensor:
        return raw[..., 0]

    def parts(self, raw: Tensor, distance: Tensor, side: int) -> tuple[Tensor, Tensor]:
        edge = self._edge(raw)
        return distance.minimum(edge) / edge, (distance - edge).clamp(min=0)

    def distance(self, raw: Tensor, score: Tensor, side: int) -> Tensor:
        return score * self._edge(raw)

    def _edge(self, raw: Tensor) -> Tensor:
        """The end of the interval of :data:`WIDEST` percent, the same on both sides."""
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
    """The upper end of the central interval of ``level`` percent of the standard normal."""
    return NormalDist().inv_cdf((1 + level / 100) / 2)


# scores of the median and the quantiles on one side of it, from 0 to 1
_SCORES = torch.tensor([normal_end(100 * (2 * p - 1)) / normal_end(WIDEST) for p in PROBABILITIES[_MEDIAN:]])


def _spread(raw: Tensor) -> Tensor:
    return F.softplus(raw) + _LEAST_SPREAD


def _freedom(raw: Tensor) -> Tensor:
    # the variance exists only above 2
    return F.softplus(raw) + 2


def objective_of(loss: str) -> Objective:
    """The objective for the name of a loss.

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
    """Weights ``t ** -0.5`` of the steps t of a horizon, ``[h]``. Far steps are mostly noise; smaller weights improve
    generalisation (CARD, arXiv:2305.12095)."""
    return torch.arange(1, h + 1, device=device).rsqrt()


def weighted_mean(error: Tensor, weight: Tensor) -> Tensor:
    """The weighted mean; 0 if all weights are 0."""
    return (error * weight).sum() / weight.sum().clamp(min=1e-9)


@dataclass(frozen=True)
class DecayingError:
    """The mean loss of a batch, weighted by :func:`step_weights`, and the number of known targets. Unknown targets are
    excluded."""

    objective: Objective

    def __call__(self, network: nn.Module, batch: Batch) -> tuple[Tensor, int]:
        network = cast(Simba, network)
        raw, center, scale = normalised_in_parts(network, batch)
        target = (batch.y - center) / scale
        raw = raw.to(target)  # under autocast it is in bf16, in which 97.5 % would be learned as 97.7 %
        known = target.isfinite()
        units = scale if batch.unit is None else scale * batch.unit
        error = self.objective.error(raw, target.where(known, 0.0), units.expand_as(target))
        weight = step_weights(error.shape[1], error.device)
        weight = (weight / weight.mean())[:, None] * known
        return weighted_mean(error, weight), max(1, int(known.sum()))
