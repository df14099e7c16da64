"""Train a network with Lightning: one function from loaders to the best weights."""

import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

from titans_core.train.fingerprint import shapes
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
    """Train ``network`` in place; it comes back on the CPU, in evaluation mode, with the weights of its best epoch.

    Started by ``torchrun``, the processes train together (DDP), and each comes back with the same network. Then a
    loader must give each process its part of every batch.

    Args:
        network: what to train.
        loss: ``(network, batch) -> (mean, number of values)``.
        train: batches; its length sets the schedule.
        val: batches for early stopping, or None: then the last weights are kept.
        options: see :class:`TrainingOptions`.
        identity: by name, what else must be the same for a checkpoint to be resumed: the data's ``digest``, settings
            that the parameters' shapes do not show.
        on_epoch: told the number and the validation loss of each epoch; what it raises ends the training.

    Raises:
        ValueError: for a device that is not there, and for a checkpoint that another run left or that is damaged.
        RuntimeError: under ``torch.inference_mode()``.
        FloatingPointError: if the loss stops being finite; the message says in which epoch.
        KeyboardInterrupt: as it came; the message says what is kept.
    """
    if torch.is_inference_mode_enabled():
        raise RuntimeError("nothing can be trained under torch.inference_mode(): call fit outside of it.")
    # Lightning takes seconds to import, which a model that is loaded, and does not train, need not wait for
    import lightning as L
    from lightning.pytorch.callbacks import ModelCheckpoint

    from titans_core.train.callbacks import Averaged, KeepBest, OnEpoch, Patience, ProgressBar
    from titans_core.train.module import OuterLoop
    from titans_core.train.resume import Fingerprint, check_resumable

    accelerator, devices = resolve_device(options.device)
    strategy, nodes = "auto", 1
    if dist.is_torchelastic_launched():  # one process of several, started by torchrun
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
        folder = Path(options.checkpoint_dir)
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

    dtype = next(network.parameters()).dtype  # a precision such as "64-true" changes it for training
    if options.precision == "64-true":  # before Lightning would: what it resumes or averages, it would round
        network.double()
    module = OuterLoop(
        network, loss, options.learning_rate, options.weight_decay, len(train) * options.max_epochs, options.seed
    )
    with borrowed_randomness(devices=True), _quiet():
        trainer = L.Trainer(
            max_epochs=options.max_epochs,
            accelerator=accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy=strategy,
            use_distributed_sampler=False,  # the loaders share each batch themselves
            precision=_precision(options.precision, accelerator),  # type: ignore[arg-type]
            gradient_clip_val=options.clip,
            callbacks=callbacks,
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
            if trainer.interrupted:  # Lightning would end the whole program, and with it a notebook's kernel
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


def _interrupted(epochs: int, checkpoint: Path | None) -> str:
    """What is left of a training that was interrupted behind so many whole epochs."""
    where = f"behind epoch {epochs}" if epochs else "in epoch 1"
    if checkpoint is None:
        return f"training was interrupted {where}, and nothing is kept. Give checkpoint_dir, and the same fit goes on."
    if not checkpoint.exists():
        return f"training was interrupted {where}, before there was a checkpoint."
    return f"training was interrupted {where}; {checkpoint} is kept, and the same fit goes on from there."


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
    )  # a seed may be drawn anew
    own = {name: getattr(options, name) for name in settings} | {"batches": batches, "network": shapes(network)}
    return {name: str(value) for name, value in {**own, **identity}.items()}


def resolve_device(device: str) -> tuple[str, int | str | list[int]]:
    """Lightning's (accelerator, devices) for "auto", "cpu", "cuda", "cuda:1" or "mps"."""
    kind, _, number = str(device).partition(":")
    if kind == "auto":
        return "auto", 1
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind not in there:
        raise ValueError(f"device must be 'auto' or one of {sorted(there)} (with a number: 'cuda:1'), got {device!r}.")
    if not there[kind]:
        raise ValueError(f"device={device!r}: this machine has none. Use device='auto' to take what is there.")
    if kind != "cuda":
        if number not in ("", "0"):
            raise ValueError(f"device={device!r}: there is one {kind} device. Use device={kind!r}.")
        return kind, 1
    return kind, [int(number)] if number else 1


def torch_device(device: str) -> torch.device:
    """The same as one of torch's devices; "auto" is CUDA where there is one, else the CPU."""
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
    """Lightning's advice on workers and loggers is for other users; its warnings about the run itself stay."""
    from lightning.fabric.utilities.rank_zero import rank_zero_module

    names = (
        "lightning.pytorch.utilities.rank_zero",
        # where neuralforecast or darts is imported, pytorch_lightning has put its own logger in that one's place
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
