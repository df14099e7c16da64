"""The estimator: from a genome to a language model of it; what that can be asked is in ``titans_dna.questions``."""

import copy
import hashlib
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
from titans_core.train import History, Loss, TitansEstimator, TrainingOptions, borrowed_randomness, train_network
from titans_datasets.warn import warn_caller
from titans_dna.fine_tuning import digest_of
from titans_dna.genome import Genome
from titans_dna.masked import masked_base_loss
from titans_dna.pretrain_data import IGNORE, loaders, plan
from titans_dna.questions import Questions
from titans_dna.sources import marks_of, open_source, read_regions
from titans_dna.tokenizer import VOCAB_SIZE

ARCHITECTURES = ("mag", "mac", "mal", "lmm", "transformer", "gated-deltanet")
# batches in an epoch, at most: after each there is a validation and a checkpoint
EPOCH = 100
# tokens of a deep memory that share one gradient point
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
    """A language model of DNA, pretrained by the next nucleotide, or by hidden ones.

    Each window is read behind one N, so that its first base is predicted too. Probabilities are over A C G T; an N is
    read, and never predicted. Both strands are learned: each window is read on a random one, or on both.

    Args:
        architecture: "mag", "mac", "mal" (memory with attention), "lmm" (memory alone), "transformer" (attention alone)
            or "gated-deltanet": the baselines.
        dim: width; a multiple of ``4 * num_heads``.
        num_layers: blocks.
        num_heads: heads of memory and attention.
        hidden: width of the SwiGLU of each block; None: ``2 * dim``.
        memory_depth: layers of the memory. 1 is linear: alone ("lmm") it learned more of E. coli than a deep one and as
            much of yeast, in less time.
        forget_to: what forgetting draws the memory to: "start", or "zero" as in the paper (Eq. 13), where a deep memory
            stops to learn in sequences much longer than ``length``.
        chunk_size: tokens that share one gradient point of the memory. None: 1 of a linear memory, whose gradients are
            then all fresh at no cost, else 16.
        window: tokens that sliding-window attention sees ("mag", "mal"), or of a segment ("mac").
        length: bases of a training window.
        objective: "next": each base from those before it. "masked": 15 % of the bases are hidden, and predicted from
            both sides by reading both strands (:mod:`titans_dna.masked`), which takes twice the time.
        learning_rate: of the outer loop (AdamW, one cycle).
        batch_size: windows in a batch; and sequences read side by side afterwards.
        max_steps: batches to train on, at most; rounded up to whole epochs of equal size, 100 batches or fewer.
        patience: epochs without a better validation loss before training stops.
        device: "auto", "cpu", "cuda", "cuda:1" or "mps".
        precision: of training: "auto", or a precision of Lightning's Trainer.
        random_state: seed; the same integer gives the same model.
        warm_start: whether ``fit`` goes on from what the model has learned already, from the same genome or another;
            else, and the first time, it starts from random weights. The cycle of the learning rate begins anew: a lower
            one forgets less.
        verbose: 0 is silent, 1 shows progress bars.

    Attributes:
        model_: the trained :class:`~titans_core.TitansLM` over the tokens of ``titans_dna.tokenizer``, on the CPU.
        history_: losses by epoch, in nats per base (:class:`~titans_core.train.History`); as what follows, of the last
            ``fit``.
        holdout_: chromosomes that ``fit`` did not read.
        n_bases_: bases in the training windows, each counted once.
        seconds_: that ``fit`` took.
        read_: fingerprints of the chromosomes that were read, by all fits that it learned from.

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

        One window in twenty (at most 256, spread evenly) is kept from training, and decides when to stop and which
        epoch's weights stay; the holdout decides nothing. Windows of which more than half is unknown are left out. A
        single window is all for training, with a warning.

        Args:
            genome: path of a FASTA file, a Genome, or a list of sequences (whose names are "0", "1", ...).
            y: not used; here for sklearn.
            bed: train inside these regions only: path of a BED file, or intervals. Strands do not matter.
            holdout: names of chromosomes that are not read at all, for an honest score afterwards.
            checkpoint_dir: a folder for a checkpoint after each epoch. If it holds one of this very fit, training goes
                on from there, and ends where an unbroken one would have. Without it an interrupted fit keeps nothing.

        Raises:
            ValueError: an argument out of range, an unknown chromosome, a bad or empty file, nothing to train on, or a
                checkpoint of another run; with ``warm_start``, arguments of another network than there is, or a holdout
                that an earlier fit has read.
        """
        began = time.perf_counter()
        self._check_params()
        source, regions = open_source(genome), read_regions(bed)
        left_out = source.left_out(holdout)
        before, read = self._before(source, left_out)
        train, val = plan(source, self.length, regions, left_out)
        if not len(val):
            warn_caller(
                f"{source.path.name} has one window of {train.bases} bases to train on, and none to validate by: "
                "nothing stops the training early, and the last weights stay. Give more sequence or a smaller length."
            )
        seed = self._seed()
        if before is None:
            with borrowed_randomness(seed):
                network = TitansLM(self._config())
        else:
            network = copy.deepcopy(before).train()  # an interrupted fit leaves the model as it was
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
        self.n_bases_ = train.bases
        self.read_ = sorted({*read, *(_fingerprint(source, chrom) for chrom in {*train.names, *val.names})})
        self.seconds_: float | None = time.perf_counter() - began
        return self

    def _before(self, source: Genome, left_out: list[str]) -> tuple[TitansLM | None, list[str]]:
        """The network to go on from, and the fingerprints of what it has read; None and none to start anew."""
        if not self.warm_start or not hasattr(self, "model_"):
            return None, []
        if self._config() != self.model_.config:
            raise ValueError(
                f"warm_start goes on with the network there is, and the arguments are of another: "
                f"{self.model_.config.differences(self._config())}. Set them back, or warm_start=False."
            )
        known = [chrom for chrom in left_out if source.lengths[chrom] and _fingerprint(source, chrom) in self.read_]
        if known:
            raise ValueError(
                f"holdout={known[:8]} was read by an earlier fit of this model, and a score there would flatter it. "
                "Hold it out from the first fit on; or go on without this holdout."
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
            "read": self.read_,
            "seconds": self.seconds_,
        }
        # tied weights are one tensor under two names, which safetensors does not write
        tensors = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        return learned, tensors

    def _unpack(self, learned: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        network = TitansLM(TitansConfig.saved(learned["network"]))
        network.load_state_dict(tensors)
        self.model_ = network.eval()
        self.history_ = History(**learned["history"])
        self.objective_, self.length_ = learned["objective"], learned["length"]
        self.holdout_, self.n_bases_, self.seconds_ = learned["holdout"], learned["n_bases"], learned["seconds"]
        self.read_ = learned.get("read", [])  # a model of before this was known has none


def _fingerprint(genome: Genome, chrom: str) -> str:
    return hashlib.sha256(marks_of(genome, chrom).encode()).hexdigest()[:16]


def next_base_loss(network: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    """Cross-entropy over A C G T in nats, mean over the known bases of ``(tokens, targets)``, and their number."""
    tokens, targets = batch
    assert isinstance(network, TitansLM)
    logits = F.linear(network.hidden(tokens)[0], network.head.weight[:4]).float()
    total = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum")
    count = max(1, int((targets != IGNORE).sum()))
    return total / count, count


LOSSES: dict[str, Loss] = {"next": next_base_loss, "masked": masked_base_loss}
