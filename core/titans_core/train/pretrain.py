"""Pretraining from the command line.

    python -m titans_core.train.prepare books.jsonl.gz tokens
    python -m titans_core.train.pretrain fit --config pretrain.yaml
    python -m titans_core.train.pretrain fit --config pretrain.yaml --ckpt_path last      # resume

All options can be set in a YAML file or on the command line (see ``--help``): ``model``, ``data``, and everything in
Lightning's Trainer, including strategies (``ddp``, and FSDP2 as ``ModelParallelStrategy``), precisions and loggers.
"""

import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import lightning as L
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import ModelCheckpoint

from titans_core.archive import check_kind, kind_of
from titans_core.extras import require
from titans_core.models import TitansConfig
from titans_core.train.checkpoints import WholeCheckpoints
from titans_core.train.language import LanguageModelTraining
from titans_core.train.resume import is_whole
from titans_core.train.token_data import TokenData

DEFAULTS: dict[str, Any] = {
    "max_steps": 1000,
    "gradient_clip_val": 1.0,
    "use_distributed_sampler": False,  # the loader already splits batches between processes
    "log_every_n_steps": 1,
    "enable_model_summary": True,
    "logger": {
        "class_path": "lightning.pytorch.loggers.CSVLogger",
        "init_args": {"save_dir": "pretraining", "flush_logs_every_n_steps": 1},
    },
}


META = "meta.pt"  # what Lightning writes last into a checkpoint that is a folder


class Checkpoints(ModelCheckpoint):
    """Lightning's ModelCheckpoint, whose ``last.ckpt`` also holds the last step of a run, and whose files are whole.

    A folder, as of FSDP2, is written over in place. It is whole if it has :data:`META`.
    """

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:  # none that ``trainer.plugins`` names
            trainer.strategy.checkpoint_io = WholeCheckpoints()

    def _save_checkpoint(self, trainer: L.Trainer, filepath: str) -> None:
        if trainer.is_global_zero and Path(filepath).is_dir():  # the other processes wait for the path from this one
            Path(filepath, META).unlink(missing_ok=True)
        super()._save_checkpoint(trainer, filepath)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not self._should_skip_saving_checkpoint(trainer):
            self._save_last_checkpoint(trainer, self._monitor_candidates(trainer))


def main(args: Sequence[str] | None = None) -> Any:
    """Run the command line. Returns the CLI object; its ``model.model`` is the trained model."""
    require("jsonargparse", "the pretraining command", "lm")
    from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback

    class Configuration(SaveConfigCallback):
        """Saves the options of a run beside its log."""

        def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
            if trainer.logger is not None:  # otherwise it would be saved as config.yaml in the working directory
                super().setup(trainer, pl_module, stage)

    class PretrainCLI(LightningCLI):
        def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
            parser.add_lightning_class_args(Checkpoints, "checkpoint")
            parser.set_defaults(
                {
                    "checkpoint.dirpath": "pretraining/checkpoints",
                    "checkpoint.every_n_train_steps": 100,
                    "checkpoint.save_last": True,
                    "checkpoint.save_on_train_epoch_end": False,
                    "checkpoint.enable_version_counter": False,
                }
            )
            parser.add_argument("--out", type=str, default="pretraining/model", help="folder to save the model to")
            (config,) = (action for action in parser._actions if action.dest == "model.config")
            config.__class__ = _of_preset(type(config))

        @staticmethod
        def subcommands() -> dict[str, set[str]]:
            return {name: own for name, own in LightningCLI.subcommands().items() if name in ("fit", "validate")}

        def _parse_ckpt_path(self) -> None:  # Lightning reads a checkpoint that is given by its path here
            if self.config.get("subcommand"):
                _check_whole(self.config[self.config.subcommand])
            super()._parse_ckpt_path()

        def before_fit(self) -> None:
            options = self.config.fit
            check_kind(options.out, "TitansLM")
            # a test of a few batches writes nothing
            fresh = options.ckpt_path is None and not options.trainer.fast_dev_run
            there = sorted(_folder(options).glob("*.ckpt")) if options.checkpoint.dirpath else []
            if fresh and there:
                raise ValueError(
                    f"{there[0].parent} holds checkpoints of an earlier run ({there[0].name}), which this run would "
                    "replace. Resume that run with --ckpt_path last, or set another folder with --checkpoint.dirpath "
                    "(and --out)."
                )
            if fresh and kind_of(Path(options.out).expanduser()):
                raise ValueError(f"{options.out} holds a model, which this run would replace: set another --out.")

        def after_fit(self) -> None:
            if not self.config.fit.trainer.fast_dev_run:
                self.model.export(self.config.fit.out)

        def before_validate(self) -> None:
            options = self.config.validate
            if options.ckpt_path is None:
                raise ValueError("validate needs a checkpoint: set --ckpt_path, for example to last.")
            folder = _folder(options)
            if options.ckpt_path == "last" and not (folder / "last.ckpt").exists():  # Lightning would only warn
                raise ValueError(f"{folder} has no last.ckpt: set --checkpoint.dirpath to the folder of the run.")

    with warnings.catch_warnings():
        # FSDP2 warns of blocks that return views, as their states are; training changes no state in place
        warnings.filterwarnings("ignore", ".*returned a view tensor.*")
        return PretrainCLI(
            LanguageModelTraining,
            TokenData,
            trainer_defaults=DEFAULTS,
            seed_everything_default=0,
            parser_kwargs={"prog": "python -m titans_core.train.pretrain"},
            save_config_callback=Configuration,
            save_config_kwargs={"overwrite": True},
            # its options would be for an optimiser in place of the recipe's, which cannot be resumed
            auto_configure_optimizers=False,
            args=list(args) if args is not None else None,
        )


def _of_preset(kind: Any) -> Any:
    """A kind of option whose parts, such as ``--model.config.vocab_size``, change the preset that the option names.

    jsonargparse would drop the name, and change a part of the defaults of ``TitansConfig``.
    """

    class OfPreset(kind):
        def __call__(self, parser: Any, given: Any, value: Any, name: str) -> None:
            if name.startswith("--model.config.") and isinstance(given[self.dest], str):
                super().__call__(parser, given, asdict(TitansConfig.preset(given[self.dest])), "--model.config")
            super().__call__(parser, given, value, name)

    return OfPreset


def _folder(options: Any) -> Path:
    """The folder of the checkpoints; Lightning expands ``~`` too."""
    return Path(options.checkpoint.dirpath or ".").expanduser()


def _check_whole(options: Any) -> None:
    """Raise a ValueError for a truncated or damaged checkpoint: torch reports "Invalid argument", or nothing at all."""
    folder = _folder(options)
    if options.ckpt_path is None:
        return
    file = folder / "last.ckpt" if options.ckpt_path == "last" else Path(options.ckpt_path).expanduser()
    whole = (file / META).is_file() if file.is_dir() else not file.is_file() or is_whole(file)
    if not whole:
        others = [str(other) for other in sorted(folder.glob("*.ckpt")) if other != file]
        raise ValueError(
            f"{file} is no checkpoint, or truncated or damaged. Set --ckpt_path to another; this folder has {others}."
        )


if __name__ == "__main__":
    try:
        main()
    except (OSError, ImportError, ValueError, FloatingPointError) as error:
        sys.exit(f"error: {error}")
