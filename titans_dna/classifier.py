"""The estimator: from sequences and labels to classes."""

import copy
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from typing_extensions import Self

from titans_core import TitansLM
from titans_core.checks import at_least, below_one, positive
from titans_core.train import (
    History,
    TitansEstimator,
    TrainingOptions,
    borrowed_randomness,
    digest,
    train_network,
)
from titans_core.train.batches import loader
from titans_core.train.fit import torch_device
from titans_datasets.warn import warn_caller
from titans_dna.classifier_data import Examples, Reads, reads_of
from titans_dna.encoder import Encoder, EncoderConfig
from titans_dna.fine_tuning import FINETUNE, NOT_STORED, LanguageEncoder, digest_of, network_of
from titans_dna.kmers import LONGEST
from titans_dna.labels import class_weights, read_groups, read_labels, sample_weights, validation_cut
from titans_dna.parts import in_parts
from titans_dna.strands import NETWORKS, SequenceNetwork

# batches of a training by default, and the bounds of its epochs
_TRAINING, _LEAST, _MOST = 1600, 20, 100
_FROM_SCRATCH, _FINE_TUNING = 2e-3, 5e-4
_WEIGHT_DECAY = 0.05
# sequences and bases in a batch of predict
_ROWS, _BASES = 256, 1 << 17
# arguments in which an interrupted fit and its continuation may differ, or that training compares by itself
_NOT_COMPARED = ("pretrained", "device", "verbose", "max_epochs", "learning_rate", "precision")


class TitansDNAClassifier(ClassifierMixin, TitansEstimator):
    """Classifies DNA sequences with the Titans neural memory.

    Convolutions read short motifs, blocks of the memory (LMM) what they have to do with each other; mean and maximum
    over the sequence go to a linear head. With ``pretrained`` a language model takes the place of both. Beside them
    counts of k-mers have a say. Sequences may differ in length.

    Args:
        pretrained: a fitted :class:`DNALanguageModel`, or the folder that its ``save`` wrote; None starts from scratch.
            Then ``dim``, ``num_layers``, ``kernel_size`` and ``pool`` are not asked.
        finetune: what of ``pretrained`` learns: "full", "frozen" (nothing), or "gradual" (one block after the other,
            the last one first).
        reverse_complement: "average": a strand at random in training, the mean of both strands' scores in prediction.
            "augment": the same training, and the score of the given strand. "equivariant": both strands joined in the
            network, in training too, which takes twice the time. "none": the given strand, where strand matters.
        class_weight: None, "balanced", or a mapping of class to weight.
        dim: width of the network; a multiple of 16.
        num_layers: blocks of the memory. Each is linear: two layers took twice the time, and scored no better.
        kernel_size: bases that a filter of the first convolution sees; odd.
        pool: bases that become one position of the memory.
        positions: whether the network is told how far from either end of the sequence a base is: where sequences are
            cut around something, as promoters are around the start of a gene, it matters where a motif stands. Of
            ``pretrained`` one that learns is told, one that is frozen is not.
        kmers: counts of k-mers up to this k, at most 8, add to the scores; 0: none do. They are what there is to learn
            from few sequences, and where no order is to be seen. But for "none", a k-mer is one with its reverse
            complement.
        dropout: behind the convolutions and before the head. Unless it is 0, half of the k-mers are left out in
            training.
        learning_rate: of the outer loop (AdamW, one cycle); None: 2e-3, or 5e-4 where ``pretrained`` learns.
        batch_size: sequences in a batch, of like length where lengths differ. Of long ones a batch is read in parts:
            memory does not grow with it, and one step is of as many sequences.
        max_epochs: passes over the training part, at most; None: as many as make 1,600 batches, from 20 to 100.
            Training stops where the validation loss gets no better for half of them, at least 3.
        validation_fraction: part of each class that is cut from the training data to stop training early; 0 trains on
            all of it for ``max_epochs``.
        device: "auto", "cpu", "cuda", "cuda:1" or "mps".
        precision: "auto", or a precision of Lightning's Trainer.
        random_state: seed; the same integer gives the same model.
        verbose: 0 is silent, 1 shows progress bars.

    Attributes:
        classes_: classes in sorted order.
        network_: the trained :class:`~titans_dna.strands.SequenceNetwork`, on the CPU.
        history_: losses by epoch (:class:`~titans_core.train.History`).
        class_weight_: weight of each class, in the order of ``classes_``.
        seconds_: that ``fit`` took.

    Example:
        >>> from titans_dna import TitansDNAClassifier
        >>> classifier = TitansDNAClassifier(random_state=0).fit(sequences, labels)
        >>> classifier.predict(["ACGTTGCA", "TTTACGNNA"])
    """

    def __init__(
        self,
        pretrained: Any = None,
        *,
        finetune: str = "full",
        reverse_complement: str = "average",
        class_weight: str | Mapping[Any, float] | None = None,
        dim: int = 64,
        num_layers: int = 2,
        kernel_size: int = 15,
        pool: int = 4,
        positions: bool = True,
        kmers: int = 6,
        dropout: float = 0.2,
        learning_rate: float | None = None,
        batch_size: int = 64,
        max_epochs: int | None = None,
        validation_fraction: float = 0.1,
        device: str = "auto",
        precision: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 1,
    ) -> None:
        self.pretrained = pretrained
        self.finetune = finetune
        self.reverse_complement = reverse_complement
        self.class_weight = class_weight
        self.dim = dim
        self.num_layers = num_layers
        self.kernel_size = kernel_size
        self.pool = pool
        self.positions = positions
        self.kmers = kmers
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.validation_fraction = validation_fraction
        self.device = device
        self.precision = precision
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        groups: Any = None,
        validation: tuple[Any, Any] | None = None,
        checkpoint_dir: str | Path | None = None,
        on_epoch: Callable[[int, float], None] | None = None,
    ) -> Self:
        """Train on sequences.

        Args:
            X: a list, array or Series of strings; a FASTA file or a Genome, one example a record; or a pair of
                intervals and the FASTA file they lie in: ``("peaks.bed", "genome.fa")``.
            y: the class of each, strings or integers; of a FASTA or BED file in the order of its records or lines.
            sample_weight: a weight for each sequence, times that of its class. What weighs 0 is as if left out.
            groups: the group of each sequence, such as its gene or chromosome, or ``kmer_groups(X)``: the part that is
                cut off to stop by is of whole groups, so that what is learned of one cannot decide when to stop.
            validation: ``(X, y)`` to stop training early by, instead of a part cut from the training data; with some of
                each class, else a warning names those it lacks.
            checkpoint_dir: a folder for a checkpoint after each epoch. If it holds one of this very fit, with the same
                data and settings, training goes on from there; any other is refused. Without it an interrupted fit
                keeps nothing.
            on_epoch: told the number and the validation loss of each epoch; what it raises ends the training.

        Raises:
            TypeError, ValueError: bad arguments, sequences or labels; the message says which, and what to do.
        """
        begin = time.perf_counter()
        self._check_params()
        self._check_stopping(validation, groups, checkpoint_dir)
        reads = reads_of(X)
        names = read_labels(y, len(reads), "y")
        together = None if groups is None else read_groups(groups, len(reads))
        classes, labels = np.unique(names, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y has one class only, {classes.tolist()[0]!r}; a classifier needs two or more classes.")
        by_class = class_weights(self.class_weight, classes, labels)
        weights = by_class[labels] * sample_weights(sample_weight, len(reads))
        # what weighs nothing is left out: a part to stop by of such sequences would have a loss of 0 in each epoch
        weighty = np.flatnonzero(weights)
        if not len(weighty):
            raise ValueError("class_weight and sample_weight together leave no sequence with a weight above 0.")
        seed = self._seed()
        if validation is None:
            rows, cut = self._cut(weighty, labels, together, seed)
            if groups is not None and len(cut):
                _warn_of_missing(classes, labels[cut], by_class, "the groups that were cut off to stop by have")
            val = Examples(reads, labels, weights, cut)
        else:
            rows, val = weighty, _given(validation, classes, by_class)
        learned = Examples(reads, labels, weights, rows)
        train = loader(learned, self.batch_size, seed, lengths=learned.lengths)
        max_epochs = self.max_epochs or min(_MOST, max(_LEAST, -(-_TRAINING // len(train))))
        language = None if self.pretrained is None else network_of(self.pretrained)
        with borrowed_randomness(seed):
            network = self._network(language, len(classes), len(train) * max_epochs)
        identity = None
        if checkpoint_dir is not None:
            data = digest(reads.ids, reads.ends, labels, weights, rows, val.reads.ids, val.labels.numpy())
            identity = self._identity(data, network.encoder)
        history = train_network(
            network,
            weighted_error,
            train,
            loader(val, self.batch_size, lengths=val.lengths) if len(val) else None,
            self._options(max_epochs, seed, checkpoint_dir),
            identity,
            on_epoch=on_epoch,
        )
        self._settle(network, classes, by_class, history)
        self.seconds_: float | None = time.perf_counter() - begin
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of each sequence ``[n]``; X as in ``fit``."""
        scores = self._scores(X)
        return self.classes_[scores.argmax(1)]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class ``[n, classes]``, in the order of ``classes_``; X as in ``fit``."""
        return torch.from_numpy(self._scores(X)).softmax(1).numpy()

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The logarithm of :meth:`predict_proba` ``[n, classes]``."""
        return torch.from_numpy(self._scores(X)).log_softmax(1).numpy()

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; X and y as in ``fit``."""
        predicted = self.predict(X)
        return float(accuracy_score(read_labels(y, len(predicted), "y"), predicted, sample_weight=sample_weight))

    def save(self, path: str | Path) -> None:
        """Write the fitted model to the folder ``path`` (JSON and safetensors).

        A language model that was given as ``pretrained`` is not written: what was made of it is part of this model. A
        loaded model predicts; to be fitted again, it needs its ``pretrained`` anew, or the folder that was named.

        Raises:
            NotFittedError: before ``fit``.
        """
        plain = copy.copy(self)
        if isinstance(self.pretrained, str | os.PathLike):
            plain.pretrained = os.fspath(self.pretrained)
        elif self.pretrained is not None:
            plain.pretrained = NOT_STORED
        if isinstance(self.class_weight, Mapping):
            # JSON would make strings of a dict's keys
            plain.class_weight = list(self.class_weight.items())  # type: ignore[assignment]
        super(TitansDNAClassifier, plain).save(path)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments, without those of ``pretrained``: they would be of a model that is fitted already."""
        params: dict[str, Any] = super().get_params(deep=False)  # nothing else has any of its own
        return params

    def set_params(self, **params: Any) -> Self:
        """Change arguments.

        Raises:
            ValueError: an unknown one, or one of ``pretrained``.
        """
        nested = [name for name in params if name.startswith("pretrained__")]
        if nested:
            raise ValueError(
                f"Invalid parameter {nested[0]!r} for estimator {type(self).__name__}: its language model is fitted, "
                "and would not change by it. Fit one with that setting, and give it as pretrained; in a grid give the "
                "folders of several."
            )
        super().set_params(**params)
        return self

    def __sklearn_clone__(self) -> Self:
        """A clone keeps its language model, fitted as it is; sklearn would make a fresh one of it."""
        bare = copy.copy(self)
        bare.pretrained = None
        fresh: Self = super(TitansDNAClassifier, bare).__sklearn_clone__()
        fresh.pretrained = self.pretrained
        return fresh

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False, True
        # what makes a sequence is the tokenizer's to say
        tags.no_validation = True
        tags.non_deterministic = self.random_state is None
        return tags

    def _cut(
        self, weighty: NDArray[np.int64], labels: NDArray[np.int64], groups: NDArray[np.int64] | None, seed: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows to train on, and rows to stop by."""
        together = None if groups is None else groups[weighty]
        rows, cut, why = validation_cut(labels[weighty], together, self.validation_fraction, seed)
        if self.validation_fraction and not len(cut):
            warn_caller(
                f"validation_fraction={self.validation_fraction} of {len(weighty)} sequences {why}: nothing stops the "
                "training early. Give validation=, more sequences or a larger fraction."
            )
        return weighty[rows], weighty[cut]

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """Logits ``[n, classes]``."""
        check_is_fitted(self, "network_")
        return self._logits(reads_of(X))

    def _logits(self, reads: Reads) -> NDArray[np.float64]:
        """Logits ``[n, classes]`` of encoded sequences."""
        network, device = self._placed()
        scores = np.empty((len(reads), len(self.classes_)))
        # alike in length, so that little is padding
        order = np.argsort(-reads.lengths, kind="stable")
        with torch.inference_mode():
            while len(order):
                size = int(max(1, min(_ROWS, _BASES // reads.lengths[order[0]])))
                rows, order = order[:size], order[size:]
                scores[rows] = network(reads.batch(rows).to(device)).double().cpu().numpy()
        return scores

    def _placed(self) -> tuple[SequenceNetwork, torch.device]:
        """The network, on the device it predicts on; ``network_`` itself stays on the CPU."""
        device = torch_device(self.device)
        return (self.network_ if device.type == "cpu" else copy.deepcopy(self.network_).to(device)), device

    def _network(self, language: TitansLM | None, classes: int, steps: int) -> SequenceNetwork:
        encoder: nn.Module
        if language is None:
            encoder = Encoder(self._config())
        else:
            encoder = LanguageEncoder(language, self.finetune, steps, self.positions)
        return NETWORKS[self.reverse_complement](encoder, classes, self.dropout, self.kmers)

    def _config(self) -> EncoderConfig:
        return EncoderConfig(
            dim=int(self.dim),  # a grid holds numpy's
            num_layers=int(self.num_layers),
            kernel_size=int(self.kernel_size),
            pool=int(self.pool),
            dropout=self.dropout,
            memory_depth=1,
            positions=self.positions,
        )

    def _learning_rate(self) -> float:
        if self.learning_rate is not None:
            return self.learning_rate
        return _FROM_SCRATCH if self.pretrained is None or self.finetune == "frozen" else _FINE_TUNING

    def _options(self, max_epochs: int, seed: int, checkpoint_dir: str | Path | None) -> TrainingOptions:
        return TrainingOptions(
            learning_rate=self._learning_rate(),
            weight_decay=_WEIGHT_DECAY,
            max_epochs=max_epochs,
            patience=max(3, max_epochs // 2),
            seed=seed,
            device=self.device,
            precision=self.precision,
            progress=self.verbose > 0,
            checkpoint_dir=checkpoint_dir,
        )

    def _identity(self, data: str, encoder: nn.Module) -> dict[str, Any]:
        """By which a fit knows a checkpoint as its own; ``data`` is a fingerprint."""
        return {
            "data": data,
            "pretrained": None if isinstance(encoder, Encoder) else digest_of(encoder),
            **{name: getattr(self, name) for name in self._get_param_names() if name not in _NOT_COMPARED},
        }

    def _settle(
        self, network: SequenceNetwork, classes: NDArray[Any], weights: NDArray[np.float64], history: History
    ) -> None:
        self.network_ = network.requires_grad_(True)
        self.classes_, self.class_weight_, self.history_ = classes, weights, history

    def _check_stopping(self, validation: Any, groups: Any, checkpoint_dir: str | Path | None) -> None:
        if validation is not None and not (isinstance(validation, tuple | list) and len(validation) == 2):
            raise TypeError(
                f"validation must be a pair (X, y), got {validation!r:.40}; for a part of X set validation_fraction."
            )
        if validation is not None and groups is not None:
            raise ValueError("groups say how a part is cut off to stop by, and validation is such a part: give one.")
        if checkpoint_dir is not None and self.random_state is None and validation is None:
            raise ValueError(
                "checkpoint_dir needs an integer random_state: by it is drawn which sequences are cut off to stop by, "
                "and a run that goes on must leave out the same. Or give validation=."
            )

    def _check_params(self) -> None:
        for name, choices in (("reverse_complement", tuple(NETWORKS)), ("finetune", FINETUNE)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {choices}, got {getattr(self, name)!r}.")
        self._check_counts("dim", "num_layers", "kernel_size", "pool", "batch_size", or_none=("max_epochs",))
        at_least("kmers", self.kmers, 0)
        if self.kmers > LONGEST:
            raise ValueError(
                f"kmers must be at most {LONGEST}, got {self.kmers}: there are 4 ** kmers of them to learn."
            )
        if self.dim % 16:
            raise ValueError(f"dim must be a multiple of 16, the width of a head, got {self.dim}.")
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, so that a filter has a middle, got {self.kernel_size}.")
        for name in ("dropout", "validation_fraction"):
            below_one(name, getattr(self, name))
        if self.learning_rate is not None:
            positive("learning_rate", self.learning_rate)

    def _pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        check_is_fitted(self, "network_")
        network = self.network_
        encoder = network.encoder
        strand = next(name for name, kind in NETWORKS.items() if type(network) is kind)
        learned = {
            "classes": self.classes_.tolist(),
            "dtype": self.classes_.dtype.str,
            "class_weight": self.class_weight_.tolist(),
            "strand": strand,
            "dropout": network.dropout.p,
            "kmers": 0 if network.kmers is None else network.kmers.longest,
            "history": {"epochs": self.history_.epochs, "best_epoch": self.history_.best_epoch},
            "seconds": self.seconds_,
            "encoder": asdict(encoder.config) if isinstance(encoder, Encoder) else None,
            "language": encoder.about if isinstance(encoder, LanguageEncoder) else None,
            "positions": isinstance(encoder, LanguageEncoder) and encoder.places is not None,
        }
        return learned, dict(network.state_dict())

    def _unpack(self, learned: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        encoder: nn.Module
        classes = np.array(learned["classes"], dtype=np.dtype(learned["dtype"]))
        if isinstance(self.class_weight, list):
            self.class_weight = dict(self.class_weight)
        if learned["encoder"] is not None:
            encoder = Encoder(EncoderConfig(**learned["encoder"]))
        else:
            # a model of before there was this choice has none
            encoder = LanguageEncoder.of(learned["language"], learned.get("positions", False))
        network = NETWORKS[learned["strand"]](encoder, len(classes), learned["dropout"], learned["kmers"])
        network.load_state_dict(tensors)
        self._settle(network.eval(), classes, np.array(learned["class_weight"]), History(**learned["history"]))
        self.seconds_ = learned["seconds"]


def weighted_error(network: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, int]:
    """Mean of weight times cross-entropy, and the number of sequences."""
    ids, labels, weights = batch
    assert isinstance(network, SequenceNetwork)
    if network.training and isinstance(network.encoder, LanguageEncoder):
        network.encoder.begin_batch()
    error = F.cross_entropy(in_parts(network, ids).float(), labels, reduction="none")
    return (error * weights).mean(), len(ids)


def _given(validation: tuple[Any, Any], classes: NDArray[Any], by_class: NDArray[np.float64]) -> Examples:
    """Examples to stop training by."""
    reads: Reads = reads_of(validation[0])
    names = read_labels(validation[1], len(reads), "y of validation")
    unknown = sorted(set(names.tolist()) - set(classes.tolist()))
    if unknown:
        raise ValueError(f"validation has classes that y has not: {unknown[:8]}; y has {classes.tolist()}.")
    labels = np.searchsorted(classes, names)
    if not by_class[labels].any():
        raise ValueError(
            "validation has only classes whose class_weight is 0, so that its loss would be 0 in each epoch."
        )
    _warn_of_missing(classes, labels, by_class, "validation has")
    return Examples(reads, labels, by_class[labels], np.arange(len(reads)))


def _warn_of_missing(
    classes: NDArray[Any], labels: NDArray[np.int64], by_class: NDArray[np.float64], what: str
) -> None:
    missing = classes[(np.bincount(labels, minlength=len(classes)) == 0) & (by_class > 0)].tolist()
    if missing:
        warn_caller(
            f"{what} no sequence of the classes {missing[:8]}{', ...' * (len(missing) > 8)}, which so have no "
            "say in when training stops and which epoch stays. Add some of each."
        )
