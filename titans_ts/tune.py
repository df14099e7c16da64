"""A search for settings by Optuna: ``tune(df)`` returns a fitted forecaster.

    forecaster = tune(df, h=24, n_trials=50, storage="study.journal")   # killed and called again, it goes on
    plot_history(forecaster.study_), plot_importance(forecaster.study_)

Several processes, or machines with a common disk, share one study by naming one storage that ends in ".journal" (or the
URL of a database server). Past that: Ray Tune by :class:`titans_ts.nixtla.AutoTitans`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sklearn.base import clone

from titans_core.checks import at_least
from titans_core.train import digest
from titans_core.train.tune import Callback, best_of, open_study, plot_history, plot_importance, report_to
from titans_ts.exogenous import CYCLIC
from titans_ts.forecaster import TitansForecaster
from titans_ts.panel import Panel, beyond
from titans_ts.training import train
from titans_ts.training_rows import needs_all, older, warn_of_young

if TYPE_CHECKING:
    import optuna

__all__ = ["default_space", "plot_history", "plot_importance", "tune"]

SHORTEST = 2  # rows of the shortest lookback that is searched
ASKED = 16  # times that a space which prunes its trials is asked for settings, at most
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
    storage: str | Path | None = None,
    study_name: str = "titans_ts",
    random_state: int | None = None,
    verbose: int = 1,
    sampler: "optuna.samplers.BaseSampler | None" = None,
    callbacks: Sequence[Callback] = (),
) -> TitansForecaster:
    """Search settings by the validation error, and fit the best.

    Args:
        df: as in :meth:`~titans_ts.TitansForecaster.fit`.
        forecaster: what is not searched is taken from it; it stays as it is.
        h: horizon, in place of that of ``forecaster``.
        n_trials: finished trials of the study in all, whichever process made them.
        timeout: seconds after which no trial begins.
        space: ``(trial, facts) -> settings``, without ``h`` and ``loss``, by which the error is measured; default
            :func:`default_space`. ``facts`` has ``rows`` (of the shortest series, before the validation rows; one
            without rows to train on is left out, with a warning), ``h`` and ``may_add_calendar``. It is asked
            before the first trial, whether it chooses ``input_size``: if not, that of ``forecaster`` says what is left
            out.
        val_size: rows at the end that trials are judged by; default: a fifth, less where too few would be left to train
            on, at least ``h``.
        static_df: as in ``fit``.
        storage: None, a path to an SQLite file, a path ending in ".journal", or a URL. A study that is there goes on.
        study_name: of the study in the storage.
        random_state: seed of the search and of each trial; None: trials have that of ``forecaster``.
        verbose: 0 is silent, 1 shows a bar over trials, 2 also those of each training.
        sampler: what proposes settings, with a seed of its own; default: Optuna's TPE by ``random_state``.
        callbacks: of Optuna: each is called with the study and every trial that ends.

    Returns:
        A fitted forecaster with the settings of the best trial; ``study_`` is the study.

    Raises:
        ValueError: a bad frame; no trial finished; or a study of other data in the storage, or of another space that
            asked for the same settings by other choices, such as an earlier :func:`default_space`.
    """
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
            raise ValueError(f"val_size={val_size}: trials are judged by at least h={base.h} rows.")
    judged = _Judged.of(whole, base, val_size, SHORTEST)
    searched = space or default_space
    if space and not _sets_lookback(space, judged.facts(base)):  # each trial has that of the forecaster
        judged = _Judged.of(whole, base, val_size, base.input_size)
    panel, val_size, facts = judged.panel, judged.val_size, judged.facts(base)
    if young := beyond(whole.ids, panel.ids):
        warn_of_young(young, then="No trial learns from them or is judged by them.")
    fixed = {k: str(v) for k, v in base.get_params().items() if k not in ("verbose", "device", "random_state")}
    data = digest(whole.values, whole.hist, whole.futr, whole.stat)
    identity = {"data": data, "time": str(whole.clock()), "val_size": str(val_size), **fixed}
    default = None if space else lambda trial: default_space(trial, facts)
    study = open_study(storage, study_name, identity, random_state, sampler, default)

    def judge(model: TitansForecaster, trial: "optuna.Trial") -> float:
        given, columns = model._given(df, static_df)
        if young:
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
    """What trials are judged on.

    Attributes:
        panel: the series that have rows to train on, and no further than they go.
        val_size: rows at the end that trials are judged by.
        rows: how many the shortest series has before these.
    """

    panel: Panel
    val_size: int
    rows: int

    @classmethod
    def of(cls, whole: Panel, base: TitansForecaster, val_size: int | None, lookback: int) -> "_Judged":
        """``val_size`` is a fifth by default, or as much as leaves enough to train on, at least ``h``."""
        h, least = base.h, lookback + base.h

        def border(rows: int) -> int:
            return rows - (max(h, min(rows // 5, rows - least)) if val_size is None else val_size)

        panel = whole if needs_all(whole, base) else older(whole, least, border)
        rows = len(panel.values)
        trained = int((border(rows) - panel.first_rows).min())
        if trained < least:
            kept_back = rows - border(rows)
            raise ValueError(
                f"df has {rows} rows, the shortest series {trained + kept_back}: with val_size={kept_back} it has "
                f"{max(0, trained)} to train on, but {lookback} of a lookback and h={h} are needed. Give more rows, "
                f"or lower {'h' if lookback == SHORTEST else 'input_size or h'}."
            )
        return cls(panel, rows - border(rows), trained)

    def facts(self, base: TitansForecaster) -> dict[str, Any]:
        """What a space is told."""
        may = not isinstance(self.panel.freq, int) and base.exogenous is None
        return {"rows": self.rows, "h": base.h, "may_add_calendar": may}


def _sets_lookback(space: Space, facts: Mapping[str, Any]) -> bool:
    """Whether a space chooses the lookback, by what it says to a trial that is none of the study. One that prunes what
    does not go together is asked again; where it prunes all, it may choose it."""
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
    """Settings whose validation errors can be compared.

    Raises:
        ValueError: among them are those that the error is measured by.
    """
    given = sorted({"h", "loss"} & set(settings)) if isinstance(settings, Mapping) else []
    if given:
        raise ValueError(
            f"space must not set {given}: trials are compared by the validation error, which is another for each. Run "
            "a study for each, and compare the forecasters by score()."
        )
    return settings


def default_space(trial: "optuna.Trial", facts: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that matter, within what the rows allow.

    Lookbacks are multiples of the horizon or the usual ones, as long as a third of the rows remains for targets.
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
