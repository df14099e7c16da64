"""Windows tile the tokens; batches come in an order that seed, epoch and step decide, and go on where they stopped."""

import json
import logging
import pickle
import subprocess
import sys
import textwrap
import warnings
from itertools import chain

import lightning as L
import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from titans_core.tokenizers import ByteTokenizer
from titans_core.train.prepare import prepare
from titans_core.train.tokens import KeepPlace, OrderedBatches, PackedTokens, ResumableBatches, TokenLoader

TEXT = "".join(f"line {i} of the text\n" for i in range(64))
LENGTH, BATCH = 16, 12
STEPS = 5  # batches in an epoch


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "a.txt").write_text(TEXT)
    prepare(folder / "a.txt", folder / "out", val_fraction=0.2, verbose=0)
    return folder / "out"


@pytest.fixture
def copy(prepared, tmp_path):
    """Packed tokens that a test may damage."""
    for path in prepared.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


@pytest.fixture
def windows(prepared):
    found = PackedTokens(prepared, length=LENGTH)
    assert len(found) // BATCH == STEPS
    return found


def edit(folder, **changes):
    path = folder / "tokens.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("length", [1, 7, 16, 500])
@pytest.mark.parametrize("part", ["train", "val"])
def test_inputs_and_targets_tile_the_tokens(prepared, part, length):
    tokens = PackedTokens(prepared, part, length if part == "train" else min(length, 100))
    every = torch.stack(list(map(tokens.__getitem__, range(len(tokens)))))
    assert every.dtype == torch.int64
    expected = np.fromfile(tokens.file, "<u2").astype(np.int64)
    end = len(tokens) * tokens.length
    assert (every[:, :-1].flatten().numpy() == expected[:end]).all()
    assert (every[:, 1:].flatten().numpy() == expected[1 : end + 1]).all()
    assert 0 <= len(expected) - 1 - end < tokens.length
    if length == 1:
        assert TEXT.startswith(ByteTokenizer().decode(every[:, 0])) == (part == "train")
        assert ByteTokenizer().decode(every[:, 0]) in TEXT


def test_a_window_beyond_the_last_is_an_error(windows):
    for index in (len(windows), -1):
        with pytest.raises(IndexError, match="has windows 0 to"):
            windows[index]


def test_a_pickled_data_set_takes_no_tokens_with_it(windows):
    first = windows[0]
    pickled = pickle.dumps(windows)
    assert len(pickled) < windows.file.stat().st_size
    assert torch.equal(pickle.loads(pickled)[0], first)


def test_a_folder_without_tokens_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no packed tokens.*Run prepare"):
        PackedTokens(tmp_path, length=4)


def test_a_part_that_is_not_there_is_an_error(prepared):
    with pytest.raises(ValueError, match=r"no part 'test', only \['train', 'val'\]"):
        PackedTokens(prepared, "test", 4)


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_a_truncated_file_is_refused(copy, keep):
    data = (copy / "train.bin").read_bytes()
    (copy / "train.bin").write_bytes(data[:keep])
    with pytest.raises(ValueError, match=rf"train\.bin must have {len(data)} bytes.*prepare it again"):
        PackedTokens(copy, length=4)
    (copy / "train.bin").unlink()
    with pytest.raises(ValueError, match=r"train\.bin is missing"):
        PackedTokens(copy, length=4)
    PackedTokens(copy, "val", 4)


def test_a_changed_byte_is_found_when_asked_for(copy):
    PackedTokens(copy, length=4, verify=True)
    data = bytearray((copy / "train.bin").read_bytes())
    data[50] ^= 1
    (copy / "train.bin").write_bytes(data)
    PackedTokens(copy, length=4)
    with pytest.raises(ValueError, match=r"must have sha256:.*, has sha256:.*changed"):
        PackedTokens(copy, length=4, verify=True)


def test_an_id_outside_the_vocabulary_is_found_when_it_is_read(copy):
    found = np.fromfile(copy / "train.bin", "<u2")
    found[21] = 258
    found.tofile(copy / "train.bin")
    tokens = PackedTokens(copy, length=10)
    assert tokens[0].max() < 258
    for window in (1, 2):  # the last target of a window is the first input of the next
        if 21 in range(window * 10, window * 10 + 11):
            with pytest.raises(ValueError, match="token 21 is 258, and ids must be below vocab_size=258"):
                tokens[window]


def test_tokens_of_another_tokenizer_are_refused(prepared):
    PackedTokens(prepared, length=4, tokenizer=ByteTokenizer())
    other = ByteTokenizer()
    other.fingerprint = "sha256:other"
    with pytest.raises(ValueError, match=r"made by another tokenizer: bytes \(vocab_size=258.*sha256:other"):
        PackedTokens(prepared, length=4, tokenizer=other)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, r"version 2, and this library reads version 1\. Update"),
        ({"version": None}, "version None"),
        ({"format": "pictures"}, "does not describe packed tokens"),
        ({"dtype": "float32"}, "dtype of"),
        ({"parts": {"train": {"file": "train.bin"}}}, "is damaged"),
        ({"parts": None}, "is damaged"),
        ({"vocab_size": "many"}, "is damaged"),
        ({"tokenizer": "bytes"}, "is damaged"),
    ],
)
def test_a_description_that_cannot_be_trusted_is_refused(copy, changes, message):
    edit(copy, **changes)
    with pytest.raises(ValueError, match=message):
        PackedTokens(copy, length=4)


@pytest.mark.parametrize("text", ["{", "[]", ""])
def test_a_damaged_description_is_refused(copy, text):
    (copy / "tokens.json").write_text(text)
    with pytest.raises(ValueError, match=r"tokens\.json (is damaged|does not describe)"):
        PackedTokens(copy, length=4)


def test_windows_must_fit(prepared):
    tokens = PackedTokens(prepared, length=1).tokens
    assert len(PackedTokens(prepared, length=tokens - 1)) == 1
    with pytest.raises(ValueError, match=f"has {tokens} tokens, and one window of length={tokens} needs {tokens + 1}"):
        PackedTokens(prepared, length=tokens)
    with pytest.raises(ValueError, match="length must be at least 1"):
        PackedTokens(prepared, length=0)


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


def test_what_does_not_fill_a_batch_is_left_out_and_is_something_else_in_each_epoch():
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


def test_a_run_goes_on_with_another_number_of_processes(monkeypatch):
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
    with pytest.raises(ValueError, match="a step of 4 batches of 20 needs as many windows, and there are 64"):
        ResumableBatches(64, 20, together=4)


def test_a_batch_that_cannot_be_shared_is_an_error(monkeypatch, windows):
    pretend(monkeypatch, 0, 5)
    with pytest.raises(ValueError, match="batch_size=12 is shared by 5 processes, so it must be a multiple of 5"):
        next(iter(TokenLoader(windows, 12)))
    with pytest.raises(ValueError, match="shared by 5 processes"):
        next(iter(OrderedBatches(64, 12)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((60, 0), "batch_size"), ((60, 61), "needs as many windows, and there are 60"), ((60, 6, -1), "seed")],
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
def test_what_was_read_ahead_does_not_count_as_used(windows, workers, used):
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
    with pytest.raises(ValueError, match="start anew"):
        TokenLoader(windows, BATCH).load_state_dict({})


class Recorder(L.LightningModule):
    """Notes the batches that it is trained on."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen = []

    def training_step(self, batch, batch_idx):
        self.seen.append(batch.tolist())
        return self.weight * 1.0

    def validation_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Save(L.Callback):
    """Writes a checkpoint at the ``number``-th call of ``hook``, and notes how many batches were used by then."""

    def __init__(self, path, hook, number):
        self.path, self.hook, self.number, self.used = path, hook, number, None

    def _call(self, trainer, module, hook):
        if hook == self.hook:
            self.number -= 1
            if self.number == 0:
                trainer.save_checkpoint(self.path)
                self.used = len(module.seen)

    def on_train_batch_end(self, trainer, module, *rest):
        self._call(trainer, module, "batch")

    def on_train_epoch_end(self, trainer, module):
        self._call(trainer, module, "epoch")

    def on_validation_end(self, trainer, module):
        self._call(trainer, module, "validation")


def fit(loader, val=None, callbacks=(), resume=None, **options):
    module = Recorder()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = L.Trainer(
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            num_sanity_val_steps=0,
            callbacks=list(callbacks),
            **options,
        )
        trainer.fit(module, loader, val, ckpt_path=resume, weights_only=True)
    return module.seen


@pytest.fixture(autouse=True)
def quiet_lightning():
    for name in ("lightning.pytorch.utilities.rank_zero", "lightning.pytorch.accelerators.cuda"):
        logging.getLogger(name).setLevel(logging.ERROR)


LIMITS = {"epochs": {"max_epochs": 3}, "steps": {"max_epochs": -1, "max_steps": 13}}
VALIDATION = {
    "no-val": (False, {}),
    "val": (True, {}),
    "val-within": (True, {"val_check_interval": 2}),
    "accumulated": (False, {"accumulate_grad_batches": 2}),
}


WHEN = [("batch", n) for n in (1, 3, STEPS - 1, STEPS, STEPS + 1, 2 * STEPS)] + [("epoch", 1), ("epoch", 2)]
CASES = [
    (validation, *when)
    for validation, (with_val, _) in VALIDATION.items()
    for when in WHEN + ([("validation", 1), ("validation", 2)] if with_val else [])
]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(("validation", "hook", "number"), CASES)
def test_a_resumed_run_sees_the_batches_that_an_unbroken_one_sees(
    windows, prepared, tmp_path, limit, validation, hook, number
):
    with_val, options = VALIDATION[validation]
    options = {**options, **LIMITS[limit]}
    held_out = PackedTokens(prepared, "val", LENGTH)

    def val():
        return DataLoader(held_out, batch_sampler=OrderedBatches(len(held_out), 4)) if with_val else None

    save = Save(tmp_path / "a.ckpt", hook, number)
    unbroken = fit(TokenLoader(windows, BATCH, seed=5), val(), [save], **options)
    stream = TokenLoader(windows, BATCH, seed=5)
    assert unbroken == [batch for _ in range(6) for batch in lists(stream)][: len(unbroken)]
    resumed = fit(TokenLoader(windows, BATCH, seed=5), val(), resume=save.path, **options)
    assert resumed == unbroken[save.used :]


@pytest.mark.parametrize("hook", ["batch", "epoch"])
def test_worker_processes_resume_exactly(windows, tmp_path, hook):
    def loader():
        return TokenLoader(windows, BATCH, seed=5, num_workers=2)

    save = Save(tmp_path / "a.ckpt", hook, 1)
    unbroken = fit(loader(), callbacks=[save], max_epochs=2)
    assert unbroken == fit(TokenLoader(windows, BATCH, seed=5), max_epochs=2)
    assert fit(loader(), resume=save.path, max_epochs=2) == unbroken[save.used :]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(("hook", "number"), [("batch", 2), ("batch", 3), ("batch", 4), ("epoch", 1), ("epoch", 2)])
def test_with_keep_place_short_epochs_and_used_loaders_resume_exactly_too(windows, tmp_path, limit, hook, number):
    options = {**LIMITS[limit], "limit_train_batches": 3}
    save = Save(tmp_path / "a.ckpt", hook, number)
    used = TokenLoader(windows, BATCH, seed=5)
    unbroken = fit(used, callbacks=[KeepPlace(used), save], **options)
    assert len({str(batch) for batch in unbroken[:STEPS]}) == STEPS  # an epoch that was left early is taken up
    for loader in (TokenLoader(windows, BATCH, seed=5), used):
        assert fit(loader, callbacks=[KeepPlace(loader)], resume=save.path, **options) == unbroken[save.used :]


SCRIPT = """
    import json, os, sys
    import lightning as L
    import torch
    from titans_core.train.tokens import PackedTokens, TokenLoader

    torch.set_num_threads(1)

    class Recorder(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))
            self.seen = []

        def training_step(self, batch, batch_idx):
            self.seen.append(batch.tolist())
            return self.weight * 1.0

        def on_train_batch_end(self, *rest):
            if len(self.seen) == 3:
                self.trainer.save_checkpoint("a.ckpt")

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    for run, resume in (("whole", None), ("resumed", "a.ckpt")):
        module = Recorder()
        trainer = L.Trainer(max_epochs=2, accelerator="cpu", strategy="ddp", devices=2, use_distributed_sampler=False,
                            logger=False, enable_progress_bar=False, enable_checkpointing=False)
        loader = TokenLoader(PackedTokens(sys.argv[1], length=16), 12, seed=5)
        trainer.fit(module, loader, ckpt_path=resume, weights_only=True)
        with open(f"{run}-{os.environ['RANK']}.json", "w") as file:
            json.dump(module.seen, file)
"""


def test_two_processes_of_torchrun_share_each_batch_and_resume_exactly(prepared, windows, tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [sys.executable, "-W", "ignore", *torchrun, "train.py", str(prepared)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr[-3000:]
    loader = TokenLoader(windows, BATCH, seed=5)
    alone = [sorted(batch) for _ in range(2) for batch in lists(loader)]
    for name, first in (("whole", 0), ("resumed", 3)):
        shares = [json.loads((tmp_path / f"{name}-{rank}.json").read_text()) for rank in range(2)]
        assert [sorted(chain(*parts)) for parts in zip(*shares, strict=True)] == alone[first:]


def test_lightning_refuses_to_go_on_in_other_data(windows, prepared, tmp_path):
    save = Save(tmp_path / "a.ckpt", "batch", 2)
    fit(TokenLoader(windows, BATCH, seed=5), callbacks=[save], max_epochs=1)
    with pytest.raises(ValueError, match="place in the data is that of other batches: seed is 5 there and 6 here"):
        fit(TokenLoader(windows, BATCH, seed=6), resume=save.path, max_epochs=1)
