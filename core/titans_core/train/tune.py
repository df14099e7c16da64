"""Optuna studies shared by the estimators: open, resume, prune, and share between processes."""

import json
import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sklearn.base import clone

try:
    import optuna
except ImportError as error:
    raise ImportError("tuning needs optuna: pip install 'titans-suite[tune]'") from error

from sqlalchemy.engine.url import URL
from sqlalchemy.exc import SQLAlchemyError  # raised by optuna's databases

from titans_core.checks import at_least
from titans_core.train.fingerprint import differing
from titans_core.train.processes import started
from titans_core.warn import warn_caller

Estimator = TypeVar("Estimator", bound=Any)

Callback = Callable[[optuna.Study, optuna.trial.FrozenTrial], None]

UNFIT = 3  # a search ends at this many failed trials if none has succeeded

OPENINGS = 50  # attempts to open a database that other processes are creating

# messages of databases whose tables another process has just created
_JUST_CREATED = re.compile("already exists|duplicate|unique", re.IGNORECASE)

_OTHER_SPACE = "Give another study_name or storage, or the earlier space (space=)."

# Optuna's message if a trial asks for a distribution that contradicts earlier trials
_CLASH = re.compile("does not support dynamic value space|different distribution kind")

Storage = str | Path | optuna.storages.BaseStorage | None

FINISHED = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)


def open_study(
    storage: Storage,
    name: str,
    identity: Mapping[str, str],
    random_state: int | None,
    sampler: optuna.samplers.BaseSampler | None = None,
    space: Callable[[optuna.Trial], Any] | None = None,
) -> optuna.Study:
    """Create a study, or open the one of this name in the storage.

    Args:
        storage: None keeps the study in memory. A path that ends in ".journal" is an append-only file, safe for several
            processes, also on a network drive. Any other path is an SQLite file. A URL or a storage of Optuna is passed
            to Optuna.
        name: name of the study.
        identity: named values that must match for a study to be continued, such as the data's ``digest``.
        random_state: seed of the sampler, offset by the number of existing trials. Processes that share a study need
            different seeds, or None.
        sampler: Optuna sampler that proposes settings. None: TPE. A given sampler keeps its own seed, but is reseeded
            at random if the study already has trials.
        space: function that asks a trial for settings, called once with a trial outside the study to check that
            existing trials are compatible. None: no check.

    Raises:
        ValueError: if the study belongs to other data or settings, has an incompatible space or does not minimize one
            value; if the storage is something else or cannot be opened; or if processes of ``torchrun`` would try
            different settings.
    """
    if random_state is not None:
        at_least("random_state", random_state, 0)
    if started() > 1 and (storage is not None or random_state is sampler is None):
        raise ValueError(
            f"{started()} processes of torchrun train each trial together and must draw the same settings. Search "
            "with random_state, an integer, and without storage; or start processes that share a storage without "
            "torchrun."
        )
    with _quiet(), _opened(storage):
        study = _found_or_created(storage, name)
        trials = len(study.get_trials(deepcopy=False))
    if sampler is None:  # the same seed would repeat the first trials
        sampler = optuna.samplers.TPESampler(seed=None if random_state is None else random_state + trials)
    elif trials:
        sampler.reseed_rng()
    study.sampler = sampler
    if study.directions != [optuna.study.StudyDirection.MINIMIZE]:  # of a study that was created elsewhere
        ways = ", ".join(way.name.lower() for way in study.directions)
        raise ValueError(
            f"the study {name!r} in {storage} was created to {ways}, but a search minimizes one validation error. "
            "Give another study_name or storage."
        )
    there = study.user_attrs.get("identity")
    if there is None:
        study.set_user_attr("identity", dict(identity))
    elif differ := differing(there, identity):
        raise ValueError(
            f"the study {name!r} in {storage} belongs to another search (different: {', '.join(differ)}). "
            "Give another study_name or storage."
        )
    if space is not None:
        _check_space(study, storage, space)
    return study


def _found_or_created(storage: Storage, name: str) -> optuna.Study:
    """The study of this name. Where several processes start on a new database, one may create a table that another has
    just found missing; the other then tries again."""
    left = OPENINGS
    while True:
        try:
            return optuna.create_study(
                study_name=name,
                storage=_storage(storage),
                load_if_exists=True,
                direction="minimize",
                pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1),
            )
        except SQLAlchemyError as error:
            left -= 1
            if not left or not _JUST_CREATED.search(str(error)):
                raise
            time.sleep(0.1)


def _check_space(study: optuna.Study, storage: Storage, space: Callable[[optuna.Trial], Any]) -> None:
    """Raise a ValueError if Optuna cannot continue with the distributions of existing trials."""
    with _quiet():
        trial = optuna.create_study().ask()
    space(trial)
    for there in study.get_trials(deepcopy=False):
        for name, then in there.distributions.items():
            now = trial.distributions.get(name, then)
            try:
                optuna.distributions.check_distribution_compatibility(then, now)
            except ValueError as error:
                raise ValueError(
                    f"the study {study.study_name!r} in {storage} has trials with another space: its {name!r} was "
                    f"{_described(then)}, now it is {_described(now)}. {_OTHER_SPACE}"
                ) from error


def _described(values: Any) -> str:
    return f"one of {values.choices}" if hasattr(values, "choices") else f"from {values.low} to {values.high}"


def run_study(
    study: optuna.Study,
    objective: Callable[[optuna.Trial], float],
    n_trials: int,
    timeout: float | None,
    progress: bool,
    callbacks: Sequence[Callback] = (),
) -> None:
    """Run trials until the study has ``n_trials`` finished trials, over all processes, or for ``timeout`` seconds.

    A trial that diverges counts as a bad result, like a pruned one, and does not end the search. The same holds for a
    trial whose settings do not fit the data, with a warning. But if no trial has succeeded, the third of these ends the
    search.

    Raises:
        ValueError: if ``n_trials`` is not a positive integer; or with ``timeout`` under ``torchrun``.
        KeyboardInterrupt: if the search is interrupted; the message says what is kept.
    """
    from optuna.study import MaxTrialsCallback

    at_least("n_trials", n_trials)
    if started() > 1 and timeout is not None:
        raise ValueError(
            f"{started()} processes of torchrun train each trial together, but timeout could end the search of one "
            "before that of another. Give n_trials without timeout."
        )
    remaining = n_trials - sum(t.state in FINISHED for t in study.get_trials(deepcopy=False))
    if remaining <= 0:
        return
    unfit: list[int] = []
    with _quiet():
        try:
            study.optimize(
                lambda trial: _run_trial(objective, trial, unfit),
                n_trials=remaining,
                timeout=timeout,
                callbacks=[MaxTrialsCallback(n_trials, states=FINISHED), *callbacks],
                show_progress_bar=progress,
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_interrupted(study)) from None


def _interrupted(study: optuna.Study) -> str:
    finished = sum(t.state in FINISHED for t in study.get_trials(deepcopy=False))
    where = f"the search was interrupted after {finished} finished trials"
    if isinstance(study._storage, optuna.storages.InMemoryStorage):
        return f"{where}; nothing is kept. Give storage to be able to continue."
    return f"{where}, which are in the storage; the same call continues with them."


def best_of(
    base: Estimator,
    study: optuna.Study,
    settings_of: Callable[[Any], dict[str, Any]],
    judge: Callable[[Estimator, optuna.Trial], float],
    fit: Callable[[Estimator], Any],
    *,
    n_trials: int,
    timeout: float | None,
    progress: bool,
    callbacks: Sequence[Callback] = (),
) -> Estimator:
    """Run the trials of a study, and fit the best settings.

    Args:
        base: estimator that all trials copy.
        study: study opened by :func:`open_study`.
        settings_of: returns the settings of a trial.
        judge: trains a copy and returns its validation error.
        fit: fits the copy that is returned.
        n_trials, timeout, progress, callbacks: as in :func:`run_study`.

    Returns:
        The fitted copy, with the study as its ``study_``.

    Raises:
        TypeError: if a space does not return a dict of settings.
        ValueError: if trials failed and none succeeded.
        FloatingPointError: if the best settings diverge twice.
    """

    def objective(trial: optuna.Trial) -> float:
        settings = _settings(settings_of, trial)
        if not isinstance(settings, Mapping):
            raise TypeError(f"space must return a dict of settings by name, got {settings!r:.40}.")
        kept = _as_json(settings)
        if kept is not None:
            trial.set_user_attr("settings", kept)
        model = clone(base).set_params(**settings)
        begin = time.perf_counter()
        try:
            error = judge(model, trial)
        except ValueError as unfit:
            raise _Unfit from unfit
        trial.set_user_attr("seconds", round(time.perf_counter() - begin, 1))
        return error

    earlier = len(study.get_trials(deepcopy=False))
    run_study(study, objective, n_trials, timeout, progress, callbacks)
    best = clone(base).set_params(**best_settings(study, settings_of))
    if study.best_trial.number < earlier:
        _warn_of_other_space(study, settings_of)
    try:
        fit(best)
    except FloatingPointError as error:  # another seed may succeed; do not lose the whole search
        warn_caller(f"The best settings diverged and are fitted once more: {error}")
        fit(best)
    best.study_ = study
    return best


class _Unfit(Exception):
    """Settings that do not fit the data; the cause has the reason."""


def _settings(settings_of: Callable[[Any], dict[str, Any]], trial: optuna.Trial) -> dict[str, Any]:
    try:
        return settings_of(trial)
    except ValueError as error:
        if not _CLASH.search(str(error)):
            raise
        raise ValueError(
            f"the study {trial.study.study_name!r} has trials with another space: {error} {_OTHER_SPACE}"
        ) from error


def _run_trial(objective: Callable[[optuna.Trial], float], trial: optuna.Trial, unfit: list[int]) -> float:
    """Run a trial; diverged or unfit settings count as pruned. ``unfit`` collects this call's unfit trials."""
    try:
        return objective(trial)
    except FloatingPointError as error:  # the sampler learns from pruned trials, but not from failed ones
        trial.set_user_attr("diverged", str(error))
        raise optuna.TrialPruned(str(error)) from error
    except _Unfit as error:
        summary = f"trial {trial.number} with {trial.params}: {error.__cause__}"
        trial.set_user_attr("unfit", str(error.__cause__))
        unfit.append(trial.number)
        before = trial.study.get_trials(deepcopy=False)
        any_complete = any(t.state == optuna.trial.TrialState.COMPLETE for t in before)
        if not any_complete and len(unfit) >= UNFIT:
            raise ValueError(f"{len(unfit)} trials failed and none succeeded. The last: {summary}") from error.__cause__
        warn_caller(f"{summary} It counts as a bad choice.")
        raise optuna.TrialPruned(str(error.__cause__)) from error


def report_to(trial: optuna.Trial) -> Callable[[int, float], None]:
    """Return a function that reports each epoch's validation loss, and prunes a trial that is worse than the median."""

    def report(epoch: int, loss: float) -> None:
        trial.report(loss, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned(f"epoch {epoch}: {loss:.4f} is worse than the median of earlier trials.")

    return report


def best_settings(study: optuna.Study, settings_of: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """Return the settings of the best finished trial, also of an earlier space.

    Raises:
        ValueError: if no trial finished, or the best one has an earlier space whose settings cannot be stored as JSON.
    """
    if not study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)):
        raise ValueError(f"no trial finished.{_why_none(study)} Give more trials or time, or another space.")
    best = study.best_trial
    if "settings" in best.user_attrs:
        return dict(best.user_attrs["settings"])
    try:
        return settings_of(optuna.trial.FixedTrial(best.params))
    except ValueError as error:
        raise ValueError(
            f"the best trial, number {best.number}, is from another space, with {best.params}. {_OTHER_SPACE}"
        ) from error


def _warn_of_other_space(study: optuna.Study, settings_of: Callable[[Any], dict[str, Any]]) -> None:
    """Warn if the space could not have proposed the best trial of the study."""
    best = study.best_trial
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            settings = settings_of(optuna.trial.FixedTrial(best.params, number=best.number))
            kept = best.user_attrs.get("settings", settings)
            outside = settings != kept or any("out of the range" in str(each.message) for each in found)
        except ValueError:  # it asks for another parameter, or does not accept these
            outside = True
        except Exception:  # a space that needs more than the parameters of a trial, or remembers its own
            outside = False
    if outside:
        warn_caller(
            f"The best trial, number {best.number}, is from another space than this one: {best.params}. "
            "Give another study_name or storage to use this space alone."
        )


def _why_none(study: optuna.Study) -> str:
    """Explain why no trial of a study finished."""
    ways = {"unfit": "did not fit the data", "diverged": "diverged"}
    trials = study.get_trials(deepcopy=False)
    failed = {way: [t for t in trials if way in t.user_attrs] for way in ways}
    return "".join(
        f" {len(some)} {ways[way]}, the last with {some[-1].params}: {some[-1].user_attrs[way]}"
        for way, some in failed.items()
        if some
    )


def _as_json(settings: dict[str, Any]) -> dict[str, Any] | None:
    """The settings if JSON can store them without loss, else None."""
    try:
        return settings if json.loads(json.dumps(settings)) == settings else None
    except (TypeError, ValueError):
        return None


def _storage(storage: Storage) -> Any:
    if storage is None or isinstance(storage, optuna.storages.BaseStorage) or "://" in str(storage):
        return storage
    path = Path(storage).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".journal":
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        return JournalStorage(JournalFileBackend(str(path)))
    url = URL.create("sqlite", database=str(path)).render_as_string()  # a %20 in a path is no blank
    # without the heartbeat of its process, a killed process's trial is marked as failed
    return optuna.storages.RDBStorage(url, heartbeat_interval=30)


@contextmanager
def _opened(storage: Storage) -> Iterator[None]:
    """Explain why a storage is unusable: another kind of file, a folder, or an unreachable database."""
    try:
        yield
    except (SQLAlchemyError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{storage} cannot hold a study, or holds something else: {reason}. Give another storage."
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's log (one line per trial): the progress bar shows the same, and errors of trials are raised."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", ".*(heartbeat_interval|fail_stale_trials).*", optuna.exceptions.ExperimentalWarning
            )
            yield
    finally:
        optuna.logging.set_verbosity(before)
