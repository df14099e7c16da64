"""Options of a training run, and its history."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from titans_core.checks import at_least

Loss = Callable[[nn.Module, Any], tuple[Tensor, int]]


@dataclass(frozen=True)
class TrainingOptions:
    """How to train.

    Attributes:
        learning_rate: peak of the one-cycle schedule.
        weight_decay: weight decay of AdamW, on matrices only.
        max_epochs: maximum number of passes over the training data.
        patience: number of epochs without a better validation loss before training stops. Ignored without validation
            data.
        clip: maximum gradient norm.
        average: number of steps of a moving average of the weights, which is used for validation and kept. 0: none.
        seed: seed of all random numbers.
        device: "auto", "cpu", "cuda", "mps" or "cuda:1".
        precision: "auto" (bf16-mixed on CUDA devices that support bf16, else 32-true), or a precision of Lightning's
            Trainer.
        progress: show a progress bar.
        checkpoint_dir: folder for a checkpoint after each epoch, from which training resumes. None: no checkpoints.

    Raises:
        ValueError: if ``max_epochs``, ``patience`` or ``average`` is not an integer or is too small.
    """

    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    max_epochs: int = 10
    patience: int = 3
    clip: float = 1.0
    average: int = 0
    seed: int = 0
    device: str = "auto"
    precision: str = "auto"
    progress: bool = True
    checkpoint_dir: str | Path | None = None

    def __post_init__(self) -> None:
        for name, least in (("max_epochs", 1), ("patience", 1), ("average", 0)):
            at_least(name, getattr(self, name), least)
            object.__setattr__(self, name, int(getattr(self, name)))
        # a checkpoint with NumPy's numbers could not be read again: that takes unpickling
        for name in ("learning_rate", "weight_decay", "clip"):
            object.__setattr__(self, name, float(getattr(self, name)))


@dataclass(frozen=True)
class History:
    """Losses by epoch, and the epoch whose weights were kept."""

    epochs: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = -1
