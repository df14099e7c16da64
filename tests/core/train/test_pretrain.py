"""Pretraining by command: killed and resumed, in two processes, and with invalid settings."""

import csv
import itertools
import json
import math
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from small_training import CONFIG, in_two_processes, without_cuda

from titans_core import TitansConfig, TitansLM
from titans_core.train import pretrain
from titans_core.train.language import LanguageModelTraining
from titans_core.train.prepare import prepare
from titans_core.train.pretrain import main

pytest.importorskip("jsonargparse")


def command(tokens, steps=10, config=None, data=None, trainer=None):
    settings = {
        "model": {"config": {**CONFIG, **(config or {})}, "warmup_steps": 3, "learning_rate": 3e-3},
        "data": {"path": str(tokens), "length": 32, "batch_tokens": 512, "micro_batch": 8, **(data or {})},
        "trainer": {
            "max_steps": steps,
            "accelerator": "cpu",
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "limit_val_batches": 2,
            "val_check_interval": 6,
            **(trainer or {}),
        },
        "checkpoint": {"every_n_train_steps": 2},
    }
    return [sys.executable, "-m", "titans_core.train.pretrain", "fit", "--config", json.dumps(settings)]


def run(arguments, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr


def run_here(arguments, folder):
    """Like :func:`run`, but in this process; errors are raised."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", ".* wrong gradients")  # FSDP2 says so of what a block returns
        patch.delenv("PL_GLOBAL_SEED", raising=False)
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["pretrain"])
        main(arguments[3:])


def losses(folder):
    """Training losses by step, over all runs in a folder."""
    found = {}
    for file in sorted(folder.glob("pretraining/lightning_logs/version_*/metrics.csv")):
        for row in csv.DictReader(file.open()):
            if row.get("train_loss"):
                found[int(row["step"])] = row["train_loss"]
    return found


@pytest.fixture(scope="module")
def uninterrupted(tokens, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    run_here(command(tokens), folder)
    return folder


@pytest.mark.slow
def test_a_run_killed_and_resumed_has_the_losses_of_one_never_stopped(tokens, uninterrupted, tmp_path):
    process = get_context("fork").Process(target=without_cuda, args=(run_here, command(tokens), tmp_path))
    process.start()
    deadline = time.monotonic() + 120
    while len(losses(tmp_path)) < 5 and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.join()
    before = losses(tmp_path)
    assert 5 <= len(before) < 10  # it was killed in the middle
    run_here([*command(tokens), "--ckpt_path", "last"], tmp_path)
    versions = list(tmp_path.glob("pretraining/lightning_logs/version_*"))
    assert len(versions) == 2
    resumed = [row for row in csv.DictReader((versions[-1] / "metrics.csv").open()) if row.get("train_loss")]
    assert len(resumed) < 10  # it went on, and did not start anew
    assert losses(tmp_path) == losses(uninterrupted)
    a, b = (TitansLM.load(f / "pretraining" / "model").state_dict() for f in (tmp_path, uninterrupted))
    assert {n: float((a[n] - b[n]).abs().max()) for n in b if not torch.equal(a[n], b[n])} == {}


@pytest.mark.parametrize("precision", ["32-true", "64-true"])
def test_the_last_checkpoint_and_the_model_are_those_of_the_last_step(tokens, tmp_path, precision):
    run_here(command(tokens, steps=3, trainer={"precision": precision}), tmp_path)  # a checkpoint every two steps
    last = torch.load(tmp_path / "pretraining" / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["global_step"] == 3
    weights = {name.removeprefix("model."): w for name, w in last["state_dict"].items()}
    saved = TitansLM.load(tmp_path / "pretraining" / "model").state_dict()
    for name, w in saved.items():
        assert w.dtype == {"32-true": torch.float32, "64-true": torch.float64}[precision]
        assert torch.equal(w, weights[name])


@pytest.mark.parametrize(
    "when",
    [
        dict(every_n_train_steps="null", train_time_interval="0:00:03"),
        dict(every_n_train_steps="1", monitor="val_loss"),
    ],
    ids=["by time", "after validation"],
)
def test_checkpoints_hold_whole_steps(tokens, tmp_path, monkeypatch, when):
    """Gradients accumulated from a part of a step would be lost."""
    clock = SimpleNamespace(monotonic=itertools.count().__next__)  # a second for every batch
    monkeypatch.setattr("lightning.pytorch.callbacks.model_checkpoint.time", clock)
    options = [word for name, value in when.items() for word in (f"--checkpoint.{name}", value)]
    trainer = {"val_check_interval": 3, "limit_val_batches": 1}
    run_here([*command(tokens, steps=4, trainer=trainer), *options, "--checkpoint.save_top_k", "-1"], tmp_path)
    files = list(tmp_path.glob("pretraining/checkpoints/*.ckpt"))
    assert len(files) > 1
    for file in files:
        kept = torch.load(file, weights_only=True)
        assert kept["TokenData"]["step"] == 2 * kept["global_step"]  # two batches each


def test_a_checkpoint_needs_no_room_in_the_folder_for_temporary_files(tokens, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    run_here(command(tokens, steps=3), tmp_path)
    assert {f.suffix for f in (tmp_path / "pretraining" / "checkpoints").iterdir()} == {".ckpt"}


def test_training_lowers_the_loss_and_leaves_a_model(uninterrupted):
    found = [float(x) for x in losses(uninterrupted).values()]
    assert len(found) == 10
    assert found[-1] < found[0] - 0.3
    model = TitansLM.load(uninterrupted / "pretraining" / "model", TitansConfig(**CONFIG))
    assert model.generate(torch.tensor([[84, 104, 101]]), 5).shape == (1, 8)


SHARDED = {
    "class_path": "lightning.pytorch.strategies.ModelParallelStrategy",
    "init_args": {"data_parallel_size": 2, "tensor_parallel_size": 1},
}


@pytest.fixture(scope="module")
def one_process(tokens, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    run_here(command(tokens, steps=4), folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "strategy"),
    [(run, "ddp"), (partial(in_two_processes, run_here), SHARDED)],
    ids=["ddp by the command", "fsdp2 by torchrun"],
)
def test_two_processes_train_as_one(tokens, one_process, tmp_path, start, strategy):
    trainer = {"strategy": strategy, "devices": 2}
    start(command(tokens, steps=4, data={"micro_batch": 4}, trainer=trainer), tmp_path)
    both, one = losses(tmp_path), losses(one_process)
    assert list(both) == list(one) == [0, 1, 2, 3]
    for step in one:
        assert float(both[step]) == pytest.approx(float(one[step]), rel=1e-5)
    a, b = (TitansLM.load(f / "pretraining" / "model").state_dict() for f in (tmp_path, one_process))
    for name in b:
        torch.testing.assert_close(a[name], b[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": {"vocab_size": 200}}, "vocabulary of 258, but the model has vocab_size=200"),
        ({"data": {"batch_tokens": 500}}, "batch_tokens=500 is not a multiple of 256"),
        ({"data": {"path": "nowhere"}}, "no packed tokens"),
        ({"trainer": {"accumulate_grad_batches": 3}}, "does not fit batch_tokens=512, which takes 2 forward passes"),
        ({"trainer": {"overfit_batches": 2}}, "overfit_batches would not repeat the same batches"),
        ({"trainer": {"max_steps": -1, "max_epochs": -1, "max_time": "00:00:01:00"}}, "set trainer.max_steps"),
    ],
)
def test_settings_that_cannot_be_are_refused(tokens, tmp_path, monkeypatch, changes, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pretrain"])
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        main(command(tokens, **changes)[3:])


@pytest.mark.parametrize("part", ["train", "val"])
def test_tokens_are_verified_on_request(tokens, tmp_path, monkeypatch, part):
    copy = shutil.copytree(tokens, tmp_path / "tokens")
    data = bytearray((copy / f"{part}.bin").read_bytes())
    data[50] ^= 1
    (copy / f"{part}.bin").write_bytes(data)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pretrain"])
    with pytest.raises(ValueError, match=rf"{part}\.bin must have sha256"):
        main(command(copy, data={"verify": True})[3:])


def test_a_checkpoint_of_another_model_is_refused(tokens, uninterrupted, tmp_path):
    last = uninterrupted / "pretraining" / "checkpoints" / "last.ckpt"
    with pytest.raises(ValueError, match="hidden 24 there and 32 here"):
        run_here([*command(tokens, config={"hidden": 32}), "--ckpt_path", str(last)], tmp_path)


def test_a_checkpoint_is_loaded_without_a_run(uninterrupted):
    folder, random = uninterrupted / "pretraining", torch.get_rng_state()
    loaded = LanguageModelTraining.load_from_checkpoint(
        folder / "checkpoints" / "last.ckpt", config=TitansConfig(**CONFIG), weights_only=True
    )
    trained = TitansLM.load(folder / "model").state_dict()
    assert all(torch.equal(w, trained[name]) for name, w in loaded.model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.filterwarnings("ignore:.*jsonargparse", "ignore:.*deprecated")
def test_weights_that_are_not_finite_replace_no_checkpoint(tokens, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pretrain"])
    step = LanguageModelTraining.training_step

    def spoilt(module, batch, batch_idx):
        loss = step(module, batch, batch_idx)
        if module.global_step == 1:  # the loss is finite, its gradient is not
            loss.register_hook(lambda gradient: gradient * math.nan)
        return loss

    monkeypatch.setattr(LanguageModelTraining, "training_step", spoilt)
    with pytest.raises(FloatingPointError, match="after step 2 the weights are not finite"):
        main([*command(tokens)[3:], "--trainer.max_steps", "2", "--checkpoint.every_n_train_steps", "1"])
    found = sorted((tmp_path / "pretraining" / "checkpoints").glob("*.ckpt"))
    assert [file.name for file in found] == ["epoch=0-step=1.ckpt", "last.ckpt"]
    for file in found:
        kept = torch.load(file, weights_only=True)
        assert kept["global_step"] == 1
        assert all(w.isfinite().all() for w in kept["state_dict"].values())
    assert not (tmp_path / "pretraining" / "model").exists()


@pytest.mark.filterwarnings("ignore:.*jsonargparse", "ignore:.*deprecated")
def test_a_resumed_run_uses_its_own_arguments(tokens, tmp_path, monkeypatch):
    """As advised by the error for a loss that is not finite: resume with a lower learning rate."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pretrain"])
    seen, step = [], torch.optim.AdamW.step

    def watched(optimizer, *args, **options):
        seen.append([(g["lr"], g["weight_decay"], g["betas"]) for g in optimizer.param_groups])
        return step(optimizer, *args, **options)

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    arguments = command(tokens, steps=3)[3:]
    main([*arguments, "--trainer.max_steps", "3", "--checkpoint.every_n_train_steps", "1"])
    changed = ["--model.learning_rate", "1e-5", "--model.weight_decay", "0.2", "--model.betas", "[0.8, 0.9]"]
    with pytest.warns(
        UserWarning, match=r"saved with learning_rate 0\.003.* steps 3; .* learning_rate 1e-05.* steps 6"
    ):
        main([*arguments, "--trainer.max_steps", "6", *changed, "--ckpt_path", "last"])
    assert len(seen) == 6
    fresh = LanguageModelTraining(TitansConfig(**CONFIG), 1e-5, 0.2, (0.8, 0.9), warmup_steps=3)
    # matrices decay, vectors do not
    expected = [[(1e-5 * fresh._rate(i, 6), decay, (0.8, 0.9)) for decay in (0.2, 0.0)] for i in range(3, 6)]
    assert seen[3:] == expected


@pytest.mark.filterwarnings("ignore:.*jsonargparse", "ignore:.*deprecated")
def test_the_settings_of_the_docs_train_on_little_text(tokens, tmp_path, monkeypatch):
    yaml = Path(__file__).parents[3] / "docs" / "pretrain.yaml"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pretrain"])
    small = [
        "--model.config.dim",
        "16",
        "--model.config.num_layers",
        "1",
        "--data.length",
        "64",
        "--data.path",
        str(tokens),
    ]
    quick = ["--data.batch_tokens", "512", "--trainer.max_steps", "2", "--trainer.accelerator", "cpu"]
    main(["fit", "--config", str(yaml), *small, *quick, "--trainer.enable_progress_bar", "false"])
    assert TitansLM.load(tmp_path / "pretraining" / "model").config.dim == 16


@pytest.mark.parametrize("named", [("--config", '{"model": {"config": "mag-340m"}}'), ("--model.config", "mag-340m")])
def test_a_setting_changes_the_preset_that_is_named_beside_it(monkeypatch, capsys, named):
    monkeypatch.setattr(sys, "argv", ["pretrain"])
    with pytest.raises(SystemExit, match="0"):
        main(["fit", *named, "--model.config.vocab_size", "50304", "--data.path", "tokens", "--print_config"])
    found = yaml.safe_load(capsys.readouterr().out)["model"]["config"]
    assert TitansConfig(**found) == TitansConfig.preset("mag-340m", vocab_size=50304)


@pytest.mark.filterwarnings("ignore:.*jsonargparse", "ignore:.*deprecated", "ignore:.*exists and is not empty")
def test_an_earlier_run_is_not_replaced_by_a_forgotten_option(tokens, uninterrupted, tmp_path, monkeypatch):
    folder = shutil.copytree(uninterrupted, tmp_path / "run")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["pretrain"])
    before = (folder / "pretraining" / "checkpoints" / "last.ckpt").read_bytes()
    with pytest.raises(ValueError, match="holds checkpoints of an earlier run"):
        main(command(tokens, steps=4)[3:])
    assert (folder / "pretraining" / "checkpoints" / "last.ckpt").read_bytes() == before
    for home in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(home, str(folder))
    with pytest.raises(ValueError, match="holds checkpoints of an earlier run"):
        main([*command(tokens, steps=4)[3:], "--checkpoint.dirpath", "~/pretraining/checkpoints"])
    with pytest.raises(ValueError, match="pretraining/model holds a model, which this run would replace"):
        main([*command(tokens)[3:], "--checkpoint.dirpath", "other"])
    model = (folder / "pretraining" / "model" / "model.safetensors").read_bytes()
    main([*command(tokens, trainer={"fast_dev_run": True})[3:], "--checkpoint.dirpath", "other"])
    assert not list(Path().glob("other/*"))
    main(command(tokens, trainer={"fast_dev_run": True})[3:])
    assert (folder / "pretraining" / "checkpoints" / "last.ckpt").read_bytes() == before
    assert (folder / "pretraining" / "model" / "model.safetensors").read_bytes() == model
    Path("config.yaml").write_text("# mine")
    short = command(tokens, steps=1, trainer={"logger": False})[3:]
    main([*short, "--checkpoint.dirpath", "other", "--out", "other"])
    assert Path("config.yaml").read_text() == "# mine"
    Path("file").write_text("")
    with pytest.raises(ValueError, match=r"^file is a file, but a model is saved as a folder"):
        main([*command(tokens)[3:], "--out", "file", "--ckpt_path", "last"])


@pytest.mark.filterwarnings("ignore:.*jsonargparse", "ignore:.*deprecated")
@pytest.mark.parametrize("command_of", ["fit", "validate"])
def test_a_damaged_checkpoint_is_named_with_those_that_are_whole(tokens, tmp_path, monkeypatch, command_of):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pretrain"])
    folder = tmp_path / "pretraining" / "checkpoints"
    folder.mkdir(parents=True)
    torch.save({"weights": torch.zeros(100)}, folder / "epoch=0-step=1.ckpt")
    (folder / "last.ckpt").write_bytes((folder / "epoch=0-step=1.ckpt").read_bytes()[:-100])
    said = r"is no checkpoint, or truncated or damaged.*epoch=0-step=1\.ckpt"
    with pytest.raises(ValueError, match=rf"last\.ckpt {said}"):
        main([command_of, "--config", command(tokens)[-1], "--ckpt_path", "last"])
    whole = bytearray((folder / "epoch=0-step=1.ckpt").read_bytes())
    whole[len(whole) // 2] ^= 1  # torch would read it
    Path("mine.ckpt").write_bytes(whole)
    with pytest.raises(ValueError, match=rf"^mine\.ckpt {said}"):
        main([command_of, "--config", command(tokens)[-1], "--ckpt_path", "mine.ckpt"])


@pytest.mark.filterwarnings("ignore:.*jsonargparse", "ignore:.*deprecated")
def test_a_trained_model_is_validated_and_random_weights_are_not(tokens, uninterrupted, monkeypatch):
    monkeypatch.chdir(uninterrupted)
    monkeypatch.setattr(sys, "argv", ["pretrain"])
    settings = json.loads(command(tokens)[-1])
    del settings["checkpoint"]
    arguments = ["validate", "--config", json.dumps(settings)]
    with pytest.raises(ValueError, match="validate needs a checkpoint"):
        main(arguments)
    with pytest.raises(ValueError, match=r"nowhere has no last\.ckpt: set --checkpoint\.dirpath"):
        main([*arguments, "--ckpt_path", "last", "--checkpoint.dirpath", "nowhere"])
    cli = main([*arguments, "--ckpt_path", "last"])
    trained = TitansLM.load("pretraining/model").state_dict()
    assert all(torch.equal(w, trained[name]) for name, w in cli.model.model.state_dict().items())
    own = cli.trainer.callback_metrics["val_loss"]
    # another text, shared out otherwise: a place in the data is of training
    Path("other.txt").write_text("Something else is written here, and it is no square at all. " * 200)
    prepare("other.txt", "other", val_fraction=0.5, verbose=0)
    settings["data"] |= {"path": "other", "micro_batch": 4}
    arguments = ["validate", "--config", json.dumps(settings), "--ckpt_path", "pretraining/checkpoints/last.ckpt"]
    assert abs(main(arguments).trainer.callback_metrics["val_loss"] - own) > 0.1
    # its training part is too little for a step, and for a window
    Path("short.txt").write_text("There is not much of this. " * 6)
    prepare("short.txt", "short", val_fraction=0.9, verbose=0)
    assert json.loads(Path("short/tokens.json").read_text())["parts"]["train"]["tokens"] < settings["data"]["length"]
    assert main([*arguments, "--data.path", "short"]).trainer.callback_metrics["val_loss"] > 0
    prepare("other.txt", "whole", val_fraction=0, verbose=0)
    with pytest.raises(ValueError, match="whole has no part 'val'"):
        main([*arguments, "--data.path", "whole"])


def in_a_process(function, *arguments):
    """Exit code of a process of its own, with which a group of processes ends."""
    process = get_context("fork").Process(target=without_cuda, args=(function, *arguments))
    process.start()
    process.join()
    return process.exitcode


ALONE = {**SHARDED, "init_args": {"data_parallel_size": 1, "tensor_parallel_size": 1}}


@pytest.mark.slow
def test_the_last_checkpoint_of_fsdp_which_is_a_folder_is_validated(tokens, tmp_path):
    training = command(tokens, steps=2, trainer={"strategy": ALONE, "limit_val_batches": 1})
    assert in_a_process(run_here, training, tmp_path) == 0
    assert (tmp_path / "pretraining" / "checkpoints" / "last.ckpt").is_dir()
    validation = [*training[:3], "validate", *training[4:], "--ckpt_path", "last"]
    assert in_a_process(run_here, validation, tmp_path) == 0


def killed_in_saving(arguments, folder):
    """Ends the process where the last checkpoint is replaced for the first time: its weights are there already."""
    save, saved = torch.save, []

    def save_or_end(content, to):
        saved.append(to)
        if [str(path).endswith("last.ckpt/meta.pt") for path in saved].count(True) == 2:
            os._exit(7)
        save(content, to)

    torch.save = save_or_end
    run_here(arguments, folder)


@pytest.mark.slow
def test_a_folder_that_was_being_written_is_no_checkpoint(tokens, tmp_path, monkeypatch):
    """New weights with an old place in the data and in the schedule would be another run."""
    arguments = command(tokens, steps=6, trainer={"strategy": ALONE, "limit_val_batches": 0})
    assert in_a_process(killed_in_saving, arguments, tmp_path) == 7
    with pytest.raises(ValueError, match=r"last\.ckpt is no checkpoint, or truncated.*epoch=0-step=4\.ckpt"):
        run_here([*arguments, "--ckpt_path", "last"], tmp_path)
    whole = tmp_path / "pretraining" / "checkpoints" / "epoch=0-step=4.ckpt"
    assert in_a_process(run_here, [*arguments, "--ckpt_path", str(whole)], tmp_path) == 0


@pytest.mark.filterwarnings("ignore:.*jsonargparse", "ignore:.*deprecated")
def test_help_lists_the_available_commands(tokens, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)

    def ended(*arguments):
        """What the module gives back and says where it is what was started."""
        monkeypatch.setattr(sys, "argv", ["pretrain", *arguments])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(pretrain.__file__, run_name="__main__")
        return end.value.code, "".join(capfd.readouterr())

    code, output = ended("--help")
    assert not code
    assert "usage: python -m titans_core.train.pretrain " in output
    assert "{fit,validate}" in output
    code, output = ended(*command(tokens, data={"batch_tokens": 500})[3:])
    assert code
    output += str(code)  # a message is said by the interpreter
    assert "error: batch_tokens=500 is not a multiple of 256" in output.replace("\n", " ")
    assert "Traceback" not in output
    _, output = ended(*command(tokens)[3:], "--optimizer", "SGD")  # the recipe's is the only one
    assert "unrecognized arguments: --optimizer SGD" in output
