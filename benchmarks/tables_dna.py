"""The README's tables of genomes, from their result files."""

import statistics
from typing import Any

from dna_crossval import SETS, SPLITS
from dna_gue import ABLATED, MODELS, TASKS
from dna_speed import FAR, LENGTHS
from records import RESULTS, read

# published for DNABERT-2 (117 M parameters), Zhou et al. 2024 (arXiv:2306.15006)
DNABERT_2 = {"tf_0": 0.720, "tf_1": 0.761, "tf_2": 0.665, "tf_3": 0.585, "mouse_0": 0.568, "mouse_2": 0.793,
             "prom_core_all": 0.694, "prom_core_notata": 0.680, "prom_core_tata": 0.742,
             "prom_300_tata": 0.716}  # fmt: skip
NAMES = {
    "kmers": "k-mer logistic regression",
    "cnn": "small CNN",
    "titans": "**TitansDNAClassifier**",
    ABLATED: "the same without k-mers",
}


def gue(place: Any) -> str:
    rows = read(RESULTS / "dna_gue.jsonl")
    lines = ["| Matthews correlation | " + " | ".join(TASKS) + " |", "|---|" + "---|" * len(TASKS)]
    found: dict[str, dict[str, float]] = {"DNABERT-2": DNABERT_2}
    for model in (*MODELS, ABLATED):
        of = {task: [r["mcc"] for r in rows if (r["model"], r["task"]) == (model, task)] for task in TASKS}
        lines.append(f"| {NAMES[model]} | " + " | ".join(_mean(of[task]) for task in TASKS) + " |")
        found[model] = {task: statistics.mean(values) for task, values in of.items() if values}
    lines.append("| DNABERT-2, published | " + " | ".join(f"{DNABERT_2[task]:.3f}" for task in TASKS) + " |")
    seeds = max(r["seed"] for r in rows) + 1
    lines += ["", f"Official test sets; {seeds} {'seed' if seeds == 1 else 'seeds'} at most. {place(rows)}, 1 thread."]
    size = [r["parameters"] for r in rows if r["model"] == "titans"]
    lines += [
        "",
        f"The classifier has {max(size) // 1000} thousand parameters, DNABERT-2 117 million. It is ahead of DNABERT-2 "
        f"{_ahead(found, 'DNABERT-2')}, of the k-mers {_ahead(found, 'kmers')}, of the CNN {_ahead(found, 'cnn')}, of "
        f"itself without k-mers {_ahead(found, ABLATED)}.",
    ]
    return "\n".join(lines)


def _ahead(found: dict[str, dict[str, float]], other: str) -> str:
    behind = [task for task, mcc in found["titans"].items() if mcc <= found[other][task]]
    ahead = f"on {len(found['titans']) - len(behind)} of {len(found['titans'])} tasks"
    return ahead + (f" (not on {', '.join(behind)})" if behind else "")


def _mean(values: list[float], digits: int = 3) -> str:
    if not values:
        return "not yet"
    spread = f" ±{statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def table4(place: Any) -> str:
    rows = read(RESULTS / "dna_table4_generated.jsonl")
    lines = [
        "| of the shape of | training bases | read from a FASTA of 3.2 GB | audited | an epoch, about | peak memory |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['set']} | {row['training_bases'] / 1e6:.0f} M | {row['seconds_to_read']:.0f} s | "
            f"{row['seconds_to_audit']:.0f} s | {row['seconds_per_epoch'] / 60:.0f} min | {row['peak_mib']:,} MiB |"
        )
    lines += ["", f"An epoch is reckoned from one on {rows[-1]['trained_on']:,} sequences. {place(rows)}, 1 thread."]
    return "\n".join(lines)


def crossval(place: Any) -> str:
    rows = read(RESULTS / "dna_crossval.jsonl")
    lines = ["| balanced accuracy, folds | random split | grouped by 40-mers |", "|---|---|---|"]
    for name in SETS:
        for model in MODELS:
            of = [
                [r["balanced_accuracy"] for r in rows if (r["set"], r["model"], r["split"]) == (name, model, split)]
                for split in SPLITS
            ]
            if any(of):
                label = NAMES[model].replace("**", "`")
                lines.append(f"| {name}: {label} ({len(of[0])}, {len(of[1])}) | " + " | ".join(map(_mean, of)) + " |")
    return "\n".join([*lines, "", f"Of five folds; {place(rows)}, 1 thread."])


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
    lines += ["", f"{found['training']['parameters'][models[0]]:,} parameters; {place(rows)}, 1 thread."]
    return "\n".join(lines)


def language(place: Any) -> str:
    rows = read(RESULTS / "dna_language.jsonl")
    lines = [
        "| held out | model | bits per base | mixed with Markov models | genes told from what lies between, AUC |",
        "|---|---|---|---|---|",
    ]
    for genome in dict.fromkeys(r["genome"] for r in rows):
        of = [r for r in rows if r["genome"] == genome]
        probe = f"{of[0]['probe_kmers']:.3f} (counts of k-mers)" if "probe_kmers" in of[0] else ""
        mixed = _mean([r["markov_mixed"] for r in of if "markov_mixed" in r][:1], 4)
        lines.append(f"| {genome} | Markov, {of[0]['markov_is']} | {of[0]['markov']:.4f} | {mixed} | {probe} |")
        for model in dict.fromkeys(r["model"] for r in of):
            own = [r for r in of if r["model"] == model]
            probe = ""
            if "probe_kmers" in of[0]:
                names = ("probe_vectors", "probe_vectors_all")
                last, every = (_mean([r[name] for r in own if name in r]) for name in names)
                probe = f"{last}, of all layers {every}"
            bits, mixed = (_mean([r[name] for r in own if name in r], 4) for name in ("bits_per_base", "mixed"))
            lines.append(f"| {genome} | {model} ({len(own)}) | {bits} | {mixed} | {probe} |")
    first = rows[0]
    lines += [
        "",
        f"{first['steps']:,} steps of {first['batch']} x {first['length']:,} bases, some {first['parameters']:,} "
        f"parameters; in brackets the number of seeds. {place(rows)}, 1 thread.",
    ]
    return "\n".join(lines)


TABLES = {"dna-language": language, "dna-speed": speed, "gue": gue, "table4": table4, "crossval": crossval}
