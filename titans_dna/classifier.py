"""``TitansDNAClassifier``: classification of DNA sequences."""

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
from sklearn.utils.multiclass import unique_labels
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
    digest_of,
    train_network,
)
from titans_core.train.batches import loader
from titans_core.train.fit import torch_device
from titans_core.warn import warn_caller
from titans_dna.classification.fine_tuning import FINETUNE, NOT_STORED, LanguageEncoder, network_of
from titans_dna.classification.labels import class_weights, read_groups, read_labels, sample_weights, validation_cut
from titans_dna.classification.sequences import Examples, Reads, reads_of
from titans_dna.network.encoder import Encoder, EncoderConfig
from titans_dna.network.kmers import LONGEST
from titans_dna.network.parts import in_parts
from titans_dna.network.strands import NETWORKS, SequenceNetwork

# default: as many epochs as make this number of batches, within these bounds
_TRAINING, _LEAST, _MOST = 1600, 20, 100
_FROM_SCRATCH, _FINE_TUNING = 2e-3, 5e-4
_WEIGHT_DECAY = 0.05
# maximum sequences and bases per batch in ``predict``
_ROWS, _BASES = 256, 1 << 17
# arguments that may differ between an interrupted fit and its continuation, or that are compared elsewhere
_NOT_COMPARED = ("pretrained", "device", "verbose", "max_epochs", "learning_rate", "precision")


class TitansDNAClassifier(ClassifierMixin, TitansEstimator):
    """Classifier of DNA sequences based on the Titans neural memory.

    Convolutions detect short motifs, and memory blocks (LMM) combine them. The mean and the maximum over the sequence
    feed a linear head. With ``pretrained``, a language model replaces the convolutions and the memory blocks. A linear
    model of k-mer counts is added to the scores. Sequences may differ in length.

    Args:
        pretrained: a fitted :class:`DNALanguageModel`, or the folder in which it was saved. None trains from scratch.
            With a pretrained model, ``dim``, ``num_layers``, ``kernel_size`` and ``pool`` are ignored.
        finetune: which weights of ``pretrained`` are trained: "full" (all), "frozen" (none) or "gradual" (block by
            block, starting with the last).
        reverse_complement: how strands are treated. "average" trains on a random strand of each sequence and averages
            the scores of both strands in prediction. "augment" trains in the same way and predicts from the given
            strand. "equivariant" combines both strands inside the network, which takes twice as long. "none" uses only
            the given strand; choose it if the strand matters.
        class_weight: None, "balanced", or a mapping from class to weight.
        dim: width of the network; a multiple of 16.
        num_layers: number of memory blocks. The memories are linear; memories of two layers took twice as long and
            scored no better.
        kernel_size: width of the first convolution in bases; odd.
        pool: number of bases pooled into one position of the memory.
        positions: whether the network sees the distance of each base from both ends of the sequence. This helps if
            sequences are aligned to a site, such as promoters to a transcription start. Ignored if ``pretrained`` is
            frozen.
        kmers: add scores from counts of k-mers up to this k (0 to 8); 0 turns them off. They help with few sequences,
            or if the order of motifs does not matter. A k-mer and its reverse complement are counted as one, except
            with ``reverse_complement="none"``.
        dropout: dropout rate after the convolutions and before the head. If above 0, half of the k-mers are also
            dropped in training.
        learning_rate: maximum learning rate of AdamW, with a one-cycle schedule. None means 5e-4 if weights of
            ``pretrained`` are trained, else 2e-3.
        batch_size: number of sequences per training step. If lengths differ, a batch has sequences of similar length.
            Batches of long sequences are read in parts, to limit memory, without changing the step.
        max_epochs: maximum number of passes over the training data. None means about 1,600 batches, within 20 to 100
            epochs. Training stops early if the validation loss does not improve for half of the epochs (at least 3).
        validation_fraction: fraction of each class that is set aside for early stopping; a warning names classes of
            which it rounds to 0. 0 trains on all data for ``max_epochs``.
        device: "auto", "cpu", "cuda", "cuda:1" or "mps".
        precision: training precision: "auto", or a precision accepted by Lightning's Trainer.
        random_state: random seed. The same integer gives the same model.
        verbose: 0 is silent, 1 shows progress bars.

    Attributes:
        classes_: class labels, sorted.
        network_: the trained :class:`~titans_dna.network.strands.SequenceNetwork`, on the CPU.
        history_: losses per epoch (:class:`~titans_core.train.History`).
        class_weight_: weight of each class, in the order of ``classes_``.
        seconds_: duration of ``fit``, in seconds.

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
        """Train the classifier.

        Args:
            X: a list, array or Series of strings; a FASTA file or a Genome, where each record is one example; or a pair
                of intervals and the FASTA file they refer to, such as ``("peaks.bed", "genome.fa")``.
            y: class labels, strings or integers, in the order of the sequences, FASTA records or BED lines.
            sample_weight: a weight for each sequence, multiplied by the weight of its class. Sequences of weight 0 are
                left out.
            groups: group of each sequence, such as its gene or chromosome, or ``kmer_groups(X)``. Whole groups are set
                aside for early stopping, so that similar sequences are not in both training and validation data.
            validation: ``(X, y)`` to use for early stopping instead of a part of the training data. A warning names
                classes that are missing in it.
            checkpoint_dir: folder in which to save a checkpoint after each epoch. If it holds a checkpoint of the same
                fit (same data and settings), training resumes from it; a checkpoint of another fit raises an error. If
                None, an interrupted fit keeps nothing.
            on_epoch: function called after each epoch with its number and validation loss; needs validation data. An
                exception that it raises ends the training.

        Raises:
            TypeError, ValueError: an argument, a sequence or a label is invalid; the message says which one.
        """
        begin = time.perf_counter()
        self._check_params()
        self._check_stopping(validation, groups, checkpoint_dir)
        reads = reads_of(X)
        names = read_labels(y, len(reads), "y")
        together = None if groups is None else read_groups(groups, len(reads))
        classes, labels = np.unique(names, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y has only one class, {classes.tolist()[0]!r}; a classifier needs at least two classes.")
        weights = sample_weights(sample_weight, len(reads))
        by_class = class_weights(self.class_weight, classes, labels, weights)
        weights *= by_class[labels]
        # a validation part of sequences with weight 0 would have a loss of 0 in every epoch
        weighty = np.flatnonzero(weights)
        if not len(weighty):
            raise ValueError("class_weight and sample_weight give every sequence a weight of 0. Raise some of them.")
        # the optimiser would learn another model from other units of the weights
        unit = weights[weighty].mean()
        weights /= unit
        seed = self._seed()
        if validation is None:
            rows, cut = self._cut(weighty, labels, together, seed)
            if len(cut):
                aside = "sequences" if groups is None else "groups"
                _warn_of_missing(classes, labels[cut], by_class, f"The {aside} set aside for validation contain")
            val = Examples(reads, labels, weights, cut)
        else:
            rows, val = weighty, _given(validation, classes, by_class, unit)
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
        self._set_fitted(network, classes, by_class, history)
        self.seconds_: float | None = time.perf_counter() - begin
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the most probable class of each sequence, shape ``[n]``; X as in ``fit``."""
        scores = self._scores(X)
        return self.classes_[scores.argmax(1)]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict class probabilities, shape ``[n, classes]``, in the order of ``classes_``; X as in ``fit``."""
        return torch.from_numpy(self._scores(X)).softmax(1).numpy()

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict the logarithms of class probabilities, shape ``[n, classes]``; X as in ``fit``."""
        return torch.from_numpy(self._scores(X)).log_softmax(1).numpy()

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of ``predict(X)``; X and y as in ``fit``."""
        predicted = self.predict(X)
        truth = read_labels(y, len(predicted), "y")
        unique_labels(truth, self.classes_)  # raises for texts and numbers, which before scikit-learn 1.9 merely differ
        return float(accuracy_score(truth, predicted, sample_weight=sample_weight))

    def save(self, path: str | Path) -> None:
        """Save the fitted model to the folder ``path`` (JSON and safetensors).

        A language model object given as ``pretrained`` is not saved; its fine-tuned weights are part of this model. A
        loaded classifier can predict. To fit it again, set ``pretrained`` again, unless it was given as a path.

        Raises:
            NotFittedError: the model is not fitted.
        """
        plain = copy.copy(self)
        if isinstance(self.pretrained, str | os.PathLike):
            plain.pretrained = os.fspath(self.pretrained)
        elif self.pretrained is not None:
            plain.pretrained = NOT_STORED
        if isinstance(self.class_weight, Mapping):
            # JSON would turn the keys of a dict into strings, and has no fractions or decimals
            plain.class_weight = [(c, float(w)) for c, w in self.class_weight.items()]  # type: ignore[assignment]
        super(TitansDNAClassifier, plain).save(path)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, without those of ``pretrained``, which is already fitted."""
        params: dict[str, Any] = super().get_params(deep=False)  # only ``pretrained`` has nested parameters
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters.

        Raises:
            ValueError: a parameter is unknown, or is a parameter of ``pretrained``.
        """
        nested = [name for name in params if name.startswith("pretrained__")]
        if nested:
            raise ValueError(
                f"Invalid parameter {nested[0]!r} for estimator {type(self).__name__}: pretrained is fitted already, "
                "so changing its parameters has no effect. Fit a language model with this setting and pass it as "
                "pretrained; to search over several, save them and pass their folders."
            )
        super().set_params(**params)
        return self

    def __sklearn_clone__(self) -> Self:
        """Clone without cloning ``pretrained``: sklearn's clone would return an unfitted language model."""
        bare = copy.copy(self)
        bare.pretrained = None
        fresh: Self = super(TitansDNAClassifier, bare).__sklearn_clone__()
        fresh.pretrained = self.pretrained
        return fresh

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False, True
        # the tokenizer validates sequences
        tags.no_validation = True
        tags.non_deterministic = self.random_state is None
        return tags

    def _cut(
        self, weighty: NDArray[np.int64], labels: NDArray[np.int64], groups: NDArray[np.int64] | None, seed: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows for training and rows for early stopping."""
        together = None if groups is None else groups[weighty]
        rows, cut, why = validation_cut(labels[weighty], together, self.validation_fraction, seed)
        if self.validation_fraction and not len(cut):
            warn_caller(
                f"validation_fraction={self.validation_fraction} of {len(weighty)} sequences {why}, so training cannot "
                "stop early. Give validation=, more sequences or a larger fraction."
            )
        return weighty[rows], weighty[cut]

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """Logits ``[n, classes]``."""
        check_is_fitted(self, "network_")
        return self._logits(reads_of(X))

    def _logits(self, reads: Reads) -> NDArray[np.float64]:
        """Logits ``[n, classes]`` of encoded sequences."""
        network, device = self._network_on_device()
        scores = np.empty((len(reads), len(self.classes_)))
        # similar lengths together, to limit padding
        order = np.argsort(-reads.lengths, kind="stable")
        with torch.inference_mode():
            while len(order):
                size = int(max(1, min(_ROWS, _BASES // reads.lengths[order[0]])))
                rows, order = order[:size], order[size:]
                scores[rows] = network(reads.batch(rows).to(device)).cpu().double().numpy()
        return scores

    def _network_on_device(self) -> tuple[SequenceNetwork, torch.device]:
        """The network on the device for prediction; ``network_`` itself stays on the CPU."""
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
            dim=int(self.dim),  # values from a parameter grid may be numpy integers
            num_layers=int(self.num_layers),
            chunk_size=8,
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
            progress=bool(self.verbose),
            checkpoint_dir=checkpoint_dir,
        )

    def _identity(self, data: str, encoder: nn.Module) -> dict[str, Any]:
        """What identifies a fit, to recognise its checkpoints; ``data`` is a fingerprint."""
        return {
            "data": data,
            "pretrained": None if isinstance(encoder, Encoder) else digest_of(encoder),
            **{name: getattr(self, name) for name in self._get_param_names() if name not in _NOT_COMPARED},
        }

    def _set_fitted(
        self, network: SequenceNetwork, classes: NDArray[Any], weights: NDArray[np.float64], history: History
    ) -> None:
        self.network_ = network.requires_grad_(True)
        self.classes_, self.class_weight_, self.history_ = classes, weights, history

    def _check_stopping(self, validation: Any, groups: Any, checkpoint_dir: str | Path | None) -> None:
        if validation is not None and not (isinstance(validation, tuple | list) and len(validation) == 2):
            raise TypeError(
                f"validation must be a pair (X, y), got {validation!r:.40}. To use part of X, set validation_fraction."
            )
        if validation is not None and groups is not None:
            raise ValueError(
                "groups and validation cannot be combined: groups only apply when validation data is split from X. "
                "Give one of them."
            )
        if checkpoint_dir is not None and self.random_state is None and validation is None:
            raise ValueError(
                "checkpoint_dir needs an integer random_state, so that a resumed run splits off the same validation "
                "sequences. Set random_state, or give validation=."
            )

    def _check_params(self) -> None:
        for name, choices in (("reverse_complement", tuple(NETWORKS)), ("finetune", FINETUNE)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {choices}, got {getattr(self, name)!r}.")
        self._check_counts("dim", "num_layers", "kernel_size", "pool", "batch_size", or_none=("max_epochs",))
        at_least("kmers", self.kmers, 0)
        if self.kmers > LONGEST:
            raise ValueError(
                f"kmers must be at most {LONGEST}, got {self.kmers}: the number of weights grows as 4 ** kmers."
            )
        if self.dim % 16:
            raise ValueError(f"dim must be a multiple of 16, the width of a memory head, got {self.dim}.")
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, got {self.kernel_size}.")
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
            encoder = LanguageEncoder.of(learned["language"], learned["positions"])
        network = NETWORKS[learned["strand"]](encoder, len(classes), learned["dropout"], learned["kmers"])
        network.load_state_dict(tensors)
        self._set_fitted(network.eval(), classes, np.array(learned["class_weight"]), History(**learned["history"]))
        self.seconds_ = learned["seconds"]


def weighted_error(network: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, int]:
    """Mean of the weighted cross-entropy, and the number of sequences."""
    ids, labels, weights = batch
    assert isinstance(network, SequenceNetwork)
    if network.training and isinstance(network.encoder, LanguageEncoder):
        network.encoder.begin_batch()
    error = F.cross_entropy(in_parts(network, ids).float(), labels, reduction="none")
    return (error * weights).mean(), len(ids)


def _given(validation: tuple[Any, Any], classes: NDArray[Any], by_class: NDArray[np.float64], unit: float) -> Examples:
    """Validation examples from the ``validation`` argument of ``fit``, with class weights in units of ``unit``."""
    reads: Reads = reads_of(validation[0])
    names = read_labels(validation[1], len(reads), "y of validation")
    unknown = sorted(set(names.tolist()) - set(classes.tolist()))
    if unknown:
        raise ValueError(f"validation has classes that are not in y: {unknown[:8]}. y has {classes.tolist()}.")
    labels = np.searchsorted(classes, names)
    if not by_class[labels].any():
        raise ValueError(
            "validation has only classes whose class_weight is 0, so its loss would always be 0. Add other classes."
        )
    _warn_of_missing(classes, labels, by_class, "validation contains")
    return Examples(reads, labels, by_class[labels] / unit, np.arange(len(reads)))


def _warn_of_missing(
    classes: NDArray[Any], labels: NDArray[np.int64], by_class: NDArray[np.float64], what: str
) -> None:
    missing = classes[(np.bincount(labels, minlength=len(classes)) == 0) & (by_class > 0)].tolist()
    if missing:
        warn_caller(
            f"{what} no sequence of the classes {missing[:8]}{', ...' * (len(missing) > 8)}, so these classes do not "
            "affect early stopping or the choice of the best epoch. Add sequences of each class."
        )
