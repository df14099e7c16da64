"""Pretraining of a language model as a LightningModule: the paper's recipe, logging, and exact resuming."""

import copy
import math
import time
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from titans_core.checks import at_least, is_number
from titans_core.models import TitansConfig, TitansLM
from titans_core.train.flops import flops_per_token, peak_flops
from titans_core.train.module import parameter_groups
from titans_core.train.randomness import borrowed_randomness


class LanguageModelTraining(L.LightningModule):
    """Next-token training of a :class:`~titans_core.TitansLM` (section 5.1).

    Args:
        config: model configuration, or the name of a preset such as "mac-170m".
        learning_rate: peak learning rate of AdamW.
        weight_decay: weight decay of AdamW, on matrices only.
        betas: betas of AdamW.
        warmup_steps: number of warm-up steps, at most half of all steps. After them the learning rate follows a cosine
            until the last step.
        final_rate: final learning rate, as a fraction of ``learning_rate``.
        compile: run each block through ``torch.compile``.
        seed: seed of the initial weights.
    """

    def __init__(
        self,
        config: TitansConfig | str = "mac-170m",
        learning_rate: float = 4e-4,
        weight_decay: float = 0.1,
        betas: tuple[float, float] = (0.9, 0.95),
        warmup_steps: int = 500,
        final_rate: float = 0.1,
        compile: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        at_least("warmup_steps", warmup_steps, 0)
        if not is_number(final_rate) or not 0 <= final_rate <= 1:
            raise ValueError(f"final_rate is a share of the learning rate: from 0 to 1, got {final_rate!r}.")
        self.config = TitansConfig.preset(config) if isinstance(config, str) else config
        # a checkpoint with NumPy's numbers could not be read again: that takes unpickling
        self.learning_rate, self.weight_decay = float(learning_rate), float(weight_decay)
        self.betas = (float(betas[0]), float(betas[1]))
        self.warmup_steps, self.final_rate, self.compiles = int(warmup_steps), float(final_rate), compile
        with borrowed_randomness(seed):
            self.model = TitansLM(self.config)
        self._losses: list[Tensor] = []  # losses of the batches of this step
        self._steps_seen = 0
        self._steps: int | None = None  # length of the schedule; None: a subclass has its own optimiser
        self._clock: tuple[float, int] | None = None  # end time and number of the last step
        self._kept: dict[str, Any] = {}  # recipe of the checkpoint that is being resumed
        self._begun = False  # whether batches of the next step have been read
        self._reached: dict[str, Any] = {}  # where in the data the last whole step ended

    def setup(self, stage: str) -> None:
        """Forget what an earlier run of the same module left."""
        self._losses, self._clock, self._kept, self._reached = [], None, {}, {}

    def configure_model(self) -> None:
        """Shard with FSDP2 if the strategy does (first each block, then the whole model), then compile the blocks."""
        if self._trainer is None:  # load_from_checkpoint calls this too
            return
        strategy = self.trainer.strategy
        if isinstance(strategy, ModelParallelStrategy) and not self._sharded:
            from torch.distributed.fsdp import fully_shard

            mesh = strategy.device_mesh["data_parallel"]
            if mesh.size() != self.trainer.world_size:
                raise ValueError(
                    f"the strategy uses {mesh.size()} of {self.trainer.world_size} processes for data parallelism, but "
                    "tensor parallelism is not supported. Set ModelParallelStrategy's data_parallel_size to the number "
                    "of processes and tensor_parallel_size to 1."
                )
            for block in self.model.blocks:
                fully_shard(block, mesh=mesh)
            fully_shard(self.model, mesh=mesh)
            # training calls loss(), not forward()
            torch.distributed.fsdp.register_fsdp_forward_method(self.model, "loss")
        if self.compiles:
            # per block: all blocks share one compiled graph, and training calls loss(), not the model's forward()
            for block in self.model.blocks:
                block.compile()
            self.compiles = False

    def export(self, path: str | Path) -> None:
        """Save the model (:meth:`TitansLM.save`). All processes must call this; only the first one writes."""
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        tensors = get_model_state_dict(self.model, options=options)
        if self.trainer.is_global_zero:
            with torch.device("meta"):
                whole = TitansLM(self.config)
            whole.load_state_dict(tensors, assign=True)
            if self.config.tie_embeddings:
                whole.head.weight = whole.embedding.weight
            whole.save(path)

    @property
    def _sharded(self) -> bool:
        return any(hasattr(p, "device_mesh") for p in self.model.parameters())

    def on_fit_start(self) -> None:
        vocabulary = getattr(getattr(self.trainer.datamodule, "train", None), "vocab_size", None)  # type: ignore[attr-defined]
        if vocabulary is not None and vocabulary > self.config.vocab_size:
            raise ValueError(
                f"the tokens have a vocabulary of {vocabulary}, but the model has vocab_size={self.config.vocab_size}: "
                "set model.config.vocab_size to at least that, or prepare the text with another tokenizer."
            )

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        # the first hook after a batch was read; on_train_batch_start follows the transfer, and the callbacks' hooks
        self._begun = self._begun or self.trainer.training
        return batch

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        loss = self.model.loss(batch[:, :-1], batch[:, 1:])
        if not torch.isfinite(loss):
            raise FloatingPointError(
                f"the loss of step {self.global_step} is {float(loss)}. Lower model.learning_rate, and resume from the "
                "last checkpoint."
            )
        self._losses.append(loss.detach())
        return loss

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        loss = self.model.loss(batch[:, :-1], batch[:, 1:])
        count = batch[:, 1:].numel()
        self.log("val_loss", loss, prog_bar=True, sync_dist=True, batch_size=count)
        self.log("val_bits_per_token", loss / math.log(2), sync_dist=True, batch_size=count)

    def on_validation_end(self) -> None:
        self._clock = None  # do not count validation time as training time

    def on_train_batch_end(self, outputs: Any, batch: Tensor, batch_idx: int) -> None:
        """At the end of an optimiser step, log the mean loss, tokens per second, and MFU."""
        if self.global_step == self._steps_seen:  # gradients are still being accumulated
            return
        self._steps_seen = self.global_step
        self._begun, self._reached = False, self._position()
        self.log("train_loss", torch.stack(self._losses).mean(), prog_bar=True, sync_dist=True)
        batches = len(self._losses)
        self._losses.clear()
        now, step = time.perf_counter(), self.global_step
        if self._clock is not None and step > self._clock[1]:
            tokens = batch[:, 1:].numel() * batches * self.trainer.world_size
            rate = tokens * (step - self._clock[1]) / (now - self._clock[0])
            self.log("tokens_per_second", rate, prog_bar=True)
            peak = peak_flops(self.device)
            if peak is not None:
                used = rate * flops_per_token(self.model, batch.shape[1] - 1)
                self.log("mfu", used / (peak * self.trainer.world_size), prog_bar=True)
        self._clock = now, step

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(
            parameter_groups(self.model, self.weight_decay), lr=self.learning_rate, betas=(self.betas[0], self.betas[1])
        )
        steps = self.trainer.estimated_stepping_batches
        if steps == float("inf"):
            raise ValueError(
                "the learning-rate schedule needs the total number of steps: set trainer.max_steps or "
                "trainer.max_epochs, also together with max_time."
            )
        total = self._steps = int(steps)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self._rate(step, total))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_train_start(self) -> None:
        """Apply this run's arguments in place of the optimiser settings stored in a checkpoint."""
        dtype = self.model.embedding.weight.dtype
        if torch.finfo(dtype).bits < 32:
            rank_zero_warn(
                f"the weights are stored in {dtype}, which rounds away small updates, so norms and gates hardly learn. "
                "Set trainer.precision to bf16-mixed."
            )
        self._steps_seen = self.global_step
        self._begun, self._reached = False, self._reached or self._position()
        # in a new run, lr_find or a user may have set another schedule
        if not self._kept or self._steps is None:
            return
        optimizer, schedule = self.trainer.optimizers[0], self.trainer.lr_scheduler_configs[0].scheduler
        rate = self._rate(schedule.last_epoch, self._steps)
        for group, decay in zip(optimizer.param_groups, (self.weight_decay, 0.0), strict=True):
            group["betas"], group["weight_decay"] = tuple(self.betas), decay
            group["initial_lr"], group["lr"] = self.learning_rate, self.learning_rate * rate
        schedule.base_lrs = [self.learning_rate] * len(optimizer.param_groups)
        recipe = self._recipe()
        changed = {name: value for name, value in self._kept.items() if recipe.get(name, value) != value}
        if changed:
            before = ", ".join(f"{name} {value}" for name, value in changed.items())
            now = ", ".join(f"{name} {recipe[name]}" for name in changed)
            rank_zero_warn(f"the checkpoint was saved with {before}; training continues with {now}.")

    def _recipe(self) -> dict[str, Any]:
        """Settings that determine the steps, apart from the data; none if a subclass has its own optimiser."""
        if self._steps is None:
            return {}
        names = ("learning_rate", "weight_decay", "warmup_steps", "final_rate")
        return {name: getattr(self, name) for name in names} | {"betas": list(self.betas), "steps": self._steps}

    def _rate(self, step: int, total: int) -> float:
        warmup = min(self.warmup_steps, total // 2)
        if step < warmup:
            return (step + 1) / warmup
        done = min(1.0, (step - warmup) / max(1, total - warmup))
        return self.final_rate + (1 - self.final_rate) * 0.5 * (1 + math.cos(math.pi * done))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the random state, the model configuration and the recipe. Lightning and the loader save the rest.

        A checkpoint does not hold the gradients that are being accumulated. One that is written within a step, such as
        by Lightning on a signal of SLURM, is therefore that of the last whole step, and this step is repeated.
        """
        # a finite loss can have a non-finite gradient; bad weights must not replace the previous checkpoint
        finite = all(bool(torch.isfinite(p).all()) for p in self.model.parameters())  # FSDP2: this process's shard
        if not self.trainer.strategy.reduce_boolean_decision(finite):
            raise FloatingPointError(
                f"after step {self.global_step} the weights are not finite, because a gradient was not; no checkpoint "
                "was saved. Lower model.learning_rate, and resume from the last checkpoint."
            )
        # callbacks save at the end of a step before on_train_batch_end notes that it is complete
        within_step = self._begun and self.global_step == self._steps_seen
        reached = self._reached if within_step else self._position()
        checkpoint.update({name: value for name, value in reached.items() if name != "loops"})
        checkpoint["loops"] = {**checkpoint["loops"], **reached["loops"]}
        checkpoint["titans_config"] = vars(self.config).copy()
        checkpoint["titans_recipe"] = self._recipe()

    def _position(self) -> dict[str, Any]:
        """Entries of a checkpoint that say where in the data the run is. Only torch's random state is used."""
        position = {
            "loops": {"fit_loop": copy.deepcopy(self.trainer.fit_loop.state_dict())},
            "titans_random": {
                "cpu": torch.get_rng_state(),
                "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            },
        }
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        if data is not None and (state := data.state_dict()):
            position[type(data).__qualname__] = state
        return position

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        found = TitansConfig.saved(checkpoint.get("titans_config", {}))
        if "titans_config" not in checkpoint or found != self.config:
            differ = found.differences(self.config) if "titans_config" in checkpoint else "it is not from this library"
            raise ValueError(f"the checkpoint holds another model: {differ}. Use its config, or start a new run.")
        self._kept = checkpoint.get("titans_recipe", {})
        if self._trainer is None:  # load_from_checkpoint: no run continues, so the caller's random state stays
            return
        data = type(self.trainer.datamodule).__qualname__  # type: ignore[attr-defined]
        self._reached = copy.deepcopy({k: checkpoint[k] for k in ("loops", "titans_random", data) if k in checkpoint})
        states = checkpoint["titans_random"]
        torch.set_rng_state(states["cpu"].cpu())
        if states["cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all([s.cpu() for s in states["cuda"]])
