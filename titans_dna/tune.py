"""Hyperparameter search with Optuna: ``tune(X, y)`` returns a fitted classifier.

    classifier = tune(sequences, labels, n_trials=50, storage="study.db")   # if interrupted, call it again to resume
    plot_history(classifier.study_), plot_importance(classifier.study_)

Several processes, or machines with a shared disk, can work on one study: give all of them the same ``storage``, either
a path ending in ".journal" or the URL of a database server.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from titans_core.train import digest, digest_of, text_of
from titans_core.train.study_plots import plot_history, plot_importance
from titans_core.train.tune import Callback, Storage, best_of, open_study, report_to
from titans_dna.classification.fine_tuning import network_of
from titans_dna.classification.labels import class_weights, read_groups, read_labels, validation_cut
from titans_dna.classification.sequences import reads_of
from titans_dna.classifier import TitansDNAClassifier
from titans_dna.genomes.sources import is_pair

if TYPE_CHECKING:
    import optuna

__all__ = ["default_space", "plot_history", "plot_importance", "tune"]

Space = Callable[["optuna.Trial", Mapping[str, Any]], dict[str, Any]]

# arguments that may differ between calls of one study; a language model is compared by its weights
_NOT_FIXED = ("pretrained", "verbose", "device", "random_state")


def tune(
    X: Any,
    y: Any,
    classifier: TitansDNAClassifier | None = None,
    *,
    n_trials: int = 30,
    timeout: float | None = None,
    space: Space | None = None,
    groups: Any = None,
    validation: tuple[Any, Any] | None = None,
    storage: Storage = None,
    study_name: str = "titans_dna",
    random_state: int | None = None,
    verbose: int = 1,
    sampler: "optuna.samplers.BaseSampler | None" = None,
    callbacks: Sequence[Callback] = (),
) -> TitansDNAClassifier:
    """Search for the settings with the lowest validation loss, and fit a classifier with them.

    All trials train and validate on the same sequences. Validation sequences are ``validation``, or are set aside
    according to the classifier's ``validation_fraction``.

    Args:
        X: sequences, as in :meth:`~titans_dna.TitansDNAClassifier.fit`.
        y: class labels, as in ``fit``.
        classifier: provides the settings that are not searched, including ``pretrained``; it is not modified.
        n_trials: total number of finished trials in the study, over all processes.
        timeout: number of seconds after which no new trial starts.
        space: function ``(trial, facts) -> settings``. Default: :func:`default_space`. ``facts`` has the keys ``rows``
            (number of sequences), ``length`` (of the shortest sequence) and ``pretrained`` (True or False).
        groups: groups of the sequences, as in ``fit``; whole groups are set aside for validation.
        validation: ``(X, y)`` for validation.
        storage: None, a path to an SQLite file, a path ending in ".journal", a URL, or a storage of Optuna. An existing
            study is continued; its later trials are others than those of a study that was never stopped.
        study_name: name of the study in the storage.
        random_state: random seed of the search and of each trial. With None, the search is random, but each trial has
            seed 0, so that all trials use the same validation sequences. Without ``validation``, all calls of a study
            need the same; give None to processes that share one.
        verbose: 0 is silent, 1 shows a progress bar over trials, 2 also one for each training.
        sampler: Optuna sampler, with its own seed. Default: TPE, seeded with ``random_state``.
        callbacks: Optuna callbacks; each is called with the study and the trial after every trial.

    Returns:
        A classifier fitted with the settings of the best trial. Its attribute ``study_`` is the study.

    Raises:
        TypeError: ``classifier`` is not a :class:`~titans_dna.TitansDNAClassifier`.
        ValueError: sequences or labels are invalid; there are no validation sequences; no trial finished; or the study
            in the storage was made with other data or settings.
    """
    if not isinstance(classifier, TitansDNAClassifier | None):
        raise TypeError(f"classifier must be a TitansDNAClassifier, got {type(classifier).__name__}.")
    base = TitansDNAClassifier() if classifier is None else clone(classifier)
    shown = base.verbose
    base.set_params(verbose=max(0, verbose - 1), random_state=0 if random_state is None else random_state)
    if validation is None and not base.validation_fraction > 0:
        raise ValueError("trials need validation sequences: give validation, or set validation_fraction above 0.")
    base._check_stopping(validation, groups, checkpoint_dir=None)
    X = _as_list(X)
    validation = None if validation is None else (_as_list(validation[0]), validation[1])
    parts = [(X, y)] if validation is None else [(X, y), validation]
    reads = [reads_of(sequences) for sequences, _ in parts]
    labels = [read_labels(named, len(read), "y") for (_, named), read in zip(parts, reads, strict=True)]
    together = None if groups is None else read_groups(groups, len(reads[0]))
    classes, found = np.unique(labels[0], return_inverse=True)
    class_weights(base.class_weight, classes, found, np.ones(len(found)))  # raises: before a study is opened
    if validation is None:
        _, cut, why = validation_cut(found, together, base.validation_fraction, 0)
        if not len(cut):
            raise ValueError(
                f"there are no validation sequences: validation_fraction={base.validation_fraction} of {len(found)} "
                f"sequences {why}. Give validation=, more sequences or a larger fraction."
            )
    facts = {
        "rows": len(reads[0]),
        "length": int(reads[0].lengths.min()),
        "pretrained": base.pretrained is not None,
    }
    arrays = [a for read, names in zip(reads, labels, strict=True) for a in (read.ids, read.ends, names.astype(str))]
    if together is not None:
        arrays.append(together)
    identity = _identity(base, digest(*arrays))
    if validation is None:  # the seed chooses the validation sequences
        identity["random_state"] = str(base.random_state)
    searched = space or default_space
    default = None if space else lambda trial: default_space(trial, facts)
    study = open_study(storage, study_name, identity, random_state, sampler, default)

    def judge(model: TitansDNAClassifier, trial: "optuna.Trial") -> float:
        model.fit(X, y, groups=groups, validation=validation, on_epoch=report_to(trial))
        return model.history_.epochs[model.history_.best_epoch]["val_loss"]

    best = best_of(
        base,
        study,
        lambda trial: searched(trial, facts),
        judge,
        lambda model: model.fit(X, y, groups=groups, validation=validation),
        n_trials=n_trials,
        timeout=timeout,
        progress=verbose > 0,
        callbacks=callbacks,
    )
    return best.set_params(verbose=shown)


def default_space(trial: "optuna.Trial", facts: Mapping[str, Any]) -> dict[str, Any]:
    """Suggest the settings that matter most: size and inputs of a new network, or how ``pretrained`` is fine-tuned."""
    settings = {"dropout": trial.suggest_float("dropout", 0.0, 0.5, step=0.1)}
    if facts["pretrained"]:
        return settings | {
            "finetune": trial.suggest_categorical("finetune", ["full", "gradual", "frozen"]),
            "learning_rate": trial.suggest_float("learning_rate", 1e-4, 3e-3, log=True),
        }
    pools = [p for p in (1, 2, 4, 8) if p == 1 or 4 * p <= facts["length"]]
    return settings | {
        "dim": trial.suggest_categorical("dim", [32, 64, 96]),
        "num_layers": trial.suggest_int("num_layers", 1, 3),
        "kernel_size": trial.suggest_categorical("kernel_size", [7, 11, 15, 19]),
        "pool": trial.suggest_categorical("pool", pools),
        "positions": trial.suggest_categorical("positions", [True, False]),
        "kmers": trial.suggest_categorical("kmers", [0, 4, 6]),
        "learning_rate": trial.suggest_float("learning_rate", 5e-4, 6e-3, log=True),
    }


def _identity(base: TitansDNAClassifier, data: str) -> dict[str, str]:
    """What identifies a study: the fingerprint ``data`` and the fixed settings."""
    return {
        "data": data,
        "pretrained": "None" if base.pretrained is None else digest_of(network_of(base.pretrained)),
        **{k: text_of(v) for k, v in base.get_params(deep=False).items() if k not in _NOT_FIXED},
    }


def _as_list(sequences: Any) -> Any:
    """Turn an iterator, also of intervals with their FASTA file, which can be read only once, into a list."""
    if is_pair(sequences):
        return _as_list(sequences[0]), sequences[1]
    return list(sequences) if isinstance(sequences, Iterator) else sequences
