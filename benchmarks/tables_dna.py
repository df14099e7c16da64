"""The tables of the genome benchmarks."""

import math
import statistics
from typing import Any

from dna_crossval import GIVEN, SETS, SPLITS, STRANDED
from dna_gue import ABLATED, MODELS, TASKS
from dna_pretraining import BATCH, STEPS, WEIGHTS
from dna_speed import FAR, LENGTHS
from records import RESULTS, read

# published scores of DNABERT-2 (117 M parameters), Zhou et al. 2024 (arXiv:2306.15006), and, for the tasks it reports,
# of VQDNA (103 M), Li et al. 2024 (arXiv:2405.10812)
DNABERT_2 = {"tf_0": 0.720, "tf_1": 0.761, "tf_2": 0.665, "tf_3": 0.585, "mouse_0": 0.568, "mouse_2": 0.793,
             "prom_core_all": 0.694, "prom_core_notata": 0.680, "prom_core_tata": 0.742,
             "prom_300_tata": 0.716}  # fmt: skip
VQDNA = {"tf_0": 0.725, "tf_1": 0.764, "tf_2": 0.669, "tf_3": 0.589, "prom_core_all": 0.710,
         "prom_core_notata": 0.706, "prom_core_tata": 0.785}  # fmt: skip
PUBLISHED = {"DNABERT-2": DNABERT_2, "VQDNA": VQDNA}
ERRORS = (
    "two standard errors of the difference, from the number of test sequences, as if the test sets were independent"
)
NAMES = {
    "kmers": "k-mer logistic regression",
    "cnn": "small CNN",
    "titans": "**TitansDNAClassifier**",
    ABLATED: "the same without k-mers",
}


def gue(place: Any) -> str:
    rows = read(RESULTS / "dna_gue.jsonl")
    lines = ["| Matthews correlation | " + " | ".join(TASKS) + " |", "|---|" + "---|" * len(TASKS)]
    for model in (*MODELS, ABLATED):
        own = {task: [r for r in rows if (r["model"], r["task"]) == (model, task)] for task in TASKS}
        scores = {task: [r["mcc"] for r in own[task]] for task in TASKS}
        clean = {task: [r["mcc_clean"] for r in own[task] if "mcc_clean" in r] for task in TASKS}
        for name, of in ((NAMES[model], scores), (f"{NAMES[model]}, clean subset", clean)):
            if any(of.values()):
                lines.append(f"| {name} | " + " | ".join(_of_seeds(of[task]) for task in TASKS) + " |")
    for name, published in PUBLISHED.items():
        cells = [f"{published[task]:.3f}" if task in published else "" for task in TASKS]
        lines.append(f"| {name}, published | " + " | ".join(cells) + " |")
    others = {"DNABERT-2": "DNABERT-2", "the k-mers": "kmers", "the CNN": "cnn", "the same without k-mers": ABLATED}
    leads = [f"{name} {_counts_text(_ahead(rows, other))}" for name, other in others.items()]
    lines += [
        "",
        "Official test sets; the number of seeds is in brackets if it is more than one. The clean subset has the test "
        "sequences that share no 40-mer with the training set, on either strand; earlier rows lack it. "
        f"{place(rows)}, 1 thread.",
        "",
        f"{_sizes(rows)} Its mean over seeds is higher than that of {'; '.join(leads)}. ({ERRORS.capitalize()}.)",
    ]
    return "\n".join(lines)


def gue_counts(place: Any) -> str:
    """A summary: on how many tasks the classifier is better or worse than each other model."""
    rows = read(RESULTS / "dna_gue.jsonl")
    lines = [
        "| `TitansDNAClassifier` against | tasks | better on | clearly better on | worse on | clearly worse on |",
        "|---|---|---|---|---|---|",
    ]
    for name in (*PUBLISHED, "kmers", "cnn", ABLATED):
        errors = _ahead(rows, name).values()
        leads, not_ahead = ([abs(e) for e in errors if (e > 0) == wanted] for wanted in (True, False))
        counts = (len(errors), *(n for part in (leads, not_ahead) for n in (len(part), sum(e > 2 for e in part))))
        lines.append(f"| {NAMES.get(name, f'{name}, published')} | {' | '.join(map(str, counts))} |")
    lines += [
        "",
        f"By Matthews correlation on the official test sets. {_sizes(rows)} Clearly: by more than {ERRORS}. "
        f"{place(rows)}, 1 thread.",
    ]
    return "\n".join(lines)


def _sizes(rows: list[dict[str, Any]]) -> str:
    size = max(r["parameters"] for r in rows if r["model"] == "titans")
    return f"The classifier has {size // 1000} thousand parameters, DNABERT-2 117 million, VQDNA 103 million."


def _ahead(rows: list[dict[str, Any]], other: str) -> dict[str, float]:
    """The classifier's lead in standard errors, on each task for which both models have a score."""
    ours, theirs = _means(rows, "titans"), PUBLISHED.get(other) or _means(rows, other)
    tests = {r["task"]: r["tests"] for r in rows}
    both = [task for task in TASKS if task in ours and task in theirs]
    # the correlation of balanced classes is twice the accuracy less one, with the variance (1 - m^2) / n
    error = {t: math.sqrt(((1 - ours[t] ** 2) + (1 - theirs[t] ** 2)) / tests[t]) for t in both}
    return {task: (ours[task] - theirs[task]) / error[task] for task in both}


def _means(rows: list[dict[str, Any]], model: str) -> dict[str, float]:
    own = [r for r in rows if r["model"] == model]
    return {task: statistics.mean(r["mcc"] for r in own if r["task"] == task) for task in {r["task"] for r in own}}


def _counts_text(leads: dict[str, float]) -> str:
    not_ahead = [task for task, errors in leads.items() if errors <= 0]
    clearly = sum(errors > 2 for errors in leads.values())
    text = f"on {len(leads) - len(not_ahead)} of {len(leads)} tasks, on {clearly} by more than two standard errors"
    return text + (f" (not on {', '.join(not_ahead)})" if not_ahead else "")


def _of_seeds(values: list[float]) -> str:
    return _mean(values) + (f" ({len(values)})" if len(values) > 1 else "")


def _mean(values: list[float], digits: int = 3) -> str:
    if not values:
        return "not yet"
    spread = f" ±{statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def pretraining(place: Any) -> str:
    rows = read(RESULTS / "dna_pretraining.jsonl")
    from_convolutions = [r for r in read(RESULTS / "dna_gue.jsonl") if r["model"] == "titans"]
    columns = [(weights, positions) for positions in (True, False) for weights in WEIGHTS]
    titles = [f"{weights}{'' if positions else ', without positions'}" for weights, positions in columns]
    lines = ["| Matthews correlation | " + " | ".join(titles) + " | the default classifier |", "|---|" + "---|" * 5]
    tasks = dict.fromkeys(r["task"] for r in rows)
    for task in tasks:
        of = [
            [r["mcc"] for r in rows if (r["task"], r["weights"], r.get("positions", False)) == (task, *column)]
            for column in columns
        ]
        of.append([r["mcc"] for r in from_convolutions if r["task"] == task])
        lines.append(f"| {task} | " + " | ".join(map(_of_seeds, of)) + " |")
    lines += [
        "",
        f"Pretrained: {STEPS:,} batches of {BATCH} training sequences of the task, predicting the next base; fresh: "
        f"random weights. About {rows[-1]['parameters'] // 1000} thousand parameters. The default classifier has "
        "convolutions instead of a language model. The number of seeds is in brackets if it is more than one. "
        f"{place([*rows, *(r for r in from_convolutions if r['task'] in tasks)])}, 1 thread.",
    ]
    return "\n".join(lines)


def table4(place: Any) -> str:
    rows = read(RESULTS / "dna_table4_generated.jsonl")
    lines = [
        "| shape of | training bases | reading the FASTA | audit | one epoch, about | peak memory |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['set']} | {row['training_bases'] / 1e6:.0f} M | {row['seconds_to_read']:.0f} s | "
            f"{row['seconds_to_audit']:.0f} s | {row['seconds_per_epoch'] / 60:.0f} min | {row['peak_mib']:,} MiB |"
        )
    lines += [
        "",
        f"The FASTA is as long as the human genome. The time of an epoch is extrapolated from "
        f"{rows[-1]['trained_on']:,} sequences. "
        f"{place(rows)}, 1 thread.",
    ]
    return "\n".join(lines)


def crossval(place: Any) -> str:
    rows = read(RESULTS / "dna_crossval.jsonl")
    lines = ["| balanced accuracy, folds | random split | grouped by 40-mers |", "|---|---|---|"]
    for name in SETS:
        for model in (*MODELS, *(GIVEN if name in STRANDED else ())):
            of = [
                [r["balanced_accuracy"] for r in rows if (r["set"], r["model"], r["split"]) == (name, model, split)]
                for split in SPLITS
            ]
            label = NAMES[GIVEN.get(model, model)].replace("**", "`") + (", the given strand" if model in GIVEN else "")
            if not any(of):
                lines.append(f"| {name}: {label} | not yet | not yet |")
            else:
                lines.append(f"| {name}: {label} ({len(of[0])}, {len(of[1])}) | " + " | ".join(map(_mean, of)) + " |")
    return "\n".join([*lines, "", f"Number of folds in brackets; chance is 0.5. {place(rows)}, 1 thread."])


def speed(place: Any) -> str:
    rows = read(RESULTS / "dna_speed.jsonl")
    found = {row["what"]: row for row in rows}
    columns = [("training", f"training, windows of {n:,}", n) for n in LENGTHS]
    columns += [("streaming", f"streaming, after {n:,}", n) for n in (0, FAR)]
    lines = ["| bases/s | " + " | ".join(title for _, title, _ in columns) + " |", "|---|" + "---|" * len(columns)]
    models = list(found["training"]["parameters"])
    for model in models:
        numbers = [found[what].get(f"{model}_{n}") for what, _, n in columns]
        lines.append(f"| {model} | " + " | ".join("" if n is None else f"{n:,}" for n in numbers) + " |")
    sizes = sorted(found["training"]["parameters"].values())
    lines += ["", f"{sizes[0]:,} to {sizes[-1]:,} parameters; {place(rows)}, 1 thread."]
    return "\n".join(lines)


def language(place: Any) -> str:
    rows = read(RESULTS / "dna_language.jsonl")
    lines = [
        "| held out | model | bits per base | mixed with Markov models | genes or intergenic, AUC |",
        "|---|---|---|---|---|",
    ]
    markov = [r for r in rows if r["model"] == "markov"]
    learned = [r for r in rows if r["model"] != "markov"]
    for genome in dict.fromkeys(r["genome"] for r in rows):
        for row in (r for r in markov if r["genome"] == genome):
            for kind, title in (("additive", "order"), ("interpolated", "interpolated to order")):
                bits = min(row["orders"][kind])
                best = row["orders"][kind].index(bits)
                lines.append(f"| {genome} | Markov, {title} {best} | {bits:.4f} | | |")
            lines.append(f"| {genome} | Markov models mixed | | {row['mixed']:.4f} | |")
            if "probe_kmers" in row:
                lines.append(f"| {genome} | k-mer counts | | | {row['probe_kmers']:.3f} |")
        of = [r for r in learned if r["genome"] == genome]
        for model in dict.fromkeys(r["model"] for r in of):
            own = [r for r in of if r["model"] == model]
            probe = ""
            if "probe_vectors" in own[0]:
                last, every = (_mean([r[n] for r in own if n in r]) for n in ("probe_vectors", "probe_vectors_all"))
                probe = f"{last}, all layers {every}"
            bits, mixed = (_mean([r[name] for r in own if name in r], 4) for name in ("bits_per_base", "mixed"))
            lines.append(f"| {genome} | {model} ({len(own)}) | {bits} | {mixed} | {probe} |")
    first = learned[0]
    lines += [
        "",
        f"{first['steps']:,} steps of {first['batch']} x {first['length']:,} bases, about {first['parameters']:,} "
        "parameters; the number of seeds is in brackets. The order of a Markov model is that with the fewest bits on "
        f"the held-out sequence, which favours it. {place(rows)}, 1 thread.",
    ]
    return "\n".join(lines)


TABLES = {
    "dna-language": language,
    "dna-speed": speed,
    "gue": gue,
    "pretraining": pretraining,
    "table4": table4,
    "crossval": crossval,
}
