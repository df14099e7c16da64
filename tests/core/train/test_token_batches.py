"""The order of batches is determined by seed, epoch and step, and resumes where it stopped."""

import json
from itertools import chain

import pytest
import torch
import torch.distributed as dist

from titans_core.train.token_batches import OrderedBatches, ResumableBatches, TokenLoader
from titans_core.train.tokens import PackedTokens

LENGTH, BATCH = 16, 12
STEPS = 5  # batches in an epoch


def epoch_of(batches):
    """One pass, used up."""
    found = []
    for batch in batches:
        batches.advance()
        found.append(batch)
    return found


def test_every_window_comes_once_in_each_epoch_and_epochs_differ():
    batches = ResumableBatches(60, 12, seed=3)
    epochs = [epoch_of(batches) for _ in range(3)]
    for epoch in epochs:
        assert sorted(chain(*epoch)) == list(range(60))
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


def test_incomplete_batches_are_left_out_and_differ_in_each_epoch():
    batches = ResumableBatches(64, 12)
    left_out = []
    for _ in range(3):
        seen = list(chain(*epoch_of(batches)))
        assert len(set(seen)) == len(seen) == 60
        left_out.append(set(range(64)) - set(seen))
    assert left_out[0] != left_out[1] != left_out[2]


def test_seed_epoch_and_step_decide_a_batch_and_nothing_else():
    one, other = ResumableBatches(60, 12, seed=3), ResumableBatches(60, 12, seed=3)
    epoch_of(one)
    torch.manual_seed(0)
    assert other.batch(7, 2).tolist() == one.batch(7, 2).tolist()
    assert one.batch(0, 4).tolist() == epoch_of(other)[4]
    assert ResumableBatches(60, 12, seed=4).batch(0, 0).tolist() != one.batch(0, 0).tolist()
    # pinned: a checkpoint of today must mean the same batches tomorrow
    assert one.batch(1, 0).tolist() == [34, 14, 54, 45, 28, 51, 42, 43, 19, 24, 59, 47]


def pretend(monkeypatch, rank, world):
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_rank", lambda: rank)
    monkeypatch.setattr(dist, "get_world_size", lambda: world)


@pytest.mark.parametrize("world", [2, 3, 4])
def test_the_parts_of_all_processes_are_the_batch_of_one(monkeypatch, world):
    whole = epoch_of(ResumableBatches(64, 12, seed=1))
    parts = []
    for rank in range(world):
        pretend(monkeypatch, rank, world)
        parts.append(epoch_of(ResumableBatches(64, 12, seed=1)))
    for step, batch in enumerate(whole):
        shares = [part[step] for part in parts]
        assert {len(share) for share in shares} == {12 // world}
        assert sorted(chain(*shares)) == sorted(batch)


def test_a_run_resumes_with_another_number_of_processes(monkeypatch):
    state = ResumableBatches(64, 12, seed=1)
    whole = epoch_of(state)
    pretend(monkeypatch, 1, 2)
    resumed = ResumableBatches(64, 12, seed=1)
    resumed.load_state_dict({**state.state_dict(), "epoch": 0, "step": 3})
    assert epoch_of(resumed) == [batch[1::2] for batch in whole[3:]]


def test_an_epoch_has_only_whole_steps():
    batches = ResumableBatches(64, 6, seed=1, together=4)  # ten batches, two steps of four
    assert len(batches) == len(epoch_of(batches)) == 8
    alone = ResumableBatches(64, 6, seed=1)
    assert [batches.batch(0, i).tolist() for i in range(8)] == [alone.batch(0, i).tolist() for i in range(8)]
    with pytest.raises(
        ValueError, match="a step of 4 batches of 20 needs at least that many windows, but there are only 64"
    ):
        ResumableBatches(64, 20, together=4)


def test_a_batch_that_cannot_be_shared_is_an_error(monkeypatch, windows):
    pretend(monkeypatch, 0, 5)
    with pytest.raises(ValueError, match="batch_size=12 is shared by 5 processes: it must be a multiple of 5"):
        next(iter(TokenLoader(windows, 12)))
    with pytest.raises(ValueError, match="shared by 5 processes"):
        next(iter(OrderedBatches(64, 12)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((60, 0), "batch_size"),
        ((60, 2.5), "batch_size"),
        ((60, 61), "at least that many windows, but there are only 60"),
        ((60, 6, -1), "seed"),
    ],
)
def test_batches_out_of_range_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        ResumableBatches(*arguments)


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("count", [60, 63, 64])
def test_validation_sees_all_windows_in_order_in_every_pass(monkeypatch, world, count):
    parts = []
    for rank in range(world):
        pretend(monkeypatch, rank, world)
        batches = OrderedBatches(count, 12)
        parts.append(list(batches))
        assert list(batches) == parts[-1]
        assert len(batches) == len(parts[-1])
    assert len({tuple(map(len, part)) for part in parts}) == 1
    together = [sorted(chain(*shares)) for shares in zip(*parts, strict=True)]
    assert list(chain(*together)) == list(range(count // world * world))


def lists(batches):
    return [batch.tolist() for batch in batches]


def test_a_loader_gives_the_windows_of_its_batches(windows):
    loader = TokenLoader(windows, BATCH, seed=5)
    order = ResumableBatches(len(windows), BATCH, seed=5)
    for epoch in range(2):
        expected = [[windows[i].tolist() for i in order.batch(epoch, step)] for step in range(STEPS)]
        assert lists(loader) == expected


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("used", [0, 1, 3, STEPS, STEPS + 2])
def test_prefetched_batches_do_not_count_as_used(windows, workers, used):
    unbroken = TokenLoader(windows, BATCH, seed=5)
    expected = [batch for _ in range(3) for batch in lists(unbroken)]
    stopped = TokenLoader(windows, BATCH, seed=5, num_workers=workers)
    seen = []
    while len(seen) < used:
        for batch in stopped:
            seen.append(batch.tolist())
            if len(seen) == used:
                break
    state = json.loads(json.dumps(stopped.state_dict()))
    resumed = TokenLoader(windows, BATCH, seed=5, num_workers=workers)
    resumed.load_state_dict(state)
    assert len(resumed) == STEPS
    while len(seen) < len(expected):
        seen += lists(resumed)
    assert seen == expected


def test_a_loader_does_not_draw_from_the_random_state(windows):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    list(TokenLoader(windows, BATCH))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_place_in_other_data_or_another_order_is_refused(prepared, windows):
    state = TokenLoader(windows, BATCH, seed=5).state_dict()
    others = {
        "seed is 5 there and 6 here": TokenLoader(windows, BATCH, seed=6),
        "batch_size is 12 there and 6 here": TokenLoader(windows, 6, seed=5),
        "length is 16 there and 15 here": TokenLoader(PackedTokens(prepared, length=15), BATCH, seed=5),
        "tokens is sha256:": TokenLoader(PackedTokens(prepared, "val", LENGTH), BATCH, seed=5),
    }
    for message, loader in others.items():
        with pytest.raises(ValueError, match=message):
            loader.load_state_dict(state)
        assert loader.state_dict()["step"] == 0
    with pytest.raises(ValueError, match="start a new run"):
        TokenLoader(windows, BATCH).load_state_dict({})
