"""Pictures of an Optuna study: its trials in order, and the importance of each setting."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import optuna


def plot_history(study: "optuna.Study") -> Any:
    """Losses of the trials in order: a matplotlib Figure."""
    from optuna.trial import TrialState

    from titans_core.train.picture import Picture

    figure = Picture(figsize=(8, 3.5), layout="constrained")
    axes = figure.subplots()
    done = [t for t in study.trials if t.state == TrialState.COMPLETE and t.value is not None]
    pruned = [t for t in study.trials if t.state == TrialState.PRUNED and t.intermediate_values]
    values = [t.value for t in done if t.value is not None]
    axes.scatter([t.number for t in done], values, color="#c4432b", s=18, label="finished")
    last = [t.intermediate_values[max(t.intermediate_values)] for t in pruned]
    axes.scatter([t.number for t in pruned], last, color="0.7", s=14, marker="x", label="pruned")
    best = [min(values[: i + 1]) for i in range(len(values))]
    axes.step([t.number for t in done], best, where="post", color="0.35", linewidth=1.2, label="best so far")
    axes.set_xlabel("trial")
    axes.locator_params(axis="x", integer=True)
    axes.set_ylabel("validation loss")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def plot_importance(study: "optuna.Study") -> Any:
    """Importance of each setting (fANOVA, Hutter et al. 2014): a matplotlib Figure.

    Raises:
        ValueError: if fewer than two trials have finished.
    """
    from optuna.importance import get_param_importances
    from optuna.trial import TrialState

    from titans_core.train.picture import Picture

    done = [t for t in study.trials if t.state == TrialState.COMPLETE]
    if len(done) < 2:
        raise ValueError(f"importance needs at least two finished trials, but the study has {len(done)}: run more.")
    importance = get_param_importances(study)
    names = list(importance)[::-1]
    figure = Picture(figsize=(7, 1 + 0.35 * len(names)), layout="constrained")
    axes = figure.subplots()
    axes.barh(names, [importance[n] for n in names], color="#c4432b")
    axes.set_xlabel("share of the differences in validation loss")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
