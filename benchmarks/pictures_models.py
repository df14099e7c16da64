"""Plots of the models' scores, from the same rows as the tables."""

import statistics

import matplotlib.pyplot as plt
from dna_gue import TASKS
from forecast_search import SETS
from lm_models import NAMES
from records import RESULTS, read
from table3_peers import SCRIPTS
from tables_dna import DNABERT_2, VQDNA
from tables_lm import HAYSTACKS, NEEDLES
from tables_ts import PUBLISHED, errors_of_seeds, standing

OURS, PEERS, MARKED = "tab:red", "tab:blue", "tab:gray"


def lm_stream() -> plt.Figure | None:
    """Resident memory and time per token while two million tokens are read."""
    rows = read(RESULTS / "lm_stream.jsonl")
    if not rows:
        return None
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
    for row in rows:
        tokens, resident, microseconds, _ = zip(*row["points"], strict=True)
        axes[0].plot([t / 1e6 for t in tokens], resident, label=row["model"])
        axes[1].plot([t / 1e6 for t in tokens], microseconds, label=row["model"])
    axes[0].set(title="resident memory, MiB", xlabel="million tokens read", ylim=(0, None))
    axes[1].set(title="µs per token", xlabel="million tokens read", ylim=(0, None))
    axes[0].legend(loc="lower right")
    return figure


def lm_niah() -> plt.Figure | None:
    """Exact answers by length of the haystack, one panel per kind of needle."""
    rows = read(RESULTS / "lm_niah.jsonl")
    if not rows:
        return None
    figure, axes = plt.subplots(1, len(NEEDLES), figsize=(11, 3.6), sharey=True, layout="constrained")
    for axis, (task, title) in zip(axes, NEEDLES.items(), strict=True):
        for name in NAMES:
            found = [r for r in rows if r["model"] == name]
            if found:
                means = [100 * statistics.mean(r[f"{task}_{length}"] for r in found) for length in HAYSTACKS]
                axis.plot(HAYSTACKS, means, "o-" if name.startswith("lmm") else "s--", label=name)
        axis.set(title=title, xlabel="tokens", xscale="log")
        axis.set_xticks(HAYSTACKS, list(map(str, HAYSTACKS)))
        axis.minorticks_off()
    axes[0].set_ylabel("exact answers, %")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize="small")
    return figure


def forecast_table3() -> plt.Figure | None:
    """Both errors of each set at lookback 96, with published ones; lower left is better."""
    rows = standing()
    found = {
        (model, name): errors_of_seeds([r for r in rows if (r["model"], r["dataset"]) == (model, name)])
        for model in ("titans", "ensemble", *SCRIPTS)
        for name in SETS
    }
    if not any(found["titans", name]["mse"] for name in SETS):
        return None
    figure, axes = plt.subplots(1, len(SETS), figsize=(13, 3.4), layout="constrained")
    for place, (axis, name) in enumerate(zip(axes, SETS, strict=True)):
        for model, means in PUBLISHED.items():
            mse, mae = map(float, means[place].split("/"))
            marked = model[-1] in "¹²³"
            label = "published, with a reservation (¹ ² ³)" if marked else "published"
            axis.scatter(mse, mae, 30, MARKED if marked else PEERS, marker="x" if marked else "o", label=label)
        for model in SCRIPTS:
            errors = found[model, name]
            axis.scatter(errors["mse"], errors["mae"], 30, "none", edgecolors=PEERS, label="peers, run here")
        errors = found["ensemble", name]
        axis.scatter(errors["mse"], errors["mae"], 60, OURS, marker="P", label="TitansEnsemble, of two")
        errors = found["titans", name]
        axis.scatter(errors["mse"], errors["mae"], 90, OURS, marker="*", label="TitansForecaster, each seed")
        axis.set(title=name, xlabel="MSE")
    axes[0].set_ylabel("MAE")
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), fontsize="small")
    return figure


def gue() -> plt.Figure | None:
    """Matthews correlation on the tasks of GUE: each seed of the models run here, and published scores."""
    rows = read(RESULTS / "dna_gue.jsonl")
    if not rows:
        return None
    figure, axis = plt.subplots(figsize=(10, 3.8), layout="constrained")
    scores = {
        model: [(r["task"], r["mcc"]) for r in rows if r["model"] == model] for model in ("kmers", "cnn", "titans")
    }
    series = (
        ("k-mer logistic regression", scores["kmers"], "o", "tab:olive", 30),
        ("small CNN", scores["cnn"], "o", "tab:gray", 30),
        ("TitansDNAClassifier, 128 k parameters, each seed", scores["titans"], "*", OURS, 90),
        ("DNABERT-2, 117 M, published", list(DNABERT_2.items()), "D", PEERS, 30),
        ("VQDNA, 103 M, published", list(VQDNA.items()), "s", "tab:purple", 30),
    )
    for i, (label, found, marker, color, size) in enumerate(series):
        places = [TASKS.index(task) + (i - 2) / 10 for task, _ in found]
        axis.scatter(places, [score for _, score in found], size, color, marker=marker, label=label, zorder=3)
    axis.set_xticks(range(len(TASKS)), [task.replace("_", " ", 1).replace("_", "\n") for task in TASKS])
    axis.grid(axis="y", alpha=0.3)
    axis.set_ylabel("Matthews correlation")
    figure.legend(loc="outside lower center", ncols=3, fontsize="small")
    return figure
