"""``DNALanguageModel``: pretraining on a genome. Its inference methods are in ``titans_dna.inference.questions``."""

import copy
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from titans_core import TitansConfig, TitansLM
from titans_core.checks import positive
from titans_core.models import gated_deltanet
from titans_core.train import (
    History,
    Loss,
    TitansEstimator,
    TrainingOptions,
    borrowed_randomness,
    digest_of,
    train_network,
)
from titans_core.warn import warn_caller
from titans_dna.genomes.genome import Genome
from titans_dna.genomes.sources import among, fingerprint, open_source, read_regions
from titans_dna.genomes.tokenizer import VOCAB_SIZE
from titans_dna.inference.questions import Questions
from titans_dna.network.likelihood import base_logits
from titans_dna.pretraining.masked import masked_base_loss
from titans_dna.pretraining.windows import IGNORE, loaders, plan

ARCHITECTURES = ("mag", "mac", "mal", "lmm", "transformer", "gated-deltanet")
# maximum number of batches per epoch; validation and checkpointing happen after each epoch
EPOCH = 100
# default ``chunk_size`` of a deep memory
_DEEP_CHUNK = 16
_COUNTS = (
    "dim",
    "num_layers",
    "num_heads",
    "memory_depth",
    "window",
    "length",
    "batch_size",
    "max_steps",
    "patience",
)


class DNALanguageModel(Questions, TitansEstimator):
    """A language model of DNA, pretrained to predict the next base or masked bases.

    An N is placed before each window, so that the first base is predicted too. The model outputs probabilities of A, C,
    G and T; it reads N but never predicts it. It learns both strands: each window is read on a random strand or, with
    ``objective="masked"``, on both.

    Args:
        architecture: "mag", "mac" or "mal" (memory combined with attention), "lmm" (memory only), or one of the
            baselines "transformer" (attention only) and "gated-deltanet". ``memory_depth``, ``forget_to`` and
            ``chunk_size`` have no effect on the baselines.
        dim: width of the model; a multiple of ``4 * num_heads``.
        num_layers: number of blocks.
        num_heads: number of heads of the memory and of the attention.
        hidden: hidden width of each block's SwiGLU layer. None means ``2 * dim``.
        memory_depth: number of layers of the memory. 1 is a linear memory. With "lmm", a linear memory learned more of
            the E. coli genome than a deep one, and as much of the yeast genome, in less time.
        forget_to: the state to which forgetting pulls the memory: "start" (its initial state) or "zero" as in the paper
            (Eq. 13). With "zero", a deep memory stops learning in sequences much longer than ``length``.
        chunk_size: number of tokens whose gradients are computed at the same memory state. None means 1 for a linear
            memory, where this costs nothing, and 16 for a deep one.
        window: number of tokens visible to sliding-window attention ("mag", "mal"), or the segment length ("mac").
        length: number of bases in a training window.
        objective: "next" predicts each base from the bases before it. "masked" hides 15 % of the bases and predicts
            them from both sides by reading both strands (:mod:`titans_dna.pretraining.masked`), which takes twice as
            long.
        learning_rate: maximum learning rate of AdamW, with a one-cycle schedule.
        batch_size: number of windows per training batch, and of sequences read in parallel at inference.
        max_steps: maximum number of training batches, rounded up to whole epochs of equal size (at most 100 batches).
        patience: number of epochs without a lower validation loss before training stops.
        device: "auto", "cpu", "cuda", "cuda:1" or "mps".
        precision: training precision: "auto", or a precision accepted by Lightning's Trainer.
        random_state: random seed. The same integer gives the same model.
        warm_start: if True, ``fit`` continues from the weights of the previous fit, on the same genome or another.
            Otherwise, or if the model is not fitted, training starts from random weights. The learning-rate schedule
            restarts; a lower learning rate forgets less.
        verbose: 0 is silent, 1 shows progress bars.

    Attributes:
        model_: the trained :class:`~titans_core.TitansLM` over the tokens of ``titans_dna.genomes.tokenizer``, on the
            CPU.
        history_: losses per epoch of the last ``fit``, in nats per base (:class:`~titans_core.train.History`).
        holdout_: names of the chromosomes that the last ``fit`` held out, sorted.
        n_bases_: number of distinct bases in the training windows of the last ``fit``.
        digest_: fingerprint of the sequence of the windows of the last ``fit``.
        seconds_: duration of the last ``fit``, in seconds.
        read_: fingerprints of the chromosomes read by all fits that contributed to the weights.

    Example:
        >>> from titans_dna import DNALanguageModel
        >>> model = DNALanguageModel(max_steps=2000).fit("genome.fa", holdout=["IV"])
        >>> model.bits_per_base("genome.fa", chroms=["IV"])
        >>> DNALanguageModel.load("saved").set_params(warm_start=True, learning_rate=5e-4).fit("another.fa")
    """

    def __init__(
        self,
        architecture: str = "mag",
        *,
        dim: int = 128,
        num_layers: int = 2,
        num_heads: int = 4,
        hidden: int | None = None,
        memory_depth: int = 1,
        forget_to: str = "start",
        chunk_size: int | None = None,
        window: int = 512,
        length: int = 1024,
        objective: str = "next",
        learning_rate: float = 2e-3,
        batch_size: int = 16,
        max_steps: int = 1000,
        patience: int = 5,
        device: str = "auto",
        precision: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        verbose: int = 1,
    ) -> None:
        self.architecture = architecture
        self.dim = dim
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden = hidden
        self.memory_depth = memory_depth
        self.forget_to = forget_to
        self.chunk_size = chunk_size
        self.window = window
        self.length = length
        self.objective = objective
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_steps = max_steps
        self.patience = patience
        self.device = device
        self.precision = precision
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(
        self,
        genome: Any,
        y: None = None,
        *,
        bed: Any = None,
        holdout: Iterable[str] | None = None,
        checkpoint_dir: str | Path | None = None,
    ) -> Self:
        """Pretrain on windows of a genome.

        One window in twenty (at most 256, evenly spaced) is used for validation: it decides when training stops and
        which epoch's weights are kept. Held-out chromosomes are not used for either. Windows in which more than half of
        the bases are unknown (N) are skipped. If there is only one window, it is used for training, with a warning.

        Args:
            genome: path of a FASTA file, a Genome, or a list of sequences (which are named "0", "1", ...).
            y: must be None; present for compatibility with scikit-learn.
            bed: restrict training to these regions: path of a BED file, or intervals. Strands are ignored.
            holdout: names of chromosomes to exclude, so that they can be used for an unbiased evaluation.
            checkpoint_dir: folder in which to save a checkpoint after each epoch. If it holds a checkpoint of the same
                fit, training resumes from it and gives the same result as an uninterrupted run. If None, an interrupted
                fit keeps nothing.

        Raises:
            TypeError: ``y`` is given.
            ValueError: an argument is out of range; a chromosome is unknown; a file is invalid or empty; nothing is
                left to train on; or the checkpoint belongs to another run. With ``warm_start``, also if the arguments
                describe another network than the fitted one, or if ``holdout`` was read by an earlier fit.
        """
        began = time.perf_counter()
        if y is not None:
            raise TypeError("fit takes no labels: give regions as bed=, and chromosomes to leave out as holdout=.")
        self._check_params()
        source, regions = open_source(genome), read_regions(bed)
        left_out = source.left_out(holdout)
        before, read = self._before(source, left_out)
        train, val = plan(source, self.length, regions, left_out)
        if not len(val):
            warn_caller(
                f"{source.path.name} has only one window, of {train.bases} bases, so there is no validation window. "
                "Training cannot stop early, and the last weights are kept. Give more sequence or a smaller length."
            )
        seed = self._seed()
        if before is None:
            with borrowed_randomness(seed):
                network = TitansLM(self._config())
        else:
            network = copy.deepcopy(before).train()  # an interrupted fit must not change the model
        epochs = -(-self.max_steps // EPOCH)
        batches, held = loaders(source, (train, val), self.length, self.batch_size, -(-self.max_steps // epochs), seed)
        options = TrainingOptions(
            learning_rate=self.learning_rate,
            weight_decay=0.1,
            max_epochs=epochs,
            patience=self.patience,
            seed=seed,
            device=self.device,
            precision=self.precision,
            progress=bool(self.verbose),
            checkpoint_dir=checkpoint_dir,
        )
        identity = {
            "sequence": f"sha256:{train.digest}",
            "batch_size": self.batch_size,
            "max_steps": self.max_steps,
            "random_state": self.random_state,
            "objective": self.objective,
            **asdict(network.config),
        }
        if before is not None:
            identity["network that it goes on with"] = digest_of(before)
        history = train_network(network, LOSSES[self.objective], batches, held, options, identity)
        self.model_, self.history_ = network, history
        self.objective_, self.length_ = self.objective, self.length
        self.holdout_ = sorted(left_out)
        self.n_bases_, self.digest_ = train.bases, train.digest
        self.read_ = sorted({*read, *(fingerprint(source, chrom) for chrom in {*train.names, *val.names})})
        self.seconds_: float | None = time.perf_counter() - began
        return self

    def _before(self, source: Genome, left_out: list[str]) -> tuple[TitansLM | None, list[str]]:
        """The network to continue from and the fingerprints of what it has read; ``(None, [])`` for a new network."""
        if not self.warm_start or not hasattr(self, "model_"):
            return None, []
        if self._config() != self.model_.config:
            raise ValueError(
                f"The fitted network (there) and the arguments (here) differ: "
                f"{self.model_.config.differences(self._config())}. warm_start=True continues training the fitted "
                "network: restore the arguments, or set warm_start=False."
            )
        known = among(source, left_out, self.read_)
        if known:
            raise ValueError(
                f"holdout={known[:8]} was read by an earlier fit of this model, so its score would be too good. "
                "Hold it out from the first fit on, or remove it from holdout."
            )
        return self.model_, self.read_

    def _config(self) -> TitansConfig:
        baseline = self.architecture == "gated-deltanet"
        config = TitansConfig(
            architecture="lmm" if baseline else self.architecture,
            vocab_size=VOCAB_SIZE,
            dim=self.dim,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            hidden=2 * self.dim if self.hidden is None else self.hidden,
            window=self.window,
            segment=self.window,
            num_persistent=4,
            memory_depth=self.memory_depth,
            forget_to=self.forget_to,
            chunk_size=(1 if self.memory_depth == 1 else _DEEP_CHUNK) if self.chunk_size is None else self.chunk_size,
        )
        return gated_deltanet(config) if baseline else config

    def _check_params(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise ValueError(f"architecture must be one of {ARCHITECTURES}, got {self.architecture!r}.")
        if self.objective not in LOSSES:
            raise ValueError(f"objective must be one of {tuple(LOSSES)}, got {self.objective!r}.")
        self._check_counts(*_COUNTS, or_none=("hidden", "chunk_size"))
        positive("learning_rate", self.learning_rate)

    def _pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        network = self._fitted()
        learned = {
            "network": asdict(network.config),
            "history": {"epochs": self.history_.epochs, "best_epoch": self.history_.best_epoch},
            "objective": self.objective_,
            "length": self.length_,
            "holdout": self.holdout_,
            "n_bases": self.n_bases_,
            "digest": self.digest_,
            "read": self.read_,
            "seconds": self.seconds_,
        }
        # safetensors refuses two names for one tensor, and tied weights have two names
        tensors = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        return learned, tensors

    def _unpack(self, learned: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        network = TitansLM(TitansConfig.saved(learned["network"]))
        network.load_state_dict(tensors)
        self.model_ = network.eval()
        self.history_ = History(**learned["history"])
        self.objective_, self.length_ = learned["objective"], learned["length"]
        self.holdout_, self.n_bases_, self.digest_ = learned["holdout"], learned["n_bases"], learned["digest"]
        self.read_, self.seconds_ = learned["read"], learned["seconds"]


def next_base_loss(network: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    """Mean cross-entropy over A, C, G and T at the known bases of ``(tokens, targets)``, in nats; and their number."""
    tokens, targets = batch
    assert isinstance(network, TitansLM)
    logits = base_logits(network, network.hidden(tokens)[0]).float()
    total = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum")
    count = max(1, int((targets != IGNORE).sum()))
    return total / count, count


LOSSES: dict[str, Loss] = {"next": next_base_loss, "masked": masked_base_loss}
