"""Hyperparameter search with Optuna: ``tune(df)`` returns a fitted forecaster.

    forecaster = tune(df, h=24, n_trials=50, storage="study.journal")   # the same call resumes an interrupted search
    plot_history(forecaster.study_), plot_importance(forecaster.study_)

Several processes, or machines with a shared disk, can work on one study: give each the same storage, a path that ends
in ".journal" or the URL of a database server. For Ray Tune, see :class:`titans_ts.nixtla.AutoTitans`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sklearn.base import clone

from titans_core.checks import at_least
from titans_core.train import digest, text_of
from titans_core.train.study_plots import plot_history, plot_importance
from titans_core.train.tune import Callback, Storage, best_of, open_study, report_to
from titans_ts.estimator.cut import Cut, needs_all, rows_before, warn_of_skipped
from titans_ts.estimator.training import train
from titans_ts.forecaster import TitansForecaster
from titans_ts.frames.exogenous import CYCLIC
from titans_ts.frames.panel import Panel, beyond

if TYPE_CHECKING:
    import optuna

__all__ = ["default_space", "plot_history", "plot_importance", "tune"]

SHORTEST = 2  # rows of the shortest lookback in the search
ASKED = 16  # attempts to get settings from a space that prunes its trials
Space = Callable[["optuna.Trial", Mapping[str, Any]], dict[str, Any]]


def tune(
    df: Any,
    forecaster: TitansForecaster | None = None,
    *,
    h: int | None = None,
    n_trials: int = 30,
    timeout: float | None = None,
    space: Space | None = None,
    val_size: int | None = None,
    static_df: Any = None,
    storage: Storage = None,
    study_name: str = "titans_ts",
    random_state: int | None = None,
    verbose: int = 1,
    sampler: "optuna.samplers.BaseSampler | None" = None,
    callbacks: Sequence[Callback] = (),
) -> TitansForecaster:
    """Search for the settings with the lowest validation error, and fit a forecaster with them.

    Args:
        df: as in :meth:`~titans_ts.TitansForecaster.fit`.
        forecaster: provides the settings that are not searched; it stays unchanged.
        h: horizon; replaces that of ``forecaster``.
        n_trials: total number of finished trials of the study, over all processes and calls.
        timeout: no trial starts after this many seconds.
        space: search space ``(trial, facts) -> settings``; default :func:`default_space`. It must not set ``h`` or
            ``loss``, which would make validation errors incomparable. ``facts`` has ``rows`` (training rows of the
            shortest series), ``h`` and ``may_add_calendar``. The space is also called before the first trial, to see
            whether it sets ``input_size``. Series that are too short for the lookback of ``forecaster`` are skipped
            with a warning, as in ``fit``; unless these are half of them or more, and the space sets the lookback.
        val_size: rows at the end for the validation error, at least ``h``. Default: as in ``fit`` with the lookback of
            ``forecaster``. If the space sets ``input_size``: with a lookback of 2, which leaves too few rows for
            lookbacks nearly as long as the shortest series.
        static_df: as in ``fit``.
        storage: None, a path to an SQLite file, a path ending in ".journal", a URL, or a storage of Optuna. An existing
            study is continued; its later trials are others than those of a study that was never stopped.
        study_name: name of the study in the storage.
        random_state: seed of the search and of each trial; None: trials use that of ``forecaster``.
        verbose: 0 is silent, 1 shows a progress bar over trials, 2 also one for each training.
        sampler: Optuna sampler, with its own seed; default: TPE with ``random_state``.
        callbacks: Optuna callbacks, called with the study and each finished trial.

    Returns:
        A fitted forecaster with the settings of the best trial; its attribute ``study_`` is the Optuna study.

    Raises:
        TypeError: ``forecaster`` is no TitansForecaster, or ``space`` no function.
        ValueError: a bad frame; no finished trial; or the storage holds a study of this name with other data, other
            fixed settings or an incompatible space (such as the default space of an earlier version).
    """
    if forecaster is not None and not isinstance(forecaster, TitansForecaster):
        raise TypeError(f"tune searches the settings of one TitansForecaster, got {type(forecaster).__name__}.")
    if space is not None and not callable(space):
        raise TypeError(f"space must be a function (trial, facts) -> settings, got {type(space).__name__}.")
    base = TitansForecaster() if forecaster is None else clone(forecaster)
    shown = base.verbose
    base.set_params(verbose=max(0, verbose - 1))
    if random_state is not None:
        base.set_params(random_state=random_state)
    if h is not None:
        base.set_params(h=h)
    whole, _ = base._given(df, static_df)
    if val_size is not None:
        at_least("val_size", val_size, 0)
        if val_size < base.h:
            raise ValueError(f"val_size={val_size} is too small: trials need at least h={base.h} validation rows.")
    judged = _Judged.of_any(whole, base, val_size)
    searched = space or default_space
    if space and not _sets_lookback(space, judged.facts(base)):  # each trial has the lookback of the forecaster
        judged = _Judged.of(whole, base, val_size, base.input_size)
    panel, val_size, facts = judged.panel, judged.val_size, judged.facts(base)
    if young := beyond(whole.ids, panel.ids):
        warn_of_skipped(young, then="The search does not use them; with a smaller input_size it may.")
    fixed = {k: text_of(v) for k, v in base.get_params().items() if k not in ("verbose", "device", "random_state")}
    data = digest(whole.values, whole.hist, whole.futr, whole.stat)
    identity = {"data": data, "time": str(whole.clock()), "val_size": str(val_size), **fixed}
    default = None if space else lambda trial: default_space(trial, facts)
    study = open_study(storage, study_name, identity, random_state, sampler, default)

    def judge(model: TitansForecaster, trial: "optuna.Trial") -> float:
        given, columns = model._given(df, static_df)
        if young and not needs_all(given, model):  # a trial that must not skip series does not fit the data
            given = given.named(panel.ids).rows(None, len(panel.values))
        return train(model, given, columns, val_size, on_epoch=report_to(trial)).val_loss

    best = best_of(
        base,
        study,
        lambda trial: _comparable(searched(trial, facts)),
        judge,
        lambda model: model.fit(df, val_size=val_size, static_df=static_df),
        n_trials=n_trials,
        timeout=timeout,
        progress=verbose > 0,
        callbacks=callbacks,
    )
    return best.set_params(verbose=shown)


class _Judged(NamedTuple):
    """The data of all trials.

    Attributes:
        panel: the series that are long enough to train on, cut at their last value.
        val_size: validation rows at the end.
        rows: training rows of the shortest series.
    """

    panel: Panel
    val_size: int
    rows: int

    @classmethod
    def of_any(cls, whole: Panel, base: TitansForecaster, val_size: int | None) -> "_Judged":
        """For a space that may set the lookback: a minority of series that are too short for that of ``base`` does not
        limit it for the others."""
        all_of_them = cls.of(whole, base, val_size, SHORTEST)
        try:
            most = cls.of(whole, base, all_of_them.val_size, base.input_size)
        except ValueError:  # all are too short
            return all_of_them
        return most if 2 * len(most.panel.ids) > len(all_of_them.panel.ids) else all_of_them

    @classmethod
    def of(cls, whole: Panel, base: TitansForecaster, val_size: int | None, lookback: int) -> "_Judged":
        cut = Cut(lookback, base.h, val_size)
        panel = whole if needs_all(whole, base) else cut.long_enough(whole)
        rows = len(panel.values)
        border = cut.border(rows)
        trained = int(rows_before(panel, border).min())
        if border == rows or trained < cut.least:
            raise ValueError(
                f"df has {rows} rows, the shortest series {rows - int(panel.first_rows.max())}, but a search needs "
                f"{max(base.h, rows - border)} for validation, and a lookback of {lookback} plus h={base.h} before "
                f"them. Give more rows, or lower {'h' if lookback == SHORTEST else 'input_size or h'}."
            )
        return cls(panel, rows - border, trained)

    def facts(self, base: TitansForecaster) -> dict[str, Any]:
        """The ``facts`` for a search space."""
        may = not isinstance(self.panel.freq, int) and base.exogenous is None
        return {"rows": self.rows, "h": base.h, "may_add_calendar": may}


def _sets_lookback(space: Space, facts: Mapping[str, Any]) -> bool:
    """Whether a space sets ``input_size``, tried on a trial of a separate study. True if it prunes every attempt."""
    from optuna import TrialPruned

    study = open_study(None, "lookback", {}, random_state=0)
    for _ in range(ASKED):
        try:
            settings = _comparable(space(study.ask(), facts))
        except TrialPruned:
            continue
        return not isinstance(settings, Mapping) or "input_size" in settings
    return True


def _comparable(settings: dict[str, Any]) -> dict[str, Any]:
    """Check that settings leave validation errors comparable.

    Raises:
        ValueError: they set ``h`` or ``loss``.
    """
    given = sorted({"h", "loss"} & set(settings)) if isinstance(settings, Mapping) else []
    if given:
        raise ValueError(
            f"space must not set {given}: validation errors of trials with different values cannot be compared. Run "
            "one study for each value, and compare the forecasters by score()."
        )
    return settings


def default_space(trial: "optuna.Trial", facts: Mapping[str, Any]) -> dict[str, Any]:
    """The default search space, adapted to the number of rows.

    Lookbacks are multiples of the horizon, or usual lengths, that leave a third of the rows for targets.
    """
    rows, h = facts["rows"], facts["h"]
    longest = max(2, 2 * (rows - h) // 3)
    lookbacks = sorted({n for n in (h, 2 * h, 4 * h, 96, 192, 336, 512) if 2 <= n <= longest}) or [longest]
    input_size = trial.suggest_categorical("input_size", lookbacks)
    patches = [p for p in (4, 8, 16, 24, 32) if p <= max(4, min(lookbacks) // 2)]
    settings = {
        "input_size": input_size,
        "patch_size": trial.suggest_categorical("patch_size", patches),
        "dim": trial.suggest_categorical("dim", [16, 32, 64]),
        "num_layers": trial.suggest_int("num_layers", 1, 3),
        "chunk_size": trial.suggest_categorical("chunk_size", [2, 4, 8]),
        "dropout": trial.suggest_float("dropout", 0.0, 0.6, step=0.1),
        "learning_rate": trial.suggest_float("learning_rate", 5e-4, 1e-2, log=True),
    }
    if facts["may_add_calendar"]:
        added = {kind: "auto" for kind in CYCLIC if trial.suggest_categorical(kind, [False, True])}
        settings["exogenous"] = added or None
    return settings
