"""The online memory: it reads the series, keeps learning while a forecaster is in use, and corrects the forecasts.

Every ``stride`` rows the memory stores an association: the key is the code of the window that ended one stride ago,
the value is the code of the window that ends now. A forecast queries it with the code of its own window. Writing is the
inner loop of Titans (Eq. 13-14) with momentum and forgetting; the weights of the outer loop are fixed. The memory is
linear (one layer): its step size is bounded, so its state stays finite on streams of any length, which is not
guaranteed for deeper memories.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titans_core import MemoryState, neural_memory
from titans_core.nn.dropout import Dropout
from titans_core.nn.norms import RMSNorm, gated, unit_silu
from titans_core.ops.memory import read_memory
from titans_core.ops.memory.state import map_state
from titans_ts.network.windows import first_rows

SPAN = 96
DIM, HEADS, CHUNK = 64, 4, 4
FLOATS = 1 << 24  # approximate limit of numbers computed for one piece of a stream


class OnlineMemory(nn.Module):
    """Corrects forecasts by what it has read of the series so far.

    Args:
        input_size: lookback of the network; windows of the memory have at most :data:`SPAN` rows.
        h: horizon.

    Attributes:
        span: rows of a window.
        stride: rows between writes.
    """

    def __init__(self, input_size: int, h: int) -> None:
        super().__init__()
        self.h, self.span = int(h), int(min(input_size, SPAN))
        self.stride = max(1, self.span // 3)
        size = DIM // HEADS
        self.embed = nn.Linear(self.span + 2, DIM)
        self.norm = nn.LayerNorm(DIM)
        self.query = nn.Linear(DIM, DIM, bias=False)
        self.key = nn.Linear(DIM, DIM, bias=False)
        self.value = nn.Linear(DIM, DIM, bias=False)
        self.gates = nn.Linear(DIM, 3 * HEADS)  # alpha, eta, theta of each head
        self.start = nn.Parameter(0.1 * torch.randn(HEADS, size, size) * size**-0.5)
        self.out_norm = RMSNorm(size, eps=1e-3)
        self.out_gate = nn.Linear(DIM, DIM)
        self.dropout = Dropout(0.2)
        self.out = nn.Linear(DIM, h)
        self.direct = nn.Linear(DIM, h, bias=False)
        with torch.no_grad():
            self.gates.weight.mul_(0.1)
            self.gates.bias.copy_(torch.tensor([-4.0] * HEADS + [0.0] * 2 * HEADS))  # forget little at first
        for weight in (self.out.weight, self.out.bias, self.direct.weight):  # a new memory corrects nothing
            nn.init.zeros_(weight)

    def forward(
        self, read: Tensor, before: Tensor, now: Tensor, state: MemoryState | None = None
    ) -> tuple[Tensor, MemoryState]:
        """Write T pairs, and read R times after each.

        Args:
            read: windows to forecast from, ``[R * B, T, span]``.
            before: windows that end one stride before ``now``, ``[B, T, span]``.
            now: windows that end at the write, ``[B, T, span]``.
            state: state after earlier writes, of R * B sequences.

        Returns:
            Corrections ``[R * B, T, h]`` in the units of the windows, and the state after the last write.
        """
        query_codes, scale = self._code(read)
        out, state = self._write(self._heads(self.query, query_codes, unit=True), before, now, state)
        return self._correct(out, query_codes, scale), state

    def write(self, before: Tensor, now: Tensor, state: MemoryState | None = None) -> MemoryState:
        """Write T pairs without reading: the state of :meth:`forward`."""
        return self._write(None, before, now, state)[1]

    def recall(self, read: Tensor, state: MemoryState) -> Tensor:
        """Read without writing: windows ``[B, T, span]`` -> corrections ``[B, T, h]``."""
        query_codes, scale = self._code(read)
        out = read_memory(self._heads(self.query, query_codes, unit=True), state.weights)
        return self._correct(out, query_codes, scale)

    def surprise(self, windows: Tensor, reads: int, state: MemoryState | None = None) -> tuple[Tensor, MemoryState]:
        """Write T pairs, and compute the associative loss ``|M(k) - v|^2`` (Eq. 12) at regular rows between writes.

        The gradient of this loss is the momentary surprise.

        Args:
            windows: windows at regular rows, ``reads`` in each stride, starting with the key of the first write:
                ``[B, (T + 1) * reads, span]``.
            reads: values per stride: one just before the write, the others after it.
            state: state after earlier writes.

        Returns:
            The losses ``[B, T * reads]``, and the state after the last write.
        """
        code = self._code(windows)[0]
        keys, values = self._heads(self.key, code, unit=True), self._heads(self.value, code)
        end = keys.shape[1] - reads  # of the keys of the writes
        expected = [read_memory(keys[:, :1], (self.start,) if state is None else state.weights)]
        passes = []
        for i in range(1, reads + 1):  # each reads at one distance from the writes
            queries, codes = keys[:, i : i + end : reads], code[:, reads::reads]
            out, after = self._write_and_read(queries, keys[:, :end:reads], codes, state)
            passes.append(out)
        expected.append(torch.stack(passes, dim=2).flatten(1, 2)[:, :-1])
        return (torch.cat(expected, dim=1) - values[:, reads:]).square().sum(dim=(-2, -1)), after

    def _write(
        self, queries: Tensor | None, before: Tensor, now: Tensor, state: MemoryState | None
    ) -> tuple[Tensor, MemoryState]:
        keys, codes = self._heads(self.key, self._code(before)[0], unit=True), self._code(now)[0]
        if queries is None:
            return self._write_and_read(keys, keys, codes, state)
        R = len(queries) // len(keys)
        return self._write_and_read(queries, keys.repeat(R, 1, 1, 1), codes.repeat(R, 1, 1), state)

    def _write_and_read(
        self, queries: Tensor, keys: Tensor, codes: Tensor, state: MemoryState | None
    ) -> tuple[Tensor, MemoryState]:
        """Write values and gates from ``codes`` under ``keys``, and read with ``queries`` after each."""
        alpha, eta, theta = torch.sigmoid(self.gates(codes)).chunk(3, dim=-1)
        return neural_memory(
            queries,
            keys,
            self._heads(self.value, codes),
            alpha,
            eta,
            # keys have length 1: the linear memory is stable with this step size
            theta * (1 - eta) * (2 / CHUNK),
            (self.start,),
            state,
            chunk_size=CHUNK,
        )

    def _code(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """The codes ``[..., DIM]`` of windows ``[..., span]``, and their standard deviations ``[..., 1]``."""
        center = windows.mean(dim=-1, keepdim=True)
        # the floor, in standard deviations of the series, keeps the noise of a flat window small
        scale = windows.std(dim=-1, keepdim=True, correction=0).clamp(min=0.1)
        shape = ((windows - center) / scale).clamp(-10, 10)
        both = torch.cat((shape, center.clamp(-10, 10), scale.log()), dim=-1)
        return self.norm(F.gelu(self.embed(both))), scale

    def _heads(self, layer: nn.Module, code: Tensor, unit: bool = False) -> Tensor:
        heads = layer(code).unflatten(-1, (HEADS, -1))
        return unit_silu(heads) if unit else F.silu(heads)

    def _correct(self, out: Tensor, query_codes: Tensor, scale: Tensor) -> Tensor:
        recalled = gated(self.out_norm, out, self.out_gate(query_codes))
        return (self.out(self.dropout(recalled)) + self.direct(self.dropout(query_codes))) * scale


@dataclass(frozen=True)
class Stream:
    """The state of a memory for series that begin at the same row.

    Attributes:
        series: their columns in the panel.
        rows: number of rows read.
        state: state of the memory; None before the first write.
    """

    series: Tensor
    rows: int
    state: MemoryState | None = None


def streams_of(values: Tensor) -> list[tuple[int, Stream]]:
    """New streams for the series ``[T, N]``, each with the row at which its series begin.

    Series are grouped by this row, so that the result for each is independent of the others.
    """
    first = first_rows(values)
    begins = [int(begin) for begin in first.unique() if begin < len(values)]
    return [(begin, Stream(torch.nonzero(first == begin).squeeze(1), 0)) for begin in begins]


@torch.no_grad()
def advance(memory: OnlineMemory, stream: Stream, recent: Tensor, new_rows: int) -> Stream:
    """Read ``new_rows`` more rows: the last ones of recent ``[T, N]``, which has ``span + stride`` rows before them if
    the series has that many."""
    rows = stream.rows + new_rows
    done, due = _writes(memory, stream.rows), _writes(memory, rows)
    state = stream.state
    if due > done:
        values = without_nan(recent[:, stream.series])
        state = _state_after(memory, values, done, due, state, rows - len(values))
    return replace(stream, rows=rows, state=state)


@torch.no_grad()
def recall(memory: OnlineMemory, stream: Stream, recent: Tensor) -> Tensor:
    """Corrections ``[h, n]`` of the forecasts that follow ``recent`` ``[T, N]``, for the n series of a stream.

    They are zero before the first write.
    """
    if stream.state is None:
        return recent.new_zeros(memory.h, len(stream.series))
    values = without_nan(recent[:, stream.series])
    return memory.recall(_windows(values, torch.tensor([len(values)]), memory.span), stream.state)[:, 0].T


@torch.no_grad()
def rolling(memory: OnlineMemory, values: Tensor, origins: Tensor) -> Tensor:
    """Corrections at many origins in one pass, ``[K, h, n]``: values ``[T, n]`` of series that begin at row 0.

    Each is what :func:`recall` gives after reading the rows before its origin.
    """
    values = without_nan(values)
    n, S = values.shape[1], memory.stride
    found = values.new_zeros(len(origins), memory.h, n)
    written = (origins - memory.span) // S  # writes before each origin
    offsets = origins - memory.span - written * S
    late = torch.nonzero(written > 0).squeeze(1)
    if not len(late):
        return found
    first = int(written[late].min()) - 1  # writes that all origins share are done once
    start = _state_after(memory, values, 0, first, None)
    last = int(written[late].max())
    at_once = max(1, FLOATS // ((last - first) * n * _floats_of_write(memory)))
    for some in offsets[late].unique().split(at_once):  # distances from the writes, side by side
        lanes = partial(Tensor.repeat, repeats=(len(some), 1, 1, 1))
        begin, state = first, None if start is None else map_state(lanes, start)
        for at, before, now in _windows_of_writes(memory, values, first, last):
            ends = (at + some[:, None]).clamp(max=len(values))
            read = _windows(values, ends.flatten(), memory.span).unflatten(1, ends.shape).transpose(0, 1).flatten(0, 1)
            corrections, state = memory(read, before, now, state)
            here = late[(written[late] > begin) & (written[late] <= begin + len(at)) & torch.isin(offsets[late], some)]
            of = torch.searchsorted(some, offsets[here])
            found[here] = corrections.unflatten(0, (-1, n))[of, :, written[here] - 1 - begin].transpose(1, 2)
            begin += len(at)
    return found


@torch.no_grad()
def surprises(memory: OnlineMemory, values: Tensor, unknown: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """The surprise at every ``step``-th row of ``[T, n]`` from the first write on: numbers of rows read ``[R]``, and
    the surprise after them ``[R, n]``.

    Each value uses the memory after the writes at earlier rows. It is NaN if a row of its window or of the stride
    before it is ``unknown``, ``[T, n]``.
    """
    values, reach = without_nan(values), memory.span + memory.stride
    rows = torch.arange(reach, max(reach, len(values) + 1), step)
    apart = math.gcd(step, memory.stride)
    at_once = max(1, FLOATS // (CHUNK * _floats_of_surprise(memory, memory.stride)))
    parts = [_surprises(memory, some, apart) for some in values.split(at_once, dim=1)]
    found = torch.cat(parts, dim=1)[:: step // apart][: len(rows)]
    holes = F.pad(unknown.cumsum(0), (0, 0, 1, 0))
    return rows, found.masked_fill(holes[rows] > holes[rows - reach], torch.nan)


def _surprises(memory: OnlineMemory, values: Tensor, apart: int) -> Tensor:
    """The surprise at every ``apart``-th row, a divisor of the stride. The last stride may extend beyond the data."""
    S, T, found, state = memory.stride, len(values), [values.new_empty(0, values.shape[1])], None
    each = values.shape[1] * _floats_of_surprise(memory, S // apart)
    due, some = _writes(memory, T), max(1, FLOATS // each)
    for write in range(0, due, some):
        ends = memory.span + torch.arange(write * S, (min(write + some, due) + 1) * S, apart).clamp(max=T - memory.span)
        surprise, state = memory.surprise(_windows(values, ends, memory.span), S // apart, state)
        found.append(surprise.T)
    return torch.cat(found)


def _floats_of_write(memory: OnlineMemory) -> int:
    """Approximate count for one write and one read of one series."""
    return memory.h + 3 * memory.span + 6 * DIM


def _floats_of_surprise(memory: OnlineMemory, reads: int) -> int:
    """Approximate count for one write of one series."""
    return reads * (2 * memory.span + 8 * DIM)


def _state_after(
    memory: OnlineMemory, values: Tensor, done: int, due: int, state: MemoryState | None, offset: int = 0
) -> MemoryState | None:
    """The state after the writes with numbers in ``[done, due)``; arguments as in :func:`_windows_of_writes`."""
    for _, before, now in _windows_of_writes(memory, values, done, due, offset):
        state = memory.write(before, now, state)
    return state


def _windows_of_writes(
    memory: OnlineMemory, values: Tensor, first: int, last: int, offset: int = 0
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The windows of the writes with numbers in ``[first, last)``, in pieces as large as :data:`FLOATS` allows.

    values ``[T, n]`` begin at row ``offset`` of the series. Yields the rows of W writes, and the windows
    ``[n, W, span]`` that end one stride before and at these rows.
    """
    S, some = memory.stride, FLOATS // (values.shape[1] * _floats_of_write(memory))
    for writes in torch.arange(first, last).split(max(1, some)) if last > first else ():
        at = writes * S + memory.span + S - offset
        yield at, _windows(values, at - S, memory.span), _windows(values, at, memory.span)


def _writes(memory: OnlineMemory, rows: int) -> int:
    """Number of writes after this many rows; the first needs two complete windows, one stride apart."""
    return max(0, (rows - memory.span) // memory.stride)


def _windows(values: Tensor, ends: Tensor, span: int) -> Tensor:
    """The ``span`` rows of ``[T, n]`` before each end, ``[n, len(ends), span]``."""
    return values[ends[:, None] + torch.arange(-span, 0)].permute(2, 0, 1)


def without_nan(values: Tensor) -> Tensor:
    """Replace NaN by the mean of the series, which is 0 after standardisation."""
    return values.nan_to_num(0.0)
