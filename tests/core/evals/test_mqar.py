"""Laws of multi-query associative recall, checked token by token."""

import time

import pytest
import torch
import torch.nn.functional as F

from titans_core.evals import mqar

SIZES = [(24, 6, 16), (64, 4, 32), (63, 4, 33), (200, 7, 1000)]


def look_up(inputs, vocab_size):
    """The logits of a perfect memory: it predicts the token that followed the first occurrence of this token."""
    logits = torch.zeros(*inputs.shape, vocab_size)
    for row, tokens in enumerate(inputs.tolist()):
        memory = {}
        for t, token in enumerate(tokens):
            logits[row, t, memory.get(token, 0)] = 1
            if t + 1 < len(tokens):
                memory.setdefault(token, tokens[t + 1])
    return logits


@pytest.mark.parametrize("random_filler", [True, False], ids=["filler", "blank"])
@pytest.mark.parametrize(("length", "pairs", "vocab"), SIZES)
def test_each_key_occurs_once_with_its_value_and_is_queried_once_later(length, pairs, vocab, random_filler):
    inputs, labels = mqar.examples(50, length, pairs, vocab, random_filler=random_filler, seed=3)
    assert inputs.dtype == labels.dtype == torch.int64
    for tokens, targets in zip(inputs.tolist(), labels.tolist(), strict=True):
        shown = dict(zip(tokens[0 : 2 * pairs : 2], tokens[1 : 2 * pairs : 2], strict=True))
        assert len(shown) == len(set(shown.values())) == pairs
        assert all(0 < k < vocab // 2 <= v < vocab for k, v in shown.items())
        queries = [t for t in range(length) if targets[t] != -100]
        assert sorted(tokens[t] for t in queries) == sorted(shown)
        assert all(t >= 2 * pairs and targets[t] == shown[tokens[t]] for t in queries)
        # filler never repeats a key, so that no key is followed by anything but its value before it is asked
        rest = [tokens[t] for t in range(2 * pairs, length) if t not in queries]
        assert not set(rest) & set(shown)
        assert all(0 <= token < vocab for token in rest) if random_filler else set(rest) <= {0}


def test_filler_is_uniform_over_all_tokens_but_the_keys():
    inputs, labels = mqar.examples(4000, 40, 3, 10)
    for key in (1, 4):  # rows that show this key must fill with each of the other tokens alike
        rows = (inputs[:, 0:6:2] == key).any(1)
        filler = inputs[rows, 6:][labels[rows, 6:] == -100]
        share = filler.bincount(minlength=10) / len(filler)
        assert share[key] == 0
        assert share[5:] == pytest.approx(torch.full((5,), 1 / 7), abs=0.01)
        assert share[0] == pytest.approx(1 / 7, abs=0.01)


def test_labels_are_shifted_as_cross_entropy_wants_them():
    inputs, labels = mqar.examples(20, 48, 5, 40, random_filler=False)
    logits = 100 * look_up(inputs, 40)
    assert F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100) < 1e-6


@pytest.mark.parametrize("random_filler", [True, False], ids=["filler", "blank"])
def test_a_perfect_memory_recalls_all_and_a_shifted_one_nothing(random_filler):
    inputs, labels = mqar.examples(50, 64, 6, 50, random_filler=random_filler)
    assert mqar.recall(look_up(inputs, 50), labels) == 1
    assert mqar.recall(look_up(inputs, 50).roll(1, dims=-1), labels) == 0


def test_guessing_among_the_values_is_right_once_in_as_many():
    _, labels = mqar.examples(2000, 64, 8, 64)
    logits = torch.rand(*labels.shape, 64, generator=torch.Generator().manual_seed(0))
    logits[..., :32] = -1
    assert mqar.recall(logits, labels) == pytest.approx(1 / 32, abs=0.005)


def test_a_small_power_asks_soon_and_1_asks_anywhere_alike():
    def query_positions(power):
        """How often each of 20 slots holds a key, when 2 of 20 do."""
        _, labels = mqar.examples(8000, 8 + 36, 2, 32, gap_power=power)
        return (labels[:, 4::2] != -100).double().mean(0)

    soon, uniform = query_positions(0.01), query_positions(1.0)
    assert uniform == pytest.approx(torch.full((20,), 0.1, dtype=torch.float64), abs=0.015)
    assert (soon[:4].diff() < 0).all()
    assert soon[0] > 5 * soon[-1]


def test_slots_are_drawn_one_by_one_with_the_weights_of_those_left():
    """Of 2 slots with weights 1 and w = 2 ** (a - 1), the first key gets the first with probability 1 / (1 + w)."""
    inputs, _ = mqar.examples(20_000, 8, 2, 16, gap_power=0.5, random_filler=False)
    first = (inputs[:, 4] == inputs[:, 0]).double().mean()
    assert first == pytest.approx(1 / (1 + 2**-0.5), abs=0.01)


def test_keys_are_drawn_alike_even_when_nearly_all_are_used():
    inputs, _ = mqar.examples(10_000, 32, 6, 16)  # 6 of 7 keys
    for place in range(0, 12, 2):
        assert inputs[:, place].bincount(minlength=8)[1:] / 10_000 == pytest.approx(torch.full((7,), 1 / 7), abs=0.015)


def test_the_seed_decides():
    a, b, c = (mqar.examples(8, 32, 4, 64, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(a[0], b[0])
    assert torch.equal(a[1], b[1])
    assert not torch.equal(a[0], c[0])


def test_a_training_set_is_made_in_seconds():
    start = time.process_time()
    mqar.examples(20_000, 256, 16, 8192)
    assert time.process_time() - start < 10  # under 1 on an idle core


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 32, 4, 64), "num_examples must be an integer >= 1, got 0"),
        ((8, 32, 0, 64), "num_pairs must be an integer >= 1, got 0"),
        ((8, 15, 4, 64), r"length must be at least 4 \* num_pairs = 16 .* got 15.*fewer pairs"),
        ((8, 32, 4, 9), "vocab_size must be at least 10 for 4 distinct keys .* got 9"),
    ],
)
def test_inconsistent_sizes_are_refused_with_a_plain_message(arguments, message):
    with pytest.raises(ValueError, match=message):
        mqar.examples(*arguments)


@pytest.mark.parametrize("power", [0, -1, float("nan")])
def test_an_invalid_gap_power_is_refused(power):
    with pytest.raises(ValueError, match="gap_power must be above 0"):
        mqar.examples(8, 32, 4, 64, gap_power=power)


def test_the_least_sizes_that_fit_are_taken():
    inputs, labels = mqar.examples(8, 16, 4, 10)
    assert mqar.recall(look_up(inputs, 10), labels) == 1


def test_recall_refuses_mismatched_shapes_and_labels_without_queries():
    _, labels = mqar.examples(8, 32, 4, 64)
    with pytest.raises(ValueError, match=r"logits must be \[N, T, vocab_size\].*\(8, 31, 64\) and \(8, 32\)"):
        mqar.recall(torch.zeros(8, 31, 64), labels)
    with pytest.raises(ValueError, match="labels contain no query"):
        mqar.recall(torch.zeros(8, 32, 64), torch.full((8, 32), -100))
