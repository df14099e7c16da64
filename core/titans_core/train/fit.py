"""Train a network with Lightning: one function from data loaders to the best weights."""

import logging
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

from titans_core.train.fingerprint import shapes, text_of
from titans_core.train.options import History, Loss, TrainingOptions
from titans_core.train.processes import started
from titans_core.train.randomness import borrowed_randomness

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback


def train_network(
    network: nn.Module,
    loss: Loss,
    train: DataLoader,
    val: DataLoader | None,
    options: TrainingOptions,
    identity: Mapping[str, object] | None = None,
    on_epoch: Callable[[int, float], None] | None = None,
) -> History:
    """Train ``network`` in place. It is returned on the CPU, in evaluation mode, with the weights of its best epoch.

    If started by ``torchrun``, the processes train together (DDP), and each ends with the same network. A loader must
    then give each process its share of every batch.

    Args:
        network: the network to train.
        loss: ``(network, batch) -> (mean, number of values)``.
        train: training batches. Their number sets the length of the schedule.
        val: batches for early stopping. None: the last weights are kept.
        options: see :class:`TrainingOptions`.
        identity: named values that must also match for a checkpoint to be resumed, such as the data's ``digest``, or
            settings that do not affect parameter shapes.
        on_epoch: called with the number and the validation loss of each epoch. An exception in it ends the training.

    Returns:
        The losses by epoch, and the best epoch.

    Raises:
        ValueError: if the device is not available; or a checkpoint is damaged, belongs to another run, or is wanted
            with a RandomState.
        RuntimeError: under ``torch.inference_mode()``.
        FloatingPointError: if the loss becomes infinite or NaN; the message has the losses of that epoch.
        KeyboardInterrupt: if training is interrupted; the message says what was saved.
    """
    if torch.is_inference_mode_enabled():
        raise RuntimeError("a model cannot be trained under torch.inference_mode(): call fit outside of it.")
    if on_epoch is not None and val is None:
        raise ValueError("on_epoch gets the validation loss of each epoch, but there are no validation data.")
    # importing Lightning takes seconds; a loaded model that does not train should not wait for it
    import lightning as L
    from lightning.pytorch.callbacks import ModelCheckpoint

    from titans_core.train.callbacks import Averaged, KeepBest, OnEpoch, Patience, ProgressBar
    from titans_core.train.checkpoints import WholeCheckpoints
    from titans_core.train.module import OuterLoop
    from titans_core.train.resume import Fingerprint, check_resumable

    accelerator, devices = resolve_device(options.device)
    strategy, nodes = "auto", 1
    if dist.is_torchelastic_launched():  # one of several processes started by torchrun
        here = int(os.environ["LOCAL_WORLD_SIZE"])
        strategy, devices, nodes = "ddp", here, started() // here
    averaged = Averaged(options.average) if options.average else None
    keep = KeepBest(averaged)
    callbacks: list[Callback] = [keep] if averaged is None else [averaged, keep]
    if val is not None:
        callbacks.append(Patience("val_loss", patience=options.patience, check_finite=False))
    if options.progress:
        callbacks.append(ProgressBar(refresh_rate=10, leave=True))
    if on_epoch is not None:
        callbacks.append(OnEpoch(on_epoch))
    resume = None
    if options.checkpoint_dir is not None:
        folder = Path(options.checkpoint_dir).expanduser()
        _check_writable(folder)
        callbacks.append(
            ModelCheckpoint(
                folder, filename="last", save_top_k=1, enable_version_counter=False, save_on_train_epoch_end=True
            )
        )
        fingerprint = _fingerprint(network, len(train), options, identity or {})
        callbacks.append(Fingerprint(fingerprint))
        resume = folder / "last.ckpt"
        if resume.exists():
            check_resumable(resume, fingerprint)

    dtype = next(network.parameters()).dtype  # a precision such as "64-true" changes it during training
    if options.precision == "64-true":  # convert before Lightning, which would round resumed and averaged weights
        network.double()
    module = OuterLoop(
        network, loss, options.learning_rate, options.weight_decay, len(train) * options.max_epochs, options.seed
    )
    # on a CPU, GPUs are left alone: one may be full, and a process that has used one cannot be forked
    on_gpus = accelerator != "cpu"
    with borrowed_randomness(devices=on_gpus), _quiet(), torch.enable_grad():  # Lightning leaves gradients enabled
        trainer = L.Trainer(
            max_epochs=options.max_epochs,
            accelerator=accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy=strategy,
            use_distributed_sampler=False,  # the loaders already split batches between processes
            precision=_precision(options.precision, accelerator),  # type: ignore[arg-type]
            gradient_clip_val=options.clip,
            callbacks=callbacks,
            plugins=[WholeCheckpoints()],
            enable_progress_bar=options.progress,
            enable_model_summary=False,
            enable_checkpointing=options.checkpoint_dir is not None,
            logger=False,
            num_sanity_val_steps=0,
        )
        # weights_only: a checkpoint is read as tensors and numbers, never unpickled
        try:
            trainer.fit(module, train, val, ckpt_path=resume if resume and resume.exists() else None, weights_only=True)
        except SystemExit:
            if trainer.interrupted:  # Lightning would exit the program, and with it a notebook's kernel
                raise KeyboardInterrupt(_interrupted(len(keep.epochs), resume)) from None
            raise
    diverged = [e for e in keep.epochs if not all(math.isfinite(x) for x in e.values())]
    network.to("cpu", dtype)
    if diverged or not all(w.isfinite().all() for w in keep.best_weights.values() if w.is_floating_point()):
        raise FloatingPointError(
            f"training diverged; losses of the epoch: {(diverged or keep.epochs)[0]}. "
            "Lower learning_rate or chunk_size, or check the scale of the data."
        )
    network.load_state_dict(keep.best_weights)
    network.eval()
    return History(keep.epochs, keep.best_epoch)


def _check_writable(folder: Path) -> None:
    """Raise an OSError before hours of training, not at the end of the first epoch."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"checkpoint_dir: {folder} cannot be written to ({error}). Give another folder.") from error


def _interrupted(epochs: int, checkpoint: Path | None) -> str:
    """Describe what was saved when training was interrupted after ``epochs`` complete epochs."""
    where = f"after epoch {epochs}" if epochs else "in epoch 1"
    if checkpoint is None:
        return f"training was interrupted {where}; nothing is kept. Give checkpoint_dir to be able to resume."
    if not checkpoint.exists():
        return f"training was interrupted {where}, before the first checkpoint was saved."
    return f"training was interrupted {where}; call the same fit again to resume from {checkpoint}."


def _fingerprint(
    network: nn.Module, batches: int, options: TrainingOptions, identity: Mapping[str, object]
) -> dict[str, str]:
    settings = (
        "learning_rate",
        "weight_decay",
        "max_epochs",
        "patience",
        "clip",
        "average",
        "precision",
    )  # not the seed, which may be drawn at random
    own = {name: getattr(options, name) for name in settings} | {"batches": batches, "network": shapes(network)}
    if isinstance(identity.get("random_state"), np.random.RandomState):
        raise ValueError(
            "checkpoint_dir needs random_state to be an integer or None: a RandomState changes with each fit."
        )
    return {name: text_of(value) for name, value in {**own, **identity}.items()}


def resolve_device(device: str) -> tuple[str, int | str | list[int]]:
    """Lightning's (accelerator, devices) for "auto", "cpu", "cuda", "cuda:1" or "mps"."""
    kind, _, number = str(device).partition(":")
    if kind == "auto":
        return "auto", 1
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind not in there:
        raise ValueError(f"device must be 'auto' or one of {sorted(there)} (with a number: 'cuda:1'), got {device!r}.")
    if not there[kind]:
        raise ValueError(f"device={device!r} is not available on this machine. Use device='auto'.")
    if kind != "cuda":
        if number not in ("", "0"):
            raise ValueError(f"device={device!r}: there is only one {kind} device. Use device={kind!r}.")
        return kind, 1
    return kind, [int(number)] if number else 1


def torch_device(device: str) -> torch.device:
    """The torch device for ``device``. "auto" is CUDA if available, else the CPU."""
    accelerator, number = resolve_device(device)
    if accelerator == "auto":
        accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(accelerator, number[0]) if isinstance(number, list) else torch.device(accelerator)


def _precision(precision: str, accelerator: str) -> str:
    if precision != "auto":
        return precision
    on_cuda = accelerator == "cuda" or (accelerator == "auto" and torch.cuda.is_available())
    return "bf16-mixed" if on_cuda and torch.cuda.is_bf16_supported() else "32-true"


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Lightning's advice on workers and loggers; its warnings about the run stay."""
    from lightning.fabric.utilities.rank_zero import rank_zero_module

    names = (
        "lightning.pytorch.utilities.rank_zero",
        # if neuralforecast or darts is imported, pytorch_lightning has replaced that logger by its own
        rank_zero_module.log.name,
        "lightning.pytorch.accelerators.cuda",
        "lightning.fabric.utilities.seed",
    )
    levels = {name: logging.getLogger(name).level for name in names}
    try:
        for name in names:
            logging.getLogger(name).setLevel(logging.WARNING)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*does not have many workers.*")
            warnings.filterwarnings("ignore", ".*Checkpoint directory .* exists and is not empty.*")
            warnings.filterwarnings("ignore", ".*The number of training batches.*")
            warnings.filterwarnings("ignore", ".*LeafSpec.*")
            warnings.filterwarnings("ignore", ".*have no `val_dataloader`.*")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
