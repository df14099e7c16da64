"""Under Lightning, a resumed run reads the same batches as an uninterrupted one."""

import json
import logging
import os
import warnings
from itertools import chain

import lightning as L
import pytest
import torch
from small_training import in_two_processes
from torch.utils.data import DataLoader

from titans_core.train.token_batches import OrderedBatches, TokenLoader
from titans_core.train.token_data import TokenData
from titans_core.train.tokens import PackedTokens

LENGTH, BATCH = 16, 12
STEPS = 5  # batches in an epoch


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
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            num_sanity_val_steps=0,
            callbacks=list(callbacks),
            **{"devices": 1, **options},
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


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("validation", VALIDATION)
def test_a_resumed_run_sees_the_batches_that_an_unbroken_one_sees(windows, prepared, tmp_path, limit, validation):
    with_val, options = VALIDATION[validation]
    options = {**options, **LIMITS[limit]}
    held_out = PackedTokens(prepared, "val", LENGTH)

    def val():
        return DataLoader(held_out, batch_sampler=OrderedBatches(len(held_out), 4)) if with_val else None

    when = WHEN + ([("validation", 1), ("validation", 2)] if with_val else [])
    saves = [Save(tmp_path / f"{hook}{number}.ckpt", hook, number) for hook, number in when]
    unbroken = fit(TokenLoader(windows, BATCH, seed=5), val(), saves, **options)
    stream = TokenLoader(windows, BATCH, seed=5)
    assert unbroken == [batch for _ in range(6) for batch in map(torch.Tensor.tolist, stream)][: len(unbroken)]
    for save in saves:
        resumed = fit(TokenLoader(windows, BATCH, seed=5), val(), resume=save.path, **options)
        assert resumed == unbroken[save.used :], save.path.name


@pytest.mark.parametrize("hook", ["batch", "epoch"])
def test_worker_processes_resume_exactly(windows, tmp_path, hook):
    def loader():
        return TokenLoader(windows, BATCH, seed=5, num_workers=2)

    save = Save(tmp_path / "a.ckpt", hook, 1)
    unbroken = fit(loader(), callbacks=[save], max_epochs=2)
    assert unbroken == fit(TokenLoader(windows, BATCH, seed=5), max_epochs=2)
    assert fit(loader(), resume=save.path, max_epochs=2) == unbroken[save.used :]


@pytest.mark.parametrize("limit", LIMITS)
def test_with_token_data_short_epochs_and_used_data_resume_exactly_too(prepared, tmp_path, limit):
    options = {**LIMITS[limit], "limit_train_batches": 3, "limit_val_batches": 0}

    def data():
        return TokenData(prepared, LENGTH, batch_tokens=BATCH * LENGTH, micro_batch=BATCH, seed=5)

    when = [("batch", 2), ("batch", 3), ("batch", 4), ("epoch", 1), ("epoch", 2)]
    saves = [Save(tmp_path / f"{hook}{number}.ckpt", hook, number) for hook, number in when]
    used = data()
    unbroken = fit(used, callbacks=saves, **options)
    assert len({str(batch) for batch in unbroken[:STEPS]}) == STEPS  # an epoch that was left early is taken up
    for save in saves:
        for again in (data(), used):
            assert fit(again, resume=save.path, **options) == unbroken[save.used :], save.path.name


def recorded(windows, folder):
    """Notes in each process which batches a whole run reads, and one that is resumed after the third."""
    save = Save(folder / "a.ckpt", "batch", 3)
    for name, resume in (("whole", None), ("resumed", save.path)):
        loader = TokenLoader(windows, BATCH, seed=5)
        together = dict(strategy="ddp", devices=2, use_distributed_sampler=False, max_epochs=2)
        seen = fit(loader, callbacks=[] if resume else [save], resume=resume, **together)
        (folder / f"{name}-{os.environ['RANK']}.json").write_text(json.dumps(seen))


def test_two_processes_share_each_batch_and_resume_exactly(windows, tmp_path):
    in_two_processes(recorded, windows, tmp_path)
    loader = TokenLoader(windows, BATCH, seed=5)
    alone = [sorted(batch) for _ in range(2) for batch in map(torch.Tensor.tolist, loader)]
    for name, first in (("whole", 0), ("resumed", 3)):
        shares = [json.loads((tmp_path / f"{name}-{rank}.json").read_text()) for rank in range(2)]
        assert [sorted(chain(*parts)) for parts in zip(*shares, strict=True)] == alone[first:]


def test_lightning_refuses_to_resume_on_other_data(windows, prepared, tmp_path):
    save = Save(tmp_path / "a.ckpt", "batch", 2)
    fit(TokenLoader(windows, BATCH, seed=5), callbacks=[save], max_epochs=1)
    with pytest.raises(ValueError, match="data position belongs to other batches: seed is 5 there and 6 here"):
        fit(TokenLoader(windows, BATCH, seed=6), resume=save.path, max_epochs=1)
