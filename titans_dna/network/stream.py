"""Reading long sequences in pieces: several in parallel, with memory use that does not depend on their length.

An N is placed before each sequence, so that its first base has a likelihood too:

    token read       N    x_0  x_1  ...  x_L-1
    base to predict  x_0  x_1  x_2  ...  none

Sequences are sorted by decreasing length, so that finished ones are the last rows of a batch. Padding only comes after
the end of a sequence, where it has no effect.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from titans_core import TitansLM
from titans_core.train.fit import torch_device
from titans_dna.genomes.genome import Genome
from titans_dna.genomes.intervals import Interval
from titans_dna.genomes.sources import part_of
from titans_dna.genomes.tokenizer import PAD, N

__all__ = ["PIECE", "Piece", "hooked", "padded", "reading", "stream"]

PIECE = 4096


class Piece(NamedTuple):
    """Result of one reading step.

    Attributes:
        rows: indices of the intervals, int64 [B].
        first: position of ``following[:, 0]`` in each interval, in its direction.
        tokens: ids that were read, [B, P]; PAD after the end.
        following: the base after each token, [B, P]; PAD if there is none.
        hidden: inputs of the output layer, [B, P, dim].
    """

    rows: NDArray[np.int64]
    first: int
    tokens: Tensor
    following: Tensor
    hidden: Tensor


@torch.no_grad()
def stream(
    network: TitansLM, genome: Genome, intervals: Sequence[Interval], *, batch_size: int = 16, piece: int = PIECE
) -> Iterator[Piece]:
    """Read intervals from their first to their last base, in their own direction, ``batch_size`` at a time."""
    device = network.embedding.weight.device
    order = np.argsort([-len(interval) for interval in intervals], kind="stable")
    for at in range(0, len(order), batch_size):
        rows, state = order[at : at + batch_size], None
        for first in range(0, len(intervals[rows[0]]) + 1, piece):
            going = sum(len(intervals[i]) + 1 > first for i in rows)
            if going < len(rows):
                assert state is not None
                rows, state = rows[:going], state.select(torch.arange(going))
            pairs = [_tokens(genome, intervals[i], first, piece) for i in rows]
            tokens, following = (padded([pair[k] for pair in pairs]).to(device) for k in (0, 1))
            hidden, state = network.hidden(tokens, state)
            yield Piece(rows, first, tokens, following, hidden)


@contextmanager
def reading(network: TitansLM, device: str) -> Iterator[TitansLM]:
    """Put the network in evaluation mode on a device ("auto": CUDA if available), and restore it afterwards."""
    before, training = network.embedding.weight.device, network.training
    there = torch_device(device)
    try:
        yield network.to(there).eval()
    finally:
        network.to(before).train(training)


@contextmanager
def hooked(modules: Sequence[nn.Module], hear: Callable[[Any, tuple[Any, ...], Any], None]) -> Iterator[None]:
    """Call ``hear(module, given, out)`` after each call of these modules by this thread, within the context."""
    thread = get_ident()

    def hear_this_thread(*call: Any) -> None:
        if get_ident() == thread:
            hear(*call)

    hooks = [module.register_forward_hook(hear_this_thread) for module in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _tokens(genome: Genome, interval: Interval, first: int, piece: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Tokens ``first`` to ``first + piece`` of an interval with its leading N, and the bases that follow them."""
    bases, stop = len(interval), min(first + piece, len(interval) + 1)
    ids = genome.ids(part_of(interval, max(first - 1, 0), min(stop, bases)))
    before = [N] if first == 0 else []
    after = [PAD] if stop == bases + 1 else []
    ids = np.concatenate((np.array(before, np.uint8), ids, np.array(after, np.uint8)))
    return ids[:-1], ids[1:]


def padded(rows: Sequence[NDArray[np.uint8]]) -> Tensor:
    """Pad ids to one length, int64 ``[B, T]``."""
    ids = np.full((len(rows), max(map(len, rows))), PAD, dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return torch.from_numpy(ids)
