"""Multi-query associative recall: a list of key-value pairs, then each key queried once after gaps of many lengths.

    inputs   k1 v1 k2 v2 k3 v3  .  . k2  . k1  .  .  . k3  .
    labels    .  .  .  .  .  .  .  . v2  . v1  .  .  . v3  .

Source: Arora et al. 2023, "Zoology" (arXiv:2312.04927), section 4 and its synthetic data. As there, keys and values
come from the two halves of the vocabulary, each drawn without replacement; each key is queried once; and the slots (of
two tokens) for queries are drawn without replacement, the s-th with weight ``s ** (gap_power - 1)``. Unlike there,
random filler never contains a key of its own sequence, so before its query a key is only ever followed by its value.
"""

import numpy as np
import torch
from torch import Tensor

from titans_core.checks import at_least

IGNORE = -100
BLANK = 0


def examples(
    num_examples: int,
    length: int,
    num_pairs: int,
    vocab_size: int,
    *,
    gap_power: float = 0.01,
    random_filler: bool = True,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Create sequences and their recall targets.

    Args:
        num_examples: number of sequences, N.
        length: tokens per sequence, T; at least ``4 * num_pairs`` (a pair, and a slot of two tokens for its query).
        num_pairs: pairs per sequence; at most ``vocab_size // 2 - 1``, the number of keys.
        vocab_size: keys are ``1 .. vocab_size // 2 - 1``, values ``vocab_size // 2 .. vocab_size - 1``; 0 is blank.
        gap_power: exponent a of the weight ``s ** (a - 1)`` of the s-th slot after the pairs. Near 0, most queries come
            early; 1 is uniform. 0.01 in Zoology.
        random_filler: fill all other positions with random tokens that are not keys of the sequence. False leaves
            blanks, as in Zoology's Figure 2.
        seed: the same seed and arguments give the same examples.

    Returns:
        inputs ``[N, T]`` and labels ``[N, T]``, both int64. ``labels[:, t]`` is the token that should follow
        ``inputs[:, t]`` if that is a query, and -100 elsewhere. Labels are already shifted:
        ``cross_entropy(logits.flatten(0, 1), labels.flatten())`` compares the output at t with the label at t. The
        value itself is not shown after the query.

    Raises:
        ValueError: if the sizes do not fit together.
    """
    _check(num_examples, length, num_pairs, vocab_size, gap_power)
    rng = np.random.default_rng(seed)
    half, context = vocab_size // 2, 2 * num_pairs
    keys = _distinct(rng, num_examples, num_pairs, half - 1) + 1
    values = _distinct(rng, num_examples, num_pairs, vocab_size - half) + half

    inputs = np.full((num_examples, length), BLANK, dtype=np.int64)
    if random_filler:
        inputs[:, context:] = _others(rng, keys, length - context, vocab_size)
    inputs[:, 0:context:2] = keys
    inputs[:, 1:context:2] = values

    queries = context + 2 * _slots(rng, num_examples, num_pairs, (length - context) // 2, gap_power)
    labels = np.full((num_examples, length), IGNORE, dtype=np.int64)
    np.put_along_axis(inputs, queries, keys, axis=1)
    np.put_along_axis(labels, queries, values, axis=1)
    return torch.from_numpy(inputs), torch.from_numpy(labels)


def recall(logits: Tensor, labels: Tensor) -> float:
    """Fraction of queries whose most likely next token is the value, for logits ``[N, T, V]`` and labels ``[N, T]``.

    Raises:
        ValueError: if the shapes do not match, or the labels contain no query.
    """
    if logits.ndim != labels.ndim + 1 or logits.shape[:-1] != labels.shape:
        raise ValueError(
            f"logits must be [N, T, vocab_size] for labels [N, T], got {tuple(logits.shape)} and {tuple(labels.shape)}."
        )
    is_query = labels != IGNORE
    if not is_query.any():
        raise ValueError(f"labels contain no query: all are {IGNORE}. Pass the labels returned by examples().")
    return (logits[is_query].argmax(-1) == labels[is_query]).double().mean().item()


def _check(num_examples: int, length: int, num_pairs: int, vocab_size: int, gap_power: float) -> None:
    at_least("num_examples", num_examples)
    at_least("num_pairs", num_pairs)
    if length < 4 * num_pairs:
        raise ValueError(
            f"length must be at least 4 * num_pairs = {4 * num_pairs} to show each pair and query each key, got "
            f"{length}. Use longer sequences or fewer pairs."
        )
    if vocab_size // 2 - 1 < num_pairs:
        raise ValueError(
            f"vocab_size must be at least {2 * num_pairs + 2} for {num_pairs} distinct keys (1 .. vocab_size // 2 - "
            f"1), got {vocab_size}. Use a larger vocabulary or fewer pairs."
        )
    if not gap_power > 0:
        raise ValueError(f"gap_power must be above 0 (1 is uniform, 0.01 in Zoology), got {gap_power}.")


def _distinct(rng: np.random.Generator, rows: int, count: int, below: int) -> np.ndarray:
    """``[rows, count]`` integers below ``below``, without replacement per row, in random order (Floyd's algorithm)."""
    chosen = np.empty((rows, count), dtype=np.int64)
    for i, last in enumerate(range(below - count, below)):
        new = rng.integers(0, last + 1, size=rows)
        taken = (chosen[:, :i] == new[:, None]).any(axis=1)
        chosen[:, i] = np.where(taken, last, new)
    return rng.permuted(chosen, axis=1)


def _slots(rng: np.random.Generator, rows: int, count: int, slots: int, power: float) -> np.ndarray:
    """``[rows, count]`` distinct slots. The largest of log weight plus Gumbel noise are a draw without replacement."""
    noisy = (power - 1) * np.log(np.arange(1, slots + 1)) + rng.gumbel(size=(rows, slots))
    return np.argsort(-noisy, axis=1)[:, :count]


def _others(rng: np.random.Generator, keys: np.ndarray, count: int, vocab_size: int) -> np.ndarray:
    """``[rows, count]`` random tokens; no row contains one of its keys.

    The r-th token that is not a key is r plus the number of keys below it, that is, of keys whose value minus rank is
    at most r. All rows are searched at once, each shifted to its own range.
    """
    rows, num_keys = keys.shape
    own = np.arange(rows)[:, None]
    under = np.sort(keys, axis=1) - np.arange(num_keys) + own * vocab_size
    left = rng.integers(0, vocab_size - num_keys, size=(rows, count))
    return left + np.searchsorted(under.ravel(), left + own * vocab_size, side="right") - own * num_keys
