"""What a training is asked for, and what it says of itself."""

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
        learning_rate: the highest of the one-cycle schedule.
        weight_decay: of AdamW, on matrices only.
        max_epochs: passes over the training data, at most.
        patience: epochs without a better validation loss before training stops; ignored without validation data.
        clip: largest norm of the gradient.
        average: steps of a moving average of the weights, by which is validated and which is kept; 0 for none.
        seed: of everything random.
        device: "auto", "cpu", "cuda", "mps" or "cuda:1".
        precision: "auto" (bf16-mixed on CUDA where it has bf16, else 32), or a precision of Lightning's Trainer.
        progress: show a progress bar.
        checkpoint_dir: where to leave a checkpoint after each epoch, and to resume from one; None leaves nothing
            on disk.

    Raises:
        ValueError: numbers of epochs or steps that are no integers, or too low.
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
        for name, least in (("max_epochs", 1), ("patience", 0), ("average", 0)):
            at_least(name, getattr(self, name), least)
            object.__setattr__(self, name, int(getattr(self, name)))


@dataclass(frozen=True)
class History:
    """What happened: losses by epoch, and the epoch whose weights were kept."""

    epochs: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = -1
