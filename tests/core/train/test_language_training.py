"""The training of a language model as a module of Lightning, by trainers of its own."""

import math
from functools import partial
from types import SimpleNamespace

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.tuner import Tuner
from small_training import CONFIG
from torch import nn
from torch._dynamo.utils import counters

from titans_core import TitansConfig, TitansLM
from titans_core.archive import ArchiveError
from titans_core.train.language import LanguageModelTraining
from titans_core.train.token_batches import TokenLoader
from titans_core.train.token_data import TokenData
from titans_core.train.tokens import PackedTokens


def quiet_trainer(**options):
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    return L.Trainer(accelerator="cpu", **quiet, **options)


def test_the_loss_of_a_step_is_that_of_its_batches_where_an_epoch_ends_within_one(tokens):
    batches, logged = [], []

    class Watched(LanguageModelTraining):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            batches.append(loss.item())
            return loss

        def log(self, name, value, **options):
            if name == "train_loss":
                logged.append(float(value))

    trainer = quiet_trainer(max_steps=4, limit_train_batches=3, accumulate_grad_batches=2, limit_val_batches=0)
    trainer.fit(
        Watched(TitansConfig(**CONFIG), warmup_steps=1), TokenLoader(PackedTokens(tokens, length=32), 8, seed=0)
    )
    assert len(batches) == 6
    a, b, c, d, e, f = batches
    assert logged == pytest.approx([(a + b) / 2, c, (d + e) / 2, f])


def trained(module, tokens, ckpt_path=None, callbacks=()):
    """The weights after three steps of two batches."""
    trainer = quiet_trainer(max_steps=3, limit_val_batches=0, callbacks=list(callbacks))
    trainer.fit(module, TokenData(tokens, 32, batch_tokens=512), ckpt_path=ckpt_path, weights_only=True)
    return module.state_dict()


@pytest.mark.parametrize("after", [1, 3, 7], ids=["first step", "second step", "second run of the module"])
def test_a_checkpoint_within_a_step_repeats_the_step(tokens, tmp_path, after):
    """Lightning writes one on a signal of SLURM. The gradients accumulated by then are not in it."""

    class Preempted(LanguageModelTraining):
        def on_after_backward(self):
            self.batches = getattr(self, "batches", 0) + 1
            if self.batches == after:
                self.trainer.save_checkpoint(tmp_path / "signal.ckpt")

    module = Preempted(TitansConfig(**CONFIG), warmup_steps=1)
    for _ in range(1 + after // 7):  # a run has three steps of two batches
        expected = trained(module, tokens)
    resumed = LanguageModelTraining(TitansConfig(**CONFIG), warmup_steps=1, seed=1)
    found = trained(resumed, tokens, ckpt_path=tmp_path / "signal.ckpt")
    assert all(torch.equal(w, expected[name]) for name, w in found.items())


def test_a_batch_that_was_read_and_not_used_is_read_again(tokens, tmp_path):
    """A run may be interrupted while a batch is moved to its device, or in a callback."""

    class Interrupted(L.Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            if batch_idx == 2:
                trainer.save_checkpoint(tmp_path / "signal.ckpt")

    module, resumed = (LanguageModelTraining(TitansConfig(**CONFIG), warmup_steps=1, seed=seed) for seed in range(2))
    expected = trained(module, tokens, callbacks=[Interrupted()])
    found = trained(resumed, tokens, ckpt_path=tmp_path / "signal.ckpt")
    assert all(torch.equal(w, expected[name]) for name, w in found.items())


def test_a_single_weight_that_is_not_finite_is_not_saved():
    module = LanguageModelTraining(TitansConfig(**CONFIG))
    strategy = SimpleNamespace(reduce_boolean_decision=bool)
    module._trainer = SimpleNamespace(strategy=strategy, global_step=7)
    with torch.no_grad():
        module.model.norm.weight[0] = math.inf
    with pytest.raises(FloatingPointError, match="after step 7 the weights are not finite"):
        module.on_save_checkpoint({})


def in_this_process(architecture, tmp_path, compile=False, **options):
    """Losses of four steps on random tokens."""
    torch.manual_seed(0)
    batches = list(torch.randint(258, (4, 4, 17)))
    module = LanguageModelTraining(TitansConfig(**{**CONFIG, "architecture": architecture}), 1e-2, compile=compile)
    found = []
    module.on_train_batch_end = lambda outputs, batch, batch_idx: found.append(float(outputs["loss"]))
    trainer = quiet_trainer(max_epochs=1, default_root_dir=tmp_path, **options)
    trainer.fit(module, torch.utils.data.DataLoader(batches, batch_size=None))
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", ["lmm", "mac", "mag", "mal", "transformer"])
def test_compiled_training_is_the_same_training(architecture, tmp_path, monkeypatch):
    """Backend "aot_eager" traces forward and backward like the default compiler, but generates no C++."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True))
    torch._dynamo.reset()
    counters.clear()
    compiled = in_this_process(architecture, tmp_path, compile=True)
    assert counters["stats"]["unique_graphs"] == 1
    assert compiled == pytest.approx(in_this_process(architecture, tmp_path), rel=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", ["lmm", "mac", "mag", "mal"])
def test_bf16_trains_near_float32(architecture, tmp_path):
    found = in_this_process(architecture, tmp_path, precision="bf16-mixed")
    expected = in_this_process(architecture, tmp_path)
    assert found != expected
    assert found == pytest.approx(expected, rel=0.02)


@pytest.mark.filterwarnings("ignore")
def test_weights_that_are_bf16_themselves_are_warned_of(tmp_path):
    with pytest.warns(UserWarning, match=r"the weights are stored in torch.bfloat16.*trainer.precision to bf16-mixed"):
        in_this_process("mag", tmp_path, precision="bf16-true")


def test_a_saved_model_is_the_same_model(tmp_path):
    for tied in (True, False):
        torch.manual_seed(0)
        model = TitansLM(TitansConfig(**CONFIG, tie_embeddings=tied))
        model.save(tmp_path / "m")
        loaded = TitansLM.load(tmp_path / "m")
        ids = torch.randint(258, (2, 20))
        assert torch.equal(loaded(ids)[0], model(ids)[0])
        assert (loaded.head.weight is loaded.embedding.weight) == tied


def test_a_model_that_is_another_or_damaged_is_refused(tmp_path):
    TitansLM(TitansConfig(**CONFIG)).save(tmp_path / "m")
    with pytest.raises(ValueError, match="hidden 24 there and 32 here"):
        TitansLM.load(tmp_path / "m", TitansConfig(**{**CONFIG, "hidden": 32}))
    with pytest.raises(FileNotFoundError):
        TitansLM.load(tmp_path / "none")
    blob = (tmp_path / "m" / "model.safetensors").read_bytes()
    (tmp_path / "m" / "model.safetensors").write_bytes(blob[:-5])
    with pytest.raises(ArchiveError):
        TitansLM.load(tmp_path / "m")


def test_training_and_validation_ask_for_the_next_token():
    module, batch = LanguageModelTraining(TitansConfig(**CONFIG)), torch.randint(258, (2, 17))
    logits = module.model(batch[:, :-1])[0]
    expected = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).item()
    assert module.training_step(batch, 0).item() == pytest.approx(expected, rel=1e-5)
    logged = {}
    module.log = lambda name, value, **options: logged.update({name: float(value)})
    module.validation_step(batch, 0)
    assert logged == pytest.approx({"val_loss": expected, "val_bits_per_token": expected / math.log(2)}, rel=1e-5)


def test_the_rate_rises_over_the_warmup_and_falls_as_a_cosine_to_its_end():
    module = LanguageModelTraining(TitansConfig(**CONFIG), warmup_steps=2, final_rate=0.1)
    assert [module._rate(step, 10) for step in (0, 1, 2, 6, 10)] == pytest.approx([0.5, 1, 1, 0.55, 0.1])


@pytest.mark.filterwarnings("ignore")
def test_a_search_for_the_learning_rate_tries_the_rates_that_it_is_given(tokens, tmp_path):
    trainer = quiet_trainer(max_steps=4, limit_val_batches=0, default_root_dir=tmp_path)
    module, data = LanguageModelTraining(TitansConfig(**CONFIG), 3e-3), TokenData(tokens, 32, batch_tokens=256)
    options = dict(min_lr=1e-5, max_lr=1e-1, num_training=4, early_stop_threshold=None, update_attr=False)
    found = Tuner(trainer).lr_find(module, datamodule=data, **options)
    assert found.results["lr"] == pytest.approx([1e-5, 1e-3, 1e-2, 1e-1])


@pytest.mark.filterwarnings("ignore")
def test_the_time_between_two_runs_of_a_module_is_no_training_time(tokens, tmp_path):
    logged = []

    class Watched(LanguageModelTraining):
        def log(self, name, value, **options):
            if name == "tokens_per_second":
                logged.append(self.global_step)

    module = Watched(TitansConfig(**CONFIG), warmup_steps=1)
    begun_and_resumed(lambda config: module, tokens, tmp_path / "saved.ckpt")
    assert not logged  # the rate of a step is the time since the one before, and each run has one step


def begun_and_resumed(make, tokens, path, **of_data):
    """Trainers of a run of one step, and of one that continues it from a checkpoint with a second step."""
    trainers = []
    for steps, checkpoint in ((1, None), (2, path)):
        trainer = quiet_trainer(max_steps=steps, limit_val_batches=0)
        data = TokenData(tokens, **{"length": 32, "batch_tokens": 256, **of_data})
        trainer.fit(make(TitansConfig(**CONFIG)), data, ckpt_path=checkpoint, weights_only=True)
        trainer.save_checkpoint(path)
        trainers.append(trainer)
    return trainers


@pytest.mark.filterwarnings("error:the checkpoint was saved with")
def test_a_run_with_an_optimiser_of_its_own_is_resumed(tokens, tmp_path):
    class Plain(LanguageModelTraining):
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.25)

    trainers = begun_and_resumed(Plain, tokens, tmp_path / "plain.ckpt")
    assert [(t.global_step, t.optimizers[0].param_groups[0]["lr"]) for t in trainers] == [(1, 0.25), (2, 0.25)]


@pytest.mark.filterwarnings("ignore")
def test_a_run_with_settings_of_numpy_is_resumed(tokens, tmp_path):
    settings = dict(learning_rate=1e-3, weight_decay=0.1, betas=np.array([0.9, 0.95]), warmup_steps=1, final_rate=0.1)
    settings = {name: np.asarray(value)[()] for name, value in settings.items()}
    of_data = {name: np.int64(n) for name, n in dict(length=32, batch_tokens=256, micro_batch=4, seed=1).items()}
    make = partial(LanguageModelTraining, **settings)
    *_, last = begun_and_resumed(make, tokens, tmp_path / "saved.ckpt", **of_data)
    assert last.global_step == 2


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"warmup_steps": -1}, "warmup_steps must be an integer >= 0"), ({"final_rate": 7}, "from 0 to 1, got 7")],
)
def test_a_senseless_schedule_is_refused(settings, says):
    with pytest.raises(ValueError, match=says):
        LanguageModelTraining(TitansConfig(**CONFIG), **settings)
