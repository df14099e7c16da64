"""Training of the online memory (its outer loop) for a trained network, by truncated back-propagation through time.

Streams run through the training rows. Their state is carried from one segment to the next, gradients are not.
"""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from titans_core.train import borrowed_randomness
from titans_ts.network import online
from titans_ts.network.objective import Objective, step_weights, weighted_mean
from titans_ts.network.rolling import KeptForecasts, corrections, forecast_rows
from titans_ts.network.simba import Simba
from titans_ts.network.windows import Table, first_rows

LANES, SEGMENT = 32, 32  # parallel streams; writes in a segment
LEARNING_RATE = 2e-3  # peak of one cycle
CHECKS = 4
VALUES = 1 << 24  # forecast values held at once in validation
SERIES = 256  # approximate maximum of series in validation, since each is read from its beginning


@dataclass(frozen=True)
class MemoryReport:
    """The result of training the online memory.

    Attributes:
        steps: updates of the outer loop; 0 if the series are too short for a memory.
        without: validation error of the network alone, in standard deviations, with more weight on near steps. It is
            squared for ``loss`` "mse" or "normal", the Huber loss for "huber", and else absolute.
        with_memory: the lowest validation error with the memory; None if it was never finite.
        kept: whether the memory is used: it lowered the error, or no forecast of validation rows could be scored.
        least: training rows that a series needs for a memory.
    """

    steps: int
    without: float | None = None
    with_memory: float | None = None
    kept: bool = False
    least: int = 0

    @property
    def why_none(self) -> str:
        """The reason why a model has no memory, as a sentence."""
        if self.steps == 0:
            takes = f" ({self.least} training rows are needed)" if self.least else ""
            return f"the series of fit were too short to train one{takes}."
        found = "not finite" if self.with_memory is None else f"{self.with_memory:.4f}"
        return f"it did not lower the validation error (without it {self.without:.4f}, with it {found})."


def train_memory(
    network: Simba,
    objective: Objective,
    table: Table,
    border: int,
    *,
    steps: int,
    seed: int,
    progress: bool,
) -> tuple[online.OnlineMemory | None, MemoryReport]:
    """Train a memory on the rows before ``border``, and validate it on the rows after.

    Args:
        network: the trained network; it stays unchanged.
        objective: interpretation of its outputs.
        table: all rows, standardised.
        border: the first validation row; the end of the table if there is none.
        steps: updates of the outer loop.
        seed: random seed.
        progress: show a progress bar.

    Returns:
        The memory, or None if it does not help or the series are too short; and a report.
    """
    config = network.config
    with borrowed_randomness(seed), torch.enable_grad():
        memory = online.OnlineMemory(config.input_size, config.h)
        streams = _Streams(network, objective, table, memory, border)
        if not streams.enough:
            return None, MemoryReport(0, least=streams.least)
        val = _Validation.of(network, objective, table, memory, border)
        without = val.error(None) if val else None
        best: dict[str, Tensor] = {}
        lowest = math.inf
        optimizer = torch.optim.AdamW(memory.parameters(), lr=LEARNING_RATE, weight_decay=0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=max(2, steps))
        with tqdm(total=steps, desc="Memory", disable=not progress, leave=True) as bar:
            for done, loss in enumerate(islice(streams.losses(memory.train()), steps), 1):
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(memory.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                bar.update()
                if val and done % max(1, steps // CHECKS) == 0:
                    error = val.error(memory)
                    bar.set_postfix(val_loss=f"{error:.4f}", without=f"{without:.4f}")
                    if error < lowest:
                        best, lowest = copy.deepcopy(memory.state_dict()), error
        if without is None:
            return memory.eval(), MemoryReport(steps, kept=True, least=streams.least)
        kept = lowest < without
        report = MemoryReport(steps, without, lowest if math.isfinite(lowest) else None, kept, streams.least)
        if not kept:
            return None, report
        memory.load_state_dict(best)
        return memory.eval(), report


class _Streams:
    """Streams through the training rows, each of one series, starting at a random row near its beginning."""

    def __init__(
        self, network: Simba, objective: Objective, table: Table, memory: online.OnlineMemory, border: int
    ) -> None:
        self.forecasts, self.table = KeptForecasts(network, objective, table), table
        self.cost = objective.cost
        self.together = network.config.together
        first = first_rows(table.values)
        # mixed series are forecast together, so they are read from the row at which all have begun
        self.first = first.max().expand_as(first) if self.together else first
        self.lead = max(memory.span + memory.stride, network.config.input_size)
        margin = network.config.h + memory.stride
        self.tokens = ((border - margin) - (self.first + self.lead)) // memory.stride
        self.least = self.lead + SEGMENT // 2 * memory.stride + margin  # required rows of a series
        self.able = torch.nonzero(self.tokens >= SEGMENT // 2).squeeze(1)

    @property
    def enough(self) -> bool:
        """Whether the series are long enough: all of them if they are mixed, else at least one."""
        return len(self.able) == len(self.tokens) if self.together else len(self.able) > 0

    def losses(self, memory: online.OnlineMemory) -> Iterator[Tensor]:
        """An endless iterator over the losses of segments, pass after pass."""
        while True:
            yield from self._pass(memory)

    def _pass(self, memory: online.OnlineMemory) -> Iterator[Tensor]:
        """One pass of :data:`LANES` streams; the state is carried from segment to segment."""
        S, N = memory.stride, self.table.values.shape[1]
        if self.together:
            phases = torch.randint(S, (max(1, LANES // N),))
            series, phase = torch.arange(N).repeat(len(phases)), phases.repeat_interleave(N)
        else:
            series = self.able[torch.randint(len(self.able), (LANES,))]
            phase = torch.randint(S, (LANES,))
        values = online.without_nan(self.table.values)
        begin = self.first[series] + self.lead + phase
        state = None
        most = max(1, int(self.tokens[series].min()))
        for tokens in torch.arange(most).split(SEGMENT):
            at = begin[:, None] + tokens * S
            read = at + torch.randint(S, (1, len(tokens)))
            before, now, queries = (self._cut(values, rows, series, memory.span) for rows in (at - S, at, read))
            correction, state = memory(queries, before, now, state)
            forecast, truth = self._known(read, series)
            # unknown actual values are NaN, which must not reach the gradient
            error = self.cost((forecast + correction - truth).nan_to_num(0.0))
            yield weighted_mean(error, step_weights(memory.h) * truth.isfinite())
            state = state.detach()

    @staticmethod
    def _cut(values: Tensor, ends: Tensor, series: Tensor, span: int) -> Tensor:
        return values[ends.unsqueeze(-1) + torch.arange(-span, 0), series[:, None, None]]

    def _known(self, origins: Tensor, series: Tensor) -> tuple[Tensor, Tensor]:
        """The network's forecasts and the actual values at origins ``[B, T]``: ``[B, T, h]`` each."""
        # with mixed series, the parallel streams are those of all series, phase by phase
        some = slice(None, None, self.table.values.shape[1] if self.together else None)
        rows, lanes = origins[some], series[some, None].expand(-1, origins.shape[1])
        found = self.forecasts.point(rows.reshape(-1), lanes.reshape(-1))  # [K, h, series of a window]
        steps, of = torch.arange(found.shape[1])[:, None], lanes.reshape(-1, 1, 1)
        if self.together:
            of = torch.arange(found.shape[2])
        truth = self.table.truth.after(rows.reshape(-1, 1, 1), steps, of, self.together)
        forecast, truth = (x.unflatten(0, rows.shape).permute(0, 3, 1, 2).flatten(0, 1) for x in (found, truth))
        return forecast, truth


@dataclass(frozen=True)
class _Validation:
    """Origins after the border, with forecasts of the network and actual values."""

    table: Table
    origins: Tensor
    forecast: Tensor
    truth: Tensor
    cost: Callable[[Tensor], Tensor]

    @classmethod
    def of(
        cls, network: Simba, objective: Objective, table: Table, memory: online.OnlineMemory, border: int
    ) -> "_Validation | None":
        last = len(table.values) - network.config.h
        if last < border:
            return None
        if not network.config.together:
            N = table.values.shape[1]
            table = table.of_series(torch.arange(0, N, -(-N // SERIES)))
        # few phases of the stride, since each needs a pass over the whole history
        step = max(1, memory.stride // 4)
        most = max(1, min(256, VALUES // (network.config.h * table.values.shape[1])))
        step *= max(1, -(-(last + 1 - border) // (most * step)))
        origins = torch.arange(border, last + 1, step)
        steps = torch.arange(network.config.h)[:, None]
        series = torch.arange(table.values.shape[1])
        truth = table.truth.after(origins[:, None, None], steps, series, network.config.together)
        forecast = forecast_rows(network, objective, table, origins).point
        if not (forecast - truth).isfinite().any():  # each lookback ends in a gap that was filled with later values
            return None
        return cls(table, origins, forecast, truth, objective.cost)

    def error(self, memory: online.OnlineMemory | None) -> float:
        found = self.forecast
        if memory is not None:
            mode = memory.training
            found = found + corrections(memory.eval(), self.table, self.origins)
            memory.train(mode)
        error = found - self.truth
        error = self.cost(error if self.table.unit is None else error * self.table.unit)
        known = (self.forecast - self.truth).isfinite()  # without the memory, so that its NaN makes the error NaN
        error[~known] = 0.0
        return float(weighted_mean(error, step_weights(error.shape[1])[:, None] * known))
